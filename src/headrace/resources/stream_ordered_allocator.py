"""StreamOrderedAllocator: device memory from a stream-ordered pool of the driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.core.values import Size, byte_size
from headrace.resources.cuda_allocator import CudaAllocator
from headrace.resources.memory_sources import DeviceMemory, MemorySource
from headrace.resources.memory_storage_type import MemoryStorageType

if TYPE_CHECKING:
    from headrace.core.composition import Composition


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
        self.device_memory_initial_size, self.device_memory_max_size = self._read_sizes(
            MemoryStorageType.DEVICE, device_memory_initial_size, device_memory_max_size
        )
        self.release_threshold = self._keep = byte_size(release_threshold, f"{name!r}: release_threshold")

    def _make_source(self, storage: MemoryStorageType) -> MemorySource:
        super()._make_source(storage)  # raises where there is no such device
        return DeviceMemory(self.dev_id, keep=max(self.release_threshold, self.device_memory_initial_size))

    def _prepare(self) -> None:
        self._warm(MemoryStorageType.DEVICE)
