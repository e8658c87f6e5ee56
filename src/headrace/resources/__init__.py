"""The catalogue of resources: memory, streams and slices of a device, clocks, thread pools.

Each is imported when it is first used, because most programs use none and some import the runtime's streams.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.lazy import lazy_names

if TYPE_CHECKING:
    from headrace.conditions.or_combiner import OrConditionCombiner
    from headrace.core.clock import Clock, RealtimeClock
    from headrace.core.thread_pool import ThreadPool
    from headrace.resources.allocator import Allocator
    from headrace.resources.block_memory_pool import BlockMemoryPool
    from headrace.resources.cuda_allocator import CudaAllocator
    from headrace.resources.cuda_green_context import CudaGreenContext
    from headrace.resources.cuda_green_context_pool import CudaGreenContextPool
    from headrace.resources.cuda_stream_pool import CudaStreamPool
    from headrace.resources.machine_clock import MachineClock
    from headrace.resources.manual_clock import ManualClock
    from headrace.resources.memory_storage_type import MemoryStorageType
    from headrace.resources.rmm_allocator import RMMAllocator
    from headrace.resources.stream_ordered_allocator import StreamOrderedAllocator
    from headrace.resources.synthetic_clock import SyntheticClock
    from headrace.resources.unbounded_allocator import UnboundedAllocator

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
    "RealtimeClock": ".core.clock",
    "StreamOrderedAllocator": "stream_ordered_allocator",
    "SyntheticClock": "synthetic_clock",
    "ThreadPool": ".core.thread_pool",
    "UnboundedAllocator": "unbounded_allocator",
}

if not TYPE_CHECKING:  # or a type checker would accept every name
    __getattr__, __dir__ = lazy_names(globals(), _MODULES)
