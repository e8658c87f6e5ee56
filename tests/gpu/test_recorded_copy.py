"""Recorded copies: what they copy, and how executable graphs are changed to copy between other addresses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from headrace import gpu
from headrace.capture import CaptureRefused
from tests.gpu.bench import Bench
from tests.gpu.segment_programs import Sink, Source, Stage, both, chain, is_captured
from tests.gpu.test_graphs import building

MORE_THAN_A_GRID = (4 << 20) + 4096 + 3  # bytes; the threads of the largest grid copy 16 bytes each


@pytest.fixture
def stream(bench: Bench) -> Any:
    return bench.device.create_stream()


def upload(bench: Bench, stream: Any, values: np.ndarray) -> Any:
    """Return a device buffer with these bytes."""
    host = bench.names.LegacyPinnedMemoryResource().allocate(values.size)
    np.from_dlpack(host).view(np.uint8)[:] = values
    buffer = bench.device.allocate(values.size, stream=stream)
    host.copy_to(buffer, stream=stream)
    stream.sync()
    return buffer


def contents(bench: Bench, stream: Any, buffer: Any) -> np.ndarray:
    host = bench.names.LegacyPinnedMemoryResource().allocate(buffer.size)
    buffer.copy_to(host, stream=stream)
    stream.sync()
    return np.from_dlpack(host).view(np.uint8).copy()


def filled(bench: Bench, stream: Any, size: int, value: int) -> Any:
    return upload(bench, stream, np.full(size, value, np.uint8))


def record(stream: Any, address: int, size: int) -> tuple[gpu.RecordedCopy, Any]:
    """Return a copy of memory to itself, and the definition of the graph that it is recorded in."""
    with building(stream) as builder:
        copy = gpu.RecordedCopy(stream, address, address, size)
    return copy, builder.graph_definition


@pytest.mark.parametrize("size", [1, 3, 4, 15, 16, 17, 33, 4096, MORE_THAN_A_GRID])
@pytest.mark.parametrize("target_offset", [0, 1, 4, 16])
@pytest.mark.parametrize("source_offset", [0, 2, 12, 32])
def test_every_byte_is_copied_and_no_other(
    bench: Bench, stream: Any, size: int, target_offset: int, source_offset: int
) -> None:
    values = np.random.default_rng(size).integers(0, 256, size + 64, np.uint8)
    source = upload(bench, stream, values)
    target = filled(bench, stream, size + 64, 7)
    copy, definition = record(stream, int(target.handle), size)
    graph = definition.instantiate()
    copy.change(graph, int(target.handle) + target_offset, int(source.handle) + source_offset)
    graph.launch(stream)
    expected = np.full(size + 64, 7, np.uint8)
    expected[target_offset : target_offset + size] = values[source_offset : source_offset + size]
    assert (contents(bench, stream, target) == expected).all()


def test_a_copy_that_was_not_changed_is_as_recorded(bench: Bench, stream: Any) -> None:
    source, target = (filled(bench, stream, 100, value) for value in (1, 2))
    with building(stream) as builder:
        gpu.RecordedCopy(gpu.StreamHandle(stream), int(target.handle), int(source.handle), 60)
    builder.complete().launch(stream)
    assert contents(bench, stream, target).tolist() == [1] * 60 + [2] * 40


def test_each_executable_graph_has_addresses_of_its_own(bench: Bench, stream: Any) -> None:
    sources = [filled(bench, stream, 256, value) for value in range(5)]
    targets = [filled(bench, stream, 256, 99) for _ in sources]
    copy, definition = record(stream, int(targets[0].handle), 256)
    graphs = [definition.instantiate() for _ in sources]
    for graph, target, source in zip(graphs, targets, sources, strict=True):
        copy.change(graph, int(target.handle), int(source.handle))
    for graph in reversed(graphs):
        graph.launch(stream)
    assert [set(contents(bench, stream, target)) for target in targets] == [{value} for value in range(5)]


def test_a_change_affects_later_launches_only(bench: Bench, stream: Any) -> None:
    one, two = (filled(bench, stream, 256, value) for value in (1, 2))
    first, second = (filled(bench, stream, 256, 99) for _ in range(2))
    copy, definition = record(stream, int(one.handle), 256)
    graph = definition.instantiate()
    copy.change(graph, int(first.handle), int(one.handle))
    graph.launch(stream)
    copy.change(graph, int(second.handle), int(two.handle))
    graph.launch(stream)
    assert set(contents(bench, stream, first)) == {1}
    assert set(contents(bench, stream, second)) == {2}


def test_copies_of_one_graph_are_changed_one_by_one(bench: Bench, stream: Any) -> None:
    source, inside, target, other = (filled(bench, stream, 64, value) for value in (1, 2, 3, 4))
    address = int(inside.handle)
    with building(stream) as builder:
        enters = gpu.RecordedCopy(stream, address, address, 64)
        leaves = gpu.RecordedCopy(stream, address, address, 64)
    graph = builder.complete()
    enters.change(graph, address, int(source.handle))
    leaves.change(graph, int(target.handle), address)
    graph.launch(stream)
    assert set(contents(bench, stream, target)) == {1}
    enters.change(graph, address, int(other.handle))
    graph.launch(stream)
    assert set(contents(bench, stream, target)) == {4}


def test_memory_that_was_freed_and_allocated_again_at_the_same_address(bench: Bench, stream: Any) -> None:
    target = filled(bench, stream, 4096, 0)
    source = filled(bench, stream, 4096, 1)
    copy, definition = record(stream, int(target.handle), 4096)
    graphs: dict[int, Any] = {}
    again = 0
    for value in range(2, 40):
        source.close(stream)
        source = filled(bench, stream, 4096, value)
        address = int(source.handle)
        again += address in graphs
        if address not in graphs:
            graphs[address] = definition.instantiate()
            copy.change(graphs[address], int(target.handle), address)
        graphs[address].launch(stream)
        assert set(contents(bench, stream, target)) == {value}
    assert again


def test_graphs_that_also_record_events_are_changed_alike(bench: Bench, stream: Any) -> None:
    source, target, other = (filled(bench, stream, 256, value) for value in (1, 2, 3))
    with building(stream) as builder:
        copy = gpu.RecordedCopy(stream, int(target.handle), int(source.handle), 256)
        after = gpu.captured_frontier(stream)
    event = bench.timed_event()
    timed = gpu.instantiate_with_records(builder.graph_definition, [(after, event)])
    copy.change(timed, int(target.handle), int(other.handle))
    timed.launch(stream)
    assert set(contents(bench, stream, target)) == {3}
    assert event.is_done


def test_a_copy_on_a_slice_of_the_sms(bench: Bench) -> None:
    with bench.partitions(8, 16) as (small, *_):
        stream = small.create_stream()
        source, target, other = (filled(bench, stream, 10_000, value) for value in (1, 2, 3))
        copy, definition = record(stream, int(target.handle), 10_000)
        graph = definition.instantiate()
        for changed, value in ((source, 1), (other, 3)):
            copy.change(graph, int(target.handle), int(changed.handle))
            graph.launch(stream)
            assert set(contents(bench, stream, target)) == {value}
        graph.close()


def test_a_stream_that_does_not_capture_is_refused(bench: Bench, stream: Any) -> None:
    source, target = (filled(bench, stream, 16, value) for value in (1, 2))
    with pytest.raises(RuntimeError, match="does not capture"):
        gpu.RecordedCopy(stream, int(target.handle), int(source.handle), 16)
    assert set(contents(bench, stream, target)) == {2}


def test_a_copy_of_nothing_is_refused(bench: Bench, stream: Any) -> None:
    target = filled(bench, stream, 16, 2)
    with pytest.raises(ValueError, match="at least one byte"):
        gpu.RecordedCopy(stream, int(target.handle), int(target.handle), 0)


def _other_graph(bench: Bench, stream: Any, address: int) -> Any:
    return record(stream, address, 16)[1].instantiate()


def _closed(bench: Bench, stream: Any, address: int) -> Any:
    graph = _other_graph(bench, stream, address)
    graph.close()
    return graph


@pytest.mark.parametrize("make", [_other_graph, _closed])
def test_a_graph_that_does_not_have_the_copy_is_refused(
    bench: Bench, stream: Any, make: Callable[[Bench, Any, int], Any]
) -> None:
    target = filled(bench, stream, 16, 2)
    copy, _definition = record(stream, int(target.handle), 16)
    graph = make(bench, stream, int(target.handle))
    with pytest.raises((ValueError, RuntimeError, bench.names.CUDAError)):
        copy.change(graph, int(target.handle), int(target.handle))


def test_preparing_makes_the_kernel_of_copies_available_on_the_device(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[Any] = []

    class Kernel:
        def on(self, device: Any) -> None:
            compiled.append(device)

    monkeypatch.setattr("headrace.gpu.cuda.recorded_copy.copy_kernel", Kernel())
    gpu.RecordedCopy.prepare(bench.device)
    assert compiled == ([] if bench.is_simulated else [bench.device]), "a simulated device has copy engines"


def test_what_copies_need_is_compiled_before_a_frame_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """While one is recorded nothing else computes, so nothing that takes long belongs there."""
    order: list[str] = []
    prepare, init = gpu.RecordedCopy.prepare, gpu.RecordedCopy.__init__

    def prepared(device: Any) -> None:
        order.append("prepare")
        prepare(device)

    def made(self: Any, *args: Any) -> None:
        order.append("record")
        init(self, *args)

    monkeypatch.setattr(gpu.RecordedCopy, "prepare", staticmethod(prepared))
    monkeypatch.setattr(gpu.RecordedCopy, "__init__", made)

    def compose(app: Any) -> None:
        stage = Stage(app, name="stage")
        chain(app, Source(app, name="source"), stage, Sink(app, name="sink"))
        app.capture(stage)

    assert is_captured(both(compose))
    assert order == ["prepare", "record", "record"]


def test_a_copy_that_cannot_be_compiled_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: Any) -> None:
        raise RuntimeError("there is no compiler")

    monkeypatch.setattr(gpu.RecordedCopy, "prepare", staticmethod(fails))
    monkeypatch.setattr(gpu.RecordedCopy, "__init__", fails)

    def compose(app: Any) -> None:
        stage = Stage(app, name="stage")
        chain(app, Source(app, name="source"), stage, Sink(app, name="sink"))
        app.capture(stage)

    with pytest.warns(CaptureRefused, match="there is no compiler"):
        ran = both(compose)
    assert ran.segment.state == "eager"
