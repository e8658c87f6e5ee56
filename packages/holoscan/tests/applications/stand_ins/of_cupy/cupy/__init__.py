"""A stand-in for CuPy where it is not installed: arrays are NumPy's, and streams are remembered and do nothing.

It has what the programs of `packages/holoscan/tests/applications` use, by CuPy's names.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy
from numpy import *  # noqa: F403

__version__ = "0"


class ndarray(numpy.ndarray):
    """CuPy's class of arrays, which nothing here is."""


def asarray(array: Any, *args: Any, **kwargs: Any) -> numpy.ndarray:
    """Return an array; a tensor of headrace is read where it is."""
    if isinstance(array, numpy.ndarray):
        return numpy.asarray(array, *args, **kwargs)
    if hasattr(array, "__dlpack__"):
        array = numpy.from_dlpack(array)
    return numpy.asarray(array, *args, **kwargs)


def asnumpy(array: Any) -> numpy.ndarray:
    """Return the array itself: it is in host memory."""
    return numpy.asarray(array)


class _Stream:
    """A stream: with it, it is the current one."""

    current: list[_Stream]

    def __init__(self, ptr: int = 0, device_id: int = -1) -> None:
        self.ptr, self.device_id = int(ptr), device_id

    def use(self) -> _Stream:
        _Stream.current[-1] = self
        return self

    def __enter__(self) -> _Stream:
        _Stream.current.append(self)
        return self

    def __exit__(self, *exc_info: object) -> None:
        _Stream.current.pop()

    def synchronize(self) -> None:
        pass

    @classmethod
    def from_external(cls, stream: Any) -> _Stream:
        return cls(int(stream))


_Stream.null = _Stream()  # type: ignore[attr-defined]
_Stream.current = [_Stream.null]  # type: ignore[attr-defined]

cuda = SimpleNamespace(
    Stream=_Stream,
    ExternalStream=_Stream,
    get_current_stream=lambda device_id=None: _Stream.current[-1],
    runtime=SimpleNamespace(
        driverGetVersion=lambda: 13000,
        getDeviceProperties=lambda device: {"major": 9, "minor": 0, "multiProcessorCount": 132},
        CUDARuntimeError=RuntimeError,
    ),
    Device=lambda number=0: SimpleNamespace(id=number, synchronize=lambda: None),
)
