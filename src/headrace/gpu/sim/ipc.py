"""Memory and events of simulated devices that other processes share, as by CUDA IPC.

A pool with IPC lies in a memfd. The descriptor of that file is the pool's allocation handle, so it travels over a
Unix socket as that of a GPU does. Each allocation is a region of the file: a page that says how large the
allocation is as long as it exists, and its bytes. The page is what an import believes. A descriptor comes from
another process and says only where the page is.

The events of a process that others may use share one more memfd, with a word for each: the number of its last
record that the stream has reached. A descriptor of 64 bytes cannot carry a file, so it names the process, and the
import opens the file of that process, which the system permits to the same user. As on a GPU, an event of a process
that was killed is never reached: a stream that waits for it waits for ever. (Tried on an H200 with driver 580.)

Time is not shared. Each process has its own machine, whose clock is its own.
"""

from __future__ import annotations

import mmap
import os
import struct
import threading
import time
import uuid
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple, Self

import numpy as np

from headrace.gpu.sim.memory_pool import Bytes, MemoryPool
from headrace.gpu.sim.objects import CUDAError, MadeByDriver
from headrace.gpu.sim.operations import Fence

_PAGE = mmap.ALLOCATIONGRANULARITY
_MAGIC = b"HRSIMIPC"
_POOL = struct.Struct("<8s16s")  # at the beginning of the file of a pool
_POINTER = struct.Struct("<8s16sQ32x")  # the descriptor of a buffer: its pool, and where its page is
_EVENT = struct.Struct("<8sIIIQ36x")  # an event: process, file, word, and the number of its record
_SIZE = struct.Struct("<Q")
PAYLOAD = 64  # bytes of a descriptor, as the driver has them


class _Descriptor(metaclass=MadeByDriver):
    """What one process tells another of an object; it can be pickled."""

    __slots__ = ("_given", "_payload")

    def __init__(self, payload: bytes, given: Any) -> None:
        self._payload, self._given = payload, given

    @classmethod
    def _init(cls, payload: bytes, given: Any) -> Self:
        return cls._create(payload, given)

    def __reduce__(self) -> tuple[Any, ...]:
        return self._init, (self._payload, self._given)


class IPCBufferDescriptor(_Descriptor):
    """What another process needs to import a buffer of a pool that it has imported."""

    __slots__ = ()
    _made_by = "Buffer.ipc_descriptor"

    @property
    def size(self) -> int:
        """The bytes of the buffer."""
        return int(self._given)


class IPCEventDescriptor(_Descriptor):
    """What another process needs to import an event."""

    __slots__ = ()
    _made_by = "Event.ipc_descriptor"

    @property
    def _is_blocking_sync(self) -> bool:
        return bool(self._given)


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
        self._file = IPCAllocationHandle._create(os.dup(descriptor), uuid.UUID(bytes=self._uuid))
        self.handle = self._file
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
        page = os.pread(int(self._file), 2 * _SIZE.size, start)
        extent, where = struct.unpack("<QQ", page) if len(page) == 2 * _SIZE.size else (0, 0)
        if not extent or where != start:
            raise CUDAError("CUDA_ERROR_INVALID_VALUE: the descriptor is that of a buffer that was freed")
        if size > extent:
            raise ValueError(f"the descriptor's size {size} exceeds the mapped allocation extent {extent}")
        memory = self._mapped.get(start)
        if memory is None:
            memory = _bytes_of(mmap.mmap(int(self._file), _PAGE + extent, offset=start), extent)
            self._mapped[start] = self._at[int(memory.ctypes.data)] = memory
            self._allocations[id(memory)] = next(self._numbers)
        return memory if size == extent else memory[:size]


class _Words(NamedTuple):
    """The words of the events of a process, on which it writes numbers of records."""

    file: int
    memory: mmap.mmap
    numbers: memoryview


_MOST_EVENTS = 4096
_own_words: list[_Words] = []
_unused_words: list[int] = []
_imported_words: dict[tuple[int, int], memoryview] = {}
_watched: list[tuple[Callable[[], bool], Fence]] = []
_watching = threading.Lock()


def share_fence(fence: Fence) -> bytes:
    """Tell other processes when a fence is signaled; return the descriptor for them. The lock is held."""
    if not _own_words:
        file = _new_file("headrace-sim-events")
        os.ftruncate(file, 8 * _MOST_EVENTS)
        memory = mmap.mmap(file, 8 * _MOST_EVENTS)
        _own_words.append(_Words(file, memory, memoryview(memory).cast("Q")))
        _unused_words.extend(reversed(range(_MOST_EVENTS)))
    if not _unused_words:
        raise CUDAError(f"CUDA_ERROR_OUT_OF_MEMORY: {_MOST_EVENTS} events of this process are shared")
    words, place = _own_words[0], _unused_words.pop()
    number = words.numbers[place] + 1

    def reached() -> None:
        words.numbers[place] = number
        _unused_words.append(place)  # a later record has a larger number, so this one stays reached

    fence.on_signal(reached)
    return _EVENT.pack(_MAGIC, os.getpid(), words.file, place, number)


def shared_fence(payload: bytes) -> Callable[[], bool]:
    """Return a function that tells whether an event of another process has been reached."""
    if len(payload) != PAYLOAD:
        raise ValueError(f"the descriptor's payload is {len(payload)} bytes; expected {PAYLOAD}")
    magic, process, file, place, number = _EVENT.unpack(payload)
    if magic != _MAGIC or place >= _MOST_EVENTS:
        raise CUDAError("CUDA_ERROR_INVALID_VALUE: the descriptor is not that of an event")
    if process == os.getpid():
        raise CUDAError("CUDA_ERROR_INVALID_CONTEXT: an event is imported by another process than its own")
    words = _imported_words.get((process, file))
    if words is None:
        try:
            opened = os.open(f"/proc/{process}/fd/{file}", os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise CUDAError(
                f"CUDA_ERROR_INVALID_HANDLE: there is no process {process} with this event"
            ) from error
        try:
            words = memoryview(mmap.mmap(opened, 8 * _MOST_EVENTS, prot=mmap.PROT_READ)).cast("Q")
        finally:
            os.close(opened)
        _imported_words[process, file] = words
    return lambda: words[place] >= number


def is_watching() -> bool:
    """Return whether work waits for an event of another process, which nothing on this machine can bring about."""
    return bool(_watched)


def signal_when(reached: Callable[[], bool], fence: Fence) -> None:
    """Signal a fence when something outside of the machine has happened; a thread looks while there is any."""
    with _watching:
        _watched.append((reached, fence))
        if len(_watched) == 1:
            threading.Thread(target=_watch, name="headrace-sim-ipc", daemon=True).start()


def _watch() -> None:
    while True:
        with _watching:
            done = [each for each in _watched if each[0]()]
            _watched[:] = [each for each in _watched if each not in done]
            is_over = not _watched
        for _, fence in done:
            timeline = fence.timeline
            with timeline.lock:
                fence.signal()
            timeline.notify()
        if is_over:
            return
        time.sleep(0.0005)  # no other process says when it writes a word


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
