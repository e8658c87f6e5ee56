"""PortCondition: the base of conditions about ports."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from headrace._runtime import Envelope, UnconnectedQueue
from headrace.core.condition import Condition
from headrace.core.errors import GraphError
from headrace.core.parameters import Converted, converted, declared, parameter
from headrace.core.ports import SchedulingStatusType, port_names
from headrace.core.values import Duration, nanoseconds, whole_numbers

if TYPE_CHECKING:
    from headrace.core.node import Node, Queue, Receiver


class PortCondition(Condition):
    """A condition about the ports that it names.

    A subclass sets `port_role` to the argument that names them: ``"receiver"`` or ``"transmitter"`` for one input
    or output, which need not be named if the operator has no other; ``"receivers"`` for several inputs, by default
    all.
    """

    polled = False

    def __post_init__(self) -> None:
        super().__post_init__()
        given = None if self.port_role is None else getattr(self, f"_{self.port_role}")
        self.ports = (given,) if isinstance(given, str) else tuple(given or ())
        self._queues: tuple[Queue, ...] = ()

    @property
    def port_names(self) -> tuple[str, ...]:
        """The ports that it names."""
        return self.ports

    def ports_of(self, node: Node) -> tuple[str, ...]:
        """Return the ports that it names, or all of `node` that it may be about."""
        is_output = self.port_role == "transmitter"
        ports = node.output_queues if is_output else node.input_queues
        if not self.ports and self.port_role != "receivers" and len(ports) != 1:
            raise GraphError(
                f"condition {self.name!r} of operator {node.name!r} must name its "
                f"{'output' if is_output else 'input'}: {self.port_role}=... "
                f"(one of {', '.join(map(repr, ports)) or 'none'})"
            )
        return self.ports or tuple(ports)

    def join(self, node: Node) -> None:
        """Join the node, and look up the queues of the ports."""
        super().join(node)
        view = node.transmitter if self.port_role == "transmitter" else node.receiver
        self._queues = tuple(queue for port in self.ports_of(node) for queue in view(port).queues)

    def detach(self) -> None:
        """Leave the run, and release the messages that waited."""
        super().detach()
        self._queues = ()


@declared(kw_only=False)
class MessageAvailableCondition(PortCondition):
    """Lets an operator run when at least `min_size` messages wait at an input.

    Parameters
    ----------
    min_size
        The number of messages; on an ``ANY_SIZE`` input, the number for each connection.
    front_stage_max_size
        The largest number of waiting messages with which the operator runs; no bound unless given.
    receiver
        The input; not needed if `IOSpec.condition` creates the condition.
    """

    port_role = "receiver"

    name = "message_available_condition"
    min_size: int = parameter(default=1, minimum=0)
    front_stage_max_size: int | None = parameter(default=None, minimum=0)
    _receiver: str | None = parameter(default=None, alias="receiver")

    def attach(self, node: Node) -> None:
        """Set the number of messages that the input's queues need; the largest of several conditions counts."""
        self.join(node)
        if self.front_stage_max_size is not None:
            node.evaluate(self)
            return
        for queue in self._queues:
            queue.min_size = max(queue.min_size, self.min_size)

    def join(self, node: Node) -> None:
        """Look up the queues of the input; raise where they hold too few messages."""
        super().join(node)
        for queue in self._queues:
            if self.min_size > queue.limit:
                raise GraphError(
                    f"input {queue.port!r} of operator {node.name!r} waits for {self.min_size} messages, but "
                    f"its queue holds {queue.limit}; declare it with size={self.min_size} or more"
                )

    def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
        """Return READY when enough messages wait, and not too many; NEVER when no more of them can come."""
        bound = self.front_stage_max_size
        for queue in self._queues:
            waiting = len(queue)
            if waiting < self.min_size or (bound is not None and waiting > bound):
                is_over = waiting < self.min_size and queue.has_ended
                return (SchedulingStatusType.NEVER if is_over else SchedulingStatusType.WAIT), None
        return SchedulingStatusType.READY, None


