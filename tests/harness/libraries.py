"""Stand-ins for libraries that are not installed, and what to know of others before a test uses them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from headrace import gpu
from headrace.gpu import sim
from headrace.tensor import libraries

__all__ = ["Array", "Arrays", "fresh_registry", "here", "new_array", "numba_works", "stand_in", "use_arrays"]


def fresh_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget, for one test, what has been registered and found so far."""
    registry = libraries._Registry(when_registered=libraries._registry.when_registered)
    monkeypatch.setattr(libraries, "_registry", registry)
    monkeypatch.setattr(libraries, "_found", {})
    for forget in registry.when_registered:
        forget()


def stand_in(monkeypatch: pytest.MonkeyPatch, name: str, **contents: Any) -> Any:
    """Install a module in the place of a library, for one test."""
    fresh_registry(monkeypatch)
    module: Any = ModuleType(name)
    array_types = {name: type(name, (), {}) for name in ("ndarray", "UntypedStorage")}
    vars(module).update(array_types | {"_C": None} | contents)
    monkeypatch.setitem(sys.modules, name, module)
    # The file that is for the library refers to it, so it is imported anew, now and afterwards.
    path = f"headrace.tensor.libraries.{name}"
    monkeypatch.setitem(sys.modules, path, module)
    del sys.modules[path]
    return module


def numba_works() -> bool:
    """Return whether Numba, if it is there, works with this NumPy: 0.68 needs a name that NumPy 2.5 has no more."""
    return hasattr(np, "row_stack")


class _Here(threading.local):
    """The current stream of `Arrays`, of each thread."""

    stream: Any = None


here = _Here()


class Array:
    """An array of one number on the simulated device, by a library that has a current stream.

    Attributes
    ----------
    memory
        What owns its memory.
    """

    def __init__(self, memory: Any) -> None:
        self.memory = memory

    def fill(self, number: int, seconds: float = 0.0, stream: Any = None) -> Array:
        """Fill it on a stream, which takes a while; on the current stream if none is given."""

        def write(out: np.ndarray[Any, Any]) -> None:
            out.view(np.int64)[0] = number

        _launch(stream, seconds, write, self.memory)
        return self

    def read(self, seen: list[int], seconds: float = 0.0, stream: Any = None) -> None:
        """Append its number to a list, a while later."""

        def read(source: np.ndarray[Any, Any]) -> None:
            seen.append(int(source.view(np.int64)[0]))

        _launch(stream, seconds, read, self.memory)


def new_array(stream: Any = None) -> Array:
    """Return an array whose memory is allocated in the order of a stream, as by the pools of CuPy and PyTorch."""
    device = sim.Device(0)
    device.set_current()
    return Array(device.allocate(8, stream=_handle(stream).stream))


def _handle(stream: Any) -> Any:
    chosen = here.stream if stream is None else stream
    return gpu.StreamHandle(gpu.LEGACY_DEFAULT_STREAM) if chosen is None else chosen


def _launch(stream: Any, seconds: float, effect: Callable[..., None], memory: Any) -> None:
    kernel = sim.Kernel("kernel", seconds, effect)
    sim.launch(_handle(stream).stream, sim.LaunchConfig(grid=1, block=32), kernel, memory)


class Arrays(libraries.Library):
    """The library of these arrays."""

    name = "Arrays"
    types: tuple[Any, ...] = (Array,)
    works_on_simulated_streams = True

    def owner(self, array: Any) -> Any:
        return array.memory

    def begin(self, array: Any) -> int:
        return int(array.memory.handle)

    def read_stream(self) -> Any:
        return here.stream

    def set_stream(self, state: Any) -> None:
        here.stream = state

    def stream_state(self, handle: gpu.StreamHandle) -> Any:
        return handle


def use_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the library be imported, for one test."""
    fresh_registry(monkeypatch)
    libraries.register_library(Arrays())
