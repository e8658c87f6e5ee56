"""Tensors on memory that an allocator provides.

The memory has no array of a library around it, so its capsules are created here, as those of read-only tensors are:
by NumPy, from a view with elements of the same size, and then relabeled. NumPy never accesses the memory. Every
capsule and every view keeps the allocation, so the memory returns to its pool with the last of them.

A capsule of pinned memory says that it is memory of the CPU, which it is, too. PyTorch takes no other name for it
(2.13).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace import gpu
from headrace.tensor import capsule as capsules
from headrace.tensor.description import Description, compute_layout
from headrace.tensor.errors import TensorError
from headrace.tensor.tensor import Tensor
from headrace.tensor.types import DLDataType, DLDevice, DLDeviceType, element_from_name, element_from_typestr

if TYPE_CHECKING:
    from headrace.gpu.allocation import Allocation

__all__ = ["element_of", "tensor_of_allocation"]

_STAND_IN_TYPESTR = {1: "|u1", 2: "=u2", 4: "=u4", 8: "=u8", 16: "=c16"}


def element_of(dtype: Any) -> DLDataType:
    """Return the element type that a dtype of NumPy or ml_dtypes, or the name of one, stands for."""
    if isinstance(dtype, DLDataType):
        return dtype
    import numpy as np

    try:
        found: np.dtype[Any] = np.dtype(dtype)
    except TypeError:
        return element_from_name(dtype if isinstance(dtype, str) else str(dtype))
    if found.kind == "V":  # as NumPy sees the types of ml_dtypes
        return element_from_name(found.name)
    return element_from_typestr(found.str)


def tensor_of_allocation(
    allocation: Allocation,
    shape: tuple[int, ...],
    element: DLDataType,
    device: DLDevice,
    strides: tuple[int, ...] | None = None,
) -> Tensor:
    """Return a C-contiguous tensor at the beginning of an allocation; `strides` where they are known to fit."""
    if strides is None:
        strides, _, end = compute_layout(shape, None, 1, element.itemsize)
        if end > allocation.size:
            raise TensorError(f"a tensor of {end} bytes does not fit into {allocation.size}")
    description: Description = (allocation.address, shape, strides, element, device, False)
    # No library could read memory of a simulated device.
    is_exported = gpu.backend() == "cuda" or device.device_type != DLDeviceType.CUDA
    exporter = _Exporter(allocation, description) if is_exported else None
    return Tensor._create(description, allocation, exporter, None)


class _Exporter:
    """Creates the capsules of a tensor on an allocation."""

    __slots__ = ("_allocation", "_description")

    def __init__(self, allocation: Allocation, description: Description) -> None:
        self._allocation = allocation
        self._description = description

    def __dlpack_device__(self) -> tuple[int, int]:
        device = self._description[4]
        return (device.device_type, device.device_id)

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        import numpy as np

        address, shape, strides, element, device, _ = self._description
        if copy and not device.is_host:
            raise BufferError("an allocator's device memory is not copied by DLPack; copy it with a library")
        typestr = _STAND_IN_TYPESTR.get(element.itemsize)
        if typestr is None or element.bits * element.lanes % 8:
            raise BufferError(f"no library exports {element.name}")
        source = _NumpySource()
        source.allocation = self._allocation
        source.__array_interface__ = {
            "shape": shape,
            "typestr": typestr,
            "data": (address, False),
            "strides": strides,
            "version": 3,
        }
        array = np.asarray(source)
        if copy:
            array = array.copy()
        capsule = array.__dlpack__() if max_version is None else _versioned(array, max_version)
        is_cpu = device.device_type in (DLDeviceType.CPU, DLDeviceType.CUDA_HOST)
        named = DLDevice(DLDeviceType.CPU, 0) if copy or is_cpu else device
        capsules.relabel(capsule, element, named)
        return capsule


class _NumpySource:
    """Memory of an allocation as NumPy sees it; keeps the allocation."""

    __array_interface__: dict[str, Any]
    allocation: Allocation


def _versioned(array: Any, max_version: tuple[int, int]) -> Any:
    try:
        return array.__dlpack__(max_version=max_version)
    except TypeError:  # NumPy before 2.1 has only the old form
        return array.__dlpack__()
