"""holoscan.conditions: when an operator runs."""

from __future__ import annotations

import logging
from typing import Any

from headrace import conditions as headrace
from headrace.conditions import (
    AsynchronousEventState,  # noqa: F401
    MissingTimestampError,
    PeriodicConditionPolicy,
)
from headrace.core import Condition as _Condition
from headrace.core import SchedulingStatusType
from headrace.resources import BlockMemoryPool
from headrace_holoscan.absent import NotHereError
from headrace_holoscan.core.components import ConditionBase, GXFCondition
from headrace_holoscan.lenience import tell
from headrace_holoscan.signatures import taking


@taking("fragment, name='async_condition'")
class AsynchronousCondition(GXFCondition, headrace.AsynchronousCondition):
    """Waits for an event outside of the pipeline."""


@taking("fragment, enable_tick=True, name='boolean_condition'")
class BooleanCondition(GXFCondition, headrace.BooleanCondition):
    """A switch that ends an operator."""

    def check_tick_enabled(self) -> bool:
        """Return whether the switch is on."""
        return self._enabled


@taking("fragment, count=1, name='count_condition'")
class CountCondition(GXFCondition, headrace.CountCondition):
    """Lets an operator run a number of times."""


def _check_receivers(arguments: dict[str, Any]) -> None:
    if arguments["receiver"] is None and arguments["receivers"] is None:
        raise ValueError("CudaStreamCondition needs the name of an input: receivers='in'")


@taking(
    "fragment, receiver=None, receivers=None, check_all_messages=True, name='noname_cuda_stream_condition'",
    check=_check_receivers,
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
    "fragment, max_batch_size, max_delay_ns, clock=None, receiver=None, "
    "name='expiring_message_available_condition'",
    hidden=("max_batch_size", "max_delay_ns"),
)
class ExpiringMessageAvailableCondition(GXFCondition, headrace.ExpiringMessageAvailableCondition):
    """Waits for a batch of messages, up to a time limit; a message without a timestamp ends the run."""

    counts_from_arrival = False

    def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
        """Return READY when the batch is complete or its oldest message is old enough."""
        try:
            return super().check(timestamp)
        except MissingTimestampError as error:
            logging.getLogger("headrace.holoscan").error("%s; the run ends", error)
            assert self.fragment is not None
            self.fragment._headrace.whole.stop_execution()
            return SchedulingStatusType.NEVER, None


def _check_memory(arguments: dict[str, Any]) -> None:
    if arguments["min_bytes"] is not None and arguments["min_blocks"] is not None:
        raise ValueError("Only one of `min_bytes` or `min_blocks` can be set.")
    if arguments["min_bytes"] is None and arguments["min_blocks"] is None:
        raise ValueError("Either `min_bytes` or `min_blocks` must be provided.")


