"""A segment whose frames are one array after another, like the last one, and what may come between them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest

from headrace._runtime.scheduling import engine, watchdog
from headrace._runtime.scheduling.engine import is_compiled
from headrace.capture.replay import Replay
from tests.gpu.segment_programs import (
    COUNT,
    Sink,
    Source,
    Work,
    affine,
    both,
    chain,
    launch,
    run_with,
    slowly,
)
from tests.gpu.test_segment_outputs import as_array, pass_on, simulated_pipelines  # noqa: F401 (a fixture)

pytestmark = pytest.mark.usefixtures("simulated_pipelines")
FRAMES = 60


class Scales(Work):
    """Emits ``times * frame + 1``; what comes first in a compute is up to the test."""

    def __init__(
        self, fragment: Any, *args: Any, first: Callable[..., Any] = lambda *_: None, **kwargs: Any
    ) -> None:
        self.first = first
        super().__init__(fragment, *args, body=_scale, **kwargs)

    def setup(self, spec: Any) -> None:
        super().setup(spec)
        spec.param("times", 2)


def _scale(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
    self.first(self, context)
    frame = op_input.receive("in")
    stream = op_input.receive_cuda_stream("in")
    count = frame.shape[0]
    made = self.pool.allocate_tensor((count,), "int32", "device", stream=stream)
    launch(stream, affine, made, frame, count, self.times, 1)
    op_output.emit(as_array(made), "out")


class Reads(Work):
    """Reads arrays slowly, and drops them before the device has read them."""

    def __init__(self, fragment: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(fragment, *args, body=_read, **kwargs)


def _read(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
    frame = op_input.receive("in")
    stream = op_input.receive_cuda_stream("in")
    count = frame.shape[0]
    made = self.pool.allocate_tensor((count,), "int32", "device", stream=stream)
    launch(stream, slowly, made, frame, count)
    op_output.emit(made, "out")


def program(
    between: Callable[[Any, int], Any] = lambda stage, number: None, **source: Any
) -> Callable[[Any], None]:
    """Return what composes a source, a segment of one stage, a reader and a sink.

    `between` is called with the stage before each frame is sent.
    """

    def compose(app: Any) -> None:
        stage = Scales(app, name="stage")

        def make(frame: Any, number: int) -> Any:
            between(stage, number)
            return as_array(frame)

        chain(
            app,
            Source(app, frames=FRAMES, name="source", **{"make": make, **source}),
            stage,
            Reads(app, name="reader"),
            Sink(app, name="sink"),
        )
        app.capture(stage, check_every=None)

    return compose


def test_a_parameter_that_is_set_between_two_frames_counts_at_once() -> None:
    def between(stage: Any, number: int) -> None:
        if number in (20, 21, 40):
            stage.times = number

    both(program(between))


def test_a_knob_that_is_set_between_two_frames_counts_at_once() -> None:
    """The frame that follows writes it; those after it do not."""
    written: list[int] = []
    write = Replay._write_knobs

    def noting(self: Replay, own: Any) -> None:
        written.append(self.replayed)
        write(self, own)

    def compose(app: Any) -> None:
        stage = Scales(app, first=lambda self, context: context.knob("gain", "float32", 1), name="stage")

        def make(frame: Any, number: int) -> Any:
            if number == 30:
                stage.set_knob("gain", 2.0)
            return as_array(frame)

        source = Source(app, frames=FRAMES, make=make, name="source")
        chain(app, source, stage, Reads(app, name="reader"), Sink(app, name="sink"))
        app.capture(stage, check_every=None)

    with mock.patch.object(Replay, "_write_knobs", noting):
        ran = run_with(compose)
    assert len([number for number in written if number > 10]) == 1
    assert ran.segment.replayed > FRAMES // 2


def test_frames_of_another_shape_come_between() -> None:
    counts = [COUNT if number % 20 < 15 else COUNT // 2 for number in range(FRAMES)]
    both(program(counts=counts))


def test_a_segment_is_not_taken_for_an_operator_that_receives_nothing() -> None:
    if is_compiled():
        pytest.skip("compiled modules cannot be patched")
    looks: list[str] = []
    untaken: list[str] = []
    look = watchdog.look_for_unreceived

    def look_and_tell(nodes: Any, ready_queue: Any) -> None:
        for node in nodes:
            for take in [port.take for port in node.input.ports]:
                looks.append(node.name)
                if isinstance(take, watchdog._Untaken) and node.computes > take.since + 1:
                    untaken.append(node.name)
        look(nodes, ready_queue)

    with (
        mock.patch.object(engine, "SWEEPS", 3),
        mock.patch.object(engine, "look_for_unreceived", look_and_tell),
    ):
        ran = run_with(program())
    assert ran.segment.replayed >= FRAMES - 8
    assert looks.count("segment") > FRAMES / 8
    assert untaken == []
