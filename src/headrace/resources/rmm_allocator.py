"""RMMAllocator: pools of device and pinned memory, on RMM where it is installed.

RMM (the RAPIDS Memory Manager) is used for device memory if it can be imported and the device is real. Elsewhere
the memory comes from cuda.core's pool, with the same limits and the same behaviour. Pinned memory has a pool of
headrace's own either way, because RMM's Python package has none.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from headrace import gpu
from headrace.core.values import Size
from headrace.gpu.backend import active
from headrace.resources.allocators import CudaAllocator
from headrace.resources.memory_sources import DeviceMemory, MemorySource, MemoryStorageType
from headrace.tensor import DLDevice, DLDeviceType

if TYPE_CHECKING:
    from headrace.core.composition import Composition

_STEP = 256  # RMM's sizes are multiples of it


class RMMAllocator(CudaAllocator):
    """Device and pinned memory of any size, each from a pool with a limit.

    Parameters
    ----------
    fragment
        The fragment it belongs to.
    device_memory_initial_size, host_memory_initial_size
        The memory that each pool has from the start of a run, as ``"8MB"`` or a number of bytes.
    device_memory_max_size, host_memory_max_size
        The most that may be in use at once.
    dev_id
        The device.
    """

    served = (MemoryStorageType.DEVICE, MemoryStorageType.HOST)

    def __init__(
        self,
        fragment: Composition | None = None,
        device_memory_initial_size: Size = "8MB",
        device_memory_max_size: Size = "16MB",
        host_memory_initial_size: Size = "8MB",
        host_memory_max_size: Size = "16MB",
        dev_id: int = 0,
        *,
        name: str = "rmm_pool",
    ) -> None:
        super().__init__(fragment, dev_id=dev_id, name=name)
        self.device_memory_initial_size, self.device_memory_max_size = self._read_sizes(
            MemoryStorageType.DEVICE, device_memory_initial_size, device_memory_max_size
        )
        self.host_memory_initial_size, self.host_memory_max_size = self._read_sizes(
            MemoryStorageType.HOST, host_memory_initial_size, host_memory_max_size
        )

    @property
    def is_on_rmm(self) -> bool:
        """Whether its device memory comes from RMM."""
        return active().runs_cuda and find_spec("rmm") is not None

    def for_torch(self) -> AbstractContextManager[Any]:
        """Return a context in which PyTorch allocates its tensors from this pool; RMM must be installed.

        The pool becomes RMM's resource of the device for the rest of the process, because PyTorch returns memory
        through it. What PyTorch allocates does not count against the limit that this allocator checks; RMM has the
        same limit for both.
        """
        if not self.is_on_rmm:
            return super().for_torch()
        import rmm
        from rmm.allocators.torch import rmm_torch_allocator

        from headrace.tensor.libraries.torch import use_allocator

        memory = self._store(MemoryStorageType.DEVICE).open()
        assert isinstance(memory, RMMMemory)
        rmm.mr.set_per_device_resource(self.dev_id, memory.resource)
        return use_allocator(rmm_torch_allocator.allocator())

    def _make_source(self, storage: MemoryStorageType) -> MemorySource:
        checked = super()._make_source(storage)
        if storage is not MemoryStorageType.DEVICE:
            return checked
        initial, most = self._sizes[storage]
        return (
            RMMMemory(self.dev_id, initial, most) if self.is_on_rmm else DeviceMemory(self.dev_id, keep=most)
        )

    def _prepare(self) -> None:
        if active().has_devices:
            self._warm(MemoryStorageType.DEVICE)
        self._warm(MemoryStorageType.HOST)


class RMMMemory:
    """Device memory from a pool of RMM.

    Attributes
    ----------
    resource
        RMM's pool.
    """

    is_stream_ordered = True

    def __init__(self, device_id: int, initial: int, most: int) -> None:
        import rmm

        self.device = DLDevice(DLDeviceType.CUDA, device_id)
        with gpu.on_device(device_id):
            self.resource = rmm.mr.PoolMemoryResource(
                rmm.mr.CudaMemoryResource(),
                initial_pool_size=-(-initial // _STEP) * _STEP,
                maximum_pool_size=-(-most // _STEP) * _STEP,
            )

    def allocate(self, size: int, stream: Any) -> RMMBuffer:
        """Return a buffer, to be used after the stream's work so far."""
        from rmm.pylibrmm.stream import Stream

        with gpu.on_device(self.device.device_id):
            return RMMBuffer(self.resource.allocate(size, stream=Stream(obj=stream)), size)

    def free(self, buffer: RMMBuffer, stream: Any) -> None:
        """Free a buffer after the stream's work so far."""
        from rmm.pylibrmm.stream import Stream

        with gpu.on_device(self.device.device_id):
            self.resource.deallocate(buffer.handle, buffer.size, stream=Stream(obj=stream))


@dataclass(frozen=True, slots=True)
class RMMBuffer:
    """Memory of RMM."""

    handle: int
    size: int
