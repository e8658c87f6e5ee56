"""Requesting DLPack capsules from arrays, and creating the capsules of read-only tensors.

**Read-only memory.** Since version 1.0, DLPack can mark memory as read-only. JAX and TensorFlow export the older
form. The capsule of a read-only tensor is therefore created by NumPy, from a view of the same memory with elements
of the same size, and then relabeled with the right type and device. NumPy never accesses the memory, so it may be
GPU memory. This costs 5 µs; a capsule of a NumPy array costs less than 1 µs.

**Consumers.** The protocol does not name the consumer, but two of them need special treatment. JAX requests the old
form and never writes, so it may have read-only memory that is not marked. PyTorch requests the new form and writes
despite the mark (2.13), so the program is warned, as `torch.from_numpy` does. Both make the request from Python
code, so the caller's module identifies them. Every other consumer is treated as the protocol specifies.
"""

from __future__ import annotations

import warnings
from types import FrameType
from typing import TYPE_CHECKING, Any

from headrace.tensor import capsule as capsules
from headrace.tensor.errors import type_name
from headrace.tensor.libraries import Library, library_of

if TYPE_CHECKING:
    from headrace.tensor.tensor import Tensor

_NEVER_WRITES = frozenset(("jax", "jaxlib", "tensorflow"))
# Types that NumPy can export, by the bytes of an element.
_STAND_IN_TYPESTR = {1: "|u1", 2: "=u2", 4: "=u4", 8: "=u8", 16: "=c16"}

# Types whose `__dlpack__` takes only a stream, as before DLPack 1.0.
_old_style: set[type] = set()


def request_capsule(
    array: Any, stream: int | None, max_version: tuple[int, int] | None, library: Library | None = None
) -> Any:
    """Return a capsule of an array, in the old form if its type supports no other."""
    kind: type = type(array)
    stream = (library or library_of(kind)).stream_argument(stream)
    if max_version is None or kind in _old_style:
        return array.__dlpack__(stream=stream)
    try:
        return array.__dlpack__(stream=stream, max_version=max_version)
    except TypeError as refused:
        if not (isinstance(max_version, tuple) and len(max_version) == 2):
            raise  # a mistake of the consumer, unrelated to the type
        try:
            capsule = array.__dlpack__(
                stream=stream
            )  # if the form was not the reason, this raises the real error
        except Warning:  # warnings are errors, and this one only reports the old form
            raise refused from None
        _old_style.add(kind)
        return capsule


def request_copy(
    array: Any,
    stream: int | None,
    max_version: tuple[int, int] | None,
    dl_device: tuple[int, int] | None,
    copy: bool | None,
) -> Any:
    """Return a capsule of an array or of a copy of it, as its owner decides."""
    stream = library_of(type(array)).stream_argument(stream)
    arguments: dict[str, Any] = {"stream": stream, "max_version": max_version}
    if dl_device is not None:
        arguments["dl_device"] = dl_device
    if copy is not None:
        arguments["copy"] = copy
    try:
        return array.__dlpack__(**arguments)
    except TypeError as error:
        raise BufferError(
            f"{type_name(array)} does not support copying or another device in DLPack"
        ) from error


def make_read_only_capsule(
    tensor: Tensor, stream: int | None, max_version: tuple[int, int] | None, caller: FrameType
) -> Any:
    """Return a capsule that marks a tensor as read-only; `caller` is the frame of the consumer."""
    library = str(caller.f_globals.get("__name__")).partition(".")[0]
    can_say_read_only = max_version is not None and max_version[0] >= 1
    if not can_say_read_only and library not in _NEVER_WRITES:
        raise tensor._export_error(
            "it is read-only, and the requested old form cannot express that. Request it with "
            "max_version=(1, 0), or a copy with copy=True; numpy.asarray and cupy.asarray accept it as it is"
        )
    if library == "torch":
        warnings.warn(
            "PyTorch ignores that this memory is read-only: do not write to this PyTorch tensor, or copy it with "
            "torch.from_dlpack(tensor, copy=True)",
            stacklevel=4,  # the caller of torch.from_dlpack
        )
    import numpy as np

    if can_say_read_only and type(tensor._exporter) is np.ndarray:
        return request_capsule(tensor._exporter, stream, max_version)  # which is marked as read-only itself
    return _export_through_numpy(tensor, stream, can_say_read_only)


class _NumpySource:
    """A tensor's memory as NumPy sees it; keeps the tensor alive."""

    __array_interface__: dict[str, Any]
    tensor: Tensor


def _export_through_numpy(tensor: Tensor, stream: int | None, can_say_read_only: bool) -> Any:
    import numpy as np

    element = tensor.dl_dtype
    typestr = _STAND_IN_TYPESTR.get(element.itemsize)
    if typestr is None or element.bits * element.lanes % 8:
        raise tensor._export_error(f"it is read-only, and no library exports {element.name} as read-only")
    source = _NumpySource()
    source.tensor = tensor
    source.__array_interface__ = {
        "shape": tensor.shape,
        "typestr": typestr,
        "data": (0 if 0 in tensor.shape else tensor.data, False),
        "strides": tensor.strides,
        "version": 3,
    }
    array = np.asarray(source)
    if can_say_read_only:
        array.flags.writeable = False
    capsule = request_capsule(array, stream, (1, 0) if can_say_read_only else None)
    capsules.relabel(capsule, element, tensor.device)
    return capsule
