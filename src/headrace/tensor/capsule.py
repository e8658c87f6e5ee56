"""DLPack capsules: read, and made of a description.

**Reading.** A capsule is a Python object around a C structure. No library reads one for every element type on a
machine without CUDA, so it is read here, with ctypes. Its contents are checked before they are used. That takes
about half the time of `as_tensor` (benchmarks/tensor.py).

A capsule is taken over, as the protocol asks of a consumer: it is renamed as used, and its deleter is called once,
when the memory is no longer needed. A producer may keep the capsule that it returned. If the capsule were only kept
alive, another consumer could take it from the producer and free memory that a tensor still describes.

**Making.** The array that a tensor was made from is not asked again. It may answer with other memory: a library
may export a copy each time, and PyTorch may give a tensor another storage. A consumer then gets what `tensor.data`
names in any case. The capsules are created by NumPy, from a view of the memory, and relabeled where NumPy cannot
express the element type or the device (`headrace.gpu.dlpack`). The view then has elements of the same size. NumPy
never accesses the memory, so it may be GPU memory. Every capsule keeps the objects that the memory belongs to. Its
destructor is compiled code: one written with ctypes would run Python code while an exception propagates, which is
when consumers drop a capsule that they reject.

**Read-only tensors.** Since version 1.0, DLPack can mark memory as read-only. The protocol does not name the
consumer, but two kinds need special treatment. JAX requests the old form and never writes, so it may have
read-only memory that is not marked. PyTorch requests the new form and writes despite the mark (2.13), so the
program is warned, as `torch.from_numpy` does. Both make the request from Python code, so the caller's module
identifies them (`Library.is_immutable`, `Library.ignores_read_only`). Every other consumer is treated as the
protocol specifies.

**Old forms.** A type that supports only the old form of the protocol is recognised by the TypeError that it raises.
An error of this package is not such an answer: an array that asks for a tensor of itself would be asked twice as
often at every level.
"""

from __future__ import annotations

import ctypes
import struct
import threading
import warnings
from dataclasses import dataclass
from functools import cache, lru_cache
from types import FrameType
from typing import TYPE_CHECKING, Any

from headrace.gpu.backend import active
from headrace.gpu.dlpack import LEGACY, VERSIONED, address_of, relabel
from headrace.tensor.description import (
    END_OF_MEMORY,
    MAX_DIMENSIONS,
    Description,
    compute_layout,
    invalid_address,
)
from headrace.tensor.libraries import Library, library_of, library_of_module
from headrace.tensor.types import CPU, DLDataType, DLDevice, DLDeviceType, TensorError, type_name

if TYPE_CHECKING:
    import numpy as np

    from headrace.tensor.tensor import Tensor


# The newest supported version; capsules of later minor versions have the same layout.
VERSION = (1, 1)

_USED = {VERSIONED: b"used_dltensor_versioned", LEGACY: b"used_dltensor"}
_READ_ONLY, _PADDED = 1, 4  # bits of the flags

# DLTensor: address, device, ndim, element type, addresses of shape and strides, byte offset. The device (type and
# number) and the element type (code, bits and lanes) are each read as one word, the key under which they are
# cached.
_DLTENSOR = "QQiIQQQ"
# Versioned: version (major, minor), the manager's context, its deleter, flags, then a DLTensor.
_versioned = struct.Struct("=I12xQQ" + _DLTENSOR)
# Legacy: a DLTensor, then the manager's context and its deleter.
_legacy = struct.Struct("=" + _DLTENSOR + "8xQ")
_device = struct.Struct("=ii")  # type and number
_element = struct.Struct("=BBH")  # code, bits and lanes
_bytes_at = (ctypes.c_char * _versioned.size).from_address
_integers_at = tuple((ctypes.c_int64 * ndim).from_address for ndim in range(17))

_set_name = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_SetName", ctypes.pythonapi)
)
# A capsule refers to its name and may outlive this module when the interpreter exits, so the names are never freed.
for _name in _USED.values():
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_name))
# Held while a capsule is checked and then renamed as used. Reentrant: a finalizer or a signal handler may run
# meanwhile and take another capsule over.
_consuming = threading.RLock()
# Called with the GIL held, as the destructor of a capsule calls it. The libraries have few deleters.
_deleter_from = lru_cache(maxsize=64)(ctypes.PYFUNCTYPE(None, ctypes.c_void_p))


def read(capsule: Any) -> Description:
    """Return the description in a capsule, which is left as it is."""
    address, name = _open(capsule)
    return _parse(address, name)[0]


