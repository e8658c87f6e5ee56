"""StreamOrderedAllocator: device memory from a stream-ordered pool of the driver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.core.byte_sizes import Size, byte_size
from headrace.resources.block_store import BlockStore
from headrace.resources.cuda_allocator import CudaAllocator, check_limits
from headrace.resources.memory_sources import DeviceMemory, memory_source
from headrace.resources.memory_storage_type import MemoryStorageType

if TYPE_CHECKING:
    from headrace.core.composition import Composition

__all__ = ["StreamOrderedAllocator"]


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

    served = (MemoryStorageType.DEVICE,)

    def __init__(
        self,
        fragment: Composition | None = None,
        device_memory_initial_size: Size = "8MB",
        device_memory_max_size: Size = "16MB",
        release_threshold: Size = "4MB",
        dev_id: int = 0,
        *,
        name: str = "stream_ordered_allocator",
    ) -> None:
        super().__init__(fragment, dev_id=dev_id, name=name)
        self.device_memory_initial_size = byte_size(
            device_memory_initial_size, f"{name!r}: device_memory_initial_size"
        )
        self.device_memory_max_size = byte_size(
            device_memory_max_size, f"{name!r}: device_memory_max_size", 1
        )
        self.release_threshold = byte_size(release_threshold, f"{name!r}: release_threshold")
        check_limits(name, "device", self.device_memory_initial_size, self.device_memory_max_size)

    def _make_store(self, storage: MemoryStorageType) -> BlockStore:
        def source() -> Any:
            memory_source(storage, self.dev_id, repr(self.name))  # raises where there is no such device
            keep = max(self.release_threshold, self.device_memory_initial_size)
            return DeviceMemory(self.dev_id, keep=keep)

        return BlockStore(
            source,
            self.dev_id,
            self.announce,
            limit=self.device_memory_max_size,
            keep=self.release_threshold,
        )

    def _prepare(self) -> None:
        self._warm(MemoryStorageType.DEVICE, self.device_memory_initial_size)
