"""ExpiringMessageAvailableCondition: a batch is taken when it is full or old enough."""

from __future__ import annotations

from typing import Any

import pytest

from headrace import ConditionType, CountCondition, IOSpec, PeriodicCondition
from headrace.conditions import (
    ExpiringMessageAvailableCondition,
)
from tests.harness import App, MakeScheduler, Step, run, source


@pytest.mark.parametrize("stamped", [True, False])
def test_a_batch_runs_when_it_is_full_or_when_its_first_message_is_old_enough(
    scheduler: MakeScheduler, stamped: bool
) -> None:
    taken: list[Any] = []

    def compose(app: App) -> None:
        def send(op: Step, i: Any, o: Any) -> None:
            o.emit(op.ticks, "out", acq_timestamp=op.fragment.now if stamped else -1)

        a = Step(
            app, PeriodicCondition(app, 30), CountCondition(app, 4), outputs=["out"], body=send, name="a"
        )
        expiring = ExpiringMessageAvailableCondition(app, 3, 50, receiver="in")
        b = Step(
            app,
            expiring,
            inputs=[("in", {"size": 4})],
            body=lambda op, i, o: taken.append((op.fragment.now, i.receive())),
            name="b",
        )
        app.add_flow(a, b)

    run(compose, scheduler)
    assert taken == [(50, (1, 2)), (110, (3, 4))]


def expiring_join(app: App, taken: list[Any], *sources: Step, delay: int = 50, **flow: Any) -> None:
    def setup(spec: Any) -> None:
        spec.input("all", size=IOSpec.ANY_SIZE).condition(
            ConditionType.EXPIRING_MESSAGE_AVAILABLE, max_batch_size=3, max_delay_ns=delay
        )

    join = Step(
        app, setup=setup, body=lambda op, i, o: taken.append((op.fragment.now, i.receive())), name="join"
    )
    for each in sources:
        app.add_flow(each, join, **flow)


def test_the_age_of_a_connection_is_not_reset_by_messages_of_another(scheduler: MakeScheduler) -> None:
    taken: list[Any] = []

    def compose(app: App) -> None:
        slow = source(app, ["slow"], name="slow")
        fast = source(app, range(2), PeriodicCondition(app, 20), name="fast")
        expiring_join(app, taken, slow, fast, size=4)

    run(compose, scheduler)
    assert taken[0] == (20, ("slow", 0))  # three wait: the batch is complete
    assert taken[1] == (70, (1,))


@pytest.mark.parametrize("is_observed", [False, True])
@pytest.mark.parametrize("again", ["another", "message"])
def test_a_message_that_arrives_during_a_compute_has_its_own_age(
    scheduler: MakeScheduler, again: str, is_observed: bool
) -> None:
    """Also if it is the object that this compute has received."""
    taken: list[Any] = []

    def compose(app: App) -> None:
        clock = app.scheduler().clock

        def body(op: Step, i: Any, o: Any) -> None:
            taken.append((app.now, i.receive("in")))
            if op.ticks == 1:
                clock.sleep_for(20)
                o.emit(again, "out")
                clock.sleep_for(40)

        expiring = ExpiringMessageAvailableCondition(app, 3, 50, receiver="in")
        b = Step(app, expiring, inputs=[("in", {"size": 3})], outputs=["out"], body=body, name="b")
        app.add_flow(source(app, ["message"]), b, b)

    app = App(compose, scheduler)
    if is_observed:
        app.track()
    app.run()
    assert taken == [(50, ("message",)), (120, (again,))]  # it arrived at 70
