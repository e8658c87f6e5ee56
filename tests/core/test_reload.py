"""The configuration file is read again during a run."""

from __future__ import annotations

import logging
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace import Application, CountCondition, Operator, op, parameter
from headrace.core import MetadataPolicy, ParameterError, Reloaded
from tests.harness import App, MakeScheduler, Step, sink, wait_until
from tests.replicas.operators import Scale

BEFORE = "camera: {fps: 25, gain: 1.0}\nscale: {factor: 1}\nother: 1\n"
AFTER = "camera: {fps: 50, gain: 2.5}\nscale: {factor: 3}\nother: 2\n"


class Camera(Operator):
    fps: int
    gain: float

    def setup(self, spec: Any) -> None:
        spec.output("out")
        spec.param("fps", 10)
        spec.param("gain", 1.0, live=True, maximum=10.0)

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        assert isinstance(self.fragment, Program)
        self.fragment.tick()
        op_output.emit((self.fps, self.gain), "out")


@op(live={"factor": parameter(minimum=1)})
def scale(value: Any, *, factor: int = 1) -> Any:
    return (*value, factor)


class Program(Application):
    """Three frames; `during` is called in the second."""

    def __init__(
        self, file: Path, during: Any, schedule: MakeScheduler | None = None, **options: Any
    ) -> None:
        super().__init__([])
        self.during, self.schedule = during, schedule
        self.seen: list[Any] = []
        self.config(file, **options)

    def tick(self) -> None:
        self.ticks += 1
        if self.ticks == 2:
            self.during(self)

    def compose(self) -> None:
        self.ticks = 0
        if self.schedule is not None:
            self.scheduler(self.schedule(self))

        @op
        def sink(value: Any) -> None:
            self.seen.append(value)

        camera = Camera(self, CountCondition(self, 3), self.from_config("camera"), name="front")
        stage = scale(self, **self.kwargs("scale"))
        self.add_flow(camera, stage, sink(self))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "app.yaml"
    path.write_text(BEFORE)
    return path


def test_live_parameters_follow_the_file_and_the_rest_is_named(file: Path, scheduler: MakeScheduler) -> None:
    came: list[Reloaded] = []

    def reload(app: Application) -> None:
        file.write_text(AFTER)
        came.append(app.reload_config())

    app = Program(file, reload, scheduler)
    app.run()
    assert came == [Reloaded({"front.gain": 2.5, "scale.factor": 3}, ("camera.fps", "other"))]
    assert app.seen[0][:2] == (25, 1.0)
    assert app.seen[-1] == (25, 2.5, 3)
    app.run()  # the next run has all of the new values
    assert app.seen[3:] == [(50, 2.5, 3)] * 3


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (
            "camera: {fps: 25, gain: 2.0}\nscale: {factor: 0}\n",
            "'factor' of operator 'scale' must be at least 1",
        ),
        ("camera: [", "is not valid YAML"),
        (None, "does not exist"),
    ],
)
def test_a_file_with_a_mistake_changes_nothing(file: Path, text: str | None, error: str) -> None:
    def reload(app: Application) -> None:
        if text is None:
            file.unlink()
        else:
            file.write_text(text)
        with pytest.raises((ParameterError, OSError, ValueError), match=error):
            app.reload_config()

    app = Program(file, reload)
    app.run()
    assert app.seen == [(25, 1.0, 1)] * 3


@pytest.mark.parametrize("given", [7.0, 1.0])  # 1.0 happens to be that of the section
def test_a_value_that_the_program_gave_stays(file: Path, given: float) -> None:
    class Fixed(Program):
        def compose(self) -> None:
            super().compose()
            self.graph.find("front").add_arg(gain=given)

    def reload(app: Application) -> None:
        file.write_text(AFTER)
        assert app.reload_config().changed == {"scale.factor": 3}

    app = Fixed(file, reload)
    app.run()
    assert [seen[1] for seen in app.seen] == [given] * 3


def test_a_setting_of_the_command_line_stays(file: Path) -> None:
    came: list[Reloaded] = []

    def reload(app: Application) -> None:
        file.write_text(AFTER)
        came.append(app.reload_config())

    app = Program(file, reload)
    app.argv.extend(["--set", "camera.gain=4.0"])
    app.config(file, argv=True)
    app.run()
    assert came == [Reloaded({"scale.factor": 3}, ("camera.fps", "other"))]
    assert app.seen[-1] == (25, 4.0, 3)


def test_sighup_reloads_and_the_log_says_what_came_of_it(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "headrace.config")
    before = signal.getsignal(signal.SIGHUP)

    def hang_up(app: Application) -> None:
        file.write_text(AFTER)
        os.kill(os.getpid(), signal.SIGHUP)
        wait_until(lambda: len(caplog.records) == 2, "the log of the reload")

    try:
        Program(file, hang_up, reload=True).run()
    finally:
        signal.signal(signal.SIGHUP, before)
    first, second = caplog.records
    assert (
        first.getMessage()
        == "'Program' read its configuration again; set: front.gain = 2.5, scale.factor = 3"
    )
    assert second.getMessage() == "'Program' needs a restart for the new values of: camera.fps, other"
    assert vars(first)["fragment"] == "Program"


@pytest.mark.parametrize("on", ["threads", "processes"])
def test_live_parameters_of_replicas_follow_the_file(file: Path, on: str) -> None:
    came: list[Reloaded] = []
    seen: list[Any] = []

    def emit(self: Any, op_input: Any, op_output: Any) -> None:
        if self.ticks == 2:
            file.write_text("one: {gain: 7}\ntwo: {gain: 8}\n")
            came.append(self.fragment.reload_config())
        op_output.emit(1)

    def compose(app: Any) -> None:
        app.metadata_policy = MetadataPolicy.UPDATE  # both operators set the same names
        one = Scale(app, app.from_config("one"), name="a", workers=2, on=on)
        two = Scale(app, **app.kwargs("two"), name="two", workers=2, on=on)
        first = Step(app, CountCondition(app, 6), outputs=["out"], body=emit)
        app.add_flow(first, one, two, sink(app, seen))

    file.write_text("one: {gain: 5}\ntwo: {gain: 6}\n")
    app = App(compose)
    app.config(file)
    app.run()
    assert came == [Reloaded({"a.gain": 7, "two.gain": 8}, ())]
    assert seen[-1] == 56


class Ambiguous:
    """Compares as a tensor of several elements does."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> Any:
        raise RuntimeError("Boolean value of Tensor with more than one value is ambiguous")


@pytest.mark.parametrize("value", [np.arange(3), Ambiguous()], ids=["an array", "a tensor"])
def test_a_value_that_does_not_compare_follows_no_key(file: Path, value: Any) -> None:
    came: list[Reloaded] = []

    @op(live="factor")
    def scale(*, factor: Any) -> None:
        file.write_text("scale: {factor: 2}\n")
        came.append(app.reload_config())

    file.write_text("scale: {factor: 1}\n")
    app = App(lambda app: app.add_operator(scale(app, CountCondition(app, 1), factor=value)))
    app.config(file)
    app.run()
    assert came == [Reloaded({}, ("scale.factor",))]
