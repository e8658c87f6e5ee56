"""Allocators: as much memory as is asked for, blocks of one size, and any size up to a limit."""

from __future__ import annotations

from functools import partial

from headrace.core.parameters import Converted, converted, declared, parameter
from headrace.core.values import Size, byte_size, size_text, whole_number
from headrace.gpu.backend import active
from headrace.resources.allocator import Allocator
from headrace.resources.memory_sources import DeviceMemory, MemorySource, MemoryStorageType, StorageType

_AT_LEAST_A_BYTE = partial(byte_size, least=1)


@declared(kw_only=False)
class UnboundedAllocator(Allocator):
    """Memory of every kind, as much as is asked for.

    Memory that comes back is used again for requests of the same size, so frames of one size cost no calls of the
    driver after the first ones. No more is kept idle than was in use at once.

    Parameters
    ----------
    fragment
        The fragment it belongs to.
    dev_id
        The device.
    """

    name = "unbounded_allocator"
    _keep = None
    dev_id: int = parameter(default=0, minimum=0, kw_only=True)


# More than any pipeline has messages. Every block has an entry in a list of the host.
_MOST_BLOCKS = 1 << 20


@declared(kw_only=False)
class BlockMemoryPool(Allocator):
    """A fixed number of blocks of one size and one kind of memory, made when they are first needed.

    Each allocation takes one block, however little of it is used. An operator that takes memory from a pool waits
    for a block with a :class:`headrace.conditions.MemoryAvailableCondition`. Without that, an exhausted pool is an
    error.

    Parameters
    ----------
    fragment
        The fragment it belongs to.
    storage_type
        The kind of memory.
    block_size
        The size of a block: a number of bytes, or text such as ``"8MB"``.
    num_blocks
        The number of blocks. A pool needs one for each message that may wait in a queue, one for each operator
        that works on one or keeps one, and one that is being filled.
    dev_id
        The device.
    """

    name = "block_memory_pool"
    storage_type: Converted[StorageType, MemoryStorageType] = converted(
        MemoryStorageType.of, default=MemoryStorageType.DEVICE
    )
    _block_size: Converted[Size, int] = converted(_AT_LEAST_A_BYTE, default=0, alias="block_size")
    num_blocks: int = parameter(default=0, convert=partial(whole_number, least=1, most=_MOST_BLOCKS))
    dev_id: int = parameter(default=0, minimum=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.default_storage = self.storage_type
        self.served = (self.storage_type,)

    @property
    def block_size(self) -> int:
        """The size of a block, in bytes."""
        return self._block_size

    @property
    def free_blocks(self) -> int:
        """The number of blocks that nobody uses."""
        return self.num_blocks - self._store(self.storage_type).in_use[1]

    def shortage(self, storage_type: StorageType | None = None) -> str:
        """Return how many blocks are in use and free, for people to read."""
        return f"{self.free_blocks} of {self.num_blocks} blocks of {size_text(self.block_size)} free"

    def _limit(self, storage: MemoryStorageType) -> int:
        return self.num_blocks * self.block_size

    def _prepare(self) -> None:
        try:
            self._store(self.storage_type).prepare(self.block_size, self.num_blocks)
        except Exception as error:
            blocks = f"{self.num_blocks} blocks of {size_text(self.block_size)}"
            self._explain(error, f"{self.name!r}: {blocks}", self.storage_type)
            raise

    def _block_for(self, size: int, storage: MemoryStorageType) -> int:
        return self._block_size

    def _why_never(self, size: int, storage: MemoryStorageType) -> str:
        if size <= self._block_size:
            return ""
        return f"{self.shortage()}, and an allocation is one block; raise block_size to at least {size}"

    def _why_not_now(self, size: int, storage: MemoryStorageType) -> str:
        return (
            f"{self.shortage()}; give the operator MemoryAvailableCondition(fragment, allocator, min_blocks=1), "
            "which lets it wait until a block comes back, or raise num_blocks: a pool needs one for each message "
            "that may wait in a queue, for each operator that works on one or keeps one, and for the next one"
        )


class CudaAllocator(Allocator):
    """The base of allocators that serve requests of any size, up to a limit in bytes.

    Sizes are rounded up to 512 bytes. Memory that comes back is used again for requests of the same size; where a
    request of another size needs the room, the memory that has been idle longest is given up for it.

    A subclass names in `served` the kinds of memory that it has: device memory, pinned memory of the host, or both.
    For each of them it has two sizes in bytes, ``device_memory_initial_size`` and ``device_memory_max_size`` or the
    same with ``host``: the memory from the start of a run, and the most that may be in use at once.
    """

    served: tuple[MemoryStorageType, ...] = (MemoryStorageType.DEVICE,)

    def __post_init__(self) -> None:
        super().__post_init__()
        for storage in self.served:
            initial, most = _size_names(storage)
            first, limit = getattr(self, initial), getattr(self, most)
            if first > limit:
                raise ValueError(
                    f"{self.name!r}: {initial} ({size_text(first)}) is more than {most} ({size_text(limit)})"
                )

    def _limit(self, storage: MemoryStorageType) -> int:
        return int(getattr(self, _size_names(storage)[1]))

    def _make_source(self, storage: MemoryStorageType) -> MemorySource:
        usual = super()._make_source(storage)  # raises where this machine has no such memory
        is_device = storage is MemoryStorageType.DEVICE
        return DeviceMemory(self.dev_id, keep=self._limit(storage)) if is_device else usual

    def _prepare(self) -> None:
        for storage in self.served:
            if storage is MemoryStorageType.DEVICE and not active().has_devices:
                continue
            size = getattr(self, _size_names(storage)[0])
            try:
                self._store(storage).warm(size)
            except Exception as error:
                self._explain(error, f"{self.name!r}: an initial size of {size_text(size)}", storage)
                raise

    def pool_size(self, storage_type: StorageType = MemoryStorageType.DEVICE) -> int:
        """Return the bytes of memory that it has, in use and idle."""
        return self._store(self._storage(storage_type)).size

    def _why_never(self, size: int, storage: MemoryStorageType) -> str:
        store = self._store(storage)
        if self._block_for(size, storage) <= store.limit:
            return ""
        return (
            f"{_size_names(storage)[1]} is {size_text(store.limit)}, and {self.shortage(storage)}; raise it to "
            f"at least {self._block_for(size, storage)} bytes for each such allocation in use at once"
        )

    def _why_not_now(self, size: int, storage: MemoryStorageType) -> str:
        return (
            f"{self.shortage(storage)}; give the operator MemoryAvailableCondition(fragment, allocator, "
            f"min_bytes={size}), which lets it wait until memory comes back, or raise {_size_names(storage)[1]}"
        )


def _size_names(storage: MemoryStorageType) -> tuple[str, str]:
    """Return the names of the arguments that say how much there is of a kind of memory, at first and at most."""
    kind = storage.name.lower()
    return f"{kind}_memory_initial_size", f"{kind}_memory_max_size"


@declared(kw_only=False)
class StreamOrderedAllocator(CudaAllocator):
    """Device memory of any size from a pool of its own, which the driver manages in the order of streams.

    Parameters
    ----------
    fragment
        The fragment it belongs to.
    device_memory_initial_size
        The memory that the pool has from the start of a run, as ``"8MB"`` or a number of bytes.
    device_memory_max_size
        The most that may be in use at once.
    release_threshold
        The memory that the pool keeps when nobody uses it; what is more goes back to the device.
    dev_id
        The device.
    """

    name = "stream_ordered_allocator"
    device_memory_initial_size: Converted[Size, int] = converted(byte_size, default="8MB")
    device_memory_max_size: Converted[Size, int] = converted(_AT_LEAST_A_BYTE, default="16MB")
    release_threshold: Converted[Size, int] = converted(byte_size, default="4MB")
    dev_id: int = parameter(default=0, minimum=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._keep = self.release_threshold

    def _make_source(self, storage: MemoryStorageType) -> MemorySource:
        super()._make_source(storage)  # raises where there is no such device
        return DeviceMemory(self.dev_id, keep=max(self.release_threshold, self.device_memory_initial_size))
