"""Memory of a simulated device: bytes that NumPy holds, moved in stream order.

Freed memory is given out again as a real stream-ordered pool gives it out: at once to the stream it was
freed on, since whatever that stream does next comes after. A program that frees a buffer while another
stream still reads it therefore sees wrong data here too, which is what the tests of lifetimes rest on.
"""

import threading
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from penstock.gpu.sim.errors import CUDAError
from penstock.gpu.sim.lanes import CopyEngine, Lane, Transfer

if TYPE_CHECKING:
    from penstock.gpu.sim.device import Device
    from penstock.gpu.sim.machine import DeviceState
    from penstock.gpu.sim.stream import Stream

Bytes = NDArray[np.uint8]

_CUDA, _CUDA_HOST = 2, 3  # DLPack's numbers for device memory and for pinned host memory


# How much freed memory is kept for each stream; a program whose frames change size must not pile it up.
_RETAINED = 64 << 20


class Pool:
    """A device's memory: what is in use, and what was freed, by the lane it was freed on.

    Giving back waits for no lock: Python may drop a buffer on any line, also on one that holds the lock.
    """

    def __init__(self, capacity: int, lock: threading.Lock) -> None:
        self.capacity = capacity
        self.in_use = 0
        self._lock = lock
        self._returned: deque[tuple[Bytes, Lane]] = deque()  # given back, not yet sorted
        self._freed: weakref.WeakKeyDictionary[Lane, _Freed] = weakref.WeakKeyDictionary()

    def take(self, size: int, lane: Lane) -> Bytes:
        """Return memory for use on a lane: the newest that the lane freed, if it fits, else fresh.

        The lock is held.
        """
        self._sort_returned()
        if self.in_use + size > self.capacity:
            raise CUDAError(
                f"CUDA_ERROR_OUT_OF_MEMORY: {size} bytes asked for, {self.capacity - self.in_use} left"
            )
        self.in_use += size
        freed = self._freed.get(lane)
        memory = None if freed is None else freed.take(size)
        return np.zeros(size, np.uint8) if memory is None else memory

    def give(self, memory: Bytes, lane: Lane) -> None:
        """Take memory back, in that lane's order; the lock may be held, by this thread or another."""
        self._returned.append((memory, lane))
        if self._lock.acquire(blocking=False):
            try:
                self._sort_returned()
            finally:
                self._lock.release()

    def _sort_returned(self) -> None:
        while self._returned:
            memory, lane = self._returned.popleft()
            self.in_use -= memory.size
            freed = self._freed.get(lane)
            if freed is None:
                freed = self._freed[lane] = _Freed()
            freed.give(memory)


class _Freed:
    """What one lane freed, by size; the size that was freed least lately goes first when it is too much."""

    __slots__ = ("_by_size", "_total")

    def __init__(self) -> None:
        self._by_size: OrderedDict[int, list[Bytes]] = OrderedDict()
        self._total = 0

    def take(self, size: int) -> Bytes | None:
        pieces = self._by_size.get(size)
        if pieces is None:
            return None
        self._total -= size
        memory = pieces.pop()
        if not pieces:
            del self._by_size[size]
        return memory

    def give(self, memory: Bytes) -> None:
        self._by_size.setdefault(memory.size, []).append(memory)
        self._by_size.move_to_end(memory.size)
        self._total += memory.size
        while self._total > _RETAINED and self._total > memory.size:  # what was freed last always stays
            size, pieces = next(iter(self._by_size.items()))
            del pieces[0]
            self._total -= size
            if not pieces:
                del self._by_size[size]


class MemoryResource:
    """Where buffers come from."""

    is_device_accessible = True
    is_host_accessible = False
    device_id = -1


class DeviceMemoryResource(MemoryResource):
    """The memory of a simulated device, given by its number or as an object."""

    def __init__(self, device_id: "int | Device") -> None:
        from penstock.gpu.sim.device import Device  # the device has memory

        self._device = Device(device_id)._state
        self.device_id = self._device.index

    def allocate(self, size: int, *, stream: "Stream") -> "Buffer":
        """Return a buffer for use on that stream."""
        return _allocate(self._device, size, stream._lane, self)


class LegacyPinnedMemoryResource(MemoryResource):
    """Host memory that simulated devices can reach."""

    is_host_accessible = True

    def allocate(self, size: int, *, stream: "Stream | None" = None) -> "Buffer":
        """Return a buffer that the host can read through DLPack."""
        return Buffer._of(np.zeros(_checked(size), np.uint8), None, None, self)


