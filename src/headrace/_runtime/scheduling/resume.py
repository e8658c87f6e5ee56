"""Resume: an operator that emits the results of its messages over several computes.

A function that yields emits one value in each step, so queues behind it need hold only one message, and a slow
receiver slows it down like any other operator. Between two steps its node must be ready without a new message. The
engine is not involved: from the step with the first value to the step that finds no further value, the node's input
queues require no message (`Queue.min_size` is 0), and evaluated conditions on inputs do not count.

`min_size` is written in the compute of the node, without a lock. Other threads read it only for a queue with too
few messages (`QueueState.available` is False), and only the end of a compute of this node clears that flag.

Each step repeats the metadata and timestamp of the messages, so that every value carries them. The messages are
kept alive until the streams have completed the work of the last step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace._runtime.scheduling.evaluated_conditions import leaves_of
from headrace.core.condition import Condition
from headrace.core.condition_types import SchedulingStatusType

if TYPE_CHECKING:
    from headrace._runtime.messages.queue import Queue
    from headrace._runtime.scheduling.node import Node
    from headrace.core.condition import Condition

_READY = SchedulingStatusType.READY


class Resume:
    """Keeps a node ready, without a new message, while it has more to emit for the last one.

    Created before the run begins, when the node's conditions are attached.
    """

    def __init__(self, node: Node) -> None:
        self.node = node
        self.is_on = False
        """Whether the node continues with messages that it received before."""
        self._sizes: list[tuple[Queue, int]] = []
        self.conditions: list[Condition] = []
        """The node's evaluated conditions on inputs."""
        self.connect()
        self.received = False
        """Whether the current or last compute has received anything."""
        self._metadata: dict[str, Any] = {}
        self._acq_timestamp: int | None = None
        self._items: list[Any] = []

    def connect(self) -> None:
        """Find the queues and conditions of the node; called again when its flows have changed."""
        node = self.node
        self._sizes = [(queue, queue.min_size) for queue in node.inputs]
        self.conditions = [condition for condition in node.conditions if _is_about_inputs(condition)]
        if node.evaluated is not None:
            node.evaluated.resume = self
        if self.is_on:
            for queue, _ in self._sizes:
                queue.min_size = queue.state.min_size = 0

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
        now = self.node.clock.timestamp() if self.conditions else 0
        for condition in self.conditions:
            condition.update_state(now)
            if condition.check(now)[0] is not _READY:
                return False
        self.node.clear_details()  # the details of the last messages do not belong to these
        return True


def _is_about_inputs(condition: Condition) -> bool:
    return any(
        leaf.port_role != "transmitter" and (leaf.port_role is not None or bool(leaf.port_names))
        for leaf in leaves_of(condition)
    )
