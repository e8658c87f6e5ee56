"""The end of a run: every step happens, whatever the exceptions of the program are like."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest

from headrace import CountCondition, Outcome
from headrace.core import Condition, OperatorSpec, Resource, SchedulingStatusType
from tests.harness import App, MakeScheduler, Step, source


@dataclass(frozen=True)
class Frozen(Exception):
    """Refuses notes, and everything else."""

    phase: str


class Odd(Exception):
    """Has notes that are not notes."""

    def __init__(self, phase: str) -> None:
        super().__init__(phase)
        self.phase = phase
        self.__notes__ = 7  # type: ignore[assignment]


class Refusing(Exception):
    def __init__(self, phase: str) -> None:
        super().__init__(phase)
        self.phase = phase

    def add_note(self, note: str) -> None:
        raise SystemExit("no notes")


ODD = pytest.mark.parametrize("error", [Frozen, Odd, Refusing])


class Failing(Step):
    """Fails in some of its phases."""

    def __init__(self, fragment: Any, *args: Any, fails: Callable[[str], None], **kwargs: Any) -> None:
        self._fails = fails
        super().__init__(fragment, *args, **kwargs)

    def initialize(self) -> None:
        self._fails("initialize")

    def start(self) -> None:
        self._fails("start")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        self._fails("compute")

    def stop(self) -> None:
        self.fragment.stopped.append(self.name)  # type: ignore[attr-defined]
        self._fails("stop")


def failing(error: type[Exception], *phases: str) -> Callable[[str], None]:
    def fails(phase: str) -> None:
        if phase in phases:
            raise error(phase)

    return fails


def fail(app: Any, error: type[Exception]) -> Outcome:
    """Run to an error, and return the outcome."""
    app.stopped = []
    with pytest.raises(error):
        app.run()
    outcome: Outcome = app.outcome
    return outcome


@ODD
@pytest.mark.parametrize("phase", ["initialize", "start", "compute", "stop"])
def test_an_exception_that_refuses_notes_comes_out_as_itself(
    scheduler: MakeScheduler, error: type[Exception], phase: str
) -> None:
    def compose(app: Any) -> None:
        for name in "abc":
            fails = failing(error, phase if name == "b" else "")
            app.add_operator(Failing(app, CountCondition(app, 1), fails=fails, name=name))

    app: Any = App(compose, scheduler)
    outcome = fail(app, error)
    assert [(one.kind, one.where) for one in outcome.errors] == [
        (error.__name__, f"raised in {phase} of operator 'b' (Failing)")
    ]
    started = {"initialize": "", "start": "ba", "compute": "cba", "stop": "cba"}
    assert "".join(app.stopped) == started[phase]


class Camera(Resource):
    def release(self) -> None:
        self.fragment.stopped.append(self.name)  # type: ignore[union-attr]
        raise Frozen("release")


class Clinging(Condition):
    def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
        return SchedulingStatusType.READY, None

    def detach(self) -> None:
        super().detach()
        self.fragment.stopped.append(self.name)  # type: ignore[union-attr]
        raise Frozen("detach")


class Live(Failing):
    """Has a live parameter whose setter fails, if it is set in a run."""

    def setup(self, spec: OperatorSpec) -> None:
        self._level = 0
        spec.param("level", 0, live=True)

    @property
    def level(self) -> int:
        return self._level

    @level.setter
    def level(self, value: int) -> None:
        if value:
            self.fragment.stopped.append(f"level of {self.name}")  # type: ignore[attr-defined]
            raise Frozen("level")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        self.set_live("level", 5)


def test_every_step_happens_though_every_step_fails(scheduler: MakeScheduler) -> None:
    def compose(app: Any) -> None:
        for name in "ab":
            parts = [
                CountCondition(app, 1),
                Camera(app, name=f"camera {name}"),
                Clinging(app, name=f"hand {name}"),
            ]
            app.add_operator(Live(app, *parts, fails=failing(Frozen, "stop"), name=name))

    app: Any = App(compose, scheduler)
    outcome = fail(app, Frozen)
    assert app.stopped == [
        *("b", "a", "camera b", "camera a"),
        *("level of a", "hand a", "level of b", "hand b"),
    ]
    assert outcome.ended_by == "failed"
    assert len(outcome.errors) == 8
    assert outcome.operators["a"].computes == 1


def test_a_live_setter_that_fails_at_the_end_of_a_run_is_an_error_of_the_run() -> None:
    app = App(
        lambda app: app.add_operator(Live(app, CountCondition(app, 1), fails=failing(Frozen), name="a"))
    )
    assert [one.where for one in fail(app, Frozen).errors] == ["raised in set_live of operator 'a' (Live)"]


def test_the_end_does_not_depend_on_names() -> None:
    def lose(phase: str) -> None:
        if phase == "compute":
            del app.graph.find("a").name

    app: Any = App(lambda app: app.add_operator(Failing(app, CountCondition(app, 1), fails=lose, name="a")))
    outcome = fail(app, AttributeError)
    assert outcome.errors[0].where == "raised in stop of operator 'a Failing without a name' (Failing)"


def test_an_interrupt_comes_out_though_exceptions_lead_to_each_other_in_a_circle() -> None:
    def interrupted(self: Any, op_input: Any, op_output: Any) -> None:
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        first, second = ValueError("first"), ValueError("second")
        first.__context__, second.__context__ = second, first
        raise first

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        app = App(lambda app: app.add_operator(Step(app, body=interrupted, name="a")))
        with pytest.raises(KeyboardInterrupt) as caught:
            app.run()
    finally:
        signal.signal(signal.SIGINT, before)
    assert str(caught.value.__context__) == "first"
    assert app.outcome.ended_by == "interrupted"


def test_later_errors_are_attached_to_an_exception_that_refuses_attributes() -> None:
    def compose(app: Any) -> None:
        app.add_flow(source(app, [1]), Failing(app, inputs=["in"], fails=failing(Frozen, "compute", "stop")))

    app: Any = App(compose)
    app.stopped = []
    with pytest.raises(Frozen) as caught:
        app.run()
    assert caught.value.other_errors == [Frozen("stop")]  # type: ignore[attr-defined]
