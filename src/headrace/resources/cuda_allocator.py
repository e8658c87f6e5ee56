"""CudaAllocator: the base of allocators with a limit in bytes."""

from __future__ import annotations

from headrace.core.byte_sizes import size_text
from headrace.resources.allocator import Allocator
from headrace.resources.memory_storage_type import MemoryStorageType, StorageType

__all__ = ["CudaAllocator"]

_STEP = 512


class CudaAllocator(Allocator):
    """The base of allocators that serve requests of any size, up to a limit in bytes.

    Sizes are rounded up to 512 bytes. Memory that comes back is used again for requests of the same size; where a
    request of another size needs the room, the memory that has been idle longest is given up for it.
    """

    def pool_size(self, storage_type: StorageType = MemoryStorageType.DEVICE) -> int:
        """Return the bytes of memory that it has, in use and idle."""
        return self._store(self._storage(storage_type)).size

    def _warm(self, storage: MemoryStorageType, size: int) -> None:
        """Make a pool hold memory from the start."""
        try:
            self._store(storage).warm(size)
        except Exception as error:
            self._explain(error, f"{self.name!r}: an initial size of {size_text(size)}", storage)
            raise

    def _limit_name(self, storage: MemoryStorageType) -> str:
        """Return the name of the argument that limits a kind of memory."""
        return "device_memory_max_size" if storage is MemoryStorageType.DEVICE else "host_memory_max_size"

    def _block_for(self, size: int, storage: MemoryStorageType) -> int:
        return max(-(-size // _STEP), 1) * _STEP

    def _why_never(self, size: int, storage: MemoryStorageType) -> str:
        store = self._store(storage)
        if self._block_for(size, storage) <= store.limit:
            return ""
        return (
            f"{self._limit_name(storage)} is {size_text(store.limit)}, and {self.shortage(storage)}; raise it to "
            f"at least {self._block_for(size, storage)} bytes for each such allocation in use at once"
        )

    def _why_not_now(self, size: int, storage: MemoryStorageType) -> str:
        return (
            f"{self.shortage(storage)}; give the operator MemoryAvailableCondition(fragment, allocator, "
            f"min_bytes={size}), which lets it wait until memory comes back, or raise {self._limit_name(storage)}"
        )


def check_limits(name: str, kind: str, initial: int, most: int) -> None:
    """Raise where a pool would begin larger than it may be."""
    if initial > most:
        raise ValueError(
            f"{name!r}: {kind}_memory_initial_size ({size_text(initial)}) is more than {kind}_memory_max_size "
            f"({size_text(most)})"
        )
