"""Measure what headrace itself costs per frame in pipelines of ready-made operators, without a GPU and its driver.

    python -m benchmarks.operator_steps [--frames 2000] [--rounds 9] [--profile] [PIPELINE ...]

The pipelines are those of `benchmarks.operator_peers`: a source that emits one array of CuPy, operators with a pool
of blocks and a condition on it, and a sink, on the greedy scheduler. In place of cuda.core and CuPy stand objects
that do nothing: streams, events, memory and launches. So the time is headrace's own; on a GPU the driver's calls
are added to it. The least of several rounds is reported.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import sys
from itertools import count
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from benchmarks.common import machine, table
from benchmarks.operator_peers import pipeline

PIPELINES = ("demosaic", "convert", "resize", "chain")

_handles = count(1 << 16, 1 << 12)
# A built-in function that accepts any arguments: one written in Python would cost more than what it stands for.
_do_nothing = "".format


class Event:
    def __init__(self) -> None:
        self.is_done = True
        self.sync = _do_nothing


class Stream:
    is_nonblocking = False

    def __init__(self, handle: int = 0) -> None:
        self._handle = handle or next(_handles)
        self.record = self.wait = self.sync = self.close = _do_nothing

    @classmethod
    def from_handle(cls, handle: int) -> Stream:
        return cls(handle)

    # Properties, as in cuda.core.

    @property
    def handle(self) -> int:
        return self._handle

    @property
    def device(self) -> Device:
        return Device(0)

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self._handle)


class Buffer:
    def __init__(self, size: int) -> None:
        self.handle = next(_handles)
        self.size = size
        self.close = _do_nothing


class Device:
    device_id = 0
    set_current = staticmethod(_do_nothing)

    def __new__(cls, device_id: int = 0) -> Device:
        return _device

    @staticmethod
    def get_all_devices() -> list[Device]:
        return [_device]

    @property
    def arch(self) -> str:
        return f"{self.device_id + 90}"

    def create_stream(self, options: Any = None) -> Stream:
        return Stream()

    def create_event(self, options: Any = None) -> Event:
        return Event()


class MemoryResource:
    def __init__(self, device_id: int = 0) -> None:
        pass

    def allocate(self, size: int, stream: Any = None) -> Buffer:
        return Buffer(size)


class Array:
    """An array with the attributes of CuPy's arrays that headrace reads."""

    def __init__(self, array: np.ndarray) -> None:
        self.shape = array.shape
        self.strides = array.strides
        self.dtype = array.dtype
        self.data = SimpleNamespace(ptr=next(_handles), mem=Memory())

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        raise NotImplementedError

    def __dlpack__(self) -> Any:
        raise NotImplementedError

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)


class Memory:
    pass


class Program:
    def __init__(self, source: str, language: str, options: Any) -> None:
        pass

    def compile(self, target: str) -> Program:
        return self

    def get_kernel(self, name: str) -> Any:
        return self


_device = object.__new__(Device)


def install() -> None:
    """Put the stand-ins in the place of cuda.core and CuPy, before headrace chooses a device."""
    from headrace.gpu.backend import DEVICE_NAMES, do_nothing
    from headrace.gpu.cuda import backend
    from headrace.operators import arrays

    ours = {kind.__name__: kind for kind in (Buffer, Device, Event, Program, Stream)}
    core: Any = ModuleType("headrace.gpu.cuda")
    for name in DEVICE_NAMES:
        setattr(core, name, ours.get(name, _do_nothing))
    core.LEGACY_DEFAULT_STREAM = Stream(1)
    core.DeviceMemoryResource = core.LegacyPinnedMemoryResource = MemoryResource
    cupy: Any = ModuleType("cupy")
    cupy.ndarray = cupy.asarray = Array
    Array.__module__ = "cupy"
    null = SimpleNamespace(ptr=0)
    runtime = SimpleNamespace(getDeviceCount=lambda: 1, deviceSynchronize=_do_nothing)
    cupy.cuda = SimpleNamespace(get_current_stream=lambda device=None: null, runtime=runtime)
    cupy.__spec__ = SimpleNamespace(name="cupy")
    sys.modules["cupy"] = cupy
    backend.cuda = core
    backend.CudaBackend.why_not = lambda self: None
    backend.CudaBackend.remember_current = lambda self: do_nothing
    arrays.upload = lambda array, stream: arrays.as_tensor(array)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "pipelines", nargs="*", metavar="PIPELINE", help=f"of {', '.join(PIPELINES)}; all if none"
    )
    parser.add_argument("--frames", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--profile", action="store_true", help="also print where the time goes")
    options = parser.parse_args()
    install()
    print(f"machine: {machine()}")
    rows: list[list[Any]] = []
    for what in options.pipelines or PIPELINES:
        times = [pipeline("headrace", what, "1080p", options.frames) for _ in range(options.rounds)]
        rows.append([what, min(times) * 1e3])
        if options.profile:
            profile = cProfile.Profile()
            profile.runcall(pipeline, "headrace", what, "1080p", options.frames)
            pstats.Stats(profile).sort_stats("tottime").print_stats(45)
    table("headrace's own time per frame", ["", "µs"], rows)


if __name__ == "__main__":
    main()
