"""Where the blocks of an allocator come from: memory of each kind, on a real, a simulated or no device.

Device memory comes from cuda.core's stream-ordered pools. It is allocated and freed on a stream of the allocator's
own, so that neither waits on the host: what uses a new block is ordered after its allocation, and what frees an old
one is ordered after its last use (`block_store`). Pinned, managed and system memory is allocated at once.

Where there is no device, pinned memory is ordinary memory: there is nothing to pin it for.
"""

from __future__ import annotations

import enum
import os
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from headrace import gpu
from headrace.core.errors import choices
from headrace.gpu.backend import active
from headrace.tensor import DLDevice, DLDeviceType

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np


_ALIGNMENT = 64  # bytes; what vector instructions of CPUs like


class MemorySource(Protocol):
    """A source of memory of one kind."""

    is_stream_ordered: bool
    device: DLDevice

    def allocate(self, size: int, stream: Any) -> Any:
        """Return a buffer; `stream` is the allocator's own, where the source is stream-ordered."""

    def free(self, buffer: Any, stream: Any) -> None:
        """Free a buffer, in the order of a stream where the source is stream-ordered."""


class DeviceMemory:
    """Memory of a device, from cuda.core's pool.

    Parameters
    ----------
    device_id
        The device.
    keep
        The bytes that a pool of its own keeps when they are freed, instead of giving them back to the device; None
        for the pool of the device, which all share. The driver's pool has no limit: the store counts, and memory
        that is about to be freed may stand beside what replaces it for a moment.
    """

    is_stream_ordered = True

    def __init__(self, device_id: int, keep: int | None = None) -> None:
        self.device = DLDevice(DLDeviceType.CUDA, device_id)
        self._resource: Any = (
            gpu.DeviceMemoryResource(device_id) if keep is None else active().memory_pool(device_id, keep)
        )

    @property
    def pool_handle(self) -> int:
        """The handle of the driver's pool, on a real device."""
        return int(self._resource.handle)

    def allocate(self, size: int, stream: Any) -> Any:
        """Return a buffer, to be used after the stream's work so far."""
        return self._resource.allocate(size, stream=stream)

    def free(self, buffer: Any, stream: Any) -> None:
        """Free a buffer after the stream's work so far."""
        buffer.close(stream)


class _ResourceMemory:
    """Memory that a memory resource allocates and frees at once, whatever the stream."""

    is_stream_ordered = False

    def __init__(self, resource: Any, device: DLDevice) -> None:
        self._resource = resource
        self.device = device

    def allocate(self, size: int, stream: Any) -> Any:
        """Return a buffer."""
        with gpu.on_device(self.device.device_id):
            buffer = self._resource.allocate(size, stream=gpu.LEGACY_DEFAULT_STREAM)
            if self.device.device_type == DLDeviceType.CUDA_MANAGED:
                gpu.LEGACY_DEFAULT_STREAM.sync()  # it is allocated in stream order, and the host may use it now
            return buffer

    def free(self, buffer: Any, stream: Any) -> None:
        """Free a buffer that nobody uses any more."""
        with gpu.on_device(self.device.device_id):
            buffer.close()


class PlainMemory:
    """Memory of the host, in buffers that `make` makes: ordinary ones unless given."""

    is_stream_ordered = False
    device = DLDevice(DLDeviceType.CPU, 0)

    def __init__(self, make: Callable[[int], Any] | None = None) -> None:
        self._make = make or PlainBuffer

    def allocate(self, size: int, stream: Any) -> Any:
        """Return a buffer."""
        return self._make(size)

    def free(self, buffer: Any, stream: Any) -> None:
        """Let go of a buffer, whose memory goes with its last user."""


class PlainBuffer:
    """Ordinary memory, aligned."""

    __slots__ = ("memory",)

    def __init__(self, size: int) -> None:
        import numpy as np

        raw = np.empty(size + _ALIGNMENT, np.uint8)
        start = -int(raw.ctypes.data) % _ALIGNMENT
        self.memory: np.ndarray[Any, Any] = raw[start : start + size]

    @property
    def handle(self) -> int:
        """The address."""
        return int(self.memory.ctypes.data)

    def __simulated_memory__(self) -> Any:
        return self.memory


def memory_source(storage: MemoryStorageType, device_id: int, who: str) -> MemorySource:
    """Return the source of memory of a kind; `who` begins the error where this machine has none."""
    if storage is MemoryStorageType.SYSTEM:
        return PlainMemory()
    if not active().has_devices:
        if storage is MemoryStorageType.HOST:
            return PlainMemory()
        raise gpu.DeviceUnavailable(
            f"{who}: there is no {storage.name} memory without a device; use SYSTEM (or HOST) memory, or "
            "HEADRACE_DEVICE=sim for a simulated device"
        )
    count = len(gpu.Device.get_all_devices())
    if device_id >= count:
        raise ValueError(f"{who} is on device {device_id}, and there are {count}, numbered from 0")
    if storage is MemoryStorageType.DEVICE:
        return DeviceMemory(device_id)
    if storage is MemoryStorageType.HOST:
        return _ResourceMemory(gpu.LegacyPinnedMemoryResource(), DLDevice(DLDeviceType.CUDA_HOST, device_id))
    return _ResourceMemory(_managed_resource(who), DLDevice(DLDeviceType.CUDA_MANAGED, device_id))


def memory_left(storage: MemoryStorageType, device_id: int) -> int:
    """Return the bytes of a kind of memory that this machine has left."""
    if storage in (MemoryStorageType.SYSTEM, MemoryStorageType.HOST):
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return active().memory_left(device_id)


def _managed_resource(who: str) -> Any:
    try:
        return active().managed_memory()
    except RuntimeError as error:
        raise RuntimeError(f"{who}: {error}") from error


class MemoryStorageType(enum.IntEnum):
    """A kind of memory.

    ``HOST`` is pinned memory of the host, ``DEVICE`` memory of the device, ``SYSTEM`` ordinary memory of the host,
    and ``CUDA_MANAGED`` memory that the driver moves between the two.
    """

    HOST = 0
    DEVICE = 1
    SYSTEM = 2
    CUDA_MANAGED = 3

    @classmethod
    def of(cls, value: StorageType, what: str = "storage_type") -> MemoryStorageType:
        """Return the kind that a member, its number or its name stands for; `what` begins the error."""
        if isinstance(value, str):
            found = cls.__members__.get(value.strip().upper())
            if found is None:
                raise ValueError(f"{what} must be one of {choices(cls.__members__, value)}, not {value!r}")
            return found
        if isinstance(value, int) and not isinstance(value, bool):
            if value in cls.__members__.values():
                return cls(value)
            known = ", ".join(f"{member.value} ({name})" for name, member in cls.__members__.items())
            raise ValueError(f"{what} must be one of {known}, not {value!r}")
        raise TypeError(f"{what} must be a MemoryStorageType, its name or its number, not {value!r}")

    @classmethod
    def at(cls, device: DLDevice) -> MemoryStorageType:
        """Return the kind of the memory on a device."""
        return _AT.get(device.device_type, cls.DEVICE)


_AT: dict[int, MemoryStorageType] = {
    DLDeviceType.CPU: MemoryStorageType.SYSTEM,
    DLDeviceType.CUDA_HOST: MemoryStorageType.HOST,
    DLDeviceType.CUDA_MANAGED: MemoryStorageType.CUDA_MANAGED,
}


StorageType: TypeAlias = MemoryStorageType | int | str
"""A kind of memory, by its name or its number too."""