@declared(kw_only=False)
class DownstreamMessageAffordableCondition(PortCondition):
    """Lets an operator run when every queue behind an output has room for `min_size` messages.

    An output without a condition waits for room only in queues that do not drop messages. With this condition it
    waits for room in all of them.

    Parameters
    ----------
    min_size
        The number of free places.
    transmitter
        The output; not needed if `IOSpec.condition` creates the condition.
    """

    port_role = "transmitter"

    name = "downstream_affordable_condition"
    min_size: int = parameter(default=1, minimum=0)
    _transmitter: str | None = parameter(default=None, alias="transmitter")

    def attach(self, node: Node) -> None:
        """Set the number of free places that the node waits for."""
        self.join(node)
        (port,) = self.ports_of(node)
        for queue in self._queues:
            node.claim_room(queue, port, self.min_size)

    def join(self, node: Node) -> None:
        """Look up the queues behind the output; raise where they have too little room."""
        super().join(node)
        (port,) = self.ports_of(node)
        self._queues = tuple(
            queue
            for queue in self._queues
            # The default condition of an output does not wait for queues that drop; an explicit condition does.
            if not isinstance(queue, UnconnectedQueue) and not (self._headrace.is_default and queue.drops)
        )
        for queue in self._queues:
            if self.min_size > queue.limit:
                raise GraphError(
                    f"output {port!r} of operator {node.name!r} waits for room for {self.min_size} "
                    f"messages, but the queue of input {queue.port!r} of operator {queue.consumer.name!r} "
                    f"holds {queue.limit}"
                )

    def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
        """Return READY when there is room."""
        for queue in self._queues:
            if queue.limit - len(queue) < self.min_size:
                return SchedulingStatusType.WAIT, None
        return SchedulingStatusType.READY, None


class MissingTimestampError(ValueError):
    """A message has no timestamp that its age could be counted from."""


@declared(kw_only=False)
class ExpiringMessageAvailableCondition(PortCondition):
    """Lets an operator run when a batch is complete, or when its first message is old enough.

    Parameters
    ----------
    max_batch_size
        The number of messages with which the operator runs at once.
    max_delay_ns
        The age of the oldest message at which the operator runs with fewer: nanoseconds, float seconds, a str such
        as ``"5ms"`` or a timedelta. The age counts from the timestamp of the message (``emit(...,
        acq_timestamp=...)``), or from its arrival if it has none.
    receiver
        The input; not needed if `IOSpec.condition` creates the condition.
    """

    port_role = "receiver"
    counts_from_arrival: ClassVar[bool] = True
    """Whether the age of a message without a timestamp counts from its arrival; else it is an error."""

    name = "expiring_message_available_condition"
    max_batch_size: int = parameter(default=1, minimum=1)
    max_delay_ns: Converted[Duration, int] = converted(nanoseconds, default=0)
    _receiver: str | None = parameter(default=None, alias="receiver")

    def join(self, node: Node) -> None:
        """Look up the queues of the input, which record from now on when messages arrive."""
        super().join(node)
        for queue in self._queues:
            queue.note_arrivals(node.engine.clock.timestamp)

    def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
        """Return READY when the batch is complete or its oldest message is old enough; NEVER when none can come."""
        # A full queue that drops its oldest message has one too many for a moment.
        waiting = sum(min(len(queue), queue.limit) for queue in self._queues)
        if waiting >= self.max_batch_size:
            return SchedulingStatusType.READY, None
        times = [since for queue in self._queues if (since := self._since(queue)) is not None]
        oldest = min(times, default=None)
        if oldest is None:
            is_over = bool(self._queues) and all(queue.has_ended for queue in self._queues)
            return (SchedulingStatusType.NEVER if is_over else SchedulingStatusType.WAIT), None
        due = oldest + self.max_delay_ns
        if timestamp >= due:
            return SchedulingStatusType.READY, due
        return SchedulingStatusType.WAIT_TIME, due

    def _since(self, queue: Queue) -> int | None:
        """Return when the age of the oldest message begins; None without a message."""
        message = queue.peek()
        if type(message) is Envelope and message.acq_timestamp is not None:
            return message.acq_timestamp
        if len(queue) and not self.counts_from_arrival:
            raise MissingTimestampError(
                f"condition {self.name!r}: a message of input {queue.port!r} carries no timestamp: emit it with "
                "acq_timestamp=..."
            )
        return queue.arrival()


class _SamplingMode(enum.Enum):
    """How the messages of several inputs are counted."""

    SUM_OF_ALL = 0
    PER_RECEIVER = 1


_BY_NAME = {"SumOfAll": _SamplingMode.SUM_OF_ALL, "PerReceiver": _SamplingMode.PER_RECEIVER}


def _sampling_mode(given: object, what: str) -> _SamplingMode:
    found = _BY_NAME.get(given, given) if isinstance(given, str) else given
    if isinstance(found, _SamplingMode):
        return found
    raise (ValueError if isinstance(given, str) else TypeError)(
        f"{what} must be 'SumOfAll' or 'PerReceiver', not {given!r}"
    )


