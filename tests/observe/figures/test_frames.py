"""Every frame of a goal has one fate, whatever happens to it; the counts add up to what was sent."""

from __future__ import annotations

from typing import Any

import pytest

from headrace import retry
from headrace.conditions import CountCondition, PeriodicCondition
from headrace.core.error_policy import dead_letter, skip
from headrace.core.errors import GraphError
from headrace.observe.figures.frames import FrameTable
from tests.harness.application import App, greedy
from tests.harness.operators import Step, through
from tests.observe.figures.test_statistics import MS, chain, takes

FATES = ("arrived", "late", "failed", "dropped", "lost", "outstanding")


def judged(compose: Any, path: str, **bounds: Any) -> Any:
    app = App(compose, greedy)
    goal = app.expect(path, **bounds)
    app.run()
    assert sum(getattr(goal, fate) for fate in FATES) == goal.sent
    (outcome,) = app.outcome.goals.values()
    assert all(getattr(outcome, fate) == getattr(goal, fate) for fate in ("sent", "is_met", *FATES))
    return goal


def counts(goal: Any) -> dict[str, int]:
    return {fate: getattr(goal, fate) for fate in FATES if getattr(goal, fate)}


def source(app: Any, count: int, period: str = "10ms", name: str = "source", **options: Any) -> Step:
    def body(self: Any, op_input: Any, op_output: Any) -> None:
        op_output.emit(self.ticks, "out", acq_timestamp=app.now)

    return Step(
        app,
        CountCondition(app, count),
        PeriodicCondition(app, period),
        outputs=["out"],
        body=body,
        name=name,
        **options,
    )


def refuses(numbers: set[int], attempts: int = 99) -> Any:
    """Return a body that fails for some messages, so many times each, and passes the others on."""
    failures: dict[int, int] = {}

    def body(self: Any, op_input: Any, op_output: Any) -> None:
        value = op_input.receive("in")
        failures[value] = failures.get(value, 0) + 1
        if value in numbers and failures[value] <= attempts:
            raise ValueError(value)
        if self.spec.outputs:
            op_output.emit(value, "out")

    return body


@pytest.mark.parametrize("times", [0, 2])
def test_dead_letters_fail_and_the_main_path_is_seen(times: int) -> None:
    def compose(app: Any) -> None:
        policy = skip() | dead_letter("bad")
        if times:
            policy = retry(times=times) | policy
        middle = Step(app, inputs=["in"], outputs=["out"], body=refuses({3}), name="middle", on_error=policy)
        app.add_flow(source(app, 5), middle, size=5)
        app.add_flow(middle, Step(app, inputs=["in"], body=takes(1), name="sink"), {("out", "in")})
        app.add_flow(middle, Step(app, inputs=["in"], body=takes(1), name="bin"), {("bad", "in")})

    app = App(compose, greedy)
    goal, letters = app.expect("source->sink", max="5ms"), app.expect("source->bin", max="5ms")
    tracker = app.track()
    app.run()
    assert (counts(goal), goal.is_met) == ({"arrived": 4, "failed": 1}, False)
    # A dead letter has the origin of its frame, and arrives; the other frames did not go there.
    assert (counts(letters), letters.figure("max"), letters.is_met) == (
        {"arrived": 1, "dropped": 4},
        1 * MS,
        True,
    )
    assert {path.name: path.count for path in tracker.statistics.paths} == {
        "source,middle,sink": 4,
        "source,middle,bin": 1,
    }


def test_frames_whose_graph_changes_are_still_of_the_goal() -> None:
    def compose(app: Any) -> None:
        def body(self: Any, op_input: Any, op_output: Any) -> None:
            op_input.receive("in")
            if self.ticks == 5:
                app.remove_flow(first, last)
                middle = through(app, name="middle")
                app.add_flow(first, middle)
                app.add_flow(middle, last)

        first = source(app, 10)
        last = Step(app, inputs=["in"], body=body, name="sink")
        app.add_flow(first, last)

    goal = judged(compose, "source->sink", max="5ms")
    assert counts(goal) == {"arrived": 10}


def test_an_error_that_ends_the_run_fails_its_frame() -> None:
    def compose(app: Any) -> None:
        sink = Step(app, inputs=["in"], body=refuses({3}), name="sink")
        app.add_flow(source(app, 5), sink)

    app = App(compose, greedy)
    goal = app.expect("source->sink", max="5ms")
    with pytest.raises(ValueError, match="3"):
        app.run()
    assert (goal.arrived, goal.failed, goal.is_met) == (2, 1, False)


