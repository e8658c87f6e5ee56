"""What holds under every scheduler, whatever the shape of the graph."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from headrace._runtime import is_compiled
from tests.harness import (
    App,
    MakeScheduler,
    Step,
    run,
    sink,
    source,
    through,
)
from tests.harness.recursion import at_most_deeper

pytestmark = pytest.mark.turns()  # every test under every scheduler


def chain(app: App, length: int, taken: list[int]) -> None:
    last = source(app, range(2))
    for n in range(length):
        stage = through(app, name=f"stage{n}")
        app.add_flow(last, stage)
        last = stage
    app.add_flow(last, sink(app, taken))


def test_a_chain_longer_than_the_recursion_limit_runs(scheduler: MakeScheduler) -> None:
    taken: list[int] = []
    with at_most_deeper(250) as limit:
        run(lambda app: chain(app, limit + 50, taken), scheduler)
    assert taken == [0, 1]


@pytest.mark.skipif(is_compiled(), reason="calls between compiled functions are not seen")
def test_a_run_of_four_times_as_many_operators_makes_four_times_as_many_calls() -> None:
    def calls_of(length: int) -> int:
        calls = 0

        def count(frame: object, event: str, argument: object) -> None:
            nonlocal calls
            calls += 1

        sys.setprofile(count)
        try:
            run(lambda app: chain(app, length, []))
        finally:
            sys.setprofile(None)
        return calls

    calls_of(30)  # imports
    assert calls_of(120) < 4.2 * calls_of(30)


def test_a_cycle_and_an_operator_beside_it_run_equally_often() -> None:
    def compose(app: App) -> None:
        def turn(op: Step, i: Any, o: Any) -> None:
            o.emit(i.receive())
            if op.ticks == 1_000:
                op.fragment.stop_execution()

        loop = Step(app, inputs=["in"], outputs=["out"], body=turn, name="loop")
        back = through(app, name="back")
        app.add_flow(source(app, [0], name="seed"), loop, back, loop)
        app.add_operator(Step(app, name="other"))

    app = run(compose)
    assert app.graph.find("other").ticks >= 990  # type: ignore[attr-defined]
