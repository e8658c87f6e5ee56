"""The parts around an operator that runs by itself: feeders, collectors and a counter of its steps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from headrace._runtime import Envelope
from headrace.core.composition import Composition
from headrace.core.condition import Condition
from headrace.core.condition_types import SchedulingStatusType
from headrace.core.durations import nanoseconds
from headrace.core.operator import Operator
from headrace.core.spec import OperatorSpec
from headrace.testing.result import Message

UNBOUNDED = 1 << 20
"""The length of a collector's queue: more than any test emits in one step. An empty queue takes no memory."""


class StepCounter(Condition):
    """Counts the steps of an operator, up to a limit."""

    polled = False

    def __init__(self, fragment: Composition, limit: int) -> None:
        super().__init__(fragment, name="step_counter")
        self.limit = limit
        self.steps = 0
        self.has_ended_it = False
        """Whether the limit ended the operator."""

    def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
        """Return READY until the limit is reached."""
        if self.steps < self.limit:
            return SchedulingStatusType.READY, None
        self.has_ended_it = True
        return SchedulingStatusType.NEVER, None

    def on_execute(self, timestamp: int) -> None:
        """Count a step."""
        self.steps += 1


class Feeder(Operator):
    """Sends messages to one input, each at its time or as soon as there is room."""

    def __init__(self, fragment: Composition, messages: Iterable[Any], name: str) -> None:
        self.left = [item if isinstance(item, Message) else Message(item) for item in messages][::-1]
        super().__init__(fragment, _Due(fragment, self.left), name=name)

    def setup(self, spec: OperatorSpec) -> None:
        """Declare the output."""
        spec.output("out")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        """Send one message."""
        message = self.left.pop()
        self.metadata.update(message.metadata)
        timestamp = -1 if message.acq_timestamp is None else message.acq_timestamp
        op_output.emit(message.data, "out", acq_timestamp=timestamp)


class _Due(Condition):
    """Lets a feeder run from the time of its next message on."""

    polled = False

    def __init__(self, fragment: Composition, left: list[Message]) -> None:
        super().__init__(fragment, name="due")
        self.left = left
        self.began: int | None = None

    def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
        """Return READY from the time of the next message on, and NEVER when none is left."""
        if self.began is None:
            self.began = timestamp
        if not self.left:
            return SchedulingStatusType.NEVER, None
        at = self.left[-1].at
        if at is None:
            return SchedulingStatusType.READY, None
        due = self.began + nanoseconds(at, "the time of a message")
        return (SchedulingStatusType.READY if timestamp >= due else SchedulingStatusType.WAIT_TIME), due


class Collector(Operator):
    """Collects everything that one output emits; connected by a flow of size `UNBOUNDED`."""

    def __init__(self, fragment: Composition, name: str) -> None:
        self.collected: list[Message] = []
        super().__init__(fragment, name=name)
        # It looks at the metadata of each message by itself: merged, two messages may contradict each other.
        self.enable_metadata(False)

    def setup(self, spec: OperatorSpec) -> None:
        """Declare an input that gives one message at a time."""
        spec.input("in")

    def start(self) -> None:
        """Record when the run begins."""
        self.began = self.fragment.scheduler().clock.timestamp()

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        """Receive the waiting messages, with metadata and times."""
        assert self._node is not None
        waiting = self._node.receiver("in")
        at = context.timestamp - self.began
        # One by one: on another thread, the operator may emit further messages meanwhile.
        for _ in range(waiting.size):
            item = waiting.peek(0)
            data = op_input.receive("in")
            is_message = type(item) is Envelope
            metadata = dict(item.metadata or {}) if is_message else {}
            timestamp = item.acq_timestamp if is_message else None
            self.collected.append(Message(data, metadata, timestamp, at))
