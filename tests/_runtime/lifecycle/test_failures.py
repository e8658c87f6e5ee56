"""Exceptions of operators: they come out as themselves, and everything is stopped and let go."""

from __future__ import annotations

from typing import Any

import pytest

from headrace import CountCondition
from headrace.core import Resource
from tests._runtime.lifecycle.outcomes import outcome_of
from tests.harness import App, MakeScheduler, Step, run


class Fragile(Step):
    """Fails in one phase, and notes what was called."""

    def __init__(self, fragment: Any, *args: Any, log: list[str], fails: str = "", **kwargs: Any) -> None:
        self.log, self.fails = log, fails
        super().__init__(fragment, *args, **kwargs)

    def _called(self, phase: str) -> None:
        self.log.append(f"{phase} {self.name}")
        if self.fails == phase:
            raise ZeroDivisionError(f"{phase} on purpose")

    def initialize(self) -> None:
        if self.fails == "initialize":
            self._called("initialize")

    def start(self) -> None:
        self._called("start")

    def stop(self) -> None:
        self._called("stop")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        super().compute(op_input, op_output, context)
        if self.fails == "compute" and self.ticks == 2:
            self._called("compute")


def fragile(app: App, log: list[str], fails: str) -> None:
    a = Fragile(
        app, CountCondition(app, 5), log=log, outputs=["out"], body=lambda op, i, o: o.emit(1), name="a"
    )
    b = Fragile(app, log=log, fails=fails, inputs=["in"], body=lambda op, i, o: i.receive(), name="b")
    c = Fragile(app, log=log, name="c")
    app.add_flow(a, b)
    app.add_operator(c)


@pytest.mark.parametrize("phase", ["initialize", "start", "compute", "stop"])
def test_an_exception_comes_out_as_itself_with_the_operator_named(
    scheduler: MakeScheduler, phase: str
) -> None:
    log: list[str] = []
    settings = {} if phase == "compute" else {"max_duration_ms": 0}
    with pytest.raises(ZeroDivisionError, match=f"{phase} on purpose") as caught:
        run(lambda app: fragile(app, log, phase), scheduler, **settings)
    assert caught.value.__notes__ == [f"raised in {phase} of operator 'b' (Fragile)"]
    started = {entry.split()[1] for entry in log if entry.startswith("start")}
    stopped = [entry.split()[1] for entry in log if entry.startswith("stop")]
    assert set(stopped) == started
    assert len(stopped) == len(started)


def test_a_second_failure_while_stopping_is_noted_on_the_first(scheduler: MakeScheduler) -> None:
    def compose(app: App) -> None:
        log: list[str] = []
        app.add_operator(Fragile(app, CountCondition(app, 3), log=log, fails="compute", name="a"))
        app.add_operator(Fragile(app, CountCondition(app, 1), log=log, fails="stop", name="b"))

    with pytest.raises(ZeroDivisionError, match="compute on purpose") as caught:
        run(compose, scheduler)
    assert caught.value.__notes__ == [
        "raised in compute of operator 'a' (Fragile)",
        "and while stopping: ZeroDivisionError: stop on purpose",
    ]


def test_what_an_operator_held_is_released_when_a_run_fails(
    scheduler: MakeScheduler, caplog: pytest.LogCaptureFixture
) -> None:
    import gc
    import weakref

    class Data:
        pass

    kept: list[weakref.ref[Data]] = []

    def compose(app: App) -> None:
        def body(op: Step, i: Any, o: Any) -> None:
            data = Data()
            kept.append(weakref.ref(data))
            o.emit(data)
            if op.ticks == 3:
                raise ZeroDivisionError

        a = Step(app, outputs=["out"], body=body, name="a")
        app.add_flow(a, Step(app, inputs=[("in", {"size": 8})], name="b"))

    caplog.set_level(
        "CRITICAL", "headrace.run"
    )  # pytest would keep the record of the failure, with the frames
    app = App(compose, scheduler)
    with pytest.raises(ZeroDivisionError):
        app.run()
    gc.collect()
    assert [reference() for reference in kept] == [None] * 3


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


def test_errors_that_cannot_be_shown_do_not_keep_operators_from_being_stopped(
    scheduler: MakeScheduler,
) -> None:
    stopped = []

    class Bad(Step):
        def stop(self) -> None:
            stopped.append(self.name)
            raise Unspeakable

    def fail(self: Step, op_input: Any, op_output: Any) -> None:
        raise Unspeakable

    def compose(app: App) -> None:
        app.add_operator(Bad(app, name="first", body=fail))
        app.add_operator(Bad(app, CountCondition(app, 0), name="second"))

    app = App(compose, scheduler)
    with pytest.raises(Unspeakable):
        app.run()
    assert stopped == ["second", "first"]
    assert [error.kind for error in app.outcome.errors] == ["Unspeakable"] * 3


def test_an_error_that_cannot_be_shown_can_be_skipped() -> None:
    def fail(self: Step, op_input: Any, op_output: Any) -> None:
        raise Unspeakable

    outcome = outcome_of(
        lambda app: app.add_operator(Step(app, CountCondition(app, 3), body=fail, name="a", on_error="skip"))
    )
    assert outcome.ended_by == "finished"
    assert outcome.operators["a"].last_error == "Unspeakable: <its __str__ raised>"


@pytest.mark.parametrize("phase", ["initialize", "release"])
def test_an_error_of_a_resource_names_it(phase: str) -> None:
    class Camera(Resource):
        pass

    def fail(self: Resource) -> None:
        raise ZeroDivisionError("on purpose")

    setattr(Camera, phase, fail)
    app = App(lambda app: app.add_operator(Step(app, CountCondition(app, 1), Camera(app, name="usb"))))
    with pytest.raises(ZeroDivisionError):
        app.run()
    assert [str(error) for error in app.outcome.errors] == [
        f"ZeroDivisionError: on purpose (raised in {phase} of resource 'usb' (Camera))"
    ]
