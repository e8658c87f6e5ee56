"""ThreadPool: operators that keep to threads of their own, pinned to cores if asked."""

from __future__ import annotations

import os
import threading
from typing import Any

import pytest

from headrace import CountCondition
from headrace.schedulers import EventBasedScheduler
from tests.harness import (
    App,
    MakeScheduler,
    Step,
    event_based,
    run,
    sink,
    source,
    threaded,
    through,
)


@threaded
def test_an_operator_in_a_pool_keeps_to_its_own_thread(scheduler: MakeScheduler) -> None:
    threads: dict[str, set[str]] = {"mine": set(), "other": set(), "shared1": set(), "shared2": set()}

    def compose(app: App) -> None:
        def body(op: Step, i: Any, o: Any) -> None:
            threads[op.name].add(threading.current_thread().name)

        made = {name: Step(app, CountCondition(app, 20), body=body, name=name) for name in threads}
        for operator in made.values():
            app.add_operator(operator)
        pool = app.make_thread_pool("pool", 2)
        pool.add(made["mine"], pin_operator=True)
        pool.add([made["shared1"], made["shared2"]], pin_operator=False)
        assert pool.operators == [made["mine"], made["shared1"], made["shared2"]]

    run(compose, scheduler)
    assert len(threads["mine"]) == 1
    assert not threads["mine"] & (threads["other"] | threads["shared1"] | threads["shared2"])
    assert not threads["other"] & (threads["shared1"] | threads["shared2"])


@threaded
def test_messages_cross_between_pools(scheduler: MakeScheduler) -> None:
    taken: list[int] = []

    def compose(app: App) -> None:
        a, b, c = source(app, range(50)), through(app, name="b"), sink(app, taken)
        app.add_flow(a, b, c)
        app.make_thread_pool("first").add(a)
        app.make_thread_pool("last").add([b], pin_operator=False)

    run(compose, scheduler)
    assert taken == list(range(50))


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="threads cannot be pinned here")
def test_threads_are_pinned_to_cores() -> None:
    core = min(os.sched_getaffinity(0))
    seen: dict[str, set[int]] = {}

    def compose(app: App) -> None:
        def body(op: Step, i: Any, o: Any) -> None:
            seen[op.name] = os.sched_getaffinity(0)

        pinned = Step(app, CountCondition(app, 1), body=body, name="pinned")
        plain = Step(app, CountCondition(app, 1), body=body, name="plain")
        app.make_thread_pool("pool").add(pinned, True, [core])
        app.add_operator(pinned)
        app.add_operator(plain)

    run(compose, lambda app: EventBasedScheduler(app, worker_thread_number=1, pin_cores=[core]))
    assert seen == {"pinned": {core}, "plain": {core}}
    assert os.sched_getaffinity(0) >= {core}


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="threads cannot be pinned here")
def test_a_core_that_is_not_there_is_told_with_those_that_are() -> None:
    with pytest.raises(OSError) as caught:
        run(
            lambda app: app.add_operator(Step(app, CountCondition(app, 1))),
            lambda app: EventBasedScheduler(app, pin_cores=[4095]),
        )
    assert "cannot pin a worker thread to cores [4095]" in caught.value.__notes__[0]


def test_a_pool_refuses_what_it_cannot_run() -> None:
    app = App(lambda app: None)
    operator = Step(app, name="a")
    pool = app.make_thread_pool("pool")
    pool.add(operator)
    with pytest.raises(ValueError, match="operator 'a' is in thread pool 'pool' already"):
        app.make_thread_pool("other").add(operator)

    def compose(app: App) -> None:
        app.add_operator(Step(app, CountCondition(app, 1), name="b"))
        app.make_thread_pool("pool").add(lost)

    app = App(compose, event_based)
    lost = Step(app, name="lost")
    with pytest.raises(ValueError, match="holds operator 'lost', which is not part"):
        app.run()
