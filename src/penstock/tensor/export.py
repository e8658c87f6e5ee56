"""Asking an array for a DLPack capsule, in the form it understands; and making the capsules of read-only memory.

**Read-only memory.** DLPack can say that memory must not be written to since version 1.0. JAX and TensorFlow make
the form before that. So the capsule of a read-only tensor is one that NumPy makes of a view over the same memory,
of elements of the same size, with the type and the device put right. NumPy never touches the memory, which may
therefore be a GPU's. It costs 5 µs; what NumPy exports itself costs less than one.

**Who asks.** The protocol does not say, and two consumers must be told apart. JAX asks for the old form, and never
writes: it may have read-only memory without being told. PyTorch asks for the new form, is told, and writes all the
same (2.13): the program is warned, as it is by `torch.from_numpy`. Both ask from Python, so the caller's module
tells. A consumer that is not recognised is treated by the protocol alone.
"""

import warnings
from types import FrameType
from typing import TYPE_CHECKING, Any

from penstock.tensor import capsule as capsules
from penstock.tensor.errors import type_name
from penstock.tensor.libraries import Library, library_of

if TYPE_CHECKING:
    from penstock.tensor.tensor import Tensor

_NEVER_WRITES = frozenset(("jax", "jaxlib", "tensorflow"))
# What NumPy can make a capsule of, by the bytes of an element.
_CARRIED_AS = {1: "|u1", 2: "=u2", 4: "=u4", 8: "=u8", 16: "=c16"}

# Types whose `__dlpack__` takes a stream and nothing else, as it was before DLPack 1.0.
_old_style: set[type] = set()


def request_capsule(
    array: Any, stream: int | None, max_version: tuple[int, int] | None, library: Library | None = None
) -> Any:
    """Return a capsule of an array; of a type that knows only the old form, that one."""
    kind: type = type(array)
    stream = (library or library_of(kind)).told(stream)
    if max_version is None or kind in _old_style:
        return array.__dlpack__(stream=stream)
    try:
        return array.__dlpack__(stream=stream, max_version=max_version)
    except TypeError as refused:
        if not (isinstance(max_version, tuple) and len(max_version) == 2):
            raise  # the consumer's fault, from which nothing follows for the type
        try:
            capsule = array.__dlpack__(stream=stream)  # if the form was not the reason, this says what was
        except Warning:  # unless it only says that the form is old, where warnings are errors
            raise refused from None
        _old_style.add(kind)
        return capsule


def request_elsewhere(
    array: Any,
    stream: int | None,
    max_version: tuple[int, int] | None,
    dl_device: tuple[int, int] | None,
    copy: bool | None,
) -> Any:
    """Return a capsule of an array, or of a copy of it, as its owner decides."""
    stream = library_of(type(array)).told(stream)
    asked: dict[str, Any] = {"stream": stream, "max_version": max_version}
    if dl_device is not None:
        asked["dl_device"] = dl_device
    if copy is not None:
        asked["copy"] = copy
    try:
        return array.__dlpack__(**asked)
    except TypeError as error:
        raise BufferError(f"{type_name(array)} cannot copy or change device for DLPack") from error


def read_only_capsule(
    tensor: "Tensor", stream: int | None, max_version: tuple[int, int] | None, asker: FrameType
) -> Any:
    """Return a capsule that says that a tensor must not be written to; `asker` is the frame that asks for it."""
    library = str(asker.f_globals.get("__name__")).partition(".")[0]
    is_told = max_version is not None and max_version[0] >= 1
    if not is_told and library not in _NEVER_WRITES:
        raise tensor._not_exported(
            "it must not be written to, and the old form, which was asked for, cannot say so. Ask with "
            "max_version=(1, 0), or for a copy with copy=True; numpy.asarray and cupy.asarray take it as it is"
        )
    if library == "torch":
        warnings.warn(
            "PyTorch writes to memory that must not be written to: do not change this PyTorch tensor, or have it "
            "copied with torch.from_dlpack(tensor, copy=True)",
            stacklevel=4,  # whoever called torch.from_dlpack
        )
    import numpy as np

    if is_told and type(tensor._exporter) is np.ndarray:
        return request_capsule(tensor._exporter, stream, max_version)  # which says so itself
    return _carry(tensor, stream, is_told)


class _Carrier:
    """A tensor's memory, as NumPy is told of it; keeps the tensor."""

    __array_interface__: dict[str, Any]
    tensor: "Tensor"


def _carry(tensor: "Tensor", stream: int | None, is_told: bool) -> Any:
    import numpy as np

    element = tensor.dl_dtype
    typestr = _CARRIED_AS.get(element.itemsize)
    if typestr is None or element.bits * element.lanes % 8:
        raise tensor._not_exported(
            f"it must not be written to, and nothing makes a capsule of {element.name} that says so"
        )
    carrier = _Carrier()
    carrier.tensor = tensor
    carrier.__array_interface__ = {
        "shape": tensor.shape,
        "typestr": typestr,
        "data": (0 if 0 in tensor.shape else tensor.data, False),
        "strides": tensor.strides,
        "version": 3,
    }
    array = np.asarray(carrier)
    if is_told:
        array.flags.writeable = False
    capsule = request_capsule(array, stream, (1, 0) if is_told else None)
    capsules.relabel(capsule, element, tensor.device)
    return capsule