def test_a_goal_that_could_not_be_counted_to_the_end_is_not_called_met(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*given: Any) -> None:
        raise RuntimeError("a defect")

    app = App(chain(1, 2), greedy)
    goal = app.expect("a->b", max="1s")
    monkeypatch.setattr(FrameTable, "drop", fail)
    app.run()
    assert goal.is_met is True, "it is not needed here"
    monkeypatch.setattr(FrameTable, "_receive", fail)
    app.run()
    assert goal.is_met is None
    assert "not watched to the end" in str(goal)


# Periods.


def ticks(app: Any, late: dict[int, int], count: int = 10, policy: str = "CATCH_UP_MISSED_TICKS") -> Step:
    """Return an operator that ticks every 10 ms; before some of them, another one keeps the worker for so long."""

    def body(self: Any, op_input: Any, op_output: Any) -> None:
        app.scheduler().clock.sleep_for(late.get(self.ticks, 0) * MS)

    tick = Step(
        app,
        CountCondition(app, count),
        PeriodicCondition(app, "10ms", policy),
        body=body,
        name="tick",
    )
    app.add_operator(tick)
    return tick


@pytest.mark.parametrize(
    ("policy", "fates", "worst", "late_ticks"),
    [
        # The third takes 25 ms: the fourth begins 15 ms after it was due, the fifth 5 ms.
        ("CATCH_UP_MISSED_TICKS", {"arrived": 8, "late": 2}, 15, 1),
        # The fourth begins 15 ms after it was due, and one is skipped.
        ("NO_CATCH_UP_MISSED_TICKS", {"arrived": 9, "late": 1, "lost": 1}, 15, 1),
    ],
)
def test_ticks_that_begin_too_late_miss_their_goal(
    policy: str, fates: dict[str, int], worst: int, late_ticks: int
) -> None:
    app = App(lambda app: ticks(app, {3: 25}, 10, policy), greedy)
    goal = app.expect("tick", period="10ms", jitter="1ms")
    tracker = app.track()
    app.run()
    assert (counts(goal), goal.is_met) == (fates, False)
    assert goal.figure("jitter") == worst * MS
    assert goal.recent[0].number == 4
    figures = tracker.statistics.operator("tick")
    assert (figures.latest, figures.late_ticks) == (worst * MS, late_ticks)
    assert figures.skipped_ticks == fates.get("lost", 0)
    assert "latest tick by" in str(tracker.statistics)
    assert f"tick: NOT met; jitter {worst}.000 ms (at most 1); {fates['late']} of" in str(goal)


@pytest.mark.parametrize(
    ("path", "given", "text"),
    [
        ("a->b", {"period": "1ms", "jitter": "1us"}, "is about the ticks of one operator"),
        ("a", {"period": "1ms"}, "needs jitter= alone"),
        ("a->b", {"max": "1ms", "jitter": "1us"}, "jitter= goes with period="),
        ("a", {"period": 0, "jitter": "1us"}, "period must be more than 0"),
    ],
)
def test_a_period_that_makes_no_sense_is_refused(path: str, given: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        App(chain(1, 2)).expect(path, **given)


@pytest.mark.parametrize(
    ("name", "text"), [("a", "has a period of 10 ms"), ("b", "has no PeriodicCondition")]
)
def test_a_period_of_an_operator_that_has_another_one_is_an_error(name: str, text: str) -> None:
    app = App(chain(1, 2))
    app.expect(name, period="1ms", jitter="1us")
    with pytest.raises(GraphError, match=text):
        app.run()


def test_a_compute_knows_when_it_was_due() -> None:
    seen: list[tuple[int | None, int]] = []

    def compose(app: Any) -> None:
        def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            seen.append((context.due, context.timestamp))
            app.scheduler().clock.sleep_for(25 * MS if self.ticks == 2 else 0)

        app.add_operator(
            Step(app, CountCondition(app, 4), PeriodicCondition(app, "10ms"), body=body, name="tick")
        )

    App(compose, greedy).run()
    assert seen == [(None, 0), (10 * MS, 10 * MS), (20 * MS, 35 * MS), (30 * MS, 35 * MS)]
