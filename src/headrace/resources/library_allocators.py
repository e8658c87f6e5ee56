"""Allocators for other libraries: CuPy's arrays in the memory of a pool."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace import gpu
from headrace.resources.memory_storage_type import MemoryStorageType

if TYPE_CHECKING:
    from headrace.resources.allocator import Allocator

__all__ = ["cupy_allocator"]


def cupy_allocator(allocator: Allocator) -> Callable[[int], Any]:
    """Return a function that CuPy calls for memory.

    CuPy's arrays keep the allocation, as the owner of memory that is not CuPy's. The runtime recognizes it by its
    address.
    """
    import cupy

    def allocate(size: int) -> Any:
        stream = gpu.StreamHandle(cupy.cuda.get_current_stream())
        allocation = allocator._allocate(size, MemoryStorageType.DEVICE, stream, "")
        memory = cupy.cuda.UnownedMemory(allocation.address, size, allocation, allocator.dev_id)
        return cupy.cuda.MemoryPointer(memory, 0)

    # Raises where the allocator does not serve device memory, before CuPy asks for some.
    allocator._storage(MemoryStorageType.DEVICE)
    return allocate
