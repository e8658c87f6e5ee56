"""A real GPU: cuda.core's own objects, under the names that :mod:`headrace.gpu` uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the simulated classes have the same interface, and their types are known everywhere
    from headrace.gpu.sim.cuda_core import *  # noqa: F403
else:
    import cuda.core
    import cuda.core.utils
    from cuda.core._utils.cuda_utils import CUDAError  # cuda.core raises it but does not export it

    from headrace.gpu.device_names import DEVICE_NAMES, GRAPH_NAMES, UTILITY_NAMES

    __all__ = list(DEVICE_NAMES)
    for _name in DEVICE_NAMES:
        if _name in GRAPH_NAMES:
            _module = cuda.core.graph
        else:
            _module = cuda.core.utils if _name in UTILITY_NAMES else cuda.core
        if _name != CUDAError.__name__:
            globals()[_name] = getattr(_module, _name)
    del _module, _name
