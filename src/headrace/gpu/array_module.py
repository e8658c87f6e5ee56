"""The array module of the device: a program computes with CuPy on a GPU, and on a simulated GPU without one."""

from __future__ import annotations

from typing import Any

from headrace.gpu.backend import active


def arrays() -> Any:
    """Return the module for arrays in device memory: CuPy on a GPU, a module that stands for it on a simulated one.

    That module follows the Array API standard. Its work is queued on the current stream, and takes time there.

    Raises
    ------
    ImportError
        If there is a GPU and CuPy is not installed, or if NumPy is older than 2.1, which the simulation needs.

    Examples
    --------
    >>> from headrace import gpu
    >>> xp = gpu.arrays()
    >>> frame = xp.full((1080, 1920), 2, dtype=xp.float32)
    >>> float(xp.mean(2 * frame + 1))
    5.0
    """
    return active().array_module()
