"""The arrays of a simulated device (`headrace.gpu.sim.arrays`): computed on headrace's own current stream."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.gpu import StreamHandle
from headrace.gpu.sim.arrays import creation
from headrace.gpu.sim.arrays.array import Array, array_at
from headrace.gpu.sim.arrays.work import PrivatePool, array_stream, using_pool
from headrace.tensor.device_arrays import ArrayAt, DeviceLibrary, Layout
from headrace.tensor.types import DLDevice, element_from_name

if TYPE_CHECKING:
    from headrace.tensor.description import Description
    from headrace.tensor.tensor import Tensor

_device = cache(DLDevice)


class SimulatedArrays(DeviceLibrary):
    """Arrays of a simulated device."""

    name = "headrace.gpu.sim.arrays"
    types = (Array,)
    works_on_cuda_streams = False
    works_on_simulated_streams = True
    lasts = True

    @staticmethod
    def current_stream(device_id: int) -> int:
        """Return the handle of the current stream."""
        return array_stream().handle

    @staticmethod
    def describe(array: Any, device: tuple[int, int]) -> Description:
        """Return the description of an array."""
        element = element_from_name(array.dtype.name)
        is_readonly = not array._view.flags.writeable
        return (array._address, array.shape, array.strides, element, _device(*device), is_readonly)

    def from_tensor(self, tensor: Tensor) -> Any:
        """Return an array on the memory of a tensor, or with a copy of one on the host."""
        return creation.asarray(tensor if tensor.device.is_cuda else np.asarray(tensor))

    owner: Callable[[Any], Any] = staticmethod(attrgetter("_memory"))  # type: ignore[assignment]
    """Return what keeps the memory."""

    begin: Callable[[Any], int] = staticmethod(attrgetter("_memory.handle"))  # type: ignore[assignment]
    """Return the address of that memory."""

    # Streams: what is current for headrace is current for them.

    def stream(self, handle: StreamHandle) -> Any:
        """Return the stream itself."""
        return handle.stream

    def read_stream(self) -> Any:
        """Return nothing: there is no other current stream than headrace's."""

    def set_stream(self, state: Any) -> None:
        """Do nothing, likewise."""

    def stream_state(self, handle: StreamHandle) -> Any:
        """Return nothing, likewise."""

    # Memory.

    def private_memory(self, device_id: int) -> Callable[[], AbstractContextManager[Any]]:
        """Return a function whose contexts make arrays come from a new pool."""
        pool = PrivatePool()
        return lambda: using_pool(pool)

    def layout(self, array: Any) -> Layout:
        """Return the layout of an array."""
        return Layout(self, array.shape, array.strides, array.dtype, array._device_id)

    address: Callable[[Any], int] = staticmethod(attrgetter("_address"))  # type: ignore[assignment]
    """Return the address of the first element."""

    def at(self, layout: Layout, address: int, owner: Any) -> Any:
        """Return an array at an address."""
        memory = ArrayAt(address, layout.shape, layout.dtype.str, owner, layout.strides)
        return array_at(memory.__cuda_array_interface__, owner)

    def links(self, array: Any) -> tuple[Any, ...]:
        """Return the array and what keeps its memory, which views share."""
        return (array, array._memory)


LIBRARIES = {"simulated": SimulatedArrays()}
