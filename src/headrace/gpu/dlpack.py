"""The C structure in a DLPack capsule: where it is, and how the device and the element type in it are changed.

A capsule of NumPy says that its memory is the host's. NumPy never reads the memory itself, so its capsules serve
for memory of a device as well, once they name that (:func:`relabel`). `headrace.tensor.capsule` reads the rest.
"""

from __future__ import annotations

import ctypes
import struct
from typing import Any

VERSIONED, LEGACY = b"dltensor_versioned", b"dltensor"
CPU, CUDA = 1, 2  # the types of devices

_device = struct.Struct("=ii")  # type and number
_element = struct.Struct("=BBH")  # code, bits and lanes
_device_at = {VERSIONED: 40, LEGACY: 8}

_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def address_of(capsule: Any) -> tuple[int, bytes] | None:
    """Return the address of the structure in a capsule and the name of its form, or None if it has neither form."""
    for name in (VERSIONED, LEGACY):
        try:
            return _pointer(capsule, name), name
        except ValueError:  # it has another name
            pass
    return None


def relabel(capsule: Any, device: tuple[int, int], element: tuple[int, int, int] | None = None) -> Any:
    """Change the device, and the element type, in a capsule that was just created; return it."""
    found = address_of(capsule)
    assert found is not None
    address, name = found
    at = (ctypes.c_char * 64).from_address(address)
    _device.pack_into(at, _device_at[name], *device)
    if element is not None:
        _element.pack_into(
            at, _device_at[name] + _device.size + 4, *element
        )  # behind the number of dimensions
    return capsule
