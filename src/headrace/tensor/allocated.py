"""Tensors on memory that an allocator provides.

Every capsule and every view keeps the allocation, so the memory returns to its pool with the last of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.tensor.description import Description, compute_layout
from headrace.tensor.errors import TensorError
from headrace.tensor.tensor import Tensor
from headrace.tensor.types import (
    DLDataType,
    DLDevice,
    element_from_dtype,
    element_from_name,
)

if TYPE_CHECKING:
    from headrace.gpu.allocation import Allocation


def element_of(dtype: Any) -> DLDataType:
    """Return the element type that a dtype of NumPy or ml_dtypes, or the name of one, stands for."""
    if isinstance(dtype, DLDataType):
        return dtype
    import numpy as np

    try:
        found: np.dtype[Any] = np.dtype(dtype)
    except TypeError:
        return element_from_name(dtype if isinstance(dtype, str) else str(dtype))
    return element_from_dtype(found)


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
    return Tensor._at(description, allocation)
