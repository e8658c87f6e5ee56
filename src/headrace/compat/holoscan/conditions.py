"""holoscan.conditions: when an operator runs."""

from __future__ import annotations

from headrace import conditions as headrace
from headrace.compat.holoscan.absent import absent
from headrace.compat.holoscan.core.components import ConditionBase, GXFCondition
from headrace.compat.holoscan.signatures import taking
from headrace.conditions import AsynchronousEventState, PeriodicConditionPolicy

__all__ = [
    "AsynchronousCondition",
    "AsynchronousEventState",
    "BooleanCondition",
    "CountCondition",
    "CudaBufferAvailableCondition",
    "CudaEventCondition",
    "CudaStreamCondition",
    "DownstreamMessageAffordableCondition",
    "ExpiringMessageAvailableCondition",
    "MemoryAvailableCondition",
    "MessageAvailableCondition",
    "MultiMessageAvailableCondition",
    "MultiMessageAvailableTimeoutCondition",
    "PeriodicCondition",
    "PeriodicConditionPolicy",
    "PublisherAvailableCondition",
    "SubscriberAvailableCondition",
]


@taking("fragment, name='async_condition'")
class AsynchronousCondition(GXFCondition, headrace.AsynchronousCondition):
    """Waits for an event outside of the pipeline."""


@taking("fragment, enable_tick=True, name='boolean_condition'")
class BooleanCondition(GXFCondition, headrace.BooleanCondition):
    """A switch that ends an operator."""


@taking("fragment, count=1, name='count_condition'")
class CountCondition(GXFCondition, headrace.CountCondition):
    """Lets an operator run a number of times."""


@taking(
    "fragment, receiver=None, receivers=None, check_all_messages=True, name='noname_cuda_stream_condition'"
)
class CudaStreamCondition(ConditionBase, headrace.CudaStreamCondition):
    """Waits for the work behind the messages of inputs."""

    @property
    def receivers(self) -> list[str]:
        """The names of the inputs."""
        return list(self.ports)


@taking("fragment, min_size=1, transmitter=None, name='downstream_affordable_condition'")
class DownstreamMessageAffordableCondition(GXFCondition, headrace.DownstreamMessageAffordableCondition):
    """Waits for room behind an output."""


@taking(
    "fragment, max_batch_size, max_delay_ns, clock=None, receiver=None, name='expiring_message_available_condition'"
)
class ExpiringMessageAvailableCondition(GXFCondition, headrace.ExpiringMessageAvailableCondition):
    """Waits for a batch of messages, up to a time limit."""


@taking("fragment, allocator, min_bytes=None, min_blocks=None, name='memory_available_condition'")
class MemoryAvailableCondition(GXFCondition, headrace.MemoryAvailableCondition):
    """Waits for memory of an allocator."""


# The front stage of a queue, which `front_stage_max_size` bounds, is empty whenever an operator is scheduled.
@taking(
    "fragment, min_size=1, front_stage_max_size=1, receiver=None, name='message_available_condition'",
    ignored=("front_stage_max_size",),
)
class MessageAvailableCondition(GXFCondition, headrace.MessageAvailableCondition):
    """Waits for messages at an input."""


_SUM = headrace.MultiMessageAvailableCondition.SamplingMode.SUM_OF_ALL


@taking("fragment, sampling_mode=SUM, min_sum=None, min_sizes=None, name='multi_message_condition'", SUM=_SUM)
class MultiMessageAvailableCondition(GXFCondition, headrace.MultiMessageAvailableCondition):
    """Counts messages over several inputs."""


@taking(
    "fragment, execution_frequency, sampling_mode=SUM, min_sum=None, min_sizes=None, "
    "name='multi_message_timeout_condition'",
    SUM=_SUM,
)
class MultiMessageAvailableTimeoutCondition(GXFCondition, headrace.MultiMessageAvailableTimeoutCondition):
    """Counts messages over several inputs, up to a time limit."""


@taking(
    "fragment, recess_period, policy=POLICY, name='periodic_condition'",
    POLICY=PeriodicConditionPolicy.CATCH_UP_MISSED_TICKS,
)
class PeriodicCondition(GXFCondition, headrace.PeriodicCondition):
    """Lets an operator run at a period."""


_DISCOVERY = (
    "endpoints of topics are not found while a program runs. Connect the operators with add_flow, whose "
    "default conditions wait for messages and for room"
)
_CODELETS = (
    "it is for compiled GXF codelets; use CudaStreamCondition, which waits for the work behind tensors"
)
CudaBufferAvailableCondition = absent("CudaBufferAvailableCondition", _CODELETS)
CudaEventCondition = absent("CudaEventCondition", _CODELETS)
PublisherAvailableCondition = absent("PublisherAvailableCondition", _DISCOVERY)
SubscriberAvailableCondition = absent("SubscriberAvailableCondition", _DISCOVERY)
