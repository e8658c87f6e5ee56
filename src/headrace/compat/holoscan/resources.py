"""holoscan.resources: allocators, pools, clocks."""

from __future__ import annotations

import enum
from typing import Any

from headrace import resources as headrace
from headrace.compat.holoscan.absent import absent
from headrace.compat.holoscan.core.clock import GXFClock
from headrace.compat.holoscan.core.components import GXFResource, GXFSystemResourceBase
from headrace.compat.holoscan.lenience import tell
from headrace.compat.holoscan.signatures import taking
from headrace.resources import MemoryStorageType

__all__ = [
    "Allocator",
    "AsyncBufferReceiver",
    "AsyncBufferTransmitter",
    "BlockMemoryPool",
    "CudaAllocator",
    "CudaGreenContext",
    "CudaGreenContextPool",
    "CudaStreamPool",
    "DoubleBufferReceiver",
    "DoubleBufferTransmitter",
    "GXFClock",
    "GXFComponentResource",
    "ManualClock",
    "MemoryStorageType",
    "OrConditionCombiner",
    "RMMAllocator",
    "RealtimeClock",
    "Receiver",
    "SchedulingPolicy",
    "SerializationBuffer",
    "StdComponentSerializer",
    "StdEntitySerializer",
    "StreamOrderedAllocator",
    "SyntheticClock",
    "ThreadPool",
    "Transmitter",
    "UcxComponentSerializer",
    "UcxEntitySerializer",
    "UcxHoloscanComponentSerializer",
    "UcxReceiver",
    "UcxSerializationBuffer",
    "UcxTransmitter",
    "UnboundedAllocator",
]

Allocator = headrace.Allocator
CudaAllocator = headrace.CudaAllocator


@taking("fragment, storage_type, block_size, num_blocks, dev_id=0, name='block_memory_pool'")
class BlockMemoryPool(GXFResource, headrace.BlockMemoryPool):
    """Blocks of one size."""


@taking(
    "fragment, cuda_green_context_pool=None, index=-1, nvtx_identifier='nvtx_green_context', "
    "name='cuda_green_context'"
)
class CudaGreenContext(GXFResource, headrace.CudaGreenContext):
    """A partition of the device."""


# The only flag there is asks for what headrace always does: streams that do not wait for the default stream.
@taking(
    "fragment, dev_id=0, flags=1, num_partitions=0, sms_per_partition=[], default_context_index=-1, min_sm_size=2, "
    "name='cuda_green_context_pool'",
    ignored=("flags",),
)
class CudaGreenContextPool(GXFResource, headrace.CudaGreenContextPool):
    """The partitions of a device."""


@taking(
    "fragment, dev_id=0, stream_flags=0, stream_priority=0, reserved_size=1, max_size=0, cuda_green_context=None, "
    "nvtx_identifier='nvtx_stream_pool', name='cuda_stream_pool'"
)
class CudaStreamPool(GXFResource, headrace.CudaStreamPool):
    """Streams; to the SDK also an allocator, which has no memory."""

    block_size = 0

    def allocate(self, size: int, type: Any = MemoryStorageType.HOST) -> None:  # noqa: A002 (the SDK's name)
        """Return None."""
        tell(f"{self.name} was asked for {size} bytes; it has none", "a CudaStreamPool has no memory")

    def free(self, pointer: int) -> None:
        """Do nothing."""

    def is_available(self, size: int) -> bool:
        """Return False."""
        return False


@taking(
    "fragment, device_memory_initial_size='8MB', device_memory_max_size='16MB', host_memory_initial_size='8MB', "
    "host_memory_max_size='16MB', dev_id=0, name='rmm_pool'"
)
class RMMAllocator(GXFResource, headrace.RMMAllocator):
    """Pools of device memory and of pinned host memory."""


@taking(
    "fragment, device_memory_initial_size='8MB', device_memory_max_size='16MB', release_threshold='4MB', dev_id=0, "
    "name='stream_ordered_allocator'"
)
class StreamOrderedAllocator(GXFResource, headrace.StreamOrderedAllocator):
    """Device memory in the order of a stream."""


@taking("fragment, name='unbounded_allocator'")
class UnboundedAllocator(GXFResource, headrace.UnboundedAllocator):
    """Memory without a bound."""


@taking(
    "fragment, initial_time_offset=0.0, initial_time_scale=1.0, use_time_since_epoch=False, name='realtime_clock'"
)
class RealtimeClock(GXFClock, headrace.RealtimeClock):
    """Real time."""


class PacedClock(GXFClock, headrace.MachineClock):
    """The time of a simulated device, which stands for real time."""

    def cast_to(self, type: Any) -> Any:  # noqa: A002 (the SDK's name)
        """Return the clock as a clock of real time."""
        return self if type is RealtimeClock else super().cast_to(type)


@taking("fragment, initial_timestamp=0, name='manual_clock'")
class ManualClock(GXFClock, headrace.ManualClock):
    """A time that jumps."""


@taking("fragment, initial_timestamp=0, name='synthetic_clock'")
class SyntheticClock(GXFClock, headrace.SyntheticClock):
    """A time that is set."""


@taking("fragment, initial_size=1, name='thread_pool'")
class ThreadPool(GXFSystemResourceBase, headrace.ThreadPool):
    """Threads for some operators."""


@taking("fragment, terms, name='or_condition_combiner'")
class OrConditionCombiner(GXFResource, headrace.OrConditionCombiner):
    """Lets an operator run when any term does; it ends with the first term that ends."""

    ends_with_first_term = True


class SchedulingPolicy(enum.IntEnum):
    """How Linux schedules a thread."""

    SCHED_FIFO = 1
    SCHED_RR = 2
    SCHED_DEADLINE = 6


_QUEUES = "a queue belongs to its port: declare size= and policy= there, or call connector(...)"
_SERIALIZERS = "messages are sent without serializers; remove the argument"
Receiver = absent("Receiver", _QUEUES)
Transmitter = absent("Transmitter", _QUEUES)
DoubleBufferReceiver = absent("DoubleBufferReceiver", _QUEUES)
DoubleBufferTransmitter = absent("DoubleBufferTransmitter", _QUEUES)
AsyncBufferReceiver = absent("AsyncBufferReceiver", _QUEUES)
AsyncBufferTransmitter = absent("AsyncBufferTransmitter", _QUEUES)
UcxReceiver = absent("UcxReceiver", _QUEUES)
UcxTransmitter = absent("UcxTransmitter", _QUEUES)
SerializationBuffer = absent("SerializationBuffer", _SERIALIZERS)
StdComponentSerializer = absent("StdComponentSerializer", _SERIALIZERS)
StdEntitySerializer = absent("StdEntitySerializer", _SERIALIZERS)
UcxComponentSerializer = absent("UcxComponentSerializer", _SERIALIZERS)
UcxEntitySerializer = absent("UcxEntitySerializer", _SERIALIZERS)
UcxHoloscanComponentSerializer = absent("UcxHoloscanComponentSerializer", _SERIALIZERS)
UcxSerializationBuffer = absent("UcxSerializationBuffer", _SERIALIZERS)
GXFComponentResource = absent(
    "GXFComponentResource",
    "it loads a compiled GXF component; write a Resource in Python, or use the ready resource of that kind",
)
