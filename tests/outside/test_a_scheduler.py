"""A scheduler that is written outside of headrace, with public names only."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from headrace import Application, op
from headrace.core import ExecutionContext, InputContext, Operator, OperatorSpec, OutputContext
from headrace.resources import ManualClock
from headrace.schedulers import Run, Scheduler


class PriorityScheduler(Scheduler):
    """Runs, of all operators that are ready, the one with the highest `priority` first, on one thread."""

    def execute(self, run: Run) -> None:
        with run.worker() as worker:
            while True:
                ready = []
                while (node := worker.take()) is not None:
                    ready.append(node)
                for node in sorted(ready, key=lambda node: -getattr(node.operator, "priority", 0)):
                    worker.run(node)
                if not ready and not worker.wait():
                    return


class CrewScheduler(Scheduler):
    """Runs operators on a fixed crew of threads."""

    def __init__(self, fragment: Any = None, crew: int = 3, **kwargs: Any) -> None:
        super().__init__(fragment, **kwargs)
        self.crew = crew

    @property
    def workers(self) -> int:
        return self.crew

    def execute(self, run: Run) -> None:
        workers = [run.worker() for _ in range(self.crew)]
        errors: list[BaseException] = []

        def work(worker: Any) -> None:
            try:
                with worker:
                    while True:
                        node = worker.take()
                        if node is not None:
                            worker.run(node)
                        elif not worker.wait():
                            return
            except BaseException as error:
                errors.append(error)
                run.request_stop()

        threads = [threading.Thread(target=work, args=(worker,)) for worker in workers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]


class Tell(Operator):
    """Notes its name when it runs."""

    def __init__(self, fragment: Any, order: list[str], priority: int, *args: Any, **kwargs: Any) -> None:
        self.order, self.priority = order, priority
        super().__init__(fragment, *args, **kwargs)

    def setup(self, spec: OperatorSpec) -> None:
        spec.input("in")

    def compute(self, op_input: InputContext, op_output: OutputContext, context: ExecutionContext) -> None:
        op_input.receive("in")
        self.order.append(self.name)


@op
def numbers(*, count: int = 3) -> Iterator[int]:
    yield from range(count)


@op
def double(number: int) -> int:
    return 2 * number


class Sums(Application):
    """Numbers through two branches to a sink."""

    def __init__(self, make: type[Scheduler], count: int = 100, **options: Any) -> None:
        super().__init__([])
        self.count, self.taken = count, []  # type: ignore[var-annotated]
        self.scheduler(make(self, **options))

    def compose(self) -> None:
        @op(outputs=())
        def take(left: int, right: int) -> None:
            self.taken.append((left, right))

        source, sink = numbers(self, count=self.count), take(self)
        for side in ("left", "right"):
            branch = double(self, name=side)
            self.add_flow(source, branch)
            self.add_flow(branch, sink, {("out", side)})


@pytest.mark.parametrize("crew", [1, 2, 3, 5])
def test_a_crew_of_any_size_gives_the_same_messages(crew: int) -> None:
    app = Sums(CrewScheduler, crew=crew)
    app.run()
    assert app.taken == [(2 * number, 2 * number) for number in range(100)]


def test_the_order_is_the_schedulers_own() -> None:
    order: list[str] = []

    class Ranked(Application):
        def compose(self) -> None:
            source = numbers(self, count=2)
            for priority, name in enumerate(["low", "middle", "high"]):
                self.add_flow(source, Tell(self, order, priority, name=name))

    app = Ranked([])
    app.scheduler(PriorityScheduler(app))
    app.run()
    assert order == ["high", "middle", "low"] * 2


@pytest.mark.parametrize("make", [PriorityScheduler, CrewScheduler])
def test_an_exception_of_an_operator_ends_the_run_with_its_name(make: type[Scheduler]) -> None:
    @op(outputs=())
    def fail(number: int) -> None:
        raise ZeroDivisionError("on purpose")

    class Failing(Application):
        def compose(self) -> None:
            self.add_flow(numbers(self), fail(self))

    app = Failing([])
    app.scheduler(make(app))
    with pytest.raises(ZeroDivisionError, match="on purpose") as raised:
        app.run()
    assert "'fail'" in raised.value.__notes__[0]


@pytest.mark.parametrize("make", [PriorityScheduler, CrewScheduler])
def test_times_and_pauses_work_as_with_every_scheduler(make: type[Scheduler]) -> None:
    from headrace import CountCondition, PeriodicCondition

    times: list[int] = []

    class Ticking(Application):
        def compose(self) -> None:
            self.add_operator(Tick(self, PeriodicCondition(self, "1s"), CountCondition(self, 3)))

    class Tick(Operator):
        def compute(self, op_input: Any, op_output: Any, context: ExecutionContext) -> None:
            times.append(context.timestamp)

    app = Ticking([])
    app.scheduler(make(app, clock=ManualClock(app)))
    app.pause()  # without a run it does nothing
    app.run()
    assert times == [0, 1_000_000_000, 2_000_000_000]
