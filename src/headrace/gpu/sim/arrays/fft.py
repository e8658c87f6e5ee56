"""The standard's extension for Fourier transforms."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from headrace.gpu.sim.arrays.compute import compute, named
from headrace.gpu.sim.arrays.work import on_device

_Transform = Callable[..., Any]


def _operations(x: Any) -> float:
    return 5.0 * float(x.size) * math.log2(x.size + 2)


def _along_axis(function: Any) -> _Transform:
    def transform(x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Any:
        return compute(function, x, n=n, axis=axis, norm=norm, operations=_operations(x))

    return named(transform, function.__name__, "transform")


def _along_axes(function: Any, default: Any = None) -> _Transform:
    def transform(x: Any, /, *, s: Any = None, axes: Any = default, norm: str = "backward") -> Any:
        if s is not None and axes is None:
            axes = range(-len(s), 0)
        extents, along = (None if one is None else tuple(one) for one in (s, axes))
        return compute(function, x, s=extents, axes=along, norm=norm, operations=_operations(x))

    return named(transform, function.__name__, "transform")


fft, ifft = _along_axis(np.fft.fft), _along_axis(np.fft.ifft)
rfft, irfft = _along_axis(np.fft.rfft), _along_axis(np.fft.irfft)
hfft, ihfft = _along_axis(np.fft.hfft), _along_axis(np.fft.ihfft)
fftn, ifftn = _along_axes(np.fft.fftn), _along_axes(np.fft.ifftn)
rfftn, irfftn = _along_axes(np.fft.rfftn), _along_axes(np.fft.irfftn)
fft2, ifft2 = _along_axes(np.fft.fft2, (-2, -1)), _along_axes(np.fft.ifft2, (-2, -1))
rfft2, irfft2 = _along_axes(np.fft.rfft2, (-2, -1)), _along_axes(np.fft.irfft2, (-2, -1))


def _frequencies(function: Any, n: int, d: float, dtype: Any, device: Any) -> Any:
    with on_device(device):
        found = compute(function, n, d)
        return found if dtype in (None, found.dtype) else compute(np.astype, found, np.dtype(dtype))


def fftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Any:
    """Return the frequencies of a transform."""
    return _frequencies(np.fft.fftfreq, n, d, dtype, device)


def rfftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Any:
    """Return the frequencies of a transform of real numbers."""
    return _frequencies(np.fft.rfftfreq, n, d, dtype, device)


def fftshift(x: Any, /, *, axes: Any = None) -> Any:
    """Return the elements with that of the frequency zero in the middle."""
    return compute(np.fft.fftshift, x, axes=tuple(axes) if isinstance(axes, list) else axes)


def ifftshift(x: Any, /, *, axes: Any = None) -> Any:
    """Undo `fftshift`."""
    return compute(np.fft.ifftshift, x, axes=tuple(axes) if isinstance(axes, list) else axes)
