"""A real GPU: cuda.core's own objects, under the names that :mod:`headrace.gpu` uses.

A name is looked up when it is first used, so that importing this package needs no CUDA library.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from headrace.gpu.backend import DEVICE_NAMES


def __dir__() -> list[str]:
    return sorted(DEVICE_NAMES)


def __getattr__(name: str) -> Any:
    if name not in DEVICE_NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    core = import_module("cuda.core")
    if name == "CUDAError":  # cuda.core raises it but does not export it
        module = import_module("cuda.core._utils.cuda_utils")
    else:
        module = core.graph if hasattr(core.graph, name) else core
    value = globals()[name] = getattr(module, name)
    return value
