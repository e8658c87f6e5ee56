"""Resume: an operator that has more to emit for what it received than fits in one compute.

A function that yields emits one value in each step, so that no queue behind it must hold more than one, and a slow
receiver slows it down like any other operator. Between two steps its node must be ready without a new message. The
engine takes no part in that: from the step with the first value to the one in which there is no other, the node's
input queues require no message (`Queue.min_size` is 0). A condition about inputs that is evaluated, not counted,
returns READY meanwhile.

`min_size` is written in the compute of the node, without a lock. Others read it only for a queue that has not
enough messages (`Queue.available` is False), and only the end of a compute of this node makes it so.

What came with the messages comes again with each step: their metadata and timestamp go out with every value, and
the messages are kept alive until the streams have completed the work of the last step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.core.condition import Condition, SchedulingStatusType

if TYPE_CHECKING:
    from penstock._runtime.scheduling.node import Node

__all__ = ["Resume"]

_READY = SchedulingStatusType.READY


class Resume:
    """Keeps a node ready, without a new message, while it has more to emit for the last one.

    Made before the run begins, when the node's conditions are attached.
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
        """Whether the node goes on with what it received before."""
        self.received = False
        """Whether the compute that runs, or ran last, has received anything."""
        self._metadata: dict[str, Any] = {}
        self._acq_timestamp: int | None = None
        self._items: list[Any] = []

    def note(self) -> None:
        """Remember what came with the messages that were just received."""
        self.received = True
        self._metadata = dict(self.node.operator.metadata)
        self._acq_timestamp = self.node.output.acq_timestamp
        self._items = self.node.streams.items_received()

    def go_on(self) -> None:
        """Let the node run again without a new message."""
        if not self.is_on:
            self.is_on = True
            for queue, _ in self._sizes:
                queue.min_size = 0

    def begin_step(self) -> None:
        """Treat a step that goes on as one that received what the first received."""
        self.received = False
        if self.is_on:
            if self._metadata:
                self.node.operator.metadata.update(self._metadata)
            if self._acq_timestamp is not None:
                self.node.has_extra_work = self.node.has_details = True
                self.node.output.pass_on(self._acq_timestamp)
            self.node.streams.receive_again(self._items)

    def end(self) -> None:
        """Let the node wait for messages again."""
        if self.is_on:
            self.is_on = False
            for queue, size in self._sizes:
                queue.min_size = size
        self._metadata = {}
        self._acq_timestamp = None
        self._items = []

    def may_receive(self) -> bool:
        """Return whether the next messages are there, so that the step in which one ends can begin the next."""
        if any(len(queue) < size for queue, size in self._sizes):
            return False
        now = self.node.engine.clock.timestamp() if self._conditions else 0
        for condition in self._conditions:
            condition.update_state(now)
            if condition.check(now)[0] is not _READY:
                return False
        self.node.clear_details()  # what came with the last messages does not belong to these
        return True


class _UnlessResumed(Condition):
    """A condition about inputs, which do not matter while the node goes on with what it received before."""

    def __init__(self, condition: Condition, resume: Resume) -> None:
        super().__init__(condition.fragment, name=condition.name)
        self.condition = condition
        self.resume = resume
        self.polled = condition.polled

    def evaluate(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
        """Return READY while there is more to emit, else ask the condition, which knows what it waits for."""
        return (_READY, None) if self.resume.is_on else self.condition.evaluate(timestamp)

    def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
        """Return READY while there is more to emit, else what the condition says."""
        return (_READY, None) if self.resume.is_on else self.condition.check(timestamp)

    @property
    def is_polled_beside(self) -> bool:  # type: ignore[override]
        """Whether a part of the condition must be polled, whatever the whole said."""
        return self.condition.is_polled_beside

    def on_execute(self, timestamp: int) -> None:
        """Pass on that compute ran, if it received anything."""
        if self.resume.received:
            self.condition.on_execute(timestamp)

    def detach(self) -> None:
        """Leave the run."""
        self.condition.detach()


def _is_about_inputs(condition: Condition) -> bool:
    if condition.terms:
        return any(map(_is_about_inputs, condition.terms))
    if condition.port_role == "transmitter":
        return False
    return condition.port_role is not None or bool(condition.port_names)
