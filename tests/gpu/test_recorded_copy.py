"""Recorded copies: what they copy, between addresses that stay and between those of each launch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headrace import gpu
from headrace.capture import CaptureRefused
from headrace.gpu.backend import active
from headrace.gpu.capture import RecordedCopy
from headrace.gpu.executables import AddressTable, Executables
from tests.gpu.bench import Bench
from tests.gpu.segment_programs import Sink, Source, Stage, both, chain
from tests.gpu.test_graphs import building
from tests.limits import pairs

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


@pytest.mark.parametrize(
    ("size", "target_offset", "source_offset", "enters"),
    pairs([1, 3, 4, 15, 16, 17, 33, 4096, MORE_THAN_A_GRID], [0, 1, 4, 16], [0, 2, 12, 32], [True, False]),
)
def test_every_byte_is_copied_and_no_other(
    bench: Bench, stream: Any, size: int, target_offset: int, source_offset: int, enters: bool
) -> None:
    values = np.random.default_rng(size).integers(0, 256, size + 64, np.uint8)
    source = upload(bench, stream, values)
    target = filled(bench, stream, size + 64, 7)
    inside, outside = int(target.handle) + target_offset, int(source.handle) + source_offset
    handle = gpu.StreamHandle(stream)
    addresses = AddressTable(handle)
    with building(stream) as builder:
        addresses.begin(handle)
        if enters:
            addresses.copy(handle, inside, size, enters=True)
        else:
            addresses.copy(handle, outside, size, enters=False)
    addresses.open(handle)
    executables = Executables(builder.graph_definition, addresses)
    executables.launch([outside if enters else inside], handle)
    expected = np.full(size + 64, 7, np.uint8)
    expected[target_offset : target_offset + size] = values[source_offset : source_offset + size]
    assert (contents(bench, stream, target) == expected).all()
    executables.close()


def test_a_copy_between_addresses_that_stay(bench: Bench, stream: Any) -> None:
    source, target = (filled(bench, stream, 100, value) for value in (1, 2))
    with building(stream) as builder:
        RecordedCopy(gpu.StreamHandle(stream), int(target.handle), int(source.handle), 60)
    builder.complete().launch(stream)
    assert contents(bench, stream, target).tolist() == [1] * 60 + [2] * 40


def test_a_stream_that_does_not_capture_is_refused(bench: Bench, stream: Any) -> None:
    source, target = (filled(bench, stream, 16, value) for value in (1, 2))
    with pytest.raises(RuntimeError, match="does not capture"):
        RecordedCopy(stream, int(target.handle), int(source.handle), 16)
    assert set(contents(bench, stream, target)) == {2}


def test_a_copy_of_nothing_is_refused(bench: Bench, stream: Any) -> None:
    target = filled(bench, stream, 16, 2)
    with pytest.raises(ValueError, match="at least one byte"):
        RecordedCopy(stream, int(target.handle), int(target.handle), 0)


def test_preparing_makes_the_kernels_of_copies_available_on_the_device(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[Any] = []

    class Kernel:
        def on(self, device: Any) -> None:
            compiled.append(device)

    for name in ("copy_kernel", "take_kernel"):
        monkeypatch.setattr(f"headrace.gpu.cuda.capture.{name}", Kernel())
    RecordedCopy.prepare(bench.device)
    assert compiled == ([] if bench.is_simulated else [bench.device] * 2), (
        "a simulated device has copy engines"
    )


def test_a_copy_that_cannot_be_compiled_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: Any, **options: Any) -> None:
        raise RuntimeError("there is no compiler")

    kind: Any = type(active())
    record = kind.record_addresses

    def recorded(self: Any, stream: Any) -> Any:
        addresses = record(self, stream)
        addresses.copy = fails
        return addresses

    monkeypatch.setattr(RecordedCopy, "prepare", staticmethod(fails))
    monkeypatch.setattr(kind, "record_addresses", recorded)

    def compose(app: Any) -> None:
        stage = Stage(app, name="stage")
        chain(app, Source(app, name="source"), stage, Sink(app, name="sink"))
        app.capture(stage)

    with pytest.warns(CaptureRefused, match="there is no compiler"):
        ran = both(compose)
    assert ran.segment.state == "eager"
