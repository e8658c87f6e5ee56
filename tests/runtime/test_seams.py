"""What layers above the pipeline build on: hooks around compute and emit, gates, and the end of a run."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from pipelines import SCHEDULERS, App, Body, Make, run, sink, source

from penstock import CountCondition
from penstock.core import Condition, SchedulingStatusType
from penstock.runtime.message import Message

every_scheduler = pytest.mark.parametrize("make", SCHEDULERS)


class Hooked(Body):
    """Puts hooks on its node when it starts, which is before anything runs."""

    def __init__(self, fragment: Any, *args: Any, log: list[Any], **kwargs: Any) -> None:
        self.log = log
        super().__init__(fragment, *args, **kwargs)

    def start(self) -> None:
        node = self._node
        assert node is not None
        node.after.append(lambda node: self.log.append(f"after {node.name} {self.ticks}"))
        node.engine.at_end.append(lambda: self.log.append("end"))
        node.output.stamps = (self._stamp,)

    def _stamp(self, message: Message, port: str) -> None:
        message.stream = f"stream of {port}"

    def stop(self) -> None:
        self.log.append("stop")


@every_scheduler
def test_hooks_run_after_each_compute_and_once_at_the_end(make: Make) -> None:
    log: list[Any] = []
    run(lambda app: app.add_operator(Hooked(app, CountCondition(app, 2), log=log, name="a")), make)
    assert log == ["after a 1", "after a 2", "stop", "end"]


@every_scheduler
def test_the_end_comes_after_a_failure_too(make: Make) -> None:
    log: list[Any] = []

    def fail(op: Body, i: Any, o: Any) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(lambda app: app.add_operator(Hooked(app, log=log, body=fail, name="a")), make)
    assert log == ["stop", "end"]


@every_scheduler
def test_a_message_carries_what_a_layer_puts_on_it(make: Make) -> None:
    seen: list[Any] = []

    def take(op: Body, i: Any, o: Any) -> None:
        data = i.receive("in")
        seen.append((data, [message.stream for message in i.notes["in"]]))

    def compose(app: App) -> None:
        a = Hooked(
            app,
            CountCondition(app, 2),
            log=[],
            outputs=["out"],
            body=lambda op, i, o: o.emit(op.ticks, "out"),
        )
        app.add_flow(a, Body(app, inputs=["in"], body=take, name="b"))

    run(compose, make)
    assert seen == [(1, ["stream of out"]), (2, ["stream of out"])]


def test_the_contexts_are_made_once_and_reused() -> None:
    seen: set[tuple[int, int, int]] = set()

    class Looks(Body):
        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            seen.add((id(op_input), id(op_output), id(context)))

    run(lambda app: app.add_operator(Looks(app, CountCondition(app, 5))))
    assert len(seen) == 1


@every_scheduler
def test_a_gate_holds_an_operator_until_it_is_announced_open(make: Make) -> None:
    """The bound on unfinished work: closed after each compute, opened from outside, no thread blocked."""

    class Gate(Condition):
        polled = False
        closed = False

        def check(self, timestamp: int) -> Any:
            waits = SchedulingStatusType.WAIT_EVENT if self.closed else SchedulingStatusType.READY
            return waits, None

        def on_execute(self, timestamp: int) -> None:
            self.closed = True
            threads.append(threading.Thread(target=self.open))
            threads[-1].start()

        def open(self) -> None:
            self.closed = False
            self.notify_scheduler()

    threads: list[threading.Thread] = []
    taken: list[int] = []
    run(lambda app: app.add_flow(source(app, range(10)), sink(app, taken, Gate(app))), make)
    for thread in threads:
        thread.join()
    assert taken == list(range(10))
