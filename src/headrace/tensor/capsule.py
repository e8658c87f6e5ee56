"""Reading DLPack capsules.

A capsule is a Python object around a C structure. No library reads one for every element type on a machine without
CUDA, so it is read here, with ctypes. Its contents are checked before they are used.

A capsule is taken over, as the protocol asks of a consumer: it is renamed as used, and its deleter is called once,
when the memory is no longer needed. A producer may keep the capsule that it returned. If the capsule were only kept
alive, another consumer could take it from the producer and free memory that a tensor still describes.

Capsules are not created here but by libraries, so that a capsule's destructor is always compiled code. A destructor
written with ctypes would run Python code while an exception propagates, which is when consumers drop a capsule
that they reject. `headrace.gpu.dlpack.relabel` changes a capsule that NumPy has just created, where NumPy cannot
express the element type or device.

Reading a capsule takes about half the time of `as_tensor` (benchmarks/tensor.py).
"""

from __future__ import annotations

import ctypes
import struct
import threading
from functools import cache, lru_cache
from typing import Any

from headrace.gpu.dlpack import LEGACY, VERSIONED, address_of
from headrace.tensor.description import (
    END_OF_MEMORY,
    MAX_DIMENSIONS,
    Description,
    compute_layout,
    invalid_address,
)
from headrace.tensor.errors import TensorError
from headrace.tensor.types import DLDataType, DLDevice

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
