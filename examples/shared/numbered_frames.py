"""Frames of int32 values for the stream examples: CuPy arrays on a GPU, buffers of a simulated device elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np

from headrace import gpu
from headrace.extras import installing
from headrace.gpu import sim

LENGTH = 1 << 16


class Frames(Protocol):
    """The operations on frames, each on a stream; None or 0 is the default stream."""

    def full(self, value: int, stream: Any) -> Any: ...
    def add(self, one: Any, other: Any, stream: Any) -> Any: ...
    def read(self, frame: Any, stream: Any) -> np.ndarray: ...


@contextmanager
def open_frames() -> Iterator[Frames]:
    """Yield the frames of the GPU or, where there is none, those of a simulated H200 in virtual time."""
    if gpu.backend() == "cuda":
        yield CupyFrames()
    else:
        with sim.Machine("h200"):
            yield SimulatedFrames()


def sms_of(stream: Any) -> int:
    """Return the number of SMs that a stream may use, as the driver counts them."""
    # The handle of the default stream is 0, which is false; that stream may use every SM.
    if stream:
        return int(stream.stream.resources.sm.sm_count)
    device = gpu.Device(0)
    device.set_current()
    return int(device.resources.sm.sm_count)


class CupyFrames:
    """Frames are CuPy arrays."""

    def __init__(self) -> None:
        try:
            import cupy
        except ImportError as error:
            raise SystemExit(
                f"on a GPU this needs CuPy ({error}): {installing('cupy')}, or set HEADRACE_DEVICE=sim"
            ) from None
        self.cupy = cupy

    def full(self, value: int, stream: Any) -> Any:
        with self._on(stream):
            return self.cupy.full(LENGTH, value, dtype=self.cupy.int32)

    def add(self, one: Any, other: Any, stream: Any) -> Any:
        with self._on(stream):
            return one + other

    def read(self, frame: Any, stream: Any) -> np.ndarray:
        with self._on(stream):
            return self.cupy.asnumpy(frame)  # waits for the copy

    def _on(self, stream: Any) -> Any:
        return stream.cupy() if stream else self.cupy.cuda.Stream.null


class SimulatedFrames:
    """Frames are buffers of a simulated device; each kernel takes a millisecond and has its effect when it ends."""

    def full(self, value: int, stream: Any) -> Any:
        return self._launch("full", lambda out: out.view(np.int32).fill(value), stream)

    def add(self, one: Any, other: Any, stream: Any) -> Any:
        def add(out: np.ndarray, *terms: np.ndarray) -> None:
            one, other = (term.view(np.int32) for term in terms)
            np.add(one, other, out=out.view(np.int32))

        return self._launch("add", add, stream, one, other)

    def read(self, frame: Any, stream: Any) -> np.ndarray:
        host = sim.LegacyPinnedMemoryResource().allocate(frame.size)
        frame.copy_to(host, stream=self._on(stream))
        self._on(stream).sync()
        return np.from_dlpack(host).view(np.int32)

    def _launch(self, name: str, effect: Any, stream: Any, *frames: Any) -> Any:
        device = sim.Device(0)
        device.set_current()
        out = device.allocate(4 * LENGTH, stream=self._on(stream))
        kernel = sim.Kernel(name, 1e-3, effect)
        sim.launch(self._on(stream), sim.LaunchConfig(grid=64, block=1024), kernel, out, *frames)
        return out

    def _on(self, stream: Any) -> Any:
        return stream.stream if stream else sim.Device(0).default_stream
