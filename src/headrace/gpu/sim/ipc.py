"""Memory of simulated devices that other processes share, as by CUDA IPC.

A pool with IPC lies in a memfd. The descriptor of that file is the pool's allocation handle, so it travels over a
Unix socket as that of a GPU does. Each allocation is a region of the file: a page that says how large the
allocation is as long as it exists, and its bytes. The page is what an import believes. A descriptor comes from
another process and says only where the page is.

Time is not shared. Each process has its own machine, whose clock is its own.
"""

from __future__ import annotations

import mmap
import os
import struct
import threading
import uuid
import weakref
from typing import Any, Self

import numpy as np

from headrace.gpu.sim.memory_pool import Bytes, MemoryPool
from headrace.gpu.sim.objects import CUDAError, MadeByDriver

_PAGE = mmap.ALLOCATIONGRANULARITY
_MAGIC = b"HRSIMIPC"
_POOL = struct.Struct("<8s16s")  # at the beginning of the file of a pool
_POINTER = struct.Struct("<8s16sQ32x")  # the descriptor of a buffer: its pool, and where its page is
_SIZE = struct.Struct("<Q")
PAYLOAD = 64  # bytes of a descriptor, as the driver has them


class IPCBufferDescriptor(metaclass=MadeByDriver):
    """What another process needs to import a buffer of a pool that it has imported; it can be pickled.

    Attributes
    ----------
    size : int
        The bytes of the buffer.
    """

    __slots__ = ("_payload", "size")
    _made_by = "Buffer.ipc_descriptor"

    def __init__(self, payload: bytes, size: int) -> None:
        self._payload, self.size = payload, size

    @classmethod
    def _init(cls, payload: bytes, size: int) -> Self:
        return cls._create(payload, size)

    def __reduce__(self) -> tuple[Any, ...]:
        return self._init, (self._payload, self.size)


class IPCAllocationHandle(metaclass=MadeByDriver):
    """The file descriptor of a pool, which it closes."""

    __slots__ = ("handle", "uuid")
    _made_by = "DeviceMemoryResource.allocation_handle"

    def __init__(self, handle: int, pool: uuid.UUID | None) -> None:
        self.handle = handle
        self.uuid = pool

    @property
    def is_closed(self) -> bool:
        """Whether it has been closed."""
        return self.handle < 0

    def __int__(self) -> int:
        if self.is_closed:
            raise ValueError("cannot convert IPCAllocationHandle to int: the handle is closed")
        return self.handle

    def close(self) -> None:
        """Close the file descriptor."""
        handle, self.handle = self.handle, -1
        if handle >= 0:
            os.close(handle)

    def __del__(self) -> None:
        if getattr(self, "handle", -1) >= 0:
            self.close()