def _parse(address: int, name: bytes) -> tuple[Description, int]:
    """Return the description at an address, and the address of the deleter."""
    if name is VERSIONED:
        major, deleter, flags, data, device, ndim, element, shape_at, strides_at, offset = (
            _versioned.unpack_from(_bytes_at(address))
        )
        if major != VERSION[0]:
            raise TensorError(f"the capsule is of DLPack {major}; only version {VERSION[0]} is supported")
    else:
        flags = 0
        data, device, ndim, element, shape_at, strides_at, offset, deleter = _legacy.unpack_from(
            _bytes_at(address)
        )
    dl_dtype = _read_element(element, flags & _PADDED)
    itemsize = dl_dtype.itemsize
    if not 0 <= ndim <= MAX_DIMENSIONS:
        raise TensorError(f"the capsule has {ndim} dimensions; a tensor has 0 to {MAX_DIMENSIONS}")
    if not shape_at and ndim:
        raise TensorError(f"the capsule has {ndim} dimensions but no shape: its pointer to the shape is NULL")
    steps: tuple[int, ...] | None
    if strides_at == shape_at + 8 * ndim:  # as in NumPy and CuPy: read both at once
        extents = _integers(shape_at, 2 * ndim)
        shape, steps = extents[:ndim], extents[ndim:]
    else:
        shape = _integers(shape_at, ndim)
        steps = _integers(strides_at, ndim) if strides_at else None
    strides, first, end = compute_layout(shape, steps, itemsize, itemsize)
    data += offset
    if end and not (data + first > 0 and data + end < END_OF_MEMORY):
        raise invalid_address(data, first, end)
    return (data, shape, strides, dl_dtype, _read_device(device), bool(flags & _READ_ONLY)), deleter


class ConsumedCapsule:
    """The memory of a capsule: taken over now, and freed with this object.

    A capsule that cannot be a tensor is left to whoever has it.
    """

    __slots__ = ("__weakref__", "_address", "_deleter", "description")

    def __init__(self, capsule: Any) -> None:
        with _consuming:
            address, name = _open(capsule)
            self.description, deleter = _parse(address, name)
            # From now on the capsule frees nothing and cannot be consumed again.
            _set_name(capsule, _USED[name])
            self._address = address
            self._deleter = _deleter_from(deleter) if deleter else None

    def __del__(self) -> None:
        try:
            deleter = self._deleter
        except AttributeError:  # it was refused
            return
        if deleter is not None:
            deleter(self._address)


def _open(capsule: Any) -> tuple[int, bytes]:
    found = address_of(capsule)
    if found is None:
        raise TensorError(
            f"{capsule!r} cannot be read: a DLPack capsule can be consumed once, and is called "
            '"dltensor" or "dltensor_versioned" until then'
        )
    return found


def _integers(address: int, count: int) -> tuple[int, ...]:
    if not count:
        return ()
    at = _integers_at[count] if count < len(_integers_at) else (ctypes.c_int64 * count).from_address
    return tuple(at(address)[:])


@cache
def _read_device(word: int) -> DLDevice:
    return DLDevice(*_device.unpack(struct.pack("=Q", word)))


@cache
def _read_element(word: int, padded: int) -> DLDataType:
    element = DLDataType(*_element.unpack(struct.pack("=I", word)))
    if not (element.bits and element.lanes):
        raise TensorError(
            f"unsupported dtype: the capsule has elements of {element.bits} bits and {element.lanes} lanes"
        )
    if element.bits * element.lanes % 8 and not (padded and element.lanes == 1):
        raise TensorError(
            f"unsupported dtype {element.name}: its elements share bytes, and those of a tensor must not"
        )
    return element


# Types that NumPy can export, by the bytes of an element.
_STAND_IN_TYPESTR = {1: "|u1", 2: "=u2", 4: "=u4", 8: "=u8", 16: "=c16"}


@dataclass(slots=True)
class MemoryExporter:
    """Creates the capsules of one tensor.

    Attributes
    ----------
    description
        The memory.
    kept
        The object that keeps the memory, and that every capsule keeps.
    producer
        The array that the memory came from, if it can copy to and on other devices.
    label
        The device that the capsules name; None for that of the description.
    """

    description: Description
    kept: object
    producer: Any = None
    label: DLDevice | None = None

    def __dlpack_device__(self) -> tuple[int, int]:
        device = self.description[4]
        return (device.device_type, device.device_id)

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Return a capsule; the streams are the tensor's to order."""
        device = self.description[4]
        label = self.label or device
        moves = dl_device is not None and tuple(dl_device) not in (device, label)
        if moves or (copy and not device.is_host):
            if self.producer is None:
                raise BufferError("DLPack cannot copy this memory; copy it with a library")
            return request_copy(self.producer, stream, max_version, dl_device, copy)
        description = (*self.description[:4], label, False)
        return create_capsule(description, self.kept, max_version, is_copied=bool(copy))


