"""Kernels that are declared once and launched on a real or a simulated device."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, overload

from headrace.gpu.backend import backend_of

if TYPE_CHECKING:
    from typing_extensions import ParamSpec

    from headrace.gpu.sim.device import Device  # which type checkers see for every device
    from headrace.gpu.sim.kernel import Kernel

    P = ParamSpec("P", default=...)
    """The parameters of a kernel. A kernel without known parameters accepts any arguments."""
else:
    from typing import ParamSpec

    P = ParamSpec("P")  # before Python 3.13 it has no default

declared: weakref.WeakValueDictionary[tuple[str, str], Any] = weakref.WeakValueDictionary()
"""The kernels (:class:`headrace.gpu.kernel`) that are still referenced, by their source and name."""


class kernel(Generic[P]):
    """Declare a kernel: its CUDA source, and its model for simulated devices.

    If ``seconds`` is a function, its parameters are those of the kernel, and type checkers check the arguments
    of each launch against them.

    Parameters
    ----------
    name : str
        The kernel's name in the source, where it is declared ``extern "C"``.
    source : str
        CUDA C++.
    seconds : float or callable
        How long a block runs on a simulated device: a number, or a function of the launch's arguments.
    effect : callable, optional
        What the kernel does on a simulated device: called with the launch's arguments when its last block ends,
        with device buffers as NumPy arrays of bytes.

    Examples
    --------
    >>> from headrace import gpu
    >>> spin = gpu.kernel("spin", source=SPIN, seconds=lambda ns: ns * 1e-9)
    >>> gpu.launch(stream, gpu.LaunchConfig(grid=16, block=1024), spin.on(device), 100_000)
    """

    @overload
    def __init__(
        self: kernel[...],
        name: str,
        *,
        source: str,
        seconds: float,
        effect: Callable[..., object] | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        name: str,
        *,
        source: str,
        seconds: Callable[P, float],
        effect: Callable[..., object] | None = None,
    ) -> None: ...
    def __init__(
        self,
        name: str,
        *,
        source: str,
        seconds: float | Callable[P, float],
        effect: Callable[..., object] | None = None,
    ) -> None:
        self.name = name
        self.source = source
        self.seconds = seconds
        self.effect = effect
        self._compiled: dict[tuple[type, str], Any] = {}  # by the kind of device and its chip
        # The same by the number of the device: reading the name of its chip takes longer.
        self._on_device: dict[tuple[type, int], Any] = {}
        self._compiling = threading.Lock()
        declared[source, name] = self

    def on(self, device: Device) -> Kernel[P]:
        """Return the kernel for a device, to pass to ``launch``; the first call for a chip compiles it."""
        compiled = self._on_device.get((type(device), device.device_id))
        return self._compile(device) if compiled is None else compiled

    def _compile(self, device: Device) -> Kernel[P]:
        """Return the kernel for a device that it was not launched on before."""
        chip = (type(device), device.arch)
        with self._compiling:
            if chip not in self._compiled:
                self._compiled[chip] = backend_of(device).compile(self, device)
            compiled: Kernel[P] = self._compiled[chip]
            self._on_device[type(device), device.device_id] = compiled
            return compiled

    def __repr__(self) -> str:
        return f"<kernel {self.name}>"
