"""The catalogue of resources: memory, streams and slices of a device, clocks, thread pools.

Each is imported when it is first used, because most programs use none and some import the runtime's streams.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.core.registry import registry
from penstock.lazy import lazy_names

if TYPE_CHECKING:
    from penstock.conditions.or_combiner import OrConditionCombiner
    from penstock.core.clock import Clock
    from penstock.core.fragment import Fragment
    from penstock.core.thread_pool import ThreadPool
    from penstock.resources.allocator import Allocator
    from penstock.resources.block_memory_pool import BlockMemoryPool
    from penstock.resources.cuda_allocator import CudaAllocator
    from penstock.resources.cuda_green_context import CudaGreenContext
    from penstock.resources.cuda_green_context_pool import CudaGreenContextPool
    from penstock.resources.cuda_stream_pool import CudaStreamPool
    from penstock.resources.machine_clock import MachineClock
    from penstock.resources.manual_clock import ManualClock
    from penstock.resources.memory_storage_type import MemoryStorageType
    from penstock.resources.realtime_clock import RealtimeClock
    from penstock.resources.rmm_allocator import RMMAllocator
    from penstock.resources.stream_ordered_allocator import StreamOrderedAllocator
    from penstock.resources.synthetic_clock import SyntheticClock
    from penstock.resources.unbounded_allocator import UnboundedAllocator

__all__ = [
    "Allocator",
    "BlockMemoryPool",
    "Clock",
    "CudaAllocator",
    "CudaGreenContext",
    "CudaGreenContextPool",
    "CudaStreamPool",
    "MachineClock",
    "ManualClock",
    "MemoryStorageType",
    "OrConditionCombiner",
    "RMMAllocator",
    "RealtimeClock",
    "StreamOrderedAllocator",
    "SyntheticClock",
    "ThreadPool",
    "UnboundedAllocator",
]

_MODULES = {
    "Allocator": "allocator",
    "BlockMemoryPool": "block_memory_pool",
    "Clock": ".core.clock",
    "CudaAllocator": "cuda_allocator",
    "CudaGreenContext": "cuda_green_context",
    "CudaGreenContextPool": "cuda_green_context_pool",
    "CudaStreamPool": "cuda_stream_pool",
    "MachineClock": "machine_clock",
    "ManualClock": "manual_clock",
    "MemoryStorageType": "memory_storage_type",
    "OrConditionCombiner": ".conditions.or_combiner",
    "RMMAllocator": "rmm_allocator",
    "RealtimeClock": "realtime_clock",
    "StreamOrderedAllocator": "stream_ordered_allocator",
    "SyntheticClock": "synthetic_clock",
    "ThreadPool": ".core.thread_pool",
    "UnboundedAllocator": "unbounded_allocator",
}

if not TYPE_CHECKING:  # or a type checker would accept every name
    __getattr__, __dir__ = lazy_names(globals(), _MODULES)


def _default_clock(fragment: Fragment | None) -> Clock:
    from penstock.resources.realtime_clock import RealtimeClock

    return RealtimeClock(fragment)


def _device_clock(fragment: Fragment | None) -> Clock | None:
    from penstock.resources.machine_clock import machine_clock

    return machine_clock(fragment)


def _default_streams(fragment: Fragment) -> CudaStreamPool:
    from penstock.resources.cuda_stream_pool import CudaStreamPool

    return CudaStreamPool(fragment, reserved_size=0, name="default_stream_pool")


def _green_context_pool(*args: Any, **kwargs: Any) -> CudaGreenContextPool:
    from penstock.resources.cuda_green_context_pool import CudaGreenContextPool

    return CudaGreenContextPool(*args, **kwargs)


registry.default_clock = _default_clock
registry.device_clock = _device_clock
registry.default_streams = _default_streams
registry.green_context_pool = _green_context_pool
