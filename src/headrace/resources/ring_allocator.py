"""RingAllocator: memory of the host that other processes can map."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.core.parameters import declared
from headrace.link.memory import Segment, share
from headrace.resources.allocator import Allocator
from headrace.resources.memory_sources import MemoryStorageType, PlainMemory

if TYPE_CHECKING:
    from headrace.resources.memory_sources import MemorySource


@declared(kw_only=False)
class RingAllocator(Allocator):
    """Memory of the host from which a frame goes to another process without a copy.

    A tensor that was allocated here, and sent to a part in another process on this host, is not copied: the other
    process maps its memory. From then on it belongs to the receiver, who may write to it, as to every frame; a
    producer makes each frame in a new tensor. The memory is used again when both processes have let go of it. In
    one process, or sent to another host, such a tensor is like any other.

    Parameters
    ----------
    fragment
        The fragment it belongs to.
    """

    name = "ring_allocator"
    default_storage = MemoryStorageType.SYSTEM
    served = (MemoryStorageType.SYSTEM,)
    _keep = None

    def _make_source(self, storage: MemoryStorageType) -> MemorySource:
        return PlainMemory(_SharedBuffer)


class _SharedBuffer:
    """One block, which can be sent: a segment of its own."""

    __slots__ = ("_segment",)

    def __init__(self, size: int) -> None:
        self._segment = Segment.create(size, is_reused=True)
        share(self._segment)

    @property
    def handle(self) -> int:
        """The address."""
        return self._segment.address

    def __simulated_memory__(self) -> Any:
        return self._segment.memory
