"""Functions that create arrays, and those that take arrays of others."""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

import numpy as np

from headrace.gpu.sim.arrays import work
from headrace.gpu.sim.arrays.array import Array, array_at
from headrace.gpu.sim.arrays.compute import as_dtype, compute, new
from headrace.gpu.sim.arrays.work import array_stream, on_device
from headrace.gpu.sim.device import Device


def _extents(shape: Any) -> tuple[int, ...]:
    extents = tuple(map(operator.index, shape if isinstance(shape, tuple | list) else (shape,)))
    if any(extent < 0 for extent in extents):
        raise ValueError(f"an extent is 0 or more, and the shape is {shape}")
    return extents


def _filled(shape: Any, value: Any, dtype: Any, device: Any) -> Any:
    extents = _extents(shape)
    with on_device(device):
        if isinstance(value, Array):
            return compute(np.full, extents, value, dtype=np.dtype(dtype or value.dtype))
        element = np.full((), value, dtype)  # which refuses what the type cannot hold
        result = new(extents, element.dtype)
        view = result._view
        work.run("fill", lambda: np.copyto(view, element), [], [view])
    return result


def zeros(shape: Any, dtype: Any = None, *, device: Any = None) -> Any:
    """Return an array of zeros."""
    return _filled(shape, 0, dtype or np.float64, device)


def ones(shape: Any, dtype: Any = None, *, device: Any = None) -> Any:
    """Return an array of ones."""
    return _filled(shape, 1, dtype or np.float64, device)


def full(shape: Any, fill_value: Any, dtype: Any = None, *, device: Any = None) -> Any:
    """Return an array of one value."""
    return _filled(shape, fill_value, dtype, device)


def empty(shape: Any, dtype: Any = None, *, device: Any = None) -> Any:
    """Return an array whose elements are whatever is in its memory."""
    with on_device(device):
        return new(_extents(shape), dtype or np.float64)


def zeros_like(x: Array, /, dtype: Any = None, *, device: Any = None) -> Any:
    """Return zeros in the shape of an array."""
    return _filled(x.shape, 0, dtype or x.dtype, device)


def ones_like(x: Array, /, dtype: Any = None, *, device: Any = None) -> Any:
    """Return ones in the shape of an array."""
    return _filled(x.shape, 1, dtype or x.dtype, device)


def full_like(x: Array, /, fill_value: Any, dtype: Any = None, *, device: Any = None) -> Any:
    """Return one value in the shape of an array."""
    return _filled(x.shape, fill_value, dtype or x.dtype, device)


def empty_like(x: Array, /, dtype: Any = None, *, device: Any = None) -> Any:
    """Return a new array in the shape of an array."""
    return empty(x.shape, dtype=dtype or x.dtype, device=device)


def arange(start: Any, /, stop: Any = None, step: Any = 1, dtype: Any = None, *, device: Any = None) -> Any:
    """Return evenly spaced numbers before an end; if arrays tell them, the host waits for the stream."""
    first, end = (0, start) if stop is None else (start, stop)
    numbers = (one.get()[()] if isinstance(one, Array) else one for one in (first, end, step))
    with on_device(device):
        return compute(np.arange, *numbers, dtype=as_dtype(dtype))


def linspace(
    start: Any, stop: Any, /, num: int = 50, *, dtype: Any = None, device: Any = None, endpoint: bool = True
) -> Any:
    """Return so many evenly spaced numbers of an interval."""
    with on_device(device):
        return compute(np.linspace, start, stop, num, dtype=as_dtype(dtype), endpoint=endpoint)


def eye(
    n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = None, device: Any = None
) -> Any:
    """Return a matrix with ones on a diagonal."""
    with on_device(device):
        return compute(np.eye, n_rows, n_cols, k=k, dtype=np.dtype(dtype or np.float64))


def asarray(obj: Any, /, dtype: Any = None, *, device: Any = None, copy: bool | None = None) -> Any:
    """Return an array of numbers, of an array on the device without a copy, or of one on the host with a copy."""
    if not isinstance(obj, Array) and hasattr(obj, "__cuda_array_interface__"):
        obj = array_at(obj.__cuda_array_interface__, obj)
    if isinstance(obj, Array):
        moved = obj if device is None else obj.to_device(device)
        changes = moved is not obj or (dtype is not None and np.dtype(dtype) != obj.dtype)
        if changes and copy is False:
            raise ValueError("another type or device needs a copy, and copy=False was asked for")
        if changes or copy:
            return compute(np.astype, moved, np.dtype(dtype or obj.dtype))
        return obj
    if copy is False:
        raise ValueError(f"{type(obj).__name__} is on the host: an array on the device needs a copy of it")
    values = np.asarray(_on_host(obj), dtype=dtype)
    with on_device(device):
        result = new(values.shape, values.dtype)
        work.to_device(result._view, values)
    return result


def _on_host(obj: Any) -> Any:
    """Return nested lists with numbers in the place of arrays without dimensions."""
    if isinstance(obj, list | tuple):
        return [_on_host(one) for one in obj]
    return obj.get() if isinstance(obj, Array) else obj


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Any:
    """Return an array on the memory of another, if that is simulated; else with a copy of its values."""
    if isinstance(x, Array) or hasattr(x, "__cuda_array_interface__"):
        return asarray(x, device=device, copy=copy)
    if copy is False:
        raise BufferError(f"{type(x).__name__} is on the host: an array on the device needs a copy of it")
    return asarray(np.from_dlpack(x), device=device)


def asnumpy(a: Any) -> np.ndarray[Any, Any]:
    """Return a NumPy array with the values of an array; the host waits for the current stream."""
    return a.get() if isinstance(a, Array) else np.asarray(a)


_OF_NUMPY = np.__array_namespace_info__()
TYPES = {name: np.dtype(name).type for name in ("float16", *_OF_NUMPY.dtypes())}


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


def finfo(type: Any, /) -> _FloatInfo:
    """Return the limits of a type of floats, or of complex numbers."""
    found = np.finfo(_of(type))
    eps, most, least, normal = map(float, (found.eps, found.max, found.min, found.smallest_normal))
    return _FloatInfo(found.bits, eps, most, least, normal, found.dtype)


def iinfo(type: Any, /) -> np.iinfo[Any]:
    """Return the limits of a type of integers."""
    return np.iinfo(_of(type))


class _Info:
    """What the module can do, by the standard: what NumPy can, on other devices."""

    capabilities = staticmethod(_OF_NUMPY.capabilities)

    def default_device(self) -> Any:
        """Return the device that functions use which are given none."""
        return array_stream().device

    def devices(self) -> list[Any]:
        """Return all devices."""
        return list(Device.get_all_devices())

    def default_dtypes(self, *, device: Any = None) -> Any:
        """Return the types that functions use which are given none."""
        return _OF_NUMPY.default_dtypes()

    def dtypes(self, *, device: Any = None, kind: Any = None) -> Any:
        """Return the types, or those of a kind, or of one of several."""
        return _OF_NUMPY.dtypes(kind=kind)


def __array_namespace_info__() -> _Info:
    """Return what the module can do, by the standard."""
    return _Info()
