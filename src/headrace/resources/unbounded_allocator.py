"""UnboundedAllocator: as much memory of any kind as the machine has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.resources.allocator import Allocator
from headrace.resources.block_store import BlockStore
from headrace.resources.memory_sources import memory_source
from headrace.resources.memory_storage_type import MemoryStorageType

if TYPE_CHECKING:
    from headrace.core.composition import Composition

__all__ = ["UnboundedAllocator"]

_STEP = 512  # bytes; sizes are rounded up to it, so that similar ones share their blocks


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

    def __init__(
        self, fragment: Composition | None = None, *, dev_id: int = 0, name: str = "unbounded_allocator"
    ) -> None:
        super().__init__(fragment, dev_id=dev_id, name=name)

    def _make_store(self, storage: MemoryStorageType) -> BlockStore:
        def source() -> Any:
            return memory_source(storage, self.dev_id, repr(self.name))

        return BlockStore(source, self.dev_id, self.announce, keep=None)

    def _block_for(self, size: int, storage: MemoryStorageType) -> int:
        return max(-(-size // _STEP), 1) * _STEP
