"""Numba: arrays on the device are described by the CUDA array interface."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.tensor.device_arrays import ArrayAt, DeviceLibrary, Layout

if TYPE_CHECKING:
    from headrace.gpu import StreamHandle


class Numba(DeviceLibrary):
    """Numba's device arrays."""

    name = "Numba"
    types = ("numba.DeviceNDArray", "numba_cuda.DeviceNDArray")

    def stream(self, handle: StreamHandle) -> Any:
        """Return Numba's object for a stream."""
        from numba import cuda

        return cuda.default_stream() if handle.is_default else cuda.external_stream(int(handle))

    def layout(self, array: Any) -> Layout:
        """Return the layout of an array."""
        return Layout(self, tuple(array.shape), tuple(array.strides), array.dtype, 0)

    def address(self, array: Any) -> int:
        """Return the address of the first element."""
        return int(array.__cuda_array_interface__["data"][0])

    def at(self, layout: Layout, address: int, owner: Any) -> Any:
        """Return an array at an address."""
        from numba import cuda

        memory = ArrayAt(address, layout.shape, layout.dtype.str, owner, layout.strides)
        return cuda.as_cuda_array(memory, sync=False)


LIBRARY = Numba()
