"""What an operator waits for: counted once, and no longer than it waits."""

from __future__ import annotations

from typing import Any

from headrace import Condition, CountCondition, SchedulingStatusType
from headrace.conditions import (
    AsynchronousCondition,
    AsynchronousEventState,
    PeriodicCondition,
)
from headrace.core import EndedBy
from tests.harness import App, MakeScheduler, Step, run, sink

READY = SchedulingStatusType.READY
WAITING, DONE = AsynchronousEventState.EVENT_WAITING, AsynchronousEventState.EVENT_DONE


def ended(app: Any, name: str = "ended") -> Step:
    """Return a consumer that has ended before it began."""
    return sink(app, [], CountCondition(app, 0), name=name)


def losing_its_room(app: Any, steps: int = 0) -> None:
    """Compose an operator that loses its room to another between its event and its turn; step then, if asked to."""
    event = AsynchronousCondition(app)
    event.event_state = WAITING

    def occur(op: Step, i: Any, o: Any) -> None:
        if op.ticks == 2:
            event.event_state = DONE
            if steps:
                app.step(steps)

    def take_the_room(op: Step, i: Any, o: Any) -> None:
        if op.ticks == 2:
            o.emit("faster")
            if steps:
                app.resume()

    end = ended(app)
    app.add_operator(Step(app, CountCondition(app, 2), body=occur, name="occurs"))
    app.add_flow(Step(app, CountCondition(app, 2), outputs=["out"], body=take_the_room, name="faster"), end)
    app.add_flow(Step(app, event, outputs=["out"], body=lambda op, i, o: o.emit("late"), name="late"), end)


def test_an_operator_whose_event_occurred_and_whose_room_was_taken_waits_for_no_event(
    scheduler: MakeScheduler,
) -> None:
    app = run(losing_its_room, scheduler)  # which would not end
    assert app.outcome.ended_by is EndedBy.FINISHED


def test_a_time_that_an_operator_cannot_use_does_not_prolong_the_run(scheduler: MakeScheduler) -> None:
    """Its next tick is an hour away, and there is no room behind it any more."""

    def compose(app: App) -> None:
        end = ended(app)
        ticks = Step(
            app,
            PeriodicCondition(app, 3600.0),
            outputs=["out"],
            body=lambda op, i, o: o.emit(op.ticks),
        )
        app.add_flow(ticks, end)

    assert run(compose, scheduler).now == 0


# Announcements inside a check.


class Scripted(Condition):
    """A condition that answers with a function."""

    def __init__(self, fragment: Any, answer: Any, **kwargs: Any) -> None:
        self.answer = answer
        super().__init__(fragment, **kwargs)

    def check(self, timestamp: int) -> Any:
        return self.answer(self), None


def test_an_operator_that_is_stopped_in_a_check_of_its_condition_computes_no_more(
    scheduler: MakeScheduler,
) -> None:
    steps: list[Step] = []

    def compose(app: App) -> None:
        def stop(condition: Scripted) -> SchedulingStatusType:
            if steps[0].ticks == 3:
                steps[0].stop_execution()
            return READY

        steps[:] = [Step(app, Scripted(app, stop), CountCondition(app, 500), name="stopped")]
        app.add_operator(steps[0])

    run(compose, scheduler)
    assert steps[0].ticks == 3
