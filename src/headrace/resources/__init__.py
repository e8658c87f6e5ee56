"""The catalogue of resources: memory, streams and slices of a device, clocks, thread pools.

Each is imported when it is first used, because most programs use none and some import the runtime's streams.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.lazy import lazy_names

if TYPE_CHECKING:
    from headrace.conditions.or_combiner import OrConditionCombiner as OrConditionCombiner
    from headrace.core.clock import Clock as Clock
    from headrace.core.clock import RealtimeClock as RealtimeClock
    from headrace.core.thread_pool import ThreadPool as ThreadPool
    from headrace.resources.allocator import Allocator as Allocator
    from headrace.resources.block_memory_pool import BlockMemoryPool as BlockMemoryPool
    from headrace.resources.cuda_allocator import CudaAllocator as CudaAllocator
    from headrace.resources.cuda_green_context import CudaGreenContext as CudaGreenContext
    from headrace.resources.cuda_green_context_pool import CudaGreenContextPool as CudaGreenContextPool
    from headrace.resources.cuda_stream_pool import CudaStreamPool as CudaStreamPool
    from headrace.resources.machine_clock import MachineClock as MachineClock
    from headrace.resources.manual_clock import ManualClock as ManualClock
    from headrace.resources.memory_storage_type import MemoryStorageType as MemoryStorageType
    from headrace.resources.rmm_allocator import RMMAllocator as RMMAllocator
    from headrace.resources.stream_ordered_allocator import StreamOrderedAllocator as StreamOrderedAllocator
    from headrace.resources.synthetic_clock import SyntheticClock as SyntheticClock
    from headrace.resources.unbounded_allocator import UnboundedAllocator as UnboundedAllocator

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
    __all__ = list(_MODULES)
    __getattr__, __dir__ = lazy_names(globals(), _MODULES)
