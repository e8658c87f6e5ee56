"""A real GPU: cuda.core's own objects, under the names that :mod:`headrace.gpu` uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the simulated classes have the same interface, and their types are known everywhere
    from headrace.gpu.sim.cuda_core import *  # noqa: F403
else:
    import cuda.core
    from cuda.core._utils.cuda_utils import CUDAError  # cuda.core raises it but does not export it

    from headrace.gpu.device_names import DEVICE_NAMES, GRAPH_NAMES

    __all__ = list(DEVICE_NAMES)
    for _name in DEVICE_NAMES:
        if _name != CUDAError.__name__:
            globals()[_name] = getattr(cuda.core.graph if _name in GRAPH_NAMES else cuda.core, _name)
    del _name