class Buffer:
    """A piece of simulated memory."""

    __slots__ = ("_device", "_lane", "_memory", "_resource")
    _device: "DeviceState | None"
    _lane: Lane | None
    _memory: Bytes | None
    _resource: MemoryResource

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise RuntimeError("Buffer objects cannot be made directly; use Device.allocate or a memory resource")

    @classmethod
    def _of(
        cls, memory: Bytes, device: "DeviceState | None", lane: Lane | None, resource: MemoryResource
    ) -> "Buffer":
        self = cls.__new__(cls)
        self._memory = memory
        self._device = device
        self._lane = lane
        self._resource = resource
        return self

    @property
    def handle(self) -> int:
        """The address; 0 when closed."""
        return 0 if self._memory is None else int(self._memory.ctypes.data)

    @property
    def size(self) -> int:
        """Its length in bytes."""
        return 0 if self._memory is None else self._memory.size

    @property
    def device_id(self) -> int:
        """The device whose memory it is, or -1 for the host's."""
        return self._resource.device_id

    @property
    def is_closed(self) -> bool:
        """Whether it has been given back."""
        return self._memory is None

    @property
    def is_device_accessible(self) -> bool:
        """Whether a kernel can use it."""
        return self._resource.is_device_accessible

    @property
    def is_host_accessible(self) -> bool:
        """Whether the host can use it."""
        return self._resource.is_host_accessible

    @property
    def memory_resource(self) -> MemoryResource:
        """Where it came from."""
        return self._resource

    def copy_to(self, dst: "Buffer | None" = None, *, stream: "Stream") -> "Buffer":
        """Copy into another buffer (a new one by default), in that stream's order."""
        source = self._open()
        if dst is None:
            if self._device is None:
                raise ValueError("copy_to needs a destination for a buffer that is not of a device")
            dst = _allocate(self._device, source.size, stream._lane, self._resource)
        target = dst._open()
        if source.size != target.size:
            raise ValueError(
                f"a copy needs buffers of one size: source {source.size}, destination {target.size}"
            )
        device = stream._lane.context.device
        engine = {
            (False, False): device.to_host,
            (False, True): device.to_device,
            (True, False): device.to_host,
            (True, True): device.within,
        }[self._device is not None, dst._device is not None]
        _transfer(stream, engine, source.size, lambda: np.copyto(target, source))
        return dst

    def copy_from(self, src: "Buffer", *, stream: "Stream") -> None:
        """Copy from another buffer, in that stream's order."""
        src.copy_to(self, stream=stream)

    def fill(self, value: "int | bytes", *, stream: "Stream") -> None:
        """Set every 1, 2 or 4 bytes to a pattern, in that stream's order."""
        target = self._open()
        if isinstance(value, int):
            if not 0 <= value < 256:
                raise OverflowError(f"a fill value given as an int must be within [0, 256), got {value}")
            value = bytes([value])
        pattern = np.frombuffer(value, np.uint8)
        if pattern.size not in (1, 2, 4):
            raise ValueError(f"a fill pattern must be 1, 2 or 4 bytes long, got {pattern.size}")
        if target.size % pattern.size:
            raise ValueError(f"{target.size} bytes cannot be filled with a pattern of {pattern.size}")
        whole = target.reshape(-1, pattern.size)
        _transfer(stream, stream._lane.context.device.within, target.size, lambda: np.copyto(whole, pattern))

    def close(self, stream: "Stream | None" = None) -> None:
        """Give the memory back, in that stream's order (by default the one it was allocated on)."""
        memory, lane = self._memory, self._lane if stream is None else stream._lane
        self._memory = None
        if memory is not None and self._device is not None and lane is not None:
            self._device.memory.give(memory, lane)

    def __del__(self) -> None:
        if getattr(self, "_memory", None) is not None:
            self.close()

    def __enter__(self) -> "Buffer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __dlpack__(self, *, stream: Any = None, **kwargs: Any) -> Any:
        memory = self._open()
        if self._device is not None:
            raise BufferError("the host cannot read device memory; copy it to pinned memory first")
        return memory.__dlpack__(stream=stream, **kwargs)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (_CUDA_HOST, 0) if self._device is None else (_CUDA, self._device.index)

    def __repr__(self) -> str:
        return f"<Buffer handle={self.handle:#x} size={self.size}>"

    def _open(self) -> Bytes:
        if self._memory is None:
            raise RuntimeError("this buffer has been closed")
        return self._memory


def host_view(buffer: Buffer) -> Bytes:
    """Return a simulated buffer's bytes as they are this moment, as a debugger would show them."""
    return buffer._open()


def _allocate(device: "DeviceState", size: int, lane: Lane, resource: MemoryResource) -> Buffer:
    with lane.timeline.lock:
        memory = device.memory.take(_checked(size), lane)
    return Buffer._of(memory, device, lane, resource)


def _transfer(stream: "Stream", engine: CopyEngine, nbytes: int, effect: Callable[[], object]) -> None:
    lane = stream._lane
    device = lane.context.device
    device.machine.check()
    with lane.timeline.lock:
        lane.submit(Transfer(engine, period=engine.period(nbytes), overhead=device.overhead, effect=effect))


def _checked(size: int) -> int:
    if size < 0:
        raise OverflowError(f"a buffer cannot have {size} bytes")
    return size
