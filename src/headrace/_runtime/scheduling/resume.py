"""Resume: an operator that emits the results of its messages over several computes.

A function that yields emits one value in each step, so queues behind it need hold only one message, and a slow
receiver slows it down like any other operator. Between two steps its node must be ready without a new message. The
engine is not involved: from the step with the first value to the step that finds no further value, the node's input
queues require no message (`Queue.min_size` is 0), and evaluated conditions on inputs do not count.

`min_size` is written in the compute of the node, without a lock. Other threads read it only for a queue with too
few messages (`QueueState.available` is False), and only the end of a compute of this node clears that flag.

Each step repeats the metadata and timestamp of the messages, so that every value carries them. The messages are
kept alive until the streams have completed the work of the last step.

Ending: the `end` of one operator, which runs in place of its compute when it computes no more (`ends`).

It does not import the node that it belongs to, which knows it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace._runtime.scheduling.evaluated_conditions import leaves_of
from headrace._runtime.scheduling.notes import note
from headrace.core.condition import Condition
from headrace.core.ports import SchedulingStatusType

if TYPE_CHECKING:
    from collections.abc import Collection

    from headrace._runtime.messages.queue import Queue
    from headrace._runtime.scheduling.node import Node
    from headrace.core.metadata import Calls


_READY, _NEVER = SchedulingStatusType.READY, SchedulingStatusType.NEVER


class Resume:
    """Keeps a node ready, without a new message, while it has more to emit for the last one.

    Created before the run begins, when the node's conditions are attached.
    """

    def __init__(self, node: Node) -> None:
        self.node = node
        self.is_on = False
        """Whether the node continues with messages that it received before."""
        self.is_retried = False
        """Whether the next compute receives the messages of one that failed (`faults`)."""
        self._sizes: list[tuple[Queue, int]] = []
        self.conditions: list[Condition] = []
        """The node's evaluated conditions on inputs."""
        self._connect()
        node.engine.followers.append(self.follow)
        self.received = True
        """Whether the current or last compute has received anything."""
        self.noted: _Noted | None = None
        """What came with the messages that the node continues with."""

    def follow(self, changed: Collection[Node]) -> None:
        """Find the queues and conditions of the node, whose flows may have changed."""
        if self.node in changed and self.node.may_compute:
            self._connect()

    def _connect(self) -> None:
        node = self.node
        self._sizes = [(queue, queue.min_size) for queue in node.inputs]
        self.conditions = [condition for condition in node.conditions if _is_about_inputs(condition)]
        if node.evaluated is not None:
            node.evaluated.resume = self
        if self.needs_no_message:
            self._update_sizes()

    def note(self) -> None:
        """Record the metadata and timestamps of the messages that were just received."""
        self.received = True
        node = self.node
        self.noted = _Noted(
            dict(node.operator.metadata),
            node.output.acq_timestamp,
            node.output.calls,
            node.streams.items_received(),
        )

    def go_on(self) -> None:
        """Let the node run again without a new message."""
        if not self.is_on:
            self.is_on = True
            self._update_sizes()

    def begin_step(self) -> None:
        """Treat a continuing step as if it had received the messages of the first step."""
        self.received = False
        noted = self.noted
        if self.is_on and noted is not None:
            if noted.metadata:
                self.node.operator.metadata.update(noted.metadata)
            if noted.acq_timestamp is not None:
                self.node.expect_details()
                self.node.output.pass_on(noted.acq_timestamp)
            if noted.calls:
                self.node.expect_details()
                self.node.output.pass_calls_on(noted.calls)
            self.node.streams.receive_again(noted.items)

    def end(self) -> None:
        """Let the node wait for messages again."""
        if self.is_on:
            self.is_on = False
            self._update_sizes()
        self.noted = None

    def retry(self, is_retried: bool) -> None:
        """Let the node run again with the messages of a failed compute, which are kept for it; or let it wait."""
        self.is_retried = is_retried
        self._update_sizes()

    @property
    def needs_no_message(self) -> bool:
        """Whether the node runs without a new message."""
        return self.is_on or self.is_retried

    def _update_sizes(self) -> None:
        for queue, size in self._sizes:
            queue.min_size = queue.state.min_size = 0 if self.needs_no_message else size

    def messages_wait(self) -> bool:
        """Return whether the next messages are waiting."""
        if any(len(queue) < size for queue, size in self._sizes):
            return False
        now = self.node.clock.timestamp() if self.conditions else 0
        for condition in self.conditions:
            condition.update_state(now)
            if condition.check(now)[0] is not _READY:
                return False
        return True

    def may_receive(self) -> bool:
        """Return whether the next messages are waiting, so that a step can end one message and begin the next."""
        if not self.messages_wait() or self._is_over():
            return False
        if not all(condition.reserve() for condition in self.conditions):
            return False
        self.node.clear_details()  # the details of the last messages do not belong to these
        return True

    def _is_over(self) -> bool:
        """Return whether a condition lets the node compute no more, such as a count among the terms of another."""
        conditions = self.node.conditions
        now = self.node.clock.timestamp() if conditions else 0
        return any(condition.check(now)[0] is _NEVER for condition in conditions)


class _Noted(NamedTuple):
    """What came with the messages of one compute."""

    metadata: dict[str, Any]
    acq_timestamp: int | None
    calls: Calls
    items: list[Any]


def _is_about_inputs(condition: Condition) -> bool:
    return any(
        leaf.port_role != "transmitter" and (leaf.port_role is not None or bool(leaf.port_names))
        for leaf in leaves_of(condition)
    )


_OVER = object()


def ending_of(node: Any, compute: Callable[..., None]) -> Ending | None:
    """Return the end of a node that computes with `compute`; None if its operator has no `end`."""
    if not node.operator._headrace.has_end:
        return None
    end = node.operator.end
    return Ending(node, compute, end if node.routing is None else node.routing.around_end(end))


class Ending:
    """The `end` of one operator.

    Attributes
    ----------
    evaluated
        The conditions of the node, which do not count any more.
    is_on, is_done
        Whether the node runs `end` in place of its compute, and whether that is done.
    """

    def __init__(
        self, node: Any, compute: Callable[..., None], end: Callable[..., Any], is_of_group: bool = False
    ) -> None:
        self.node = node
        self.evaluated: Any = None
        self.is_on = False
        self.is_done = False
        # The compute of a group is replaced now and then, so its end is not inside of it.
        self.is_of_group = is_of_group
        self._compute = compute
        self._end = end
        self._steps: Generator[Any, Any, Any] | None = None

    def begin(self) -> None:
        """Run `end` from now on."""
        self.is_on = True
        if self.is_of_group:
            self.node.compute = self.compute

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        """Compute or, when it is over, end; an `end` that yields goes on when there is room again."""
        if not self.is_on:
            self._compute(op_input, op_output, context)
            return
        self.is_done = True
        try:
            if self._steps is None:
                steps = self._end(op_input, op_output, context)
                if not isinstance(steps, Generator):  # that of compiled code is one, and no plain generator
                    return
                self._steps = steps
            self.is_done = next(self._steps, _OVER) is _OVER
        except BaseException as error:
            faults = self.node.faults
            if faults is None or not isinstance(error, Exception):
                note(error, "end", self.node.operator)
                raise
            faults.skip_end(error)

    def close(self) -> None:
        """Close an `end` that has not come to its end, because the run was stopped."""
        steps, self._steps = self._steps, None
        if steps is not None and not self.is_done:
            steps.close()
