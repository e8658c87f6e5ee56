"""BlockMemoryPool: a fixed number of blocks of a fixed size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.core.values import Size, byte_size, size_text, whole_number
from headrace.resources.allocator import Allocator
from headrace.resources.memory_storage_type import MemoryStorageType, StorageType

if TYPE_CHECKING:
    from headrace.core.composition import Composition

# More than any pipeline has messages. Every block has an entry in a list of the host.
_MOST_BLOCKS = 1 << 20


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

    def __init__(
        self,
        fragment: Composition | None = None,
        storage_type: StorageType = MemoryStorageType.DEVICE,
        block_size: Size = 0,
        num_blocks: int = 0,
        dev_id: int = 0,
        *,
        name: str = "block_memory_pool",
    ) -> None:
        super().__init__(fragment, dev_id=dev_id, name=name)
        self.storage_type = self.default_storage = MemoryStorageType.of(
            storage_type, f"{name!r}: storage_type"
        )
        self._block_size = byte_size(block_size, f"{name!r}: block_size", 1)
        self.num_blocks = whole_number(num_blocks, f"{name!r}: num_blocks", 1, _MOST_BLOCKS)

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

    def _serves(self) -> tuple[MemoryStorageType, ...]:
        return (self.storage_type,)

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