class _MemoryOfBlocks(headrace.MemoryAvailableCondition):
    """Counts the bytes of several blocks together, and waits for ever for more than there are."""

    def __init__(
        self,
        fragment: Any,
        allocator: Any = None,
        min_bytes: int | None = None,
        min_blocks: int | None = None,
        *,
        name: str = "memory_available_condition",
    ) -> None:
        self._is_impossible = False
        if not isinstance(allocator, BlockMemoryPool):
            super().__init__(fragment, allocator, min_bytes, min_blocks, name=name)
            return
        blocks = -(-min_bytes // allocator.block_size) if min_bytes is not None else min_blocks
        if blocks is not None and blocks > allocator.num_blocks:
            what = f"condition {name!r} waits for {blocks} blocks of {allocator.name!r}, which has"
            tell(f"{what} {allocator.num_blocks}; its operator never runs", f"{what} {allocator.num_blocks}")
            self._is_impossible, blocks = True, 1
        super().__init__(fragment, allocator, min_blocks=blocks, name=name)
        self.min_bytes, self.min_blocks = min_bytes, min_blocks

    def is_there(self) -> bool:
        """Return whether there is enough memory."""
        return not self._is_impossible and super().is_there()


@taking(
    "fragment, allocator, min_bytes=None, min_blocks=None, name='memory_available_condition'",
    check=_check_memory,
)
class MemoryAvailableCondition(GXFCondition, _MemoryOfBlocks):
    """Waits for memory of an allocator."""


# The front stage of a queue, which `front_stage_max_size` bounds, is empty whenever an operator is scheduled.
@taking(
    "fragment, min_size=1, front_stage_max_size=1, receiver=None, name='message_available_condition'",
    ignored=("front_stage_max_size",),
)
class MessageAvailableCondition(GXFCondition, headrace.MessageAvailableCondition):
    """Waits for messages at an input."""


_POLICIES = ("CatchUpMissedTicks", "MinTimeBetweenTicks", "NoCatchUpMissedTicks")
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


def _check_policy(arguments: dict[str, Any]) -> None:
    policy = arguments["policy"]
    if isinstance(policy, str) and policy not in _POLICIES:
        tell(
            f"there is no policy {policy!r}; missed ticks are caught up", f"there are {', '.join(_POLICIES)}"
        )
        arguments["policy"] = PeriodicConditionPolicy.CATCH_UP_MISSED_TICKS


@taking(
    "fragment, recess_period, policy=POLICY, name='periodic_condition'",
    POLICY=PeriodicConditionPolicy.CATCH_UP_MISSED_TICKS,
    hidden=("recess_period",),
    check=_check_policy,
)
class PeriodicCondition(GXFCondition, headrace.PeriodicCondition):
    """Lets an operator run at a period."""

    _last = 0

    def last_run_timestamp(self) -> int:
        """Return the time of the last tick in nanoseconds, 0 before the first."""
        return self._last

    def initialize(self) -> None:
        """Start over."""
        self._last = 0
        super().initialize()

    def on_execute(self, timestamp: int) -> None:
        """Set the time of the next tick."""
        self._last = timestamp
        super().on_execute(timestamp)


_DISCOVERY = (
    "topics belong to the application. Use self.export_topic and self.import_topic in compose: programs find each "
    "other as they come and go, and an operator that receives a topic waits for its messages"
)
_CODELETS = (
    "it is for compiled GXF codelets; use CudaStreamCondition, which waits for the work behind tensors"
)


class _Unusable(ConditionBase, _Condition):
    """A condition that can be made, and not given to an operator."""

    reason = ""

    def join(self, node: Any) -> None:
        """Raise."""
        raise NotHereError(
            f"operator {node.name!r}: holoscan's {type(self).__name__} is not here: {self.reason}"
        )


@taking("fragment, receiver=None, name='cuda_buffer_available_condition'", hidden=("receiver",))
class CudaBufferAvailableCondition(_Unusable, GXFCondition):
    """Waits for the buffers of messages."""

    reason = _CODELETS


@taking("fragment, event_name='', receiver=None, name='cuda_event_condition'", hidden=("receiver",))
class CudaEventCondition(_Unusable, GXFCondition):
    """Waits for an event of a message."""

    reason = _CODELETS


@taking(
    "fragment, min_publisher_count=1, receiver=None, require_pubsub_connector=True, poll_period_ms=100, "
    "latch_ready=False, name='publisher_available_condition'"
)
class PublisherAvailableCondition(_Unusable):
    """Waits for senders of a topic."""

    reason = _DISCOVERY


@taking(
    "fragment, min_subscriber_count=1, transmitter=None, require_pubsub_connector=True, poll_period_ms=100, "
    "stabilization_ms=0, latch_ready=False, ready_on_shutdown=False, name='subscriber_available_condition'"
)
class SubscriberAvailableCondition(_Unusable):
    """Waits for receivers of a topic."""

    reason = _DISCOVERY


__all__ = [
    name
    for name in dir()
    if name.endswith(("Condition", "Policy", "State")) and name[0] != "_" and name != "GXFCondition"
]
