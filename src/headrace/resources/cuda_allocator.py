"""CudaAllocator: the base of allocators with a limit in bytes."""

from __future__ import annotations

from headrace.core.values import Size, byte_size, size_text
from headrace.resources.allocator import Allocator
from headrace.resources.memory_storage_type import MemoryStorageType, StorageType

_KINDS = {MemoryStorageType.DEVICE: "device", MemoryStorageType.HOST: "host"}  # as arguments name them


class CudaAllocator(Allocator):
    """The base of allocators that serve requests of any size, up to a limit in bytes.

    Sizes are rounded up to 512 bytes. Memory that comes back is used again for requests of the same size; where a
    request of another size needs the room, the memory that has been idle longest is given up for it.
    """

    _sizes: dict[MemoryStorageType, tuple[int, int]]

    def _read_sizes(self, storage: MemoryStorageType, initial: Size, most: Size) -> tuple[int, int]:
        """Return the size with which a pool begins and its limit, in bytes."""
        prefix = f"{self.name!r}: {_KINDS[storage]}_memory"
        sizes = byte_size(initial, f"{prefix}_initial_size"), byte_size(most, f"{prefix}_max_size", 1)
        if sizes[0] > sizes[1]:
            raise ValueError(
                f"{prefix}_initial_size ({size_text(sizes[0])}) is more than {_KINDS[storage]}_memory_max_size "
                f"({size_text(sizes[1])})"
            )
        self._sizes = {**getattr(self, "_sizes", {}), storage: sizes}
        return sizes

    def _limit(self, storage: MemoryStorageType) -> int:
        return self._sizes[storage][1]

    def pool_size(self, storage_type: StorageType = MemoryStorageType.DEVICE) -> int:
        """Return the bytes of memory that it has, in use and idle."""
        return self._store(self._storage(storage_type)).size

    def _warm(self, storage: MemoryStorageType) -> None:
        """Make a pool hold memory from the start."""
        size = self._sizes[storage][0]
        try:
            self._store(storage).warm(size)
        except Exception as error:
            self._explain(error, f"{self.name!r}: an initial size of {size_text(size)}", storage)
            raise

    def _limit_name(self, storage: MemoryStorageType) -> str:
        """Return the name of the argument that limits a kind of memory."""
        return f"{_KINDS[storage]}_memory_max_size"

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
