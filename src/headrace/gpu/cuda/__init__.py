"""A real GPU: cuda.core's own objects, under the names that :mod:`headrace.gpu` uses.

A name is looked up when it is first used, so that importing this package needs no CUDA library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the simulated classes have the same interface, and their types are known everywhere
    from headrace.gpu.sim.cuda_core import *  # noqa: F403
else:
    from importlib import import_module

    from headrace.gpu.device_names import DEVICE_NAMES, GRAPH_NAMES, UTILITY_NAMES

    def __dir__() -> list[str]:
        return sorted(DEVICE_NAMES)

    def __getattr__(name: str) -> Any:
        if name not in DEVICE_NAMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if name == "CUDAError":  # cuda.core raises it but does not export it
            module = import_module("cuda.core._utils.cuda_utils")
        elif name in GRAPH_NAMES:
            module = import_module("cuda.core").graph
        else:
            module = import_module("cuda.core.utils" if name in UTILITY_NAMES else "cuda.core")
        value = globals()[name] = getattr(module, name)
        return value