class _MultiMessageCondition(PortCondition):
    """What conditions on several inputs have in common."""

    port_role = "receivers"
    SamplingMode: ClassVar = _SamplingMode

    sampling_mode: Converted[_SamplingMode | str, _SamplingMode]
    _least: int | None
    _least_of_each: Converted[Sequence[int] | None, tuple[int, ...] | None]

    def __post_init__(self) -> None:
        super().__post_init__()
        is_sum = self.sampling_mode is _SamplingMode.SUM_OF_ALL
        if is_sum and self._least_of_each is not None:
            raise ValueError(f"condition {self.name!r}: 'SumOfAll' takes min_sum, not min_sizes")
        if not is_sum and (self._least_of_each is None or self._least is not None):
            raise ValueError(
                f"condition {self.name!r}: 'PerReceiver' takes min_sizes, a number for each input"
            )
        self.min_sum = 1 if self._least is None else self._least
        self.min_sizes = list(self._least_of_each or ())
        self._inputs: tuple[Receiver, ...] = ()

    def join(self, node: Node) -> None:
        """Look up the inputs; raise where they hold too few messages."""
        super().join(node)
        ports = self.ports_of(node)
        self._inputs = tuple(map(node.receiver, ports))
        where = f"condition {self.name!r} of operator {node.name!r}"
        limits = [receiver.capacity for receiver in self._inputs]
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
        sizes = [receiver.size for receiver in self._inputs]
        if self.sampling_mode is _SamplingMode.SUM_OF_ALL:
            enough = sum(sizes) >= self.min_sum
            is_over = not enough and self._have_all_ended()
        else:
            missing = [
                receiver
                for receiver, size, least in zip(self._inputs, sizes, self.min_sizes, strict=True)
                if size < least
            ]
            enough = not missing
            is_over = any(receiver.has_ended for receiver in missing)
        if is_over:
            return SchedulingStatusType.NEVER, None
        return (SchedulingStatusType.READY if enough else SchedulingStatusType.WAIT), None

    def _have_all_ended(self) -> bool:
        return all(receiver.has_ended for receiver in self._inputs)


@declared(kw_only=False)
class MultiMessageAvailableCondition(_MultiMessageCondition):
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

    name = "multi_message_condition"
    sampling_mode: Converted[_SamplingMode | str, _SamplingMode] = converted(
        _sampling_mode, default=_SamplingMode.SUM_OF_ALL
    )
    _least: int | None = parameter(default=None, alias="min_sum", minimum=0)
    _least_of_each: Converted[Sequence[int] | None, tuple[int, ...] | None] = converted(
        whole_numbers, default=None, alias="min_sizes"
    )
    _receivers: Converted[Sequence[str], tuple[str, ...]] = converted(
        port_names, default=(), alias="receivers"
    )


@declared(kw_only=False)
class MultiMessageAvailableTimeoutCondition(_MultiMessageCondition):
    """Lets an operator run when enough messages wait at several inputs, or when it has not run for a time.

    Once nothing can send to its inputs any more, it lets the operator run with the messages that are left. It ends
    when none are left, or when a compute did not receive any of them.

    Parameters
    ----------
    execution_frequency
        The longest time between two computes, or from the start to the first: ``"10ms"``, ``"0.2s"``,
        ``"50Hz"``, a bare number of nanoseconds, float seconds or a timedelta.
    """

    name = "multi_message_timeout_condition"
    period: Converted[Duration, int] = converted(nanoseconds, default=0, alias="execution_frequency")
    sampling_mode: Converted[_SamplingMode | str, _SamplingMode] = converted(
        _sampling_mode, default=_SamplingMode.SUM_OF_ALL
    )
    _least: int | None = parameter(default=None, alias="min_sum", minimum=0)
    _least_of_each: Converted[Sequence[int] | None, tuple[int, ...] | None] = converted(
        whole_numbers, default=None, alias="min_sizes"
    )
    _receivers: Converted[Sequence[str], tuple[str, ...]] = converted(
        port_names, default=(), alias="receivers"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self._since: int | None = None
        # The messages at the last check, whether no more could come then, and whether a compute left all of them.
        self._waiting = 0
        self._is_over = False
        self._is_stuck = False

    def initialize(self) -> None:
        """Reset the time."""
        self._since = None
        self._is_stuck = False

    def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
        """Return READY if enough messages wait or the time is up, and NEVER when no message can come any more."""
        if self._since is None:
            self._since = timestamp
        self._is_over = (
            self._have_all_ended()
        )  # before the messages are counted, which may still come otherwise
        status, _ = super().check(timestamp)
        self._waiting = self._count()
        if self._is_over and (self._is_stuck or not self._waiting):
            return SchedulingStatusType.NEVER, None
        due = self._since + self.period
        if status is SchedulingStatusType.READY or timestamp >= due:
            return SchedulingStatusType.READY, due
        return SchedulingStatusType.WAIT_TIME, due

    def on_execute(self, timestamp: int) -> None:
        """Reset the time, and note whether the compute left all messages where no more can come."""
        self._since = timestamp
        self._is_stuck = self._is_over and self._count() >= self._waiting

    def _count(self) -> int:
        return sum(receiver.size for receiver in self._inputs)
