"""Conditions that a program defines by subclassing Condition."""

from __future__ import annotations

import math
import threading
from typing import Any

import pytest

from headrace import CountCondition, IOSpec
from headrace.conditions import (
    OrConditionCombiner,
)
from headrace.core import Condition, SchedulingStatusType
from tests.harness import PATIENCE, App, MakeScheduler, Step, run, sink, source, through, wait_until

READY, WAIT, NEVER = SchedulingStatusType.READY, SchedulingStatusType.WAIT, SchedulingStatusType.NEVER


WAIT_TIME, WAIT_EVENT = SchedulingStatusType.WAIT_TIME, SchedulingStatusType.WAIT_EVENT


class Scripted(Condition):
    """A condition that answers with a function, and notes when it was told that compute ran."""

    def __init__(self, fragment: Any, answer: Any, **kwargs: Any) -> None:
        self.answer = answer
        self.executed: list[int] = []
        super().__init__(fragment, **kwargs)

    def check(self, timestamp: int) -> Any:
        return self.answer(self, timestamp)

    def on_execute(self, timestamp: int) -> None:
        self.executed.append(timestamp)


def test_a_users_condition_waits_until_the_time_it_names(scheduler: MakeScheduler) -> None:
    times: list[int] = []

    def compose(app: App) -> None:
        def every_seventy(condition: Scripted, timestamp: int) -> Any:
            due = 50 + 70 * len(condition.executed)
            return (READY, due) if timestamp >= due else (WAIT_TIME, due)

        app.add_operator(
            Step(
                app,
                Scripted(app, every_seventy),
                CountCondition(app, 3),
                body=lambda op, i, o: times.append(op.fragment.now),
            )
        )

    run(compose, scheduler)
    assert times == [50, 120, 190]


def test_a_users_condition_is_woken_by_notify_scheduler_from_any_thread(scheduler: MakeScheduler) -> None:
    asked = threading.Event()
    ticks: list[int] = []

    def compose(app: App) -> None:
        done: list[bool] = []

        def waits(condition: Scripted, timestamp: int) -> Any:
            asked.set()
            return (READY if done else WAIT_EVENT), None

        condition = Scripted(app, waits)

        def announce() -> None:
            assert asked.wait(PATIENCE)
            done.append(True)
            assert condition.notify_scheduler()

        threading.Thread(target=announce).start()
        app.add_operator(Step(app, condition, CountCondition(app, 1), body=lambda op, i, o: ticks.append(1)))

    run(compose, scheduler)
    assert ticks == [1]


def test_an_event_that_a_condition_waits_for_after_compute_is_not_a_deadlock(
    scheduler: MakeScheduler,
) -> None:
    """The operator has no message to go on with, and its condition began to wait without telling anyone."""
    conditions: list[Any] = []

    class Settles(Condition):
        waiting = False

        def check(self, timestamp: int) -> Any:
            return (WAIT_EVENT if self.waiting else READY), None

        def on_execute(self, timestamp: int) -> None:
            self.waiting = True

    def compose(app: App) -> None:
        conditions[:] = [Settles(app)]
        settles, idle = sink(app, [], conditions[0]), through(app, name="idle")
        app.add_flow(source(app, [1]), settles)
        app.add_flow(idle, settles)  # so that the input of `settles` has not ended
        app.add_flow(idle, idle)

    app = App(compose, scheduler)
    future = app.run_async()
    wait_until(
        lambda: (
            conditions
            and conditions[0].waiting
            and app._headrace.engine
            and app._headrace.engine.ready_queues[0].parked
        ),
        "a wait for the event",
    )
    assert not future.done(), "a deadlock was declared while an event was outstanding"
    conditions[0].waiting = False
    assert conditions[0].notify_scheduler()
    future.result(timeout=PATIENCE)


@pytest.mark.parametrize("other", [(WAIT_TIME, 3_600_000_000_000), (WAIT_EVENT, None)], ids=["time", "event"])
def test_a_term_that_says_wait_is_polled_while_another_waits_for_a_time_or_an_event(
    other: Any, scheduler: MakeScheduler
) -> None:
    """Nothing announces this change, and nothing else runs."""
    asked: list[int] = []

    def compose(app: App) -> None:
        def third_time(condition: Scripted, timestamp: int) -> Any:
            asked.append(timestamp)
            return (READY if len(asked) > 2 else WAIT), None

        terms = [Scripted(app, third_time, name="mine"), Scripted(app, lambda c, t: other, name="other")]
        combiners = [OrConditionCombiner(app, terms=terms)]
        app.add_operator(Step(app, *combiners, CountCondition(app, 1), name="a"))

    app = App(compose, scheduler, check_recession_period_ms=1)
    app.run_async().result(timeout=PATIENCE)
    assert app.graph.find("a").ticks == 1  # type: ignore[attr-defined]
    assert asked[-1] < 3_600_000_000_000


