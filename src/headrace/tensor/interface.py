"""The array interfaces, version 3: NumPy's for host memory, and the CUDA array interface for GPU memory.

Implementations write the dict by hand, so every entry is checked before it is used. An error names the entry and
states what would be right.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import index
from typing import TYPE_CHECKING, Any

from headrace.tensor.description import END_OF_MEMORY, Description, compute_layout, invalid_address, row_major
from headrace.tensor.types import DLDataType, DLDevice, TensorError, element_from_typestr, error_text

if TYPE_CHECKING:
    from headrace.tensor.tensor import Tensor

_VERSIONS = range(4)  # RMM writes 0, DALI and PyCUDA write 2; the entries read here are the same in all


def read(interface: Any, device: DLDevice, element: DLDataType | None = None) -> Description:
    """Return the description of memory that an array interface names by address.

    `element` is the type of the elements where the interface cannot name it.
    """
    shape, strides, element = _read_layout(interface, element)
    if "data" not in interface:
        raise _missing("data")
    data = interface["data"]
    if not (isinstance(data, tuple) and len(data) == 2):
        raise TensorError(
            f"its data is {data!r:.100}; it should be a tuple of an address and a read-only flag"
        )
    address = _integer("address", data[0])
    is_readonly = data[1]
    if is_readonly not in (False, True):
        raise TensorError(f"its read-only flag is {is_readonly!r:.100}; it should be a bool")
    strides, first, end = compute_layout(shape, strides, 1, element.itemsize)
    if end and not (address + first > 0 and address + end < END_OF_MEMORY):
        raise invalid_address(address, first, end)
    return (address, shape, strides, element, device, bool(is_readonly))


def read_buffer(interface: Any, buffer: Any, device: DLDevice) -> tuple[Description, Any]:
    """Return the description of memory in a buffer of an array interface, and an object that keeps it alive.

    Raises an error unless the elements lie inside the buffer, which NumPy does not check.
    """
    import numpy as np

    shape, strides, element = _read_layout(interface)
    try:
        size = memoryview(buffer).nbytes
        memory = np.frombuffer(buffer, np.uint8) if size else np.zeros(0, np.uint8)
    except (TypeError, ValueError, BufferError) as error:
        raise TensorError(
            f"its data is {type(buffer).__name__}; it should be a tuple of an address and a read-only flag, or a "
            f"contiguous buffer ({error_text(error)})"
        ) from None
    strides, first, end = compute_layout(shape, strides, 1, element.itemsize)
    start = _integer("offset", interface.get("offset", 0))
    if end and not (start + first >= 0 and start + end <= size):
        raise TensorError(
            f"its elements lie from byte {start + first} to byte {start + end} of a buffer of {size} bytes"
        )
    address = memory.__array_interface__["data"][0]
    return (
        address + start if end else 0,
        shape,
        strides,
        element,
        device,
        not memory.flags.writeable,
    ), memory


def _read_layout(
    interface: Any, element: DLDataType | None = None
) -> tuple[tuple[int, ...], tuple[int, ...] | None, DLDataType]:
    """Return shape, strides and element type, after checking the entries that both interfaces have."""
    if not isinstance(interface, Mapping):
        raise TensorError(f"it is {type(interface).__name__}; it should be a dict")
    if interface.get("mask") is not None:
        raise TensorError(
            "it has a mask, which a tensor cannot have: fill the masked elements, or use data "
            "and mask as two arrays"
        )
    for required in ("version", "shape", "typestr"):
        if required not in interface:
            raise _missing(required)
    version = _integer("version", interface["version"])
    if version not in _VERSIONS:
        raise TensorError(f"its version is {version}; it should be 3 (0 to 2 are also supported)")
    typestr = interface["typestr"]
    if not isinstance(typestr, str):
        raise TensorError(f"its typestr is {typestr!r:.100}; it should be a string such as '<f4'")
    strides = interface.get("strides")
    return (
        _integers("shape", interface["shape"]),
        None if strides is None else _integers("strides", strides),
        element_from_typestr(typestr) if element is None else element,
    )


def _missing(entry: str) -> TensorError:
    return TensorError(f"it has no {entry!r}; 'shape', 'typestr', 'data' and 'version' are needed")


def _integer(what: str, value: Any) -> int:
    try:
        return index(value)
    except TypeError:
        raise TensorError(f"its {what} is {value!r:.100}; it should be an int") from None


def _integers(what: str, values: Any) -> tuple[int, ...]:
    try:
        if isinstance(values, tuple | list):
            return tuple([index(value) for value in values])
    except TypeError:
        pass
    raise TensorError(f"its {what} is {values!r:.100}; it should be a tuple of ints")


def write(tensor: Tensor) -> dict[str, Any]:
    """Return the dict of a tensor, with the entries that both interfaces have."""
    element, shape, strides = tensor.dl_dtype, tensor.shape, tensor.strides
    typestr = element.typestr
    if typestr is None:
        raise AttributeError(f"the array interfaces have no name for {element.name}; use DLPack")
    is_row_major = strides == row_major(shape, element.itemsize)  # nearly always true, and cheap to check
    return {
        "shape": shape,
        "typestr": typestr,
        "data": (0 if 0 in shape else tensor.data, tensor.is_readonly),
        "strides": None if is_row_major or tensor.is_contiguous() else strides,
        "version": 3,
    }
