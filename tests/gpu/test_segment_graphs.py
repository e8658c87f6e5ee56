"""The graphs and the memory of recordings: how many there are, how long they live, and what is left of them."""

from __future__ import annotations

from typing import Any

import pytest

from headrace import CountCondition, gpu
from headrace.capture import CaptureRefused, recording
from headrace.gpu.executables import Executables
from tests.gpu.bench import Bench
from tests.gpu.segment_programs import (
    COUNT,
    Sink,
    Source,
    Stage,
    Work,
    affine,
    blend,
    both,
    chain,
    is_captured,
    launch,
    run_with,
)

pytestmark = pytest.mark.usefixtures("of_this_process")

BUFFERS = 6  # too many to be read where they are


class Watched:
    """A recorded graph that keeps a list of what is made of it."""

    def __init__(self, definition: Any, made: list[Any]) -> None:
        self._definition, self._made = definition, made

    def instantiate(self) -> Any:
        graph = self._definition.instantiate()
        self._made.append(graph)
        return graph


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The executable graphs that the recordings of a test make."""
    graphs: list[Any] = []

    def watched(definition: Any, *rest: Any) -> Executables:
        return Executables(Watched(definition, graphs), *rest)

    monkeypatch.setattr(recording, "Executables", watched)
    return graphs


def frames_that_stay(frames: int) -> Any:
    """Return a program each of whose frames is at an address of its own: none is freed before the end."""
    kept: list[Any] = []

    def make(frame: Any, number: int) -> Any:
        kept.append(frame)
        return frame

    def compose(app: Any) -> None:
        kept.clear()
        stage = Stage(app, name="stage")
        source = Source(app, frames=frames, make=make, name="source")
        chain(app, source, stage, Sink(app, name="sink"))
        app.capture(stage)

    return compose


def test_frames_at_ever_new_addresses_need_one_graph(made: list[Any]) -> None:
    assert is_captured(both(frames_that_stay(60)), 60)
    assert len(made) == 1


def test_every_graph_is_closed_at_the_end_of_a_run(made: list[Any]) -> None:
    assert is_captured(both(frames_that_stay(20)), 20)
    assert made
    assert all(graph.is_closed for graph in made)


def test_more_frames_than_the_table_of_addresses_has_rows() -> None:
    assert is_captured(both(frames_that_stay(300)), 300)


# Memory.


def bytes_in_use() -> int:
    """Return how much memory of the simulated device is in use."""
    memory = gpu.Device()._state.memory
    with memory._lock:
        memory._sort_freed()
        return int(memory.in_use)


def behind_one_buffer(app: Any, body: Any, begin: Any, frames: int = 10) -> Any:
    """Return an operator that receives one large buffer again and again."""

    def begin_source(self: Any) -> None:
        stream = self._headrace.node.streams.run.default_stream().handle
        self.frame = self.pool.allocate_tensor((1 << 16,), "int32", "device", stream=stream)

    def emit(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        op_output.emit(self.frame, "out")

    source = Work(app, CountCondition(app, frames), body=emit, begin=begin_source, inputs=(), name="source")
    member = Work(app, body=body, begin=begin, outputs=(), name="member")
    chain(app, source, member)
    return member


def test_a_recording_that_is_refused_leaves_no_memory_to_the_frame_that_runs_as_usual(bench: Bench) -> None:
    """Neither for what it received nor for copies of what its operators keep: a pipeline may need all there is."""
    if not bench.is_simulated:
        pytest.skip("counts the bytes of a simulated device")
    in_use: list[int] = []

    def begin(self: Any) -> None:
        stream = self._headrace.node.streams.run.default_stream().handle
        self.total = self.pool.allocate_tensor((1 << 16,), "int32", "device", stream=stream)

    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        frame = op_input.receive("in")
        stream = op_input.receive_cuda_stream("in")
        launch(stream, affine, self.total, frame, COUNT, 2, 3)
        if not gpu.is_capturing(stream):
            in_use.append(bytes_in_use())
        stream.stream.sync()

    def compose(app: Any) -> None:
        app.capture(behind_one_buffer(app, body, begin))

    with pytest.warns(CaptureRefused, match="waits for the device"):
        run_with(compose)
    assert len(in_use) == 10
    assert len(set(in_use[1:])) == 1  # in the first frame, what enters is compared with what it was


def test_memory_that_a_recording_works_in_goes_to_nobody_else() -> None:
    """Not even to the next recording, for frames of another size, which has memory of the same allocator."""

    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        frame = op_input.receive("in")
        stream = op_input.receive_cuda_stream("in")
        count = frame.shape[0]
        between, result = self.new(stream, frame), self.new(stream, frame)
        launch(stream, affine, between, frame, count, 0, 7)
        launch(stream, blend, result, frame, between, count)
        op_output.emit(result, "out")

    def compose(app: Any) -> None:
        member = Work(app, body=body, name="member")
        counts = [COUNT] * 10 + [2 * COUNT, COUNT] * 10
        chain(app, Source(app, frames=30, counts=counts, name="source"), member, Sink(app, name="sink"))
        app.capture(member)

    ran = both(compose)
    assert (ran.segment.state, ran.segment.recordings) == ("captured", 2)
