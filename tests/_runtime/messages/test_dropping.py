"""Queues that drop hold nobody back, and every message that is dropped is counted."""

from __future__ import annotations

from typing import Any

import pytest

from headrace import ConditionType, CountCondition, IOSpec, PeriodicCondition
from headrace.conditions import DownstreamMessageAffordableCondition
from tests.harness import App, MakeScheduler, Step, run, sink, source

POP, REJECT, FAULT = IOSpec.QueuePolicy.POP, IOSpec.QueuePolicy.REJECT, IOSpec.QueuePolicy.FAULT


def branches(app: App, counts: dict[str, int], slow_input: Any, **flow: Any) -> None:
    """A source every 10 ns with a fast branch and one that takes 100 ns for each message."""

    def slow(op: Step, i: Any, o: Any) -> None:
        i.receive()
        counts["slow"] = op.ticks

    camera = source(app, range(20), PeriodicCondition(app, 10), name="camera")
    viewer = Step(app, PeriodicCondition(app, 100), inputs=[slow_input], body=slow, name="viewer")
    fast: list[Any] = []

    def take(op: Step, i: Any, o: Any) -> None:
        fast.append((op.fragment.now, i.receive()))
        counts["fast"], counts["end"] = len(fast), fast[-1][0]

    app.add_flow(camera, Step(app, inputs=["in"], body=take, name="fast"))
    app.add_flow(camera, viewer, **flow)


@pytest.mark.parametrize("policy", [POP, REJECT])
@pytest.mark.parametrize("said", ["input", "flow"])
def test_a_slow_branch_that_drops_does_not_hold_its_producer_back(
    scheduler: MakeScheduler, policy: Any, said: str
) -> None:
    counts: dict[str, int] = {}

    def compose(app: App) -> None:
        if said == "input":
            branches(app, counts, ("in", {"policy": policy}))
        else:
            branches(app, counts, "in", policy=policy)

    app = run(compose, scheduler)
    assert (counts["fast"], counts["end"]) == (20, 190)
    assert counts["slow"] + app.dropped()["viewer.in"] + app.undelivered().get("viewer.in", 0) == 20
    assert app.dropped().keys() == {"viewer.in"}


@pytest.mark.parametrize("policy", [None, FAULT])
def test_a_slow_branch_that_does_not_drop_holds_its_producer_back(
    scheduler: MakeScheduler, policy: Any
) -> None:
    counts: dict[str, int] = {}
    app = run(lambda app: branches(app, counts, ("in", {"policy": policy})), scheduler)
    assert (counts["fast"], counts["slow"]) == (20, 20)
    assert counts["end"] > 1000
    assert app.dropped() == {}


@pytest.mark.parametrize("how", ["given", "on the port"])
def test_a_producer_that_asks_for_room_waits_for_a_queue_that_drops(
    scheduler: MakeScheduler, how: str
) -> None:
    taken: list[Any] = []

    def compose(app: App) -> None:
        room = [DownstreamMessageAffordableCondition(app, transmitter="out")] if how == "given" else []

        def setup(spec: Any) -> None:
            out = spec.output("out")
            if how == "on the port":
                out.condition(ConditionType.DOWNSTREAM_MESSAGE_AFFORDABLE, min_size=1)

        a = Step(
            app, *room, CountCondition(app, 5), setup=setup, body=lambda op, i, o: o.emit(op.ticks), name="a"
        )
        b = sink(app, taken, PeriodicCondition(app, 100))
        app.add_flow(a, b, policy=POP)

    app = run(compose, scheduler)
    assert taken == [1, 2, 3, 4, 5]
    assert app.dropped() == {}


def test_an_output_of_which_any_condition_will_do_counts_as_free_where_its_queue_drops(
    scheduler: MakeScheduler,
) -> None:
    def compose(app: App) -> None:
        def setup(spec: Any) -> None:
            spec.input("in")
            spec.output("out")
            spec.or_combine_port_conditions(["in", "out"])

        middle = Step(
            app, CountCondition(app, 4), setup=setup, body=lambda op, i, o: o.emit(op.ticks), name="middle"
        )
        app.add_flow(source(app, []), middle)
        app.add_flow(middle, Step(app, CountCondition(app, 0), inputs=["in"]), policy=REJECT)

    app = run(compose, scheduler)
    assert app.graph.find("middle").ticks == 4  # type: ignore[attr-defined]
