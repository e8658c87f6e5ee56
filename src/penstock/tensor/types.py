"""What a tensor is made of and where it lies, in DLPack's words, and those words in NumPy's.

NumPy has no name for bfloat16 and the smaller floats; the package ml_dtypes, which JAX, CuPy and others use,
gives it one. It is asked only when such a tensor's `dtype` is: passing one on needs no name.
"""

import sys
from enum import IntEnum
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.tensor.errors import TensorError

if TYPE_CHECKING:  # imported when it is first needed, as everything heavy is
    import numpy as np


class DLDeviceType(IntEnum):
    """The kinds of memory that DLPack knows and CUDA programs meet."""

    CPU = 1
    CUDA = 2
    CUDA_HOST = 3
    CUDA_MANAGED = 13


class _DLDevice(NamedTuple):
    device_type: int
    device_id: int


class DLDevice(_DLDevice):  # a subclass, so that what follows from the numbers is worked out once
    """Where a tensor lies; prints as ``cpu``, ``cuda:0`` and so on."""

    @cached_property
    def is_cuda(self) -> bool:
        """Whether a kernel can use the memory, and streams order the use of it."""
        return self.device_type in CUDA_TYPES

    @cached_property
    def is_host(self) -> bool:
        """Whether the host can read the memory."""
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
    """What a tensor's elements are: a kind of number, so many bits of it, so many of them together."""

    @cached_property
    def itemsize(self) -> int:
        """The bytes of one element."""
        return (self.bits * self.lanes + 7) // 8

    @cached_property
    def name(self) -> str:
        """The name that NumPy or ml_dtypes has for it."""
        stem = _NAMES.get(self.code, f"type{self.code}_")
        sized = stem if self.code in _SIZED_BY_NAME else f"{stem}{self.bits}"
        return sized if self.lanes == 1 else f"{sized}_x{self.lanes}"

    @cached_property
    def typestr(self) -> str | None:
        """The array interfaces' name for it, or None where they have none."""
        letter = _LETTERS.get(self.code)
        if letter is None or self.lanes != 1 or self.bits not in _SIZES[letter]:
            return None
        size = self.bits // 8
        return f"{'|' if size == 1 else _ORDER}{letter}{size}"

    def numpy(self) -> "np.dtype[Any]":
        """Return NumPy's dtype for it.

        Raises
        ------
        TensorError
            Where NumPy has none, and ml_dtypes either has none or is not installed.
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
_SIZED_BY_NAME = frozenset(range(6, 18))  # their names say their bits
_LETTERS = {0: "i", 1: "u", 2: "f", 5: "c", 6: "b"}
# The bits with which the array interfaces have them. Of a float of 8 bits they could not say which of many it is.
_SIZES = {"i": (8, 16, 32, 64), "u": (8, 16, 32, 64), "f": (16, 32, 64, 128), "c": (64, 128, 256), "b": (8,)}
_OF_TYPESTR = {
    f"{order}{letter}{bits // 8}": DLDataType(code, bits)
    for code, letter in _LETTERS.items()
    for bits in _SIZES[letter]
    for order in ("|", _ORDER)
}


@cache
def _numpy_of(element: DLDataType) -> "np.dtype[Any]":
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
            f"NumPy has no dtype for {element.name}: install ml_dtypes to have one; "
            "the tensor can be passed to other libraries without"
        ) from error
    found = getattr(ml_dtypes, element.name, None)
    if found is None:
        raise TensorError(f"neither NumPy nor ml_dtypes has a dtype for {element.name}")
    narrow: np.dtype[Any] = np.dtype(found)
    return narrow


@cache
def element_of(typestr: str) -> DLDataType:
    """Return the element type that an array interface names.

    Raises
    ------
    TensorError
        For what is not a number or a truth value in this machine's order of bytes.
    """
    element = _OF_TYPESTR.get(typestr) or _OF_TYPESTR.get(_as_numpy_spells(typestr))
    if element is None:
        raise TensorError(
            f"unsupported dtype {typestr!r}: a tensor holds booleans, integers, floats or complex numbers, "
            "in this machine's byte order"
        )
    return element


def _as_numpy_spells(typestr: str) -> str:
    """Return a typestr as it should be, of one that NumPy understands: DALI writes ``=f`` for ``<f4``."""
    import numpy as np

    try:
        return np.dtype(typestr).str
    except Exception:  # NumPy has several, by where it stopped reading
        return ""


def element_named(name: str) -> DLDataType:
    """Return the element type that has a name of NumPy or ml_dtypes.

    Raises
    ------
    TensorError
        If no element type has it.
    """
    stem = name.rstrip("0123456789")
    for code, known in _NAMES.items():
        if known == name:
            return DLDataType(code, 8)
        if known == stem and code not in _SIZED_BY_NAME:
            return DLDataType(code, int(name[len(stem) :]))
    raise TensorError(f"unsupported dtype {name!r}")
