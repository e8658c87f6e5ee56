"""A kernel declared once, launched on a real or a simulated device."""

import threading
import weakref
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from penstock.gpu.simulated import is_simulated

if TYPE_CHECKING:
    from penstock.gpu import sim


class kernel:
    """Declare a kernel: its CUDA source, and what a simulated device should know of it.

    Parameters
    ----------
    name : str
        The kernel's name in the source; declare it ``extern "C"`` there.
    source : str
        CUDA C++.
    seconds : float or callable
        How long one block runs on a simulated device: a number, or a function of the launch's arguments.
    effect : callable, optional
        What the kernel does on a simulated device: called with the launch's arguments when its last block
        ends, device buffers as NumPy arrays of bytes.

    Examples
    --------
    >>> from penstock import gpu
    >>> spin = gpu.kernel("spin", source=SPIN, seconds=lambda ns: ns * 1e-9)
    >>> gpu.launch(stream, gpu.LaunchConfig(grid=16, block=1024), spin.on(device), 100_000)
    """

    def __init__(
        self,
        name: str,
        *,
        source: str,
        seconds: float | Callable[..., float],
        effect: Callable[..., object] | None = None,
    ) -> None:
        self.name = name
        self.source = source
        self._seconds = seconds
        self._effect = effect
        self._compiled: dict[str, Any] = {}
        self._compiling = threading.Lock()
        _declared[source, name] = self

    @cached_property
    def model(self) -> "sim.Kernel":
        """The kernel as a simulated device knows it."""
        from penstock.gpu import sim  # only where something is simulated

        return sim.Kernel(self.name, self._seconds, self._effect)

    def on(self, device: Any) -> Any:
        """Return the kernel for a device, to give to ``launch``; the first call for a chip compiles it."""
        if is_simulated(device):
            return self.model
        with self._compiling:
            if device.arch not in self._compiled:
                from penstock.gpu.cuda import Program, ProgramOptions

                options = ProgramOptions(std="c++17", arch=f"sm_{device.arch}")
                code = Program(self.source, "c++", options).compile("cubin")
                self._compiled[device.arch] = code.get_kernel(self.name)
            return self._compiled[device.arch]

    def __repr__(self) -> str:
        return f"<kernel {self.name}>"


# What a simulated Program finds its kernels in, for as long as they live.
_declared: "weakref.WeakValueDictionary[tuple[str, str], kernel]" = weakref.WeakValueDictionary()


def declared(source: str, name: str) -> kernel | None:
    """Return the kernel of that name that was declared for a source, or None."""
    return _declared.get((source, name))
