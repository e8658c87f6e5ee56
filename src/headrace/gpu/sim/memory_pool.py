"""The memory of a simulated device, allocated and freed in stream order.

As in a real stream-ordered pool, the stream that freed memory may reuse it at once, since its later work runs after
the free. A program that frees a buffer while another stream still reads it therefore sees wrong data here too. The
tests of buffer lifetimes rely on this. A stream is only a key here.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace import waits
from headrace.gpu.sim.objects import CUDAError

Bytes = NDArray[np.uint8]

# The bytes of freed memory that are kept for each stream. A program whose frames change size must not
# accumulate it.
_MAX_RETAINED = 64 << 20


def find_in(memories: weakref.WeakValueDictionary[int, Bytes], address: int, size: int) -> Bytes | None:
    """Return the bytes at an address that lie in one of these memories, which are listed by address; or None."""
    found = memories.get(address)
    if found is not None and size <= found.size:
        return found[:size]
    # Not `items`, which takes one step after the other: other threads allocate meanwhile.
    for reference in memories.valuerefs():
        start, memory = reference.key, reference()
        if memory is not None and start <= address and address + size <= start + memory.size:
            return memory[address - start : address - start + size]
    return None


class MemoryPool:
    """A device's memory: the bytes in use, and the freed memory of each stream.

    Freeing never waits for the lock: Python may finalize a buffer at any line, including one that holds the lock.
    """

    def __init__(
        self, capacity: int, lock: threading.Lock, make: Callable[[int], Bytes] | None = None
    ) -> None:
        self.capacity = capacity
        self._make = make  # or None for plain memory of this process
        self.in_use = 0
        self._lock = lock
        self._freed: deque[tuple[Bytes, object]] = deque()  # not yet in a free list
        self._free_lists: weakref.WeakKeyDictionary[object, _FreeList] = weakref.WeakKeyDictionary()
        # The number of each allocation in use, by the id of its memory; and the memory itself, by its address.
        self._allocations: dict[int, int] = {}
        self._at: weakref.WeakValueDictionary[int, Bytes] = weakref.WeakValueDictionary()
        self._numbers = itertools.count()

    def allocate(self, size: int, queue: object) -> Bytes:
        """Return memory for use on a stream: the block of that size that the stream freed last, or new memory.

        The lock is held.
        """
        self._sort_freed()
        if self.in_use + size > self.capacity:
            raise CUDAError(
                f"CUDA_ERROR_OUT_OF_MEMORY: {size} bytes requested, {self.capacity - self.in_use} available"
            )
        self.in_use += size
        free_list = self._free_lists.get(queue)
        memory = None if free_list is None else free_list.pop(size)
        if memory is None:
            memory = new_memory(size) if self._make is None else self._make(size)
        self._allocations[id(memory)] = next(self._numbers)
        self._at[int(memory.ctypes.data)] = memory
        return memory

    def find(self, address: int, size: int) -> Bytes | None:
        """Return the bytes at an address that lie in one allocation, or None; the lock is held."""
        return find_in(self._at, address, size)

    def spans(self, arrays: Iterable[NDArray[Any]]) -> list[Span]:
        """Return the allocations of this pool that these arrays lie in; the lock is held."""
        self._sort_freed()
        numbers = ((memory, self._allocations.get(id(memory))) for memory in map(_whole, arrays))
        return [Span(self, memory, number) for memory, number in numbers if number is not None]

    @waits.shielded
    def free(self, memory: Bytes, queue: object) -> None:
        """Free memory in the order of a stream; the lock may be held, by this thread or another."""
        self._freed.append((memory, queue))
        if self._lock.acquire(blocking=False):
            try:
                self._sort_freed()
            finally:
                self._lock.release()

    def _sort_freed(self) -> None:
        while self._freed:
            memory, queue = self._freed.popleft()
            self.in_use -= memory.size
            self._allocations.pop(id(memory), None)
            free_list = self._free_lists.get(queue)
            if free_list is None:
                free_list = self._free_lists[queue] = _FreeList()
            free_list.push(memory)


def new_memory(size: int) -> Bytes:
    """Return memory that no stream has used yet.

    On a GPU it may hold anything. Here it is zero, because the host then provides it only as far as it is used. The
    tests that also run on a GPU replace this function.
    """
    return np.zeros(size, np.uint8)


class Span(NamedTuple):
    """The memory and the number of an allocation, as something sees it that uses the memory and does not own it."""

    pool: MemoryPool
    memory: NDArray[Any]
    number: int

    def is_allocated(self) -> bool:
        """Return whether the memory is still that allocation and has not been freed; the lock is held."""
        self.pool._sort_freed()
        return self.pool._allocations.get(id(self.memory)) == self.number


def _whole(array: NDArray[Any]) -> NDArray[Any]:
    """Return the memory that an array is a part of."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


class _FreeList:
    """The memory that one stream freed, by size; the least recently freed size is dropped first."""

    __slots__ = ("_by_size", "_total")

    def __init__(self) -> None:
        self._by_size: OrderedDict[int, list[Bytes]] = OrderedDict()
        self._total = 0

    def pop(self, size: int) -> Bytes | None:
        blocks = self._by_size.get(size)
        if blocks is None:
            return None
        self._total -= size
        memory = blocks.pop()
        if not blocks:
            del self._by_size[size]
        return memory

    def push(self, memory: Bytes) -> None:
        self._by_size.setdefault(memory.size, []).append(memory)
        self._by_size.move_to_end(memory.size)
        self._total += memory.size
        while self._total > _MAX_RETAINED and self._total > memory.size:  # the latest always stays
            size, blocks = next(iter(self._by_size.items()))
            del blocks[0]
            self._total -= size
            if not blocks:
                del self._by_size[size]
