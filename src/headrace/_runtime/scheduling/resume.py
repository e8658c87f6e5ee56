"""Resume: an operator that emits the results of its messages over several computes.

A function that yields emits one value in each step, so queues behind it need hold only one message, and a slow
receiver slows it down like any other operator. Between two steps its node must be ready without a new message. The
engine is not involved: from the step with the first value to the step that finds no further value, the node's input
queues require no message (`Queue.min_size` is 0). Evaluated conditions on inputs return READY meanwhile.

`min_size` is written in the compute of the node, without a lock. Other threads read it only for a queue with too
few messages (`QueueState.available` is False), and only the end of a compute of this node clears that flag.

Each step repeats the metadata and timestamp of the messages, so that every value carries them. The messages are
kept alive until the streams have completed the work of the last step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.core.condition import Condition
from headrace.core.condition_types import SchedulingStatusType

if TYPE_CHECKING:
    from headrace._runtime.scheduling.node import Node

__all__ = ["Resume"]

_READY = SchedulingStatusType.READY


class Resume:
    """Keeps a node ready, without a new message, while it has more to emit for the last one.

    Created before the run begins, when the node's conditions are attached.
    """

    def __init__(self, node: Node) -> None:
        self.node = node
        self._sizes = [(queue, queue.min_size) for queue in node.inputs]
        conditions = node.conditions
        self._conditions = [condition for condition in conditions if _is_about_inputs(condition)]
        conditions[:] = [
            _UnlessResumed(condition, self) if condition in self._conditions else condition
            for condition in conditions
        ]
        self.is_on = False
        """Whether the node continues with messages that it received before."""
        self.received = False
        """Whether the current or last compute has received anything."""
        self._metadata: dict[str, Any] = {}
        self._acq_timestamp: int | None = None
        self._items: list[Any] = []

    def note(self) -> None:
        """Record the metadata and timestamps of the messages that were just received."""
        self.received = True
        self._metadata = dict(self.node.operator.metadata)
        self._acq_timestamp = self.node.output.acq_timestamp
        self._items = self.node.streams.items_received()

    def go_on(self) -> None:
        """Let the node run again without a new message."""
        if not self.is_on:
            self.is_on = True
            for queue, _ in self._sizes:
                queue.min_size = queue.state.min_size = 0

    def begin_step(self) -> None:
        """Treat a continuing step as if it had received the messages of the first step."""
        self.received = False
        if self.is_on:
            if self._metadata:
                self.node.operator.metadata.update(self._metadata)
            if self._acq_timestamp is not None:
                self.node.expect_details()
                self.node.output.pass_on(self._acq_timestamp)
            self.node.streams.receive_again(self._items)

    def end(self) -> None:
        """Let the node wait for messages again."""
        if self.is_on:
            self.is_on = False
            for queue, size in self._sizes:
                queue.min_size = queue.state.min_size = size
        self._metadata = {}
        self._acq_timestamp = None
        self._items = []

    def may_receive(self) -> bool:
        """Return whether the next messages are waiting, so that a step can end one message and begin the next."""
        if any(len(queue) < size for queue, size in self._sizes):
            return False
        now = self.node.clock.timestamp() if self._conditions else 0
        for condition in self._conditions:
            condition.update_state(now)
            if condition.check(now)[0] is not _READY:
                return False
        self.node.clear_details()  # the details of the last messages do not belong to these
        return True


class _UnlessResumed(Condition):
    """A condition on inputs; inputs do not matter while the node continues with earlier messages."""

    def __init__(self, condition: Condition, resume: Resume) -> None:
        super().__init__(condition.fragment, name=condition.name)
        self.condition = condition
        self.resume = resume
        self.polled = condition.polled

    @property
    def terms(self) -> tuple[Condition, ...]:
        """The condition."""
        return (self.condition,)

    def evaluate(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
        """Return READY while there is more to emit; otherwise evaluate the condition."""
        return (_READY, None) if self.resume.is_on else self.condition.evaluate(timestamp)

    def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
        """Return READY while there is more to emit; otherwise check the condition."""
        return (_READY, None) if self.resume.is_on else self.condition.check(timestamp)

    @property
    def is_polled_beside(self) -> bool:  # type: ignore[override]
        """Whether a part of the condition must be polled, regardless of the combined state."""
        return self.condition.is_polled_beside

    def on_execute(self, timestamp: int) -> None:
        """Pass on that compute ran, if it received anything."""
        if self.resume.received:
            self.condition.on_execute(timestamp)

    def on_resume(self, timestamp: int) -> None:
        """Pass on that a paused run goes on."""
        self.condition.on_resume(timestamp)

    def detach(self) -> None:
        """Leave the run."""
        self.condition.detach()


def _is_about_inputs(condition: Condition) -> bool:
    if condition.terms:
        return any(map(_is_about_inputs, condition.terms))
    if condition.port_role == "transmitter":
        return False
    return condition.port_role is not None or bool(condition.port_names)
