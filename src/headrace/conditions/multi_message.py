"""MultiMessageAvailableCondition, with and without a timeout: count messages over several inputs."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from headrace.conditions.port_condition import PortCondition
from headrace.core.condition_types import SchedulingStatusType
from headrace.core.errors import GraphError
from headrace.core.values import Duration, nanoseconds, whole_number, whole_numbers

if TYPE_CHECKING:
    from headrace.core.composition import Composition
    from headrace.core.node import Node, Receiver


class _SamplingMode(enum.Enum):
    """How the messages of several inputs are counted."""

    SUM_OF_ALL = 0
    PER_RECEIVER = 1


_BY_NAME = {"SumOfAll": _SamplingMode.SUM_OF_ALL, "PerReceiver": _SamplingMode.PER_RECEIVER}


class MultiMessageAvailableCondition(PortCondition):
    """Lets an operator run when enough messages wait at several inputs.

    Parameters
    ----------
    sampling_mode
        ``"SumOfAll"``: at least `min_sum` messages over all inputs together; ``"PerReceiver"``: at least the
        number in `min_sizes` at each.
    min_sum, min_sizes
        The numbers of messages for the two modes.
    receivers
        The inputs; not needed if ``spec.multi_port_condition`` creates the condition.
    """

    port_role = "receivers"
    SamplingMode: ClassVar = _SamplingMode

    def __init__(
        self,
        fragment: Composition | None = None,
        sampling_mode: _SamplingMode | str = _SamplingMode.SUM_OF_ALL,
        min_sum: int | None = None,
        min_sizes: Sequence[int] | None = None,
        receivers: Sequence[str] = (),
        *,
        name: str = "multi_message_condition",
    ) -> None:
        super().__init__(fragment, receivers, name=name)
        if isinstance(sampling_mode, str):
            sampling_mode = _BY_NAME.get(sampling_mode, sampling_mode)
        if not isinstance(sampling_mode, _SamplingMode):
            raise (ValueError if isinstance(sampling_mode, str) else TypeError)(
                f"condition {name!r}: sampling_mode must be 'SumOfAll' or 'PerReceiver', not {sampling_mode!r}"
            )
        self.sampling_mode: _SamplingMode = sampling_mode
        if sampling_mode is _SamplingMode.SUM_OF_ALL and min_sizes is not None:
            raise ValueError(f"condition {name!r}: 'SumOfAll' takes min_sum, not min_sizes")
        if sampling_mode is _SamplingMode.PER_RECEIVER and (min_sizes is None or min_sum is not None):
            raise ValueError(f"condition {name!r}: 'PerReceiver' takes min_sizes, a number for each input")
        self.min_sum = 1 if min_sum is None else whole_number(min_sum, f"condition {name!r}: min_sum", 0)
        self.min_sizes = (
            [] if min_sizes is None else [*whole_numbers(min_sizes, f"condition {name!r}: min_sizes")]
        )
        self._receivers: tuple[Receiver, ...] = ()

    def join(self, node: Node) -> None:
        """Look up the inputs; raise where they hold too few messages."""
        super().join(node)
        ports = self.ports_of(node)
        self._receivers = tuple(map(node.receiver, ports))
        where = f"condition {self.name!r} of operator {node.name!r}"
        limits = [receiver.capacity for receiver in self._receivers]
        if self.sampling_mode is _SamplingMode.PER_RECEIVER:
            if len(self.min_sizes) != len(ports):
                raise GraphError(
                    f"{where}: min_sizes has {len(self.min_sizes)} numbers for {len(ports)} inputs "
                    f"({', '.join(map(repr, ports))})"
                )
            for port, least, limit in zip(ports, self.min_sizes, limits, strict=True):
                if least > limit:
                    raise GraphError(f"{where} waits for {least} messages at {port!r}, which holds {limit}")
        elif self.min_sum > sum(limits):
            raise GraphError(
                f"{where} waits for {self.min_sum} messages, but its inputs hold only {sum(limits)} together"
            )

    def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
        """Return READY when enough messages wait, and NEVER when no more of them can come."""
        sizes = [receiver.size for receiver in self._receivers]
        if self.sampling_mode is _SamplingMode.SUM_OF_ALL:
            enough = sum(sizes) >= self.min_sum
            is_over = not enough and self._have_all_ended()
        else:
            missing = [
                receiver
                for receiver, size, least in zip(self._receivers, sizes, self.min_sizes, strict=True)
                if size < least
            ]
            enough = not missing
            is_over = any(receiver.has_ended for receiver in missing)
        if is_over:
            return SchedulingStatusType.NEVER, None
        return (SchedulingStatusType.READY if enough else SchedulingStatusType.WAIT), None

    def _have_all_ended(self) -> bool:
        return all(receiver.has_ended for receiver in self._receivers)


class MultiMessageAvailableTimeoutCondition(MultiMessageAvailableCondition):
    """Lets an operator run when enough messages wait at several inputs, or when it has not run for a time.

    Once nothing can send to its inputs any more, it lets the operator run with the messages that are left. It ends
    when none are left, or when a compute did not receive any of them.

    Parameters
    ----------
    execution_frequency
        The longest time between two computes, or from the start to the first: ``"10ms"``, ``"0.2s"``,
        ``"50Hz"``, a bare number of nanoseconds, float seconds or a timedelta.
    """

    def __init__(
        self,
        fragment: Composition | None = None,
        execution_frequency: Duration = 0,
        sampling_mode: _SamplingMode | str = _SamplingMode.SUM_OF_ALL,
        min_sum: int | None = None,
        min_sizes: Sequence[int] | None = None,
        receivers: Sequence[str] = (),
        *,
        name: str = "multi_message_timeout_condition",
    ) -> None:
        super().__init__(fragment, sampling_mode, min_sum, min_sizes, receivers, name=name)
        self.period = nanoseconds(execution_frequency, f"condition {name!r}: execution_frequency")
        self._since: int | None = None
        # The messages at the last check, and whether a compute left all of them where no more can come.
        self._waiting = 0
        self._is_stuck = False

    def initialize(self) -> None:
        """Reset the time."""
        self._since = None
        self._is_stuck = False

    def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
        """Return READY if enough messages wait or the time is up, and NEVER when no message can come any more."""
        if self._since is None:
            self._since = timestamp
        status, _ = super().check(timestamp)
        self._waiting = self._count()
        if self._have_all_ended() and (self._is_stuck or not self._waiting):
            return SchedulingStatusType.NEVER, None
        due = self._since + self.period
        if status is SchedulingStatusType.READY or timestamp >= due:
            return SchedulingStatusType.READY, due
        return SchedulingStatusType.WAIT_TIME, due

    def on_execute(self, timestamp: int) -> None:
        """Reset the time, and note whether the compute left all messages where no more can come."""
        self._since = timestamp
        self._is_stuck = self._have_all_ended() and self._count() >= self._waiting

    def _count(self) -> int:
        return sum(receiver.size for receiver in self._receivers)
