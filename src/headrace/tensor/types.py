"""Element types and devices as DLPack describes them, and the corresponding names of NumPy.

NumPy has no dtype for bfloat16 and the smaller floats; the package ml_dtypes, which JAX, CuPy and others use,
provides them. It is imported only when the `dtype` of such a tensor is read: passing a tensor on needs no
dtype.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from enum import IntEnum
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:  # at run time imported when first needed, like every heavy package
    import numpy as np


class TensorError(TypeError):
    """An object cannot be a tensor; the text states what it is, what was tried, and what would work."""


def type_name(obj: object) -> str:
    """Return the full name of an object's type, for errors and reprs."""
    kind = type(obj)
    return f"{kind.__module__}.{kind.__qualname__}"


def error_text(error: Exception) -> str:
    """Return the text of an error, or its type if it has none."""
    try:
        return str(error) or type(error).__name__
    except Exception:  # str() itself failed
        return type(error).__name__


class DLDeviceType(IntEnum):
    """The device types of DLPack that CUDA programs use."""

    CPU = 1
    CUDA = 2
    CUDA_HOST = 3
    CUDA_MANAGED = 13


class _DLDevice(NamedTuple):
    device_type: int
    device_id: int


class DLDevice(_DLDevice):  # a subclass of the tuple, so that its properties can be cached
    """The device of a tensor's memory; prints as ``cpu``, ``cuda:0`` and so on."""

    @cached_property
    def is_cuda(self) -> bool:
        """Whether kernels can access the memory, so that streams order its use."""
        return self.device_type in CUDA_TYPES

    @cached_property
    def is_host(self) -> bool:
        """Whether the host can access the memory."""
        return self.device_type in HOST_TYPES

    def __str__(self) -> str:
        name = _DEVICE_NAMES.get(self.device_type, f"device type {self.device_type}")
        return name if self.device_type == DLDeviceType.CPU else f"{name}:{self.device_id}"


CUDA_TYPES = frozenset((2, 3, 13))
HOST_TYPES = frozenset((1, 3, 13))
_DEVICE_NAMES = {1: "cpu", 2: "cuda", 3: "cuda_host", 8: "metal", 10: "rocm", 13: "cuda_managed"}

CPU = DLDevice(DLDeviceType.CPU, 0)


class _DLDataType(NamedTuple):
    code: int
    bits: int
    lanes: int = 1


class DLDataType(_DLDataType):
    """The element type of a tensor: a kind of number, its bits, and the number of lanes (vector length)."""

    @cached_property
    def itemsize(self) -> int:
        """The size of an element in bytes."""
        return (self.bits * self.lanes + 7) // 8

    @cached_property
    def name(self) -> str:
        """The name in NumPy or ml_dtypes."""
        stem = _NAMES.get(self.code, f"type{self.code}_")
        sized = stem if self.code in _SIZED_BY_NAME else f"{stem}{self.bits}"
        return sized if self.lanes == 1 else f"{sized}_x{self.lanes}"

    @cached_property
    def typestr(self) -> str | None:
        """The typestr of the array interfaces, or None if they have none."""
        letter = _LETTERS.get(self.code)
        if letter is None or self.lanes != 1 or self.bits not in _SIZES[letter]:
            return None
        size = self.bits // 8
        return f"{'|' if size == 1 else _ORDER}{letter}{size}"

    def numpy(self) -> np.dtype[Any]:
        """Return the NumPy dtype.

        Raises
        ------
        TensorError
            If NumPy has none, and ml_dtypes has none either or is not installed.
        """
        return _numpy_of(self)


_ORDER = "<" if sys.byteorder == "little" else ">"

_NAMES = {
    0: "int",
    1: "uint",
    2: "float",
    3: "handle",
    4: "bfloat",
    5: "complex",
    6: "bool",
    7: "float8_e3m4",
    8: "float8_e4m3",
    9: "float8_e4m3b11fnuz",
    10: "float8_e4m3fn",
    11: "float8_e4m3fnuz",
    12: "float8_e5m2",
    13: "float8_e5m2fnuz",
    14: "float8_e8m0fnu",
    15: "float6_e2m3fn",
    16: "float6_e3m2fn",
    17: "float4_e2m1fn",
}
_SIZED_BY_NAME = frozenset(range(6, 18))  # their names include the bits
_NARROW_BITS = {15: 6, 16: 6, 17: 4}
_LETTERS = {0: "i", 1: "u", 2: "f", 5: "c", 6: "b"}
# The sizes that the array interfaces can name. They cannot distinguish the various 8-bit floats.
_SIZES = {"i": (8, 16, 32, 64), "u": (8, 16, 32, 64), "f": (16, 32, 64, 128), "c": (64, 128, 256), "b": (8,)}
_OF_TYPESTR = {
    f"{order}{letter}{bits // 8}": DLDataType(code, bits)
    for code, letter in _LETTERS.items()
    for bits in _SIZES[letter]
    for order in ("|", _ORDER)
}


@cache
def _numpy_of(element: DLDataType) -> np.dtype[Any]:
    import numpy as np

    typestr = element.typestr
    if typestr is not None:
        try:
            return np.dtype(typestr)
        except TypeError as error:
            raise TensorError(f"NumPy has no dtype for {element.name}") from error
    try:
        import ml_dtypes
    except ImportError as error:
        raise TensorError(
            f"NumPy has no dtype for {element.name}; ml_dtypes provides one if it is installed. "
            "The tensor can be passed to other libraries without it"
        ) from error
    found = getattr(ml_dtypes, element.name, None)
    if found is None:
        raise TensorError(f"neither NumPy nor ml_dtypes has a dtype for {element.name}")
    narrow: np.dtype[Any] = np.dtype(found)
    return narrow


@cache
def element_from_typestr(typestr: str) -> DLDataType:
    """Return the element type of a typestr.

    Raises
    ------
    TensorError
        If it is not a number or a boolean in this machine's byte order.
    """
    element = _OF_TYPESTR.get(typestr)
    if element is None:
        import numpy as np

        with suppress(Exception):  # of various types; DALI writes ``=f`` for ``<f4``
            element = _OF_TYPESTR.get(np.dtype(typestr).str)
    if element is None:
        raise TensorError(
            f"unsupported dtype {typestr!r}: a tensor holds booleans, integers, floats or complex numbers, "
            "in this machine's byte order"
        )
    return element


def element_from_dtype(dtype: np.dtype[Any]) -> DLDataType:
    """Return the element type of a dtype of NumPy or ml_dtypes.

    The typestr of a type of ml_dtypes is void, or that of a float which the array interfaces do not have.

    Raises
    ------
    TensorError
        If no element type corresponds to it.
    """
    return element_from_name(dtype.name) if is_of_ml_dtypes(dtype) else element_from_typestr(dtype.str)


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


def is_of_ml_dtypes(dtype: np.dtype[Any]) -> bool:
    """Return whether a dtype is one that NumPy does not define itself."""
    return dtype.isbuiltin == 2


def element_from_name(name: str) -> DLDataType:
    """Return the element type with a name of NumPy or ml_dtypes.

    Raises
    ------
    TensorError
        If no element type has this name.
    """
    stem = name.rstrip("0123456789")
    for code, known in _NAMES.items():
        if known == name:
            return DLDataType(code, _NARROW_BITS.get(code, 8))
        if known == stem and code not in _SIZED_BY_NAME:
            return DLDataType(code, int(name[len(stem) :]))
    raise TensorError(f"unsupported dtype {name!r}")
