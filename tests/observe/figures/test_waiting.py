"""What each operator waited for between its computes: a message, its clock, the GPU, memory, a worker."""

from __future__ import annotations

import re
from typing import Any

import pytest

from headrace.conditions import (
    CountCondition,
    MemoryAvailableCondition,
    PeriodicCondition,
)
from headrace.observe import Dashboard, Statistics
from headrace.resources import BlockMemoryPool
from tests.harness.application import App, greedy
from tests.harness.operators import Step
from tests.observe.figures.test_statistics import MS, takes, tracked

COUNT = 20  # computes, of whose first nobody knows what it waited for


def waiting_of(statistics: Statistics, name: str) -> dict[str, float]:
    operator = statistics.operator(name)
    return {"computes": operator.busy, **operator.waiting}


def test_a_clock_messages_and_the_only_worker_are_told_apart() -> None:
    """Of each 10 ms the source computes 1 and both others 3, one after the other on one worker."""

    def compose(app: Any) -> None:
        clock = PeriodicCondition(app, 10 * MS)
        source = Step(app, CountCondition(app, COUNT), clock, outputs=["out"], body=takes(1), name="source")
        for name in ("second", "first"):
            app.add_flow(source, Step(app, inputs=["in"], body=takes(3), name=name))

    statistics = tracked(compose)
    near = {"abs": 0.01 + 1 / COUNT}
    assert waiting_of(statistics, "source") == pytest.approx({"computes": 0.1, "clock": 0.9}, **near)
    assert waiting_of(statistics, "first") == pytest.approx({"computes": 0.3, "message": 0.7}, **near)
    second = waiting_of(statistics, "second")
    assert second == pytest.approx({"computes": 0.3, "message": 0.4, "worker": 0.3}, **near)
    assert re.search(r"second +30% +\d+% +0% +\d+%\n", str(statistics))
    text = statistics.to_prometheus()
    assert 'headrace_operator_waiting_ratio{application="App",for="worker",operator="second"} 0.2' in text


def test_room_behind_an_operator_is_told_from_a_worker() -> None:
    """The last one takes a message every 10 ms, when its clock ticks; each before it computes for 1 ms then."""

    def compose(app: Any) -> None:
        source = Step(app, CountCondition(app, COUNT), outputs=["out"], body=takes(1), name="source")
        between = Step(app, inputs=["in"], outputs=["out"], body=takes(1), name="between")
        app.add_flow(source, between)
        clock = PeriodicCondition(app, 10 * MS)
        app.add_flow(between, Step(app, clock, inputs=["in"], body=takes(0), name="slow"))

    statistics = tracked(compose)
    source, between = waiting_of(statistics, "source"), waiting_of(statistics, "between")
    # Of each 10 ms 8 for room; the source waits 1 for the worker, the next for its message. At last there is room.
    waited = (COUNT - 3) / (10 * COUNT - 8)
    assert (source["room"], source["worker"]) == pytest.approx((8 * waited, waited), abs=0.02)
    assert (between["room"], between["message"]) == pytest.approx((8 * waited, waited), abs=0.05)
    assert source.keys() == {"computes", "room", "worker"}


def test_memory_and_what_else_may_hold_an_operator_are_bounds_by_name() -> None:
    """The keeper has the only block for 6 ms, and the maker waits for it."""

    def compose(app: Any) -> None:
        pool = BlockMemoryPool(app, storage_type="host", block_size=8, num_blocks=1, name="pool")

        def make(self: Step, op_input: Any, op_output: Any, context: Any) -> None:
            op_output.emit(pool.allocate_tensor(8, "uint8"), "out")

        def keep(self: Step, op_input: Any, op_output: Any) -> None:
            kept = op_input.receive("in")
            app.scheduler().clock.sleep_for(6 * MS)
            del kept

        needs = MemoryAvailableCondition(app, pool, min_blocks=1)
        maker = Step(app, needs, CountCondition(app, COUNT), outputs=["out"], body=make, name="maker")
        app.add_flow(maker, Step(app, inputs=["in"], body=keep, name="keeper"))

    statistics = tracked(compose)
    assert waiting_of(statistics, "maker")["memory"] == pytest.approx(1, abs=0.1)
    assert statistics.operator("maker").waiting.keys() == {"memory"}


def test_the_page_is_told_the_waiting_of_its_window() -> None:
    told: list[Any] = []

    class Told(Dashboard):
        def end(self, outcome: Any) -> None:
            told.append(self._page.figures())
            super().end(outcome)

    def compose(app: Any) -> None:
        # 5 ms of each 10 at first, and 2 of each 10 in the last five seconds.
        def work(self: Step, op_input: Any, op_output: Any) -> None:
            app.scheduler().clock.sleep_for((5 if self.ticks <= 500 else 2) * MS)

        app.add_operator(
            Step(app, CountCondition(app, 1001), PeriodicCondition(app, 10 * MS), body=work, name="it")
        )

    app = App(compose, greedy)
    Told(app, announce=lambda url: None)
    app.run()
    ((it,),) = (figures["operators"] for figures in told)
    assert (it["busy"], it["waiting"]) == (0.2, {"clock": 0.8})
    assert (it["waits"], it["interpreter"]) == (None, None), "simulated time says nothing of the processor"