class SharedPool(MemoryPool):
    """A pool whose memory other processes can import.

    Attributes
    ----------
    handle
        The descriptor of its file.
    """

    def __init__(self, capacity: int, lock: threading.Lock) -> None:
        super().__init__(capacity, lock, self._new_region)
        self.handle = IPCAllocationHandle._create(_new_file("headrace-sim-pool"), uuid.uuid4())
        os.ftruncate(int(self.handle), _PAGE)
        os.pwrite(int(self.handle), _POOL.pack(_MAGIC, self.handle.uuid.bytes), 0)  # type: ignore[union-attr]
        self._end = _PAGE
        self._unused: dict[int, list[int]] = {}  # where regions of a length are that nobody maps any more

    def allocate(self, size: int, queue: object) -> Bytes:
        """Return memory in the pool's file; the lock is held."""
        memory = super().allocate(size, queue)
        _SIZE.pack_into(_file_of(memory), 0, size)
        return memory

    def free(self, memory: Bytes, queue: object) -> None:
        """Free memory in the order of a stream; it can be imported no more."""
        _SIZE.pack_into(_file_of(memory), 0, 0)
        super().free(memory, queue)

    def describe(self, memory: Bytes) -> bytes:
        """Return the descriptor of an allocation."""
        (start,) = _SIZE.unpack_from(_file_of(memory), _SIZE.size)
        return _POINTER.pack(_MAGIC, self.handle.uuid.bytes, start)  # type: ignore[union-attr]

    def _new_region(self, size: int) -> Bytes:
        length = _PAGE + -(-max(size, 1) // _PAGE) * _PAGE
        unused = self._unused.setdefault(length, [])
        if unused:
            start = unused.pop()
        else:
            start, self._end = self._end, self._end + length
            os.ftruncate(int(self.handle), self._end)
        region = mmap.mmap(int(self.handle), length, offset=start)
        _SIZE.pack_into(region, _SIZE.size, start)
        weakref.finalize(region, unused.append, start).atexit = False
        return _bytes_of(region, size)


class MappedPool(MemoryPool):
    """A pool of another process: it maps buffers and allocates nothing."""

    def __init__(self, descriptor: int, lock: threading.Lock) -> None:
        super().__init__(0, lock)
        try:
            magic, self._uuid = _POOL.unpack(os.pread(descriptor, _POOL.size, 0))
        except (OSError, struct.error):
            magic = b""
        if magic != _MAGIC:
            raise CUDAError(
                f"CUDA_ERROR_INVALID_VALUE: the file descriptor {descriptor} is not that of a pool"
            )
        self.handle = IPCAllocationHandle._create(os.dup(descriptor), uuid.UUID(bytes=self._uuid))
        # cuda.core gives a buffer that is imported twice the same memory.
        self._mapped: weakref.WeakValueDictionary[int, Bytes] = weakref.WeakValueDictionary()

    def allocate(self, size: int, queue: object) -> Bytes:
        """Refuse to allocate."""
        raise TypeError("Cannot allocate from a mapped IPC-enabled memory resource")

    def free(self, memory: Bytes, queue: object) -> None:
        """Do nothing: the memory is unmapped with its last buffer."""

    def map(self, payload: bytes, size: int) -> Bytes:
        """Return the memory of a descriptor; the lock is held."""
        if len(payload) < PAYLOAD:
            raise ValueError(f"the descriptor's payload is {len(payload)} bytes; expected at least {PAYLOAD}")
        magic, pool, start = _POINTER.unpack_from(payload)
        if magic != _MAGIC or pool != self._uuid or start % _PAGE or not start:
            raise CUDAError("CUDA_ERROR_INVALID_VALUE: the descriptor is not that of a buffer of this pool")
        page = os.pread(int(self.handle), 2 * _SIZE.size, start)
        extent, where = struct.unpack("<QQ", page) if len(page) == 2 * _SIZE.size else (0, 0)
        if not extent or where != start:
            raise CUDAError("CUDA_ERROR_INVALID_VALUE: the descriptor is that of a buffer that was freed")
        if size > extent:
            raise ValueError(f"the descriptor's size {size} exceeds the mapped allocation extent {extent}")
        memory = self._mapped.get(start)
        if memory is None:
            memory = _bytes_of(mmap.mmap(int(self.handle), _PAGE + extent, offset=start), extent)
            self._mapped[start] = self._at[int(memory.ctypes.data)] = memory
            self._allocations[id(memory)] = next(self._numbers)
        return memory if size == extent else memory[:size]


def _new_file(name: str) -> int:
    if not hasattr(os, "memfd_create"):
        raise RuntimeError("IPC is not available on this system; it needs Linux")
    return os.memfd_create(name, os.MFD_CLOEXEC)


def _bytes_of(region: mmap.mmap, size: int) -> Bytes:
    return np.ndarray(size, np.uint8, region, _PAGE)


def _file_of(memory: Bytes) -> mmap.mmap:
    region: Any = memory.base
    assert isinstance(region, mmap.mmap)
    return region
