"""Functions of types, and what the module says of itself."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from headrace.gpu.sim.arrays.array import Array
from headrace.gpu.sim.arrays.creation import asarray
from headrace.gpu.sim.arrays.work import array_stream
from headrace.gpu.sim.device import Device

_KINDS = {
    "bool": ("bool",),
    "signed integer": ("int8", "int16", "int32", "int64"),
    "unsigned integer": ("uint8", "uint16", "uint32", "uint64"),
    "real floating": ("float32", "float64"),
    "complex floating": ("complex64", "complex128"),
}
_KINDS["integral"] = _KINDS["signed integer"] + _KINDS["unsigned integer"]
_KINDS["numeric"] = _KINDS["integral"] + _KINDS["real floating"] + _KINDS["complex floating"]


def _names(*kinds: str) -> list[str]:
    """Return the names of the types of some kinds."""
    return [name for kind in kinds for name in _KINDS[kind]]


def _of(type_or_array: Any) -> Any:
    return np.dtype(type_or_array.dtype if isinstance(type_or_array, Array) else type_or_array)


def astype(x: Array, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Any:
    """Return the elements in another type."""
    if x.dtype.kind == "c" and np.dtype(dtype).kind != "c":
        raise TypeError(
            f"{x.dtype} has no order to become {np.dtype(dtype)}: take real(x), imag(x) or abs(x)"
        )
    return asarray(x, dtype=dtype, device=device, copy=copy or None)


def can_cast(from_: Any, to: Any, /) -> bool:
    """Return whether one type becomes another without loss, by the rules of promotion."""
    return bool(np.can_cast(_of(from_), np.dtype(to)))


def isdtype(dtype: Any, kind: Any) -> bool:
    """Return whether a type is of a kind, or of one of several."""
    if isinstance(kind, tuple):
        return any(isdtype(dtype, one) for one in kind)
    if isinstance(kind, str):
        if kind not in _KINDS:
            raise ValueError(f"{kind!r} is no kind of types; the kinds are {', '.join(_KINDS)}")
        return np.dtype(dtype).name in _KINDS[kind]
    return bool(np.dtype(dtype) == np.dtype(kind))


def result_type(*arrays_and_dtypes: Any) -> np.dtype[Any]:
    """Return the type of a result of these arrays, types and numbers."""
    return np.result_type(*(one.dtype if isinstance(one, Array) else one for one in arrays_and_dtypes))


class _FloatInfo(NamedTuple):
    """The limits of a type of floats."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: Any


class _IntInfo(NamedTuple):
    """The limits of a type of integers."""

    bits: int
    max: int
    min: int
    dtype: Any


def finfo(type: Any, /) -> _FloatInfo:
    """Return the limits of a type of floats, or of complex numbers."""
    found = np.finfo(_of(type))
    eps, most, least, normal = map(float, (found.eps, found.max, found.min, found.smallest_normal))
    return _FloatInfo(found.bits, eps, most, least, normal, found.dtype)


def iinfo(type: Any, /) -> _IntInfo:
    """Return the limits of a type of integers."""
    found = np.iinfo(_of(type))
    return _IntInfo(found.bits, int(found.max), int(found.min), found.dtype)


class _Info:
    """What the module can do, by the standard."""

    def capabilities(self) -> dict[str, Any]:
        """Return what depends on the library."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> Any:
        """Return the device that functions use which are given none."""
        return array_stream().device

    def devices(self) -> list[Any]:
        """Return all devices."""
        return list(Device.get_all_devices())

    def default_dtypes(self, *, device: Any = None) -> dict[str, Any]:
        """Return the types that functions use which are given none."""
        found = {"real floating": "float64", "complex floating": "complex128", "integral": "int64"}
        return {use: np.dtype(name) for use, name in {**found, "indexing": "int64"}.items()}

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, Any]:
        """Return the types, or those of a kind, or of one of several."""
        kinds = kind if isinstance(kind, tuple) else ("bool", "numeric") if kind is None else (kind,)
        return {name: np.dtype(name) for name in _names(*kinds)}


def __array_namespace_info__() -> _Info:
    """Return what the module can do, by the standard."""
    return _Info()