def exporter_of(description: Description, kept: object) -> MemoryExporter | None:
    """Return what creates the capsules of some memory; None for simulated memory, which no library could read."""
    device = description[4]
    if device.device_type == DLDeviceType.CUDA and not active().runs_cuda:
        return None
    # PyTorch takes no other name for pinned memory (2.13), and it is memory of the CPU, too.
    return MemoryExporter(
        description, kept, label=CPU if device.device_type == DLDeviceType.CUDA_HOST else device
    )


def create_capsule(
    description: Description,
    kept: object,
    max_version: tuple[int, int] | None,
    *,
    is_copied: bool = False,
    is_readonly: bool = False,
) -> Any:
    """Return a capsule of some memory, or of a copy of memory of the host.

    Raises
    ------
    BufferError
        If no library exports elements of this type.
    """
    element, device = description[3], description[4]
    if (
        element.bits * element.lanes % 8
    ):  # a capsule of NumPy cannot say that each element has bytes of its own
        raise BufferError(f"no library exports {element.name}")
    array = view_as_numpy(description, kept, is_readonly)
    if is_copied:
        array = array.copy()
        device = CPU
    capsule = request_capsule(array, None, max_version)
    if element.typestr is None or device.device_type != DLDeviceType.CPU:
        relabel(capsule, device, element)
    return capsule


def view_as_numpy(description: Description, kept: object, is_readonly: bool) -> np.ndarray[Any, Any]:
    """Return a view of some memory, with other elements of the same size if NumPy has none of this type."""
    import numpy as np

    address, shape, strides, element, _, _ = description
    typestr = element.typestr
    if typestr is None:
        typestr = _STAND_IN_TYPESTR.get(element.itemsize)
        if typestr is None:
            raise BufferError(f"no library exports {element.name}")
    source = _NumpySource()
    source.kept = kept
    source.__array_interface__ = {
        "shape": shape,
        "typestr": typestr,
        "data": (0 if 0 in shape else address, False),
        "strides": strides,
        "version": 3,
    }
    array = np.asarray(source)
    if is_readonly:  # not in the interface: NumPy ignores it there for an empty array
        array.flags.writeable = False
    return array


def make_read_only_capsule(tensor: Tensor, max_version: tuple[int, int] | None, caller: FrameType) -> Any:
    """Return a capsule that marks a tensor as read-only; `caller` is the frame of the consumer."""
    library = library_of_module(str(caller.f_globals.get("__name__")))
    can_say_read_only = max_version is not None and max_version[0] >= 1
    if not can_say_read_only and not library.is_immutable:
        raise tensor._export_error(
            "it is read-only, and the requested old form cannot express that. Request it with "
            "max_version=(1, 0), or a copy with copy=True; numpy.asarray and cupy.asarray accept it as it is"
        )
    if library.ignores_read_only:
        warnings.warn(
            f"{library.name} ignores that this memory is read-only: do not write to this {library.name} tensor, or "
            f"copy it with {library.module}.from_dlpack(tensor, copy=True)",
            stacklevel=4,  # the caller of from_dlpack
        )
    form = (1, 0) if can_say_read_only else None
    try:
        return create_capsule(tensor._description, tensor, form, is_readonly=can_say_read_only)
    except BufferError as error:
        raise tensor._export_error(f"it is read-only, and {error} as read-only") from None


class _NumpySource:
    """Memory as NumPy sees it; keeps what it belongs to."""

    __slots__ = ("__array_interface__", "kept")
    __array_interface__: dict[str, Any]
    kept: object


# Types whose `__dlpack__` takes only a stream, as before DLPack 1.0.
_old_style: set[type] = set()


def request_capsule(
    array: Any, stream: int | None, max_version: tuple[int, int] | None, library: Library | None = None
) -> Any:
    """Return a capsule of an array, in the old form if its type supports no other."""
    kind: type = type(array)
    if stream is not None:
        stream = (library or library_of(kind)).stream_argument(stream)
    if max_version is None or kind in _old_style:
        return array.__dlpack__(stream=stream)
    try:
        return array.__dlpack__(stream=stream, max_version=max_version)
    except TensorError:
        raise
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
    wanted = {"dl_device": dl_device, "copy": copy}
    given = {name: value for name, value in wanted.items() if value is not None}
    try:
        return array.__dlpack__(stream=stream, max_version=max_version, **given)
    except TypeError as error:
        raise BufferError(
            f"{type_name(array)} does not support copying or another device in DLPack"
        ) from error
