"""holoscan.resources: allocators, pools, clocks."""

from __future__ import annotations

import enum
from typing import Any

from headrace import declared, parameter
from headrace import resources as headrace
from headrace.core import Resource
from headrace.resources import MemoryStorageType
from headrace.vocabulary import Inner, InnerCondition, byte_size
from headrace_holoscan.absent import absent
from headrace_holoscan.core.clock import GXFClock
from headrace_holoscan.core.components import GXFResource, GXFSystemResourceBase, InnerResourceBase
from headrace_holoscan.lenience import tell
from headrace_holoscan.signatures import taking


class _AnyAllocator(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, (headrace.Allocator, headrace.CudaStreamPool))


class Allocator(headrace.Allocator, metaclass=_AnyAllocator):
    """Any allocator, and any pool of streams."""


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


def _megabytes(number: int) -> Any:
    return parameter(default=f"{number}MB", convert=byte_size)


@declared(kw_only=False)
class _TwoPools(headrace.CudaAllocator):
    served = (MemoryStorageType.DEVICE, MemoryStorageType.HOST)

    device_memory_initial_size: Any = _megabytes(8)
    device_memory_max_size: Any = _megabytes(16)
    host_memory_initial_size: Any = _megabytes(8)
    host_memory_max_size: Any = _megabytes(16)


@taking(
    "fragment, device_memory_initial_size='8MB', device_memory_max_size='16MB', host_memory_initial_size='8MB', "
    "host_memory_max_size='16MB', dev_id=0, name='rmm_pool'",
    base=_TwoPools,
)
class RMMAllocator(GXFResource, _TwoPools):
    """Pools of device memory and of pinned host memory, in memory of the driver's pools."""


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


class _InnerThreadPool(InnerResourceBase):
    """The state of a thread pool."""

    def entries(self, component: Any) -> list[tuple[str, Any]]:
        """What it is, for `dump`."""
        operators = [[("name", op.name)] for op in component.operators]
        return [*super().entries(component), ("operators in pool", operators)]


@taking("fragment, initial_size=1, name='thread_pool'")
class ThreadPool(GXFSystemResourceBase, headrace.ThreadPool):
    """Threads for some operators."""

    _headrace = Inner(_InnerThreadPool)

    _again: tuple[Any, ...] = ()

    def add(self, ops: Any, pin_operator: bool = True, pin_cores: Any = None) -> None:
        """Run operators on the threads of this pool; an operator that is there already stays as it is."""
        listed = ops if isinstance(ops, (list, tuple)) else [ops]
        known = [op for op in listed if op in self.operators]
        for op in known:
            what = f"operator {op.name!r} is in thread pool {self.name!r} already"
            tell(f"{what}, and stays as it is", what)
        self._again += tuple(known)
        super().add([op for op in listed if op not in known], pin_operator, pin_cores)

    @property
    def operators(self) -> list[Any]:
        """The operators that were added, as often as they were."""
        return [*super().operators, *self._again]

    def add_realtime(self, op: Any, sched_policy: Any, *args: Any, **kwargs: Any) -> None:
        """Run an operator on a real-time thread; a thread with a deadline may use all cores."""
        if sched_policy in (SchedulingPolicy.SCHED_DEADLINE, "SCHED_DEADLINE") and kwargs.pop(
            "pin_cores", None
        ):
            tell(
                f"{op.name} has a deadline, and so uses all cores",
                "Linux binds no such thread; leave out pin_cores",
            )
        super().add_realtime(op, sched_policy, *args, **kwargs)


class _InnerCombiner(InnerResourceBase, InnerCondition):
    """The state of a combiner, which is a condition that counts as a resource."""


@taking("fragment, terms, name='or_condition_combiner'")
class OrConditionCombiner(GXFResource, headrace.OrConditionCombiner):
    """Lets an operator run when any term does; it ends with the first term that ends."""

    _headrace = Inner(_InnerCombiner)
    ends_with_first_term = True


class SchedulingPolicy(enum.IntEnum):
    """How Linux schedules a thread."""

    SCHED_FIFO = 1
    SCHED_RR = 2
    SCHED_DEADLINE = 6


class _Queue(GXFResource, Resource):
    """The queue of a port. Its length and policy count if a port is declared with it."""

    capacity: int
    policy: int
    size = back_size = 0


class Receiver(_Queue):
    """The queue of an input."""


class Transmitter(_Queue):
    """The queue of an output."""


@taking("fragment, capacity=1, policy=2, name='double_buffer_receiver'")
class DoubleBufferReceiver(Receiver):
    """A queue."""


@taking("fragment, capacity=1, policy=2, name='double_buffer_transmitter'")
class DoubleBufferTransmitter(Transmitter):
    """A queue."""


@taking("fragment, name='async_buffer_receiver'")
class AsyncBufferReceiver(Receiver):
    """The newest message."""


@taking("fragment, name='async_buffer_transmitter'")
class AsyncBufferTransmitter(Transmitter):
    """The newest message."""


@taking("fragment, buffer=None, capacity=1, policy=2, address='0.0.0.0', port=13337, name='ucx_receiver'")
class UcxReceiver(Receiver):
    """A queue, whose messages come from this process here."""


@taking(
    "fragment, buffer=None, capacity=1, policy=2, receiver_address='0.0.0.0', local_address='0.0.0.0', port=13337, "
    "local_port=0, maximum_connection_retries=10, name='ucx_transmitter'"
)
class UcxTransmitter(Transmitter):
    """A queue, whose messages stay in this process here."""


class _Serializer(GXFResource, Resource):
    """A part of a connection between processes. Nothing asks for it here."""


@taking("fragment, allocator=None, buffer_size=4096, name='serialization_buffer'")
class SerializationBuffer(_Serializer):
    """A buffer of bytes."""


@taking("fragment, name='standard_component_serializer'")
class StdComponentSerializer(_Serializer):
    """Turns components into bytes."""


@taking("fragment, name='standard_entity_serializer'")
class StdEntitySerializer(_Serializer):
    """Turns messages into bytes."""


@taking("fragment, allocator=None, name='ucx_component_serializer'")
class UcxComponentSerializer(_Serializer):
    """Turns components into bytes."""


@taking("fragment, verbose_warning=False, name='ucx_entity_serializer'")
class UcxEntitySerializer(_Serializer):
    """Turns messages into bytes."""


@taking("fragment, allocator=None, name='ucx_holoscan_component_serializer'")
class UcxHoloscanComponentSerializer(_Serializer):
    """Turns components into bytes."""


@taking("fragment, allocator=None, buffer_size=4096, name='ucx_serialization_buffer'")
class UcxSerializationBuffer(_Serializer):
    """A buffer of bytes."""


GXFComponentResource = absent(
    "GXFComponentResource",
    "it loads a compiled GXF component; write a Resource in Python, or use the ready resource of that kind",
)

_OTHERS = ("Any", "GXFResource", "GXFSystemResourceBase", "PacedClock", "Resource")
__all__ = [name for name in dir() if name[0].isupper() and name not in _OTHERS]
