"""The default scheduler: one thread, or several where a queue drops."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from headrace import Application, CountCondition, IOSpec, PeriodicCondition
from headrace.gpu import sim
from headrace.resources import ManualClock
from headrace.schedulers import DefaultScheduler
from tests.harness import App, Step, run, sink, source, through

POP, REJECT = IOSpec.QueuePolicy.POP, IOSpec.QueuePolicy.REJECT
LIMIT = 60  # seconds after which a test that would never end fails


def default(app: Application, **settings: Any) -> DefaultScheduler:
    """Return the scheduler of an application that sets none, in real time."""
    return DefaultScheduler(app, **settings)


@pytest.mark.parametrize("policy", [POP, REJECT])
def test_a_consumer_that_blocks_does_not_slow_down_the_producer_of_a_queue_that_drops(policy: Any) -> None:
    """The consumer blocks in its first compute until the producer has sent everything."""
    showing, done = threading.Event(), threading.Event()

    def compose(app: App) -> None:
        def emit(op: Step, i: Any, o: Any) -> None:
            o.emit(op.ticks, "out")
            if op.ticks == 2:
                assert showing.wait(LIMIT)
            if op.ticks == 100:
                done.set()

        pace = PeriodicCondition(app, 1)
        camera = Step(app, pace, CountCondition(app, 100), outputs=["out"], body=emit, name="camera")

        def show(op: Step, i: Any, o: Any) -> None:
            i.receive("in")
            showing.set()
            assert done.wait(LIMIT)

        app.add_flow(camera, Step(app, inputs=["in"], body=show, name="show"), policy=policy)

    app = run(compose, default)
    assert app.dropped() == {"show.in": 98}


def test_a_program_without_a_queue_that_drops_runs_on_the_thread_that_called_run() -> None:
    threads: set[int] = set()
    taken: list[int] = []

    def compose(app: App) -> None:
        def note(value: int) -> int:
            threads.add(threading.get_ident())
            return value

        middle = through(app, name="middle", change=note)
        app.add_flow(source(app, range(5)), middle, sink(app, taken))

    app = run(compose, default)
    assert taken == list(range(5))
    assert threads == {threading.get_ident()}
    assert app.scheduler().workers == 0


@pytest.mark.parametrize("virtual", ["manual", "machine"])
def test_in_virtual_time_one_thread_runs_all_so_that_every_run_is_the_same(virtual: str) -> None:
    def compose(app: App) -> None:
        app.add_flow(source(app, range(3)), sink(app, []), policy=POP)

    with sim.Machine():
        app = run(compose, default, **({"clock": ManualClock()} if virtual == "manual" else {}))
        assert app.scheduler().workers == 0


def test_there_are_as_many_workers_as_operators_up_to_a_bound() -> None:
    def many(count: int) -> int:
        def compose(app: App) -> None:
            first = source(app, [1])
            for number in range(count - 1):
                app.add_flow(first, sink(app, [], name=f"sink_{number}"), policy=POP)

        return run(compose, default).scheduler().workers

    assert (many(2), many(5), many(40)) == (2, 5, 32)


def test_the_environment_chooses_workers_by_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of operators, which the default scheduler would use, says nothing about them."""
    monkeypatch.setenv("HEADRACE_SCHEDULER", "event")
    monkeypatch.setattr("headrace.schedulers._cores", lambda: 3)
    counts: list[int] = []

    def compose(app: App) -> None:
        def note(op: Step, i: Any, o: Any) -> None:
            i.receive("in")
            assert op._headrace.node is not None
            counts.append(op._headrace.node.engine.scheduler.workers)

        app.add_flow(source(app, [1]), Step(app, inputs=["in"], body=note), policy=POP)

    run(compose, default)
    assert counts == [3]
