"""A stream handle that every library takes."""

from __future__ import annotations

import ctypes
import gc
import weakref
from typing import Any

import numpy as np
import pytest

from headrace import gpu
from tests.gpu.bench import Bench
from tests.gpu.kernels import spin


def test_a_handle_is_an_int_and_speaks_the_stream_protocol(bench: Bench) -> None:
    stream = bench.device.create_stream()
    handle = gpu.StreamHandle(stream)
    assert isinstance(handle, int)
    assert handle == int(stream.handle)
    assert handle.__cuda_stream__() == (0, int(stream.handle))
    assert handle == gpu.StreamHandle(handle)
    assert ctypes.c_void_p(handle).value == int(stream.handle)
    assert hex(handle) in repr(handle)


def test_the_devices_own_calls_take_a_handle(bench: Bench) -> None:
    stream = bench.device.create_stream()
    handle = gpu.StreamHandle(stream)
    assert bench.device.create_stream(handle) == stream
    assert bench.names.Stream.from_handle(handle) == stream
    other = bench.device.create_stream()
    bench.launch(stream, spin, np.int64(1_000_000))
    event = stream.record()
    other.wait(handle)
    other.sync()
    assert event.is_done


def test_a_handle_keeps_its_stream_alive(bench: Bench) -> None:
    class Tracked:
        def __init__(self, stream: Any) -> None:
            self._stream = stream

        def __cuda_stream__(self) -> Any:
            return self._stream.__cuda_stream__()

    tracked = Tracked(bench.device.create_stream())
    alive = weakref.ref(tracked)
    handle = gpu.StreamHandle(tracked)
    del tracked
    gc.collect()
    assert alive() is handle.stream
    del handle
    gc.collect()
    assert alive() is None


def test_what_is_no_stream_is_refused() -> None:
    with pytest.raises(TypeError, match="int is not a stream.*__cuda_stream__"):
        gpu.StreamHandle(5)


@pytest.mark.parametrize("kind", ["primary", "green"])
def test_cupy_and_torch_take_a_handle(bench: Bench, kind: str) -> None:
    if bench.is_simulated:
        pytest.skip("needs a real device")
    cupy, torch = pytest.importorskip("cupy"), pytest.importorskip("torch")
    with bench.partitions(16) as partitions:
        stream = bench.device.create_stream() if kind == "primary" else partitions[0].create_stream()
        handle = gpu.StreamHandle(stream)
        with pytest.warns(DeprecationWarning, match="ExternalStream"):
            by_number = cupy.cuda.ExternalStream(handle)
        for external in (by_number, cupy.cuda.Stream.from_external(handle)):
            with external:
                assert cupy.arange(10).sum().get() == 45
            assert external.ptr == handle
        with torch.cuda.stream(torch.cuda.ExternalStream(handle)):
            assert torch.arange(10, device="cuda").sum().item() == 45
        stream.sync()
