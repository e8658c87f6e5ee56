"""A device written outside of headrace: its streams do their work at once, on memory of the host.

It has streams, events, memory, copies and kernels; it has no graphs and no partitions.
"""

from __future__ import annotations

import ctypes
import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np

from headrace import gpu

NAME = "at_once"
handles = itertools.count(16)


class Event:
    __headrace_device__ = NAME
    is_done = True

    def __init__(self, device: Device) -> None:
        self.device = device

    def sync(self) -> None:
        pass


class Stream:
    __headrace_device__ = NAME
    is_nonblocking = True
    is_closed = False

    def __init__(self, device: Device, handle: int) -> None:
        self.device = device
        self.handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self.handle)

    def record(self, event: Event | None = None, options: Any = None) -> Event:
        return Event(self.device) if event is None else event

    def wait(self, event_or_stream: Any) -> None:
        pass

    def sync(self) -> None:
        pass

    def close(self) -> None:
        self.is_closed = True


class Buffer:
    __headrace_device__ = NAME
    is_device_accessible = True
    is_host_accessible = False
    device_id = 0

    def __init__(self, memory: Any) -> None:
        self.memory = memory
        self.handle = int(memory.ctypes.data)
        self.size = memory.size

    @staticmethod
    def from_handle(ptr: int, size: int, mr: Any = None, owner: Any = None) -> Buffer:
        buffer = Buffer(memory_at(ptr, size))
        buffer.owner = owner
        return buffer

    def __simulated_memory__(self) -> Any:  # what a kernel that is a Python function works on
        return self.memory

    def close(self, stream: Any = None) -> None:
        self.memory = np.empty(0, np.uint8)


class Memory:
    def __init__(self, device_id: int = 0) -> None:
        self.device_id = device_id

    def allocate(self, size: int, *, stream: Any = None) -> Buffer:
        return Buffer(np.zeros(size, np.uint8))


class Device:
    __headrace_device__ = NAME
    name = "a device that works at once"
    arch = ""
    device_id = 0
    resources = SimpleNamespace(sm=SimpleNamespace(sm_count=1))

    def __init__(self, device_id: int | None = None) -> None:
        pass

    @classmethod
    def get_all_devices(cls) -> tuple[Device, ...]:
        return (cls(),)

    def set_current(self, context: Any = None) -> None:
        pass

    def create_stream(self, obj: Any = None, options: Any = None) -> Stream:
        return Stream(self, next(handles))

    def create_event(self, options: Any = None) -> Event:
        return Event(self)

    def allocate(self, size: int, *, stream: Any) -> Buffer:
        return Memory().allocate(size)


def launch(stream: Stream, config: Any, kernel: Any, *args: Any) -> None:
    kernel(*(getattr(arg, "__simulated_memory__", lambda arg=arg: arg)() for arg in args))


def memory_at(address: int, size: int) -> Any:
    return np.frombuffer((ctypes.c_uint8 * size).from_address(address), np.uint8)


class AtOnce(gpu.Backend):
    name = NAME
    description = "a device that works at once"
    names = SimpleNamespace(
        Device=Device,
        Stream=Stream,
        Event=Event,
        Buffer=Buffer,
        DeviceMemoryResource=Memory,
        LegacyPinnedMemoryResource=Memory,
        StreamOptions=SimpleNamespace,
        EventOptions=SimpleNamespace,
        LaunchConfig=SimpleNamespace,
        CUDAError=RuntimeError,
        LEGACY_DEFAULT_STREAM=Stream(Device(), 1),
        launch=launch,
    )

    def when_done(self, stream: Any, callback: Any, event: Any) -> None:
        callback(None)

    def launch_host(self, stream: Any, function: Any) -> None:
        function()

    def copy(self, stream: Any, target: Any, source: Any, size: int) -> None:
        to, read = (memory_at(one, size) if isinstance(one, int) else one for one in (target, source))
        to.reshape(-1).view(np.uint8)[:] = read.reshape(-1).view(np.uint8)

    def memory_left(self, device_id: int) -> int:
        return 1 << 30

    def compile(self, kernel: Any, device: Any) -> Any:
        return kernel.effect


gpu.register_device(NAME, AtOnce)
