"""RingAllocator: memory of the host that other processes can map."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from headrace.link.ring import Segment, share
from headrace.resources.allocator import Allocator
from headrace.resources.memory_storage_type import MemoryStorageType
from headrace.tensor.types import CPU

if TYPE_CHECKING:
    from headrace.core.composition import Composition
    from headrace.resources.memory_sources import MemorySource


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

    default_storage = MemoryStorageType.SYSTEM
    served: ClassVar[tuple[MemoryStorageType, ...]] = (MemoryStorageType.SYSTEM,)
    _keep = None

    def __init__(self, fragment: Composition | None = None, *, name: str = "ring_allocator") -> None:
        super().__init__(fragment, name=name)

    def _make_source(self, storage: MemoryStorageType) -> MemorySource:
        return _SharedMemory()


class _SharedMemory:
    """A source of memory that can be sent: each block is a segment of its own."""

    is_stream_ordered = False
    device = CPU

    def allocate(self, size: int, stream: Any) -> _SharedBuffer:
        """Return a buffer."""
        return _SharedBuffer(size)

    def free(self, buffer: _SharedBuffer, stream: Any) -> None:
        """Let go of a buffer, whose memory goes with its last user."""


class _SharedBuffer:
    """One block."""

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
