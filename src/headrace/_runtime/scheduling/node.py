"""Node: an operator in a run, as the engine sees it.

`blockers` counts the reasons why the node cannot run: an input with too few messages, a queue downstream without
room. When it is 0, the node is put in its ready queue. Conditions that cannot be counted are in `evaluated`; they
are evaluated when the node is taken from the ready queue. What they wait for is in `awaited`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace._runtime.messages.receiver import Receiver, Transmitter
from headrace._runtime.scheduling.awaited import ENDED, NOTHING, THROTTLED, Awaited
from headrace._runtime.scheduling.evaluated_conditions import EvaluatedConditions
from headrace.core.condition import SchedulingStatusType
from headrace.core.errors import PortError, choices

if TYPE_CHECKING:
    from headrace._runtime.lifecycle.faults import Faults
    from headrace._runtime.messages.execution import ExecutionContext
    from headrace._runtime.messages.gate import Gate
    from headrace._runtime.messages.input import InputContext
    from headrace._runtime.messages.output import OutputContext
    from headrace._runtime.messages.queue import Queue
    from headrace._runtime.scheduling.engine import Engine
    from headrace._runtime.scheduling.ready_queue import ReadyQueue
    from headrace._runtime.scheduling.resume import Resume
    from headrace._runtime.scheduling.room_sharing import SharedRoom
    from headrace._runtime.streams.lifetimes import Lifetimes
    from headrace._runtime.streams.node_streams import NodeStreams
    from headrace.core.condition import Condition
    from headrace.core.operator import Operator

__all__ = ["UNKNOWN_NS", "Node"]

UNKNOWN_NS = 1 << 60
"""The `expected_ns` of a node whose computes have not been timed."""

_NEVER = SchedulingStatusType.NEVER
_WAIT = SchedulingStatusType.WAIT
_READY = SchedulingStatusType.READY


class Node:
    """An operator in a run.

    A field is changed by the thread that runs the node, in its compute; or under the engine's lock, if there is
    one; or before the run begins. The comments in `__init__` state which. Any thread may set `stop_requested`.
    """

    __slots__ = (
        "awaited",
        "blockers",
        "busy",
        "compute",
        "context",
        "engine",
        "evaluated",
        "expected_ns",
        "faults",
        "granted",
        "has_details",
        "has_extra_work",
        "input",
        "input_gates",
        "input_queues",
        "inputs",
        "is_guarded",
        "lifetimes",
        "operator",
        "output",
        "output_gates",
        "output_queues",
        "outputs",
        "ready_queue",
        "remaining",
        "shared_room",
        "stop_requested",
        "streams",
        "sweep",
        "wants_alone",
    )

    def __init__(self, engine: Engine, operator: Operator) -> None:
        # Set before the run begins.
        self.engine = engine
        self.operator = operator
        self.input: InputContext
        self.output: OutputContext
        self.context: ExecutionContext
        self.streams: NodeStreams
        self.ready_queue: ReadyQueue
        # The queues by port, as flat tuples, and their gates, for the hot path.
        self.input_queues: dict[str, tuple[Queue, ...]] = {}
        self.output_queues: dict[str, tuple[Queue, ...]] = {}
        self.inputs: tuple[Queue, ...] = ()
        self.outputs: tuple[Queue, ...] = ()
        self.input_gates: tuple[Gate, ...] = ()
        self.output_gates: tuple[Gate, ...] = ()
        # Conditions that are evaluated before each compute, if there are any.
        self.evaluated: EvaluatedConditions | None = None
        # The room that it shares with other producers, if any.
        self.shared_room: SharedRoom | None = None
        # Whether conditions are evaluated, room is reserved, or others are waited for, before it runs.
        self.is_guarded = False
        # Its errors, if they do not stop the run.
        self.faults: Faults | None = None
        # The start value of `remaining`, so that the number of computes needs no counter of its own.
        self.granted = -1

        # Changed in its compute.
        self.compute = operator.compute
        # Whether its step consists of more than its compute.
        self.has_extra_work = False
        # Whether it has metadata, a timestamp, or details of received messages to clear after its compute.
        self.has_details = False
        # Whether its next compute is to take place while no other does (`alone`).
        self.wants_alone = False
        # The received frames that its streams may still read, once it uses streams.
        self.lifetimes: Lifetimes | None = None

        # Changed under the engine's lock.
        # The number of its gates that are closed, plus 1 if it has ended or is throttled.
        self.blockers = 0
        # What it waits for besides; changed by `Engine.set_awaited` alone.
        self.awaited: Awaited = NOTHING
        # In a ready queue or running; in both cases it must not be enqueued again.
        self.busy = False
        # The number of computes left; without a limit, it counts down from -1.
        self.remaining = -1
        # The last sweep of its ready queue in which it ran.
        self.sweep = -1
        # The expected duration of a compute in nanoseconds, measured if there are several workers. Until it is
        # known, the node counts as slow, so that others run at the same time.
        self.expected_ns = UNKNOWN_NS

        self.stop_requested = False

    @property
    def name(self) -> str:
        """The name of the operator."""
        return self.operator.name

    @property
    def scheduled(self) -> Node:
        """The node that is scheduled for this operator: itself, or that of its segment."""
        return self

    @property
    def retired(self) -> bool:
        """Whether it never runs again."""
        return self.awaited is ENDED

    @property
    def throttled(self) -> bool:
        """Whether it waits for the device to finish its oldest compute."""
        return self.awaited is THROTTLED

    # Methods for conditions.

    def evaluate(self, condition: Condition) -> None:
        """Evaluate `condition` before each compute."""
        if self.evaluated is None:
            self.evaluated = EvaluatedConditions(self)
        self.evaluated.add(condition)
        if condition.depends_on_ports:
            for queue in self.inputs:
                queue.gate.watched = True
            for queue in self.outputs:
                queue.gate.watched = True
                if self not in queue.watchers:
                    queue.watchers.append(self)

    def make_resume(self) -> Resume:
        """Return what keeps the node ready between the values that its function yields."""
        from headrace._runtime.scheduling.resume import Resume

        return Resume(self)

    def receiver(self, port: str) -> Receiver:
        """Return a view of an input port."""
        if port not in self.input_queues:
            raise PortError(
                f"operator {self.name!r} has no input {port!r}; it has {choices(self.input_queues)}"
            )
        return Receiver(port, self.input_queues[port])

    def transmitter(self, port: str) -> Transmitter:
        """Return a view of an output port."""
        if port not in self.output_queues:
            raise PortError(
                f"operator {self.name!r} has no output {port!r}; it has {choices(self.output_queues)}"
            )
        return Transmitter(port, self.output_queues[port])

    def claim_room(self, queue: Queue, port: str, places: int) -> None:
        """Wait for `places` free places in a queue behind an output; the largest of several claims counts."""
        queue.claim(self, port, places)

    def limit_count(self, count: int) -> None:
        """Run at most `count` times; the smallest of several limits counts."""
        if self.remaining < 0 or count < self.remaining:
            count = max(count, 0)
            self.granted += count - self.remaining
            self.remaining = count

    # Information about the node.

    @property
    def computes(self) -> int:
        """The number of computes it has finished in this run."""
        return self.granted - self.remaining

    @property
    def conditions(self) -> list[Condition]:
        """The conditions that are evaluated before each compute."""
        return [] if self.evaluated is None else self.evaluated.conditions

    def status(self) -> Any:
        """Return the state of the node as a whole, for display."""
        if self.retired:
            return _NEVER
        if self.blockers:
            return _WAIT
        if self.evaluated is None:
            return _READY
        return self.evaluated.combine(self.engine.clock.timestamp(), only_look=True).status

    # Methods that any thread may call.

    def announce(self) -> None:
        """Announce that something this node waits for may have happened."""
        self.engine.announce(self)

    def request_stop(self) -> None:
        """Never run this node again."""
        self.stop_requested = True
        self.engine.announce(self)

    # Methods for the engine.

    def update_guard(self) -> None:
        """Determine whether there is anything to check before it runs."""
        room = self.shared_room
        self.is_guarded = (
            self.wants_alone or self.evaluated is not None or (room is not None and bool(room.claims))
        )
        if self.lifetimes is None or self.lifetimes.full is None:  # otherwise there is, in this step at least
            self.update_extra_work()

    def update_extra_work(self) -> None:
        """Determine whether its steps consist of more than its compute."""
        self.has_extra_work = self.is_guarded or self.has_details or self.shared_room is not None

    def clear_details(self) -> None:
        """Clear the metadata and timestamps of one compute's messages."""
        self.operator.metadata.clear()
        self.input.details.clear()
        self.output.clear()
        self.has_details = False
