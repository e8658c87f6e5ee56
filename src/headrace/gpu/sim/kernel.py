"""Kernels of a simulated device: models of how long a block runs and what the kernel computes.

A simulated device cannot run CUDA code. Instead it needs a *model* of each kernel: how long a block runs and, if
anything reads the result, a Python function with the same effect. A program that compiles its kernels with
``Program`` runs unchanged if the model of each kernel was declared with its source (:class:`headrace.gpu.kernel`):
``get_kernel`` finds the model by source and name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic
from weakref import WeakKeyDictionary

from headrace.gpu.kernels import P, kernel


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Kernel(Generic[P]):
    """A simulated kernel.

    Attributes
    ----------
    name : str
        The kernel's name in the source.
    seconds : float or callable
        How long a block runs: a number, or a function of the launch's arguments.
    effect : callable, optional
        Called with the launch's arguments when the last block ends. Device buffers are passed as NumPy arrays of
        bytes; :func:`launched` returns the launch.
    max_dynamic_shared_size_bytes : int, optional
        The largest dynamic shared memory of its launches, if more than the default limit. On a real device
        ``cuKernelSetAttribute`` sets it.
    non_portable_cluster_size_allowed : bool
        Whether it may be launched with clusters of more blocks than the portable limit; set likewise.
    """

    name: str
    seconds: float | Callable[P, float]
    effect: Callable[..., object] | None = None
    max_dynamic_shared_size_bytes: int | None = None
    non_portable_cluster_size_allowed: bool = False

    def block_time(self, *args: P.args, **kwargs: P.kwargs) -> int:
        """Return the nanoseconds that a block runs in a launch with these arguments."""
        seconds = self.seconds(*args, **kwargs) if callable(self.seconds) else self.seconds
        if seconds < 0:
            raise ValueError(f"kernel {self.name!r}: a block cannot run for {seconds} s")
        return round(seconds * 1e9)


_models: WeakKeyDictionary[kernel[...], Kernel[...]] = WeakKeyDictionary()


def model_of(declared: kernel[...]) -> Kernel[...]:
    """Return the model of a declared kernel, the same each time."""
    if declared not in _models:
        _models[declared] = Kernel(declared.name, declared.seconds, declared.effect)
    return _models[declared]
