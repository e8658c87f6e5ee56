"""Small frames of float32 values: CuPy arrays on a GPU, tensors of a simulated device elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np

from headrace import gpu
from headrace.extras import installing
from headrace.gpu import sim
from headrace.resources import UnboundedAllocator
from shared.needs import needs

LENGTH = 1 << 12


class SmallFrames(Protocol):
    """The operations on frames, each on a stream."""

    def full(self, value: float, stream: Any) -> Any: ...
    def scaled(self, frame: Any, times: float, plus: float, stream: Any) -> Any: ...
    def read(self, frame: Any, stream: Any) -> np.ndarray: ...


@contextmanager
def open_small_frames() -> Iterator[SmallFrames]:
    """Yield the frames of the GPU or, where there is none, those of a simulated H200 in virtual time."""
    if gpu.backend() == "cuda":
        needs("cupy", remedy=f"{installing('cupy')}, or set HEADRACE_DEVICE=sim")
        yield CupyFrames()
    else:
        with sim.Machine("h200"):
            yield SimulatedFrames()


class CupyFrames:
    """Frames are CuPy arrays."""

    def __init__(self) -> None:
        import cupy

        self.cupy = cupy

    def full(self, value: float, stream: Any) -> Any:
        with stream.cupy():
            return self.cupy.full(LENGTH, value, np.float32)

    def scaled(self, frame: Any, times: float, plus: float, stream: Any) -> Any:
        with stream.cupy():
            return frame * times + plus

    def read(self, frame: Any, stream: Any) -> np.ndarray:
        with stream.cupy():
            return self.cupy.asnumpy(frame)  # waits for the copy


def _scale(out: np.ndarray, frame: np.ndarray, times: float, plus: float) -> None:
    out.view(np.float32)[:] = frame.view(np.float32) * times + plus


class SimulatedFrames:
    """Frames are tensors of a simulated device, whose kernels take 5 µs."""

    kernel = sim.Kernel("scale", 5e-6, _scale)

    def __init__(self) -> None:
        self.memory = UnboundedAllocator()

    def full(self, value: float, stream: Any) -> Any:
        frame = self._new(stream)
        return self._launch(stream, frame, frame, 0.0, value)

    def scaled(self, frame: Any, times: float, plus: float, stream: Any) -> Any:
        return self._launch(stream, self._new(stream), frame, times, plus)

    def read(self, frame: Any, stream: Any) -> np.ndarray:
        found: list[np.ndarray] = []
        read = sim.Kernel("read", 1e-6, lambda data: found.append(data.view(np.float32).copy()))
        sim.launch(stream.stream, sim.LaunchConfig(grid=1, block=32), read, frame)
        stream.stream.sync()
        return found[0]

    def _new(self, stream: Any) -> Any:
        return self.memory.allocate_tensor((LENGTH,), "float32", "device", stream=stream)

    def _launch(self, stream: Any, out: Any, frame: Any, times: float, plus: float) -> Any:
        config = sim.LaunchConfig(grid=LENGTH // 256, block=256)
        sim.launch(stream.stream, config, self.kernel, out, frame, np.float32(times), np.float32(plus))
        return out
