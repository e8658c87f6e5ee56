"""The array interfaces: NumPy's for the host's memory, and its sibling for the GPU's, version 3."""

from typing import TYPE_CHECKING, Any

from penstock.tensor._description import Description, row_major
from penstock.tensor._errors import TensorError
from penstock.tensor._types import DLDevice, element_of

if TYPE_CHECKING:
    from penstock.tensor._tensor import Tensor


def read(interface: Any, device: DLDevice) -> Description:
    """Return what the dictionary of an array interface says."""
    check(interface)
    try:
        shape = tuple(interface["shape"])
        typestr = interface["typestr"]
        data, is_readonly = interface["data"]
    except (KeyError, TypeError, ValueError) as error:
        raise TensorError(f"it has no usable shape, typestr and data ({error!r})") from error
    element = element_of(typestr)
    strides = interface.get("strides")
    strides = row_major(shape, element.itemsize) if strides is None else tuple(strides)
    return (int(data), shape, strides, element, device, bool(is_readonly))


def check(interface: Any) -> None:
    """Refuse what a tensor cannot say."""
    if interface.get("mask") is not None:
        raise TensorError("it has a mask; a tensor has none")


def write(tensor: "Tensor") -> dict[str, Any]:
    """Return the dictionary of a tensor, as both interfaces have it."""
    element, shape, strides = tensor.dl_dtype, tensor.shape, tensor.strides
    typestr = element.typestr
    if typestr is None:
        raise AttributeError(f"the array interfaces have no name for {element.name}; use DLPack")
    is_row_major = strides == row_major(shape, element.itemsize)  # nearly always, and soon known
    return {
        "shape": shape,
        "typestr": typestr,
        "data": (0 if 0 in shape else tensor.data, tensor.is_readonly),
        "strides": None if is_row_major or tensor.is_contiguous() else strides,
        "version": 3,
    }
