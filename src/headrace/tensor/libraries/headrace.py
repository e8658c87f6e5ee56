"""headrace's own tensors: the owner of the memory is that of the array they were made from."""

from __future__ import annotations

from typing import Any, NamedTuple

from headrace.tensor.device_arrays import DeviceLibrary, Layout, Unsupported
from headrace.tensor.types import DLDataType, DLDevice, DLDeviceType


class _Dtype(NamedTuple):
    """The element type of a tensor, and whether the tensor is read-only."""

    element: DLDataType
    is_readonly: bool
    itemsize: int


class Tensors(DeviceLibrary):
    """Tensors."""

    name = "headrace"
    types = ("headrace.Tensor",)

    def layout(self, array: Any) -> Layout:
        """Return the layout of a tensor in device memory."""
        device = array.device
        if not device.is_cuda or device.is_host:
            raise Unsupported(
                f"a tensor in memory of the host ({device}), and a captured segment reads device memory"
            )
        element = array.dl_dtype
        dtype = _Dtype(element, array.is_readonly, element.itemsize)
        return Layout(self, array.shape, array.strides, dtype, device.device_id)

    def address(self, array: Any) -> int:
        """Return the address of the first element."""
        return array.data  # type: ignore[no-any-return]

    def numpy_dtype(self, layout: Layout) -> Any:
        """Return NumPy's dtype, or None for one that needs another package."""
        try:
            return layout.dtype.element.numpy()
        except Exception:
            return None

    def at(self, layout: Layout, address: int, owner: Any) -> Any:
        """Return a tensor at an address."""
        from headrace.tensor.tensor import Tensor

        element, is_readonly, _ = layout.dtype
        where = DLDevice(DLDeviceType.CUDA, layout.device_id)
        described = (address, layout.shape, layout.strides, element, where, is_readonly)
        return Tensor._at(described, owner)


LIBRARY = Tensors()