def test_an_exception_in_a_check_comes_out_with_the_condition_and_the_operator_named(
    scheduler: MakeScheduler,
) -> None:
    def broken(condition: Scripted, timestamp: int) -> Any:
        raise ZeroDivisionError

    def compose(app: App) -> None:
        others = [Scripted(app, lambda c, t: (READY, None), name=name) for name in ("first", "last")]
        conditions = [others[0], Scripted(app, broken, name="broken"), others[1]]
        app.add_operator(Step(app, *conditions, name="bad"))

    with pytest.raises(ZeroDivisionError) as caught:
        run(compose, scheduler)
    assert caught.value.__notes__ == [
        "raised by condition 'broken' (Scripted) of operator 'bad', in its check"
    ]


@pytest.mark.parametrize("time", ["soon", math.nan, math.inf, True])
def test_a_time_to_wait_for_that_is_none_is_refused(time: Any) -> None:
    with pytest.raises(TypeError, match=f"must return WAIT_TIME with a time in nanoseconds, .* not {time!r}"):
        run(lambda app: app.add_operator(Step(app, Scripted(app, lambda c, t: (WAIT_TIME, time)))))


@pytest.mark.parametrize("answer", [None, SchedulingStatusType.READY, ("READY", None), "READY", (1, 2, 3)])
def test_an_answer_that_is_none_is_told_with_what_would_be_one(answer: Any) -> None:
    class Wrong(Condition):
        def check(self, timestamp: int) -> Any:
            return answer

    with pytest.raises(
        TypeError, match=r"check of condition 'wrong' \(Wrong\) must return a SchedulingStatus"
    ) as told:
        run(lambda app: app.add_operator(Step(app, Wrong(app), name="body")))
    assert "raised by condition 'wrong' (Wrong) of operator 'body', in its check" in told.value.__notes__


class FailsIn(Condition):
    """Raises in one of its methods."""

    polled = False

    def __init__(self, fragment: Any, method: str) -> None:
        self.method = method
        super().__init__(fragment, name="fails")

    def _fail_in(self, method: str) -> None:
        if method == self.method:
            raise ZeroDivisionError("on purpose")

    def initialize(self) -> None:
        self._fail_in("initialize")

    def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
        return SchedulingStatusType.READY, None

    def on_execute(self, timestamp: int) -> None:
        self._fail_in("on_execute")

    def on_resume(self, timestamp: int) -> None:
        self._fail_in("on_resume")


@pytest.mark.usefixtures("no_device_yet")
def test_a_users_condition_can_look_through_the_queues_of_an_input() -> None:
    seen: list[Any] = []

    class Looks(Condition):
        def check(self, timestamp: int) -> Any:
            receiver = self.receiver("in")
            seen.append((receiver.size, receiver.capacity, *map(receiver.peek, range(3))))
            return (READY if receiver.size == 2 else WAIT), None

    def compose(app: App) -> None:
        ports = [("in", {"size": IOSpec.ANY_SIZE})]
        last = Step(app, Looks(app), inputs=ports, body=lambda op, i, o: i.receive("in"), name="last")
        for value in "xy":
            app.add_flow(source(app, [value], name=value), last)

    run(compose)
    assert (2, 2, "x", "y", None) in seen


@pytest.mark.parametrize("method", ["initialize", "on_execute", "on_resume"])
def test_an_error_of_a_condition_is_not_blamed_on_its_operator(scheduler: MakeScheduler, method: str) -> None:
    def compose(app: App) -> None:
        def pause(op: Step, i: Any, o: Any) -> None:
            app.pause()
            app.resume()

        app.add_operator(Step(app, FailsIn(app, method), CountCondition(app, 3), body=pause, name="innocent"))

    app = App(compose, scheduler)
    with pytest.raises(ZeroDivisionError) as caught:
        app.run()
    told = f"raised by condition 'fails' (FailsIn) of operator 'innocent', in its {method}"
    assert caught.value.__notes__ == [told]
    (error,) = app.outcome.errors
    assert error.where == told
