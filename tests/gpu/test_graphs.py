"""Graphs: work that a stream captures instead of running it, and that launches then run as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import pytest

from headrace import gpu
from headrace.gpu.capture import captured_frontier, captured_nodes, graph_builder, instantiate_with_records
from tests.gpu.bench import Bench
from tests.gpu.kernels import add, mark_sms, slow_write, spin

COUNT = 256
KEPT: list[Any] = []
"""Builders of invalidated captures. When cuda.core's is collected, it destroys whatever is at an address that the
driver has freed (see headrace.gpu.cuda.capture): a run of these tests ended with a segmentation fault."""
MS = 1_000_000  # nanoseconds


@contextmanager
def building(stream: Any, mode: str = "relaxed") -> Iterator[Any]:
    """Capture a stream for the duration of a ``with`` block; the builder is closed whatever happens."""
    builder = stream.create_graph_builder()
    builder.begin_building(mode)
    try:
        yield builder
        builder.end_building()
    except BaseException:
        with suppress(Exception):
            builder.close()
        KEPT.append(builder)
        raise


def write(bench: Bench, stream: Any, target: Any, value: int, nanoseconds: int = 1000) -> None:
    bench.launch(stream, slow_write, target, np.int32(COUNT), np.int32(value), np.int64(nanoseconds))


def add_to(bench: Bench, stream: Any, target: Any, source: Any) -> None:
    bench.launch(stream, add, target, source, np.int32(COUNT), grid=8)


def kinds(builder: Any) -> list[str]:
    """Return the kinds of the recorded nodes, sorted."""
    return sorted(type(node).__name__ for node in builder.graph_definition.nodes())


def is_after(later: Any, earlier: Any) -> bool:
    """Return whether a node depends on another, directly or not."""
    return any(node == earlier or is_after(node, earlier) for node in later.pred)


@pytest.fixture
def stream(bench: Bench) -> Any:
    return bench.device.create_stream()


@pytest.fixture
def data(bench: Bench, stream: Any) -> tuple[Any, Any]:
    """Two buffers of zeros, and nothing left to do on the stream."""
    buffers = bench.zeros(COUNT, stream), bench.zeros(COUNT, stream)
    stream.sync()
    return buffers


# -- recording and launching -------------------------------------------------------------------------


def test_captured_work_does_not_run_until_the_graph_is_launched(bench: Bench, stream: Any, data: Any) -> None:
    one, total = data
    with building(stream) as builder:
        assert builder.is_building
        write(bench, stream, one, 3)
        add_to(bench, stream, total, one)
    assert not builder.is_building
    assert (bench.read(total, stream) == 0).all()
    graph = builder.complete()
    for launches in (1, 2, 3):
        graph.launch(stream)
        assert (bench.read(total, stream) == 3 * launches).all()


def test_a_launch_works_on_what_the_buffers_hold_then(bench: Bench, stream: Any, data: Any) -> None:
    source, total = data
    with building(stream) as builder:
        add_to(bench, stream, total, source)
    graph = builder.complete()
    for value in (5, 7):
        write(bench, stream, source, value)
        graph.launch(stream)
    assert (bench.read(total, stream) == 12).all()


def test_a_builder_can_stand_for_its_stream(bench: Bench, stream: Any, data: Any) -> None:
    one, two = data
    with building(stream) as builder:
        assert builder.stream == stream
        write(bench, builder, one, 4)
        one.copy_to(two, stream=builder)
    builder.complete().launch(stream)
    assert (bench.read(two, stream) == 4).all()


def test_copies_and_fills_are_recorded(bench: Bench, stream: Any, data: Any) -> None:
    one, two = data
    with building(stream) as builder:
        one.fill(b"\x09\x00\x00\x00", stream=stream)
        two.copy_from(one, stream=stream)
        add_to(bench, stream, two, one)
    assert kinds(builder) == ["KernelNode", "MemcpyNode", "MemsetNode"]
    builder.complete().launch(stream)
    assert (bench.read(two, stream) == 18).all()


def test_launches_of_one_graph_run_one_after_the_other_on_any_streams(bench: Bench, stream: Any) -> None:
    with building(stream) as builder:
        bench.launch(stream, spin, np.int64(3 * MS))
    graph = builder.complete()
    streams = [bench.device.create_stream() for _ in range(3)]
    begin, ends = bench.timed_event(), [bench.timed_event() for _ in streams]
    streams[0].record(begin)
    for one, end in zip(streams, ends, strict=True):
        graph.launch(one)
        one.record(end)
    bench.device.sync()
    assert [round((end - begin) / 3) for end in ends] == [1, 2, 3]


def test_a_graph_outlives_its_builder(bench: Bench, stream: Any, data: Any) -> None:
    with building(stream) as builder:
        write(bench, stream, data[0], 8)
    graph, definition = builder.complete(), builder.graph_definition
    builder.close()
    assert builder.is_closed
    assert len(definition.nodes()) == 1
    graph.upload(stream)
    graph.launch(stream)
    assert (bench.read(data[0], stream) == 8).all()


# -- forks and joins ---------------------------------------------------------------------------------


def test_a_stream_that_waits_for_an_event_of_the_capture_is_captured_too(
    bench: Bench, stream: Any, data: Any
) -> None:
    one, total = data
    side = bench.device.create_stream()
    with building(stream) as builder:
        write(bench, stream, one, 2, MS)
        assert not gpu.is_capturing(side)
        side.wait(stream.record())
        assert gpu.is_capturing(side)
        add_to(bench, side, total, one)
        stream.wait(side.record())
        add_to(bench, stream, total, one)
    assert not gpu.is_capturing(side)
    first, *_ = [node for node in builder.graph_definition.nodes() if not node.pred]
    last, *_ = [node for node in builder.graph_definition.nodes() if not node.succ]
    assert is_after(last, first)
    graph = builder.complete()
    assert (bench.read(total, side) == 0).all()  # the other stream is usable again
    graph.launch(stream)
    assert (bench.read(total, stream) == 4).all()


def test_branches_run_beside_each_other(bench: Bench, stream: Any) -> None:
    sides = [bench.device.create_stream() for _ in range(3)]
    with building(stream) as builder:
        fork = stream.record()
        for side in sides:
            side.wait(fork)
            bench.launch(side, spin, np.int64(5 * MS))
        for side in sides:
            stream.wait(side)
    graph = builder.complete()
    begin, end = bench.timed_event(), bench.timed_event()
    stream.record(begin)
    graph.launch(stream)
    stream.record(end)
    end.sync()
    assert 5 <= end - begin < 7


def test_an_event_of_a_capture_stands_for_its_latest_record(bench: Bench, stream: Any, data: Any) -> None:
    side = bench.device.create_stream()
    event = bench.device.create_event()
    stream.record(event)
    with building(stream) as builder:
        stream.record(event)
        write(bench, stream, data[0], 2, MS)
        stream.record(event)
        side.wait(event)
        add_to(bench, side, data[1], data[0])
        stream.wait(side)
    builder.complete().launch(stream)
    assert (bench.read(data[1], stream) == 2).all()
    stream.record(event)  # outside again
    event.sync()
    assert event.is_done


def test_a_stream_that_was_not_joined_is_an_error(bench: Bench, stream: Any, data: Any) -> None:
    side = bench.device.create_stream()
    builder = stream.create_graph_builder().begin_building()
    side.wait(stream)
    write(bench, side, data[0], 2)
    with pytest.raises(bench.names.CUDAError, match="CUDA_ERROR_STREAM_CAPTURE_UNJOINED"):
        builder.end_building()
    with suppress(bench.names.CUDAError):
        builder.close()
    del builder
    for one in (side, stream):  # both are usable again
        write(bench, one, data[0], 5)
        assert (bench.read(data[0], one) == 5).all()


def test_nodes_run_on_the_sms_of_the_context_that_they_were_recorded_in(bench: Bench, stream: Any) -> None:
    sms = bench.device.resources.sm.sm_count
    everywhere = bench.zeros(sms, stream)
    with bench.partitions(16, 40) as partitions:
        slices = partitions[:2]
        marks, alone = [], []
        lanes = [part.create_stream() for part in slices]
        for lane in lanes:
            seen = bench.zeros(sms, stream)
            stream.sync()
            bench.launch(lane, mark_sms, seen, np.int64(MS), grid=8 * sms, block=1024)
            alone.append(bench.read(seen, lane))
            marks.append(bench.zeros(sms, stream))
        stream.sync()
        with building(lanes[0]) as builder:
            lanes[1].wait(lanes[0].record())
            for lane, seen in zip(lanes, marks, strict=True):
                bench.launch(lane, mark_sms, seen, np.int64(MS), grid=8 * sms, block=1024)
            lanes[0].wait(lanes[1].record())
        graph = builder.complete()
        builder.close()
        graph.launch(stream)  # of the primary context
        bench.launch(stream, mark_sms, everywhere, np.int64(MS), grid=8 * sms, block=1024)
        found = [bench.read(seen, stream) for seen in marks]
        assert bench.read(everywhere, stream).sum() == sms
        for seen, expected, part in zip(found, alone, slices, strict=True):
            assert (seen == expected).all()
            assert seen.sum() == part.sm_count
        assert not (found[0] & found[1]).any()
        graph.close()


# -- inspecting --------------------------------------------------------------------------------------


def test_a_recording_tells_its_nodes_and_their_order(bench: Bench, stream: Any, data: Any) -> None:
    names = bench.names
    one, two = data
    with building(stream) as builder:
        with pytest.raises(RuntimeError, match="graph_definition is"):
            _ = builder.graph_definition
        one.fill(7, stream=stream)
        two.copy_from(one, stream=stream)
        bench.launch(stream, add, two, one, np.int32(COUNT), grid=8, block=64)
    definition = builder.graph_definition
    by_kind = {type(node): node for node in definition.nodes()}
    fill, copy, kernel = (by_kind[kind] for kind in (names.MemsetNode, names.MemcpyNode, names.KernelNode))
    assert definition.edges() == {(fill, copy), (copy, kernel)}
    assert (fill.pred, kernel.succ) == (set(), set())
    assert all(isinstance(node, names.GraphNode) for node in definition.nodes())
    assert all(node.graph == definition and node.is_valid for node in definition.nodes())


def test_the_nodes_of_a_capture_in_progress_are_counted(bench: Bench, stream: Any, data: Any) -> None:
    side = bench.device.create_stream()
    with building(stream):
        assert captured_nodes(stream) == 0
        write(bench, stream, data[0], 2)
        side.wait(stream)
        data[0].copy_to(data[1], stream=side)
        assert captured_nodes(stream) == captured_nodes(gpu.StreamHandle(side)) == 2
        stream.wait(side)


def test_host_functions_cannot_be_recorded(bench: Bench, stream: Any, data: Any) -> None:
    builder = stream.create_graph_builder()
    builder.begin_building()
    with pytest.raises(RuntimeError, match="cannot be recorded"):
        gpu.launch_host(stream, lambda: None)
    assert builder.end_building().graph_definition.nodes() == set()


# -- what cannot be captured -------------------------------------------------------------------------


def refusals(bench: Bench, stream: Any) -> dict[str, Any]:
    outside = bench.device.create_stream().record()
    return {
        "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED stream": stream.sync,
        "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED device": bench.device.sync,
        "CUDA_ERROR_CAPTURED_EVENT query": lambda: stream.record().is_done,
        "CUDA_ERROR_CAPTURED_EVENT sync": lambda: stream.record().sync(),
        "CUDA_ERROR_STREAM_CAPTURE_ISOLATION": lambda: stream.wait(outside),
    }


@pytest.mark.parametrize(
    "refused",
    [
        "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED stream",
        "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED device",
        "CUDA_ERROR_CAPTURED_EVENT query",
        "CUDA_ERROR_CAPTURED_EVENT sync",
        "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
    ],
)
def test_what_cannot_be_captured_invalidates_the_capture(
    bench: Bench, stream: Any, data: Any, refused: str
) -> None:
    operation = refusals(bench, stream)[refused]
    builder = stream.create_graph_builder().begin_building()
    write(bench, stream, data[0], 1)
    # cuda.core waits for a device by the runtime, which spells its errors in its own way.
    with pytest.raises(bench.names.CUDAError, match=f"{refused.split()[0]}|cudaErrorStreamCapture"):
        operation()
    with pytest.raises(bench.names.CUDAError, match="CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"):
        write(bench, stream, data[0], 2)
    with pytest.raises(RuntimeError, match="invalidated"):
        _ = builder.is_building
    with pytest.raises(RuntimeError, match="invalidated"):
        builder.end_building()
    assert gpu.is_capturing(stream)
    with pytest.raises(bench.names.CUDAError, match="CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"):
        builder.close()
    KEPT.append(builder)
    assert not gpu.is_capturing(stream)
    write(bench, stream, data[0], 3)
    assert (bench.read(data[0], stream) == 3).all()


def test_a_builder_of_an_invalidated_capture_leaves_the_graphs_of_others_alone(
    bench: Bench, stream: Any, data: Any
) -> None:
    for _ in range(10):
        failed = graph_builder(stream)
        failed.begin_building("relaxed")
        write(bench, stream, data[0], 1)
        with pytest.raises(bench.names.CUDAError, match="CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"):
            stream.sync()
        with pytest.raises(bench.names.CUDAError, match="CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"):
            failed.close()
        assert not gpu.is_capturing(stream)
        others = []
        for value in range(2, 12):
            builder = graph_builder(gpu.StreamHandle(stream))
            builder.begin_building("relaxed")
            write(bench, stream, data[0], value)
            builder.end_building()
            others.append(builder.graph_definition)
            builder.close()
        del failed
        for value, definition in enumerate(others, 2):
            definition.instantiate().launch(stream)
            assert (bench.read(data[0], stream) == value).all()


def test_a_builder_that_was_closed_has_ended_its_capture(bench: Bench, stream: Any, data: Any) -> None:
    builder = graph_builder(stream)
    builder.begin_building("relaxed")
    write(bench, stream, data[0], 1)
    builder.close()
    builder.close()
    assert not gpu.is_capturing(stream)
    assert not bench.read(data[0], stream).any()


def test_an_allocation_on_a_capturing_stream_is_refused_and_the_capture_goes_on(
    bench: Bench, stream: Any, data: Any
) -> None:
    with building(stream) as builder:
        with pytest.raises(RuntimeError, match="capturing stream"):
            bench.device.allocate(64, stream=stream)
        with pytest.raises(RuntimeError, match="capturing stream"):
            data[0].copy_to(stream=stream)
        write(bench, stream, data[0], 2)
    builder.complete().launch(stream)
    assert (bench.read(data[0], stream) == 2).all()


def test_two_captures_cannot_be_merged(bench: Bench, stream: Any, data: Any) -> None:
    other = bench.device.create_stream()
    builders = [one.create_graph_builder().begin_building() for one in (stream, other)]
    write(bench, other, data[0], 2)
    with pytest.raises(bench.names.CUDAError, match="CUDA_ERROR_STREAM_CAPTURE_MERGE"):
        stream.wait(other.record())
    for builder in builders:
        with suppress(bench.names.CUDAError):
            builder.close()
    KEPT.extend(builders)
    assert not gpu.is_capturing(stream)
    assert not gpu.is_capturing(other)


def test_an_event_of_a_capture_that_is_over_stands_for_nothing(bench: Bench, stream: Any, data: Any) -> None:
    with building(stream):
        write(bench, stream, data[0], 2)
        event = stream.record()
    with pytest.raises(bench.names.CUDAError, match="CUDA_ERROR_(CAPTURED_EVENT|INVALID_VALUE)"):
        _ = event.is_done
    with pytest.raises(bench.names.CUDAError, match="CUDA_ERROR_(CAPTURED_EVENT|INVALID_VALUE)"):
        bench.device.create_stream().wait(event)


# -- builders and graphs in the wrong state ----------------------------------------------------------


def test_builders_say_what_is_wrong(bench: Bench, stream: Any) -> None:
    builder = stream.create_graph_builder()
    assert not builder.is_building
    for too_early in (builder.end_building, builder.complete, lambda: builder.graph_definition):
        with pytest.raises(RuntimeError):
            too_early()
    with pytest.raises(ValueError, match="build mode"):
        builder.begin_building("strict")
    assert builder.begin_building() is builder
    with pytest.raises(RuntimeError, match="already building"):
        builder.begin_building()
    with pytest.raises(bench.names.CUDAError):
        stream.create_graph_builder().begin_building()
    with suppress(bench.names.CUDAError):
        builder.close()
    KEPT.append(builder)


def test_dropping_a_builder_ends_its_capture(bench: Bench, stream: Any, data: Any) -> None:
    builder = stream.create_graph_builder().begin_building()
    write(bench, stream, data[0], 9)
    del builder
    assert not gpu.is_capturing(stream)
    assert (bench.read(data[0], stream) == 0).all()


def test_a_closed_graph_cannot_be_used(bench: Bench, stream: Any, data: Any) -> None:
    with building(stream) as builder:
        write(bench, stream, data[0], 9, MS)
    graph = builder.complete()
    graph.launch(stream)
    graph.close()  # the launch that was submitted still runs
    assert graph.is_closed
    for closed in (graph.launch, graph.upload):
        with pytest.raises(RuntimeError, match="has been closed"):
            closed(stream)
    assert (bench.read(data[0], stream) == 9).all()


def test_a_device_makes_a_builder_with_a_stream_of_its_own(bench: Bench, stream: Any, data: Any) -> None:
    builder = bench.device.create_graph_builder().begin_building()
    write(bench, builder, data[0], 6)
    graph = builder.end_building().complete()
    graph.launch(stream)
    assert (bench.read(data[0], stream) == 6).all()


# -- events of a graph ---------------------------------------------------------------------------------


def test_one_recording_gives_a_graph_that_takes_times_and_one_that_does_not(
    bench: Bench, stream: Any, data: Any
) -> None:
    other = bench.device.create_stream()
    with building(stream) as builder:
        assert captured_frontier(stream) == {}
        bench.launch(stream, spin, np.int64(2 * MS))
        first = captured_frontier(gpu.StreamHandle(stream))
        other.wait(stream.record())
        bench.launch(other, spin, np.int64(6 * MS))
        bench.launch(stream, spin, np.int64(3 * MS))
        both = {**captured_frontier(stream), **captured_frontier(other)}
        stream.wait(other.record())
        joined = captured_frontier(stream)
        add_to(bench, stream, data[1], data[0])
    assert len(first) == 1
    assert len(both) == 2
    assert joined.keys() == both.keys()
    definition = builder.graph_definition
    events = [bench.timed_event() for _ in range(3)]
    timed = instantiate_with_records(
        definition, zip(({}, first, both), events, strict=True), bench.names.GraphCompleteOptions()
    )
    assert kinds(builder) == ["KernelNode"] * 4
    plain = definition.instantiate()
    write(bench, stream, data[0], 4)
    for _ in range(2):
        timed.launch(stream)
        stream.sync()
        begin, middle, end = events
        assert 1.95 <= middle - begin < 2.5
        assert 5.95 <= end - middle < 6.5
    before = end - begin
    plain.launch(stream)
    assert (bench.read(data[1], stream) == 12).all()
    assert end - begin == before


def test_the_frontier_of_a_stream_needs_a_capture(bench: Bench, stream: Any) -> None:
    with pytest.raises(bench.names.CUDAError, match="CUDA_ERROR_INVALID_VALUE"):
        captured_frontier(stream)
