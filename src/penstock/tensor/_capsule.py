"""Reading DLPack capsules.

A capsule is a Python object around a C structure. No library of the field reads one on a machine without CUDA and
for every element type, so it is read here, with ctypes. Nothing is ever written to it, and none is made here: that
is left to whoever owns the memory, so that a capsule's destructor is always compiled code. (One written with ctypes
would run Python while an exception is on its way, which is when consumers drop a capsule they refuse.)

Reading is about half of what `as_tensor` costs where it is needed (benchmarks/tensor.py).
"""

import ctypes
import struct
import threading
from functools import cache
from typing import Any

from penstock.tensor._description import Description, row_major
from penstock.tensor._errors import TensorError
from penstock.tensor._types import DLDataType, DLDevice

# The newest form that is understood here; a capsule of a later minor version reads alike.
VERSION = (1, 1)

_VERSIONED, _LEGACY = b"dltensor_versioned", b"dltensor"
_USED = {_VERSIONED: b"used_dltensor_versioned", _LEGACY: b"used_dltensor"}
_READ_ONLY, _PADDED = 1, 4  # of the flags

# DLTensor: address, device, ndim, element type, addresses of shape and strides, byte offset. The device (type and
# number) and the element type (code, bits and lanes) are each read as one word, under which they are remembered.
_DLTENSOR = "QQiIQQQ"
# Versioned: version (major, minor), the manager's context, its deleter, flags, then a DLTensor.
_versioned = struct.Struct("=I20xQ" + _DLTENSOR)
# Legacy: a DLTensor, then the manager's context and its deleter.
_legacy = struct.Struct("=" + _DLTENSOR)
_deleter_at = {_VERSIONED: 16, _LEGACY: 56}
_bytes_at = (ctypes.c_char * _versioned.size).from_address
_integers_at = tuple((ctypes.c_int64 * ndim).from_address for ndim in range(17))

_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_set_name = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_SetName", ctypes.pythonapi)
)
# A capsule refers to its name, and may outlive this module when the interpreter ends: the names are never freed.
for _name in _USED.values():
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_name))
_taking = threading.Lock()  # between seeing that a capsule is not used yet and saying that it is
_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def read(capsule: Any) -> Description:
    """Return what a capsule says; it stays as it is, and must be kept for as long as the memory is used."""
    try:
        address = _pointer(capsule, _VERSIONED)
    except ValueError:  # it has another name
        flags = 0
        address, _ = _open(capsule)
        data, device, ndim, element, shape_at, strides_at, offset = _legacy.unpack_from(_bytes_at(address))
    else:
        major, flags, data, device, ndim, element, shape_at, strides_at, offset = _versioned.unpack_from(
            _bytes_at(address)
        )
        if major != VERSION[0]:
            raise TensorError(f"the capsule is of DLPack {major}; version {VERSION[0]} is understood")
    dl_dtype, itemsize = _element_of(element, flags & _PADDED)
    if strides_at == shape_at + 8 * ndim:  # as NumPy and CuPy have it: both in one go
        extents = _integers(shape_at, 2 * ndim)
        shape, steps = extents[:ndim], extents[ndim:]
        strides = tuple([step * itemsize for step in steps])
    else:
        shape = _integers(shape_at, ndim)
        if strides_at:
            strides = tuple([step * itemsize for step in _integers(strides_at, ndim)])
        else:
            strides = row_major(shape, itemsize)
    return (data + offset, shape, strides, dl_dtype, _device_of(device), bool(flags & _READ_ONLY))


class Taken:
    """The memory behind a capsule that was given as it is: taken over from it, and freed at the end."""

    __slots__ = ("_address", "_deleter", "description")

    def __init__(self, capsule: Any) -> None:
        with _taking:
            self.description = read(capsule)
            self._address, name = _open(capsule)
            deleter = ctypes.c_void_p.from_address(self._address + _deleter_at[name]).value
            # From now on it frees nothing itself, and no one else may take it.
            _set_name(capsule, _USED[name])
            self._deleter = _Deleter(deleter) if deleter else None

    def __del__(self) -> None:
        deleter = getattr(self, "_deleter", None)
        if deleter is not None:
            deleter(self._address)


def _open(capsule: Any) -> tuple[int, bytes]:
    try:
        return _pointer(capsule, _VERSIONED), _VERSIONED
    except ValueError:  # it has another name
        pass
    try:
        return _pointer(capsule, _LEGACY), _LEGACY
    except ValueError:
        raise TensorError(
            f"{capsule!r} cannot be read: a DLPack capsule can be consumed once, and is called "
            '"dltensor" or "dltensor_versioned" until then'
        ) from None


def _integers(address: int, count: int) -> tuple[int, ...]:
    if not count:
        return ()
    at = _integers_at[count] if count < len(_integers_at) else (ctypes.c_int64 * count).from_address
    return tuple(at(address)[:])


@cache
def _device_of(word: int) -> DLDevice:
    return DLDevice(*struct.unpack("=ii", struct.pack("=Q", word)))


@cache
def _element_of(word: int, padded: int) -> tuple[DLDataType, int]:
    element = DLDataType(*struct.unpack("=BBH", struct.pack("=I", word)))
    if element.bits * element.lanes % 8 and not (padded and element.lanes == 1):
        raise TensorError(
            f"unsupported dtype {element.name}: its elements share bytes; those of a tensor have their own"
        )
    return element, element.itemsize
