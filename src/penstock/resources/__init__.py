"""The catalogue of resources: clocks, thread pools, streams and slices of a device.

Those of the device are imported when they are first asked for, since a program without one needs none.
"""

import importlib
from typing import TYPE_CHECKING, Any

from penstock.conditions.either import OrConditionCombiner
from penstock.core.clock import Clock
from penstock.resources.manual_clock import ManualClock
from penstock.resources.realtime_clock import RealtimeClock
from penstock.resources.synthetic_clock import SyntheticClock
from penstock.resources.thread_pool import ThreadPool

if TYPE_CHECKING:
    from penstock.resources.cuda_green_context import CudaGreenContext
    from penstock.resources.cuda_green_context_pool import CudaGreenContextPool
    from penstock.resources.cuda_stream_pool import CudaStreamPool
    from penstock.resources.machine_clock import MachineClock

_LATER = {
    "CudaGreenContext": "cuda_green_context",
    "CudaGreenContextPool": "cuda_green_context_pool",
    "CudaStreamPool": "cuda_stream_pool",
    "MachineClock": "machine_clock",
}

__all__ = [
    "Clock",
    "CudaGreenContext",
    "CudaGreenContextPool",
    "CudaStreamPool",
    "MachineClock",
    "ManualClock",
    "OrConditionCombiner",
    "RealtimeClock",
    "SyntheticClock",
    "ThreadPool",
]


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_LATER[name]}"), name)
