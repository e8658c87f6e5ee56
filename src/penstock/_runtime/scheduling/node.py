"""Node: an operator in a run, as the engine sees it.

`blockers` counts what keeps it from running among the things that are counted: an input with too few
messages, a queue downstream without room. When it is 0 the node is put in its ready queue. Conditions that
cannot be counted are in `asked`; a node that has them is `special` and is asked when it is taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock._runtime.messages.receiver import Receiver, Transmitter
from penstock.core.condition import SchedulingStatusType
from penstock.core.errors import PortError, choices

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock._runtime.lifecycle.faults import Faults
    from penstock._runtime.messages.contexts import ExecutionContext, InputContext, OutputContext
    from penstock._runtime.messages.queue import Claim, Queue
    from penstock._runtime.scheduling.engine import Engine
    from penstock._runtime.scheduling.ready_queue import ReadyQueue
    from penstock._runtime.streams.node_streams import NodeStreams
    from penstock.core.condition import Condition
    from penstock.core.operator import Operator

__all__ = ["UNKNOWN_PACE", "Node"]

UNKNOWN_PACE = 1 << 60

_NEVER = SchedulingStatusType.NEVER
_READY = SchedulingStatusType.READY
_WAIT = SchedulingStatusType.WAIT
_WAIT_TIME = SchedulingStatusType.WAIT_TIME
_WAIT_EVENT = SchedulingStatusType.WAIT_EVENT


class Node:
    """An operator in a run."""

    __slots__ = (
        "after",
        "asked",
        "blockers",
        "busy",
        "compute",
        "context",
        "crowded",
        "engine",
        "faults",
        "gate",
        "gathered",
        "granted",
        "guarded",
        "input",
        "input_queues",
        "inputs",
        "metadata",
        "name",
        "operator",
        "output",
        "output_queues",
        "outputs",
        "pace",
        "pending",
        "polls",
        "ready_queue",
        "remaining",
        "retired",
        "rooms",
        "shared",
        "shut",
        "special",
        "stop_requested",
        "streams",
        "sweep",
        "wake_at",
    )

    def __init__(self, engine: Engine, operator: Operator) -> None:
        self.engine = engine
        self.operator = operator
        self.name = operator.name
        self.compute = operator.compute
        self.metadata = operator.metadata
        self.input: InputContext
        self.output: OutputContext
        self.context: ExecutionContext
        self.ready_queue: ReadyQueue
        # By port, and flat for the hot path.
        self.input_queues: dict[str, tuple[Queue, ...]] = {}
        self.output_queues: dict[str, tuple[Queue, ...]] = {}
        self.inputs: tuple[Queue, ...] = ()
        self.outputs: tuple[Queue, ...] = ()
        self.blockers = 0
        # How many nanoseconds a compute takes, lately; measured where there are several workers. Until it is known,
        # the node counts as slow: then others run beside it.
        self.pace = UNKNOWN_PACE
        # In a ready queue or running: either way not to be put in the ready queue again.
        self.busy = False
        # Computes left; counts down from -1 past every bound where there is none.
        self.remaining = -1
        # What `remaining` counts down from, so that the computes so far need no counter of their own.
        self.granted = -1
        self.sweep = -1
        # Whether its conditions are asked, or room is reserved for it, before it runs.
        self.guarded = False
        # Whether there is more to a step of it than its compute.
        self.special = False
        # Whether it has metadata, or notes on what it received, to let go of after its compute.
        self.gathered = False
        self.asked: list[Condition] = []
        self.polls = False
        # The room it waits for in the queues behind its outputs, by output.
        self.rooms: dict[Queue, dict[str, int]] = {}
        # What of that it must reserve before it runs, because other producers wait for room in the same queue.
        self.shared: tuple[Claim, ...] = ()
        # The queues at either end of it for which several producers wait.
        self.crowded: tuple[Queue, ...] = ()
        # Called after each compute that did not raise; for layers above this one.
        self.after: list[Callable[[Node], None]] = []
        # What came of its errors, where those do not stop the run.
        self.faults: Faults | None = None
        self.streams: NodeStreams
        # Its streams, once it uses any: they shut the node while it has too many unfinished computes.
        self.gate: NodeStreams | None = None
        self.shut = False
        self.wake_at: int | None = None
        self.pending = False
        self.retired = False
        self.stop_requested = False

    # What conditions use to take part.

    def ask(self, condition: Condition) -> None:
        """Have `condition` asked before each compute."""
        self.asked.append(condition)
        self.polls = self.polls or condition.polled
        for queue in (*self.inputs, *self.outputs):
            queue.watched = True

    def receiver(self, port: str) -> Receiver:
        """Give a view of an input port."""
        if port not in self.input_queues:
            raise PortError(
                f"operator {self.name!r} has no input {port!r}; it has {choices(self.input_queues)}"
            )
        return Receiver(port, self.input_queues[port])

    def transmitter(self, port: str) -> Transmitter:
        """Give a view of an output port."""
        if port not in self.output_queues:
            raise PortError(
                f"operator {self.name!r} has no output {port!r}; it has {choices(self.output_queues)}"
            )
        return Transmitter(port, self.output_queues[port])

    def claim_room(self, queue: Queue, port: str, places: int) -> None:
        """Wait for so many free places in a queue behind an output; of several claims the largest holds."""
        by_port = self.rooms.setdefault(queue, {})
        by_port[port] = max(by_port.get(port, 0), places)

    def limit_count(self, count: int) -> None:
        """Run at most `count` times; of several limits the smallest holds."""
        if self.remaining < 0 or count < self.remaining:
            count = max(count, 0)
            self.granted += count - self.remaining
            self.remaining = count

    @property
    def computes(self) -> int:
        """How many computes it has finished in this run."""
        return self.granted - self.remaining

    # What may be called from any thread.

    def announce(self) -> None:
        """Say that something this node waits for may have happened."""
        self.engine.announce(self)

    def request_stop(self) -> None:
        """Ask never to be run again."""
        self.stop_requested = True
        self.engine.announce(self)

    # What the engine asks.

    def ask_conditions(
        self, timestamp: int, only_look: bool = False
    ) -> tuple[SchedulingStatusType, int | None]:
        """Ask the conditions that are asked, and AND-combine their answers; `only_look` leaves no trace in them."""
        combined = _READY
        until: int | None = None
        for condition in self.asked:
            status, target = condition.check(timestamp) if only_look else condition.ask(timestamp)
            if status is _READY:
                continue
            if status is _NEVER:
                return _NEVER, None
            if status is _WAIT_TIME and target is not None and target <= timestamp:
                # The time it waits for has come.
                continue
            if status is _WAIT_TIME:
                if target is None:
                    raise ValueError(
                        f"condition {condition.name!r} of operator {self.name!r} gave WAIT_TIME "
                        "without a time"
                    )
                until = target if until is None else max(until, target)
            if _RANK[status] > _RANK[combined]:
                combined = status
        return combined, until

    def settle(self) -> None:
        """See whether there is more to its steps than its compute."""
        self.special = bool(self.guarded or self.after or self.gathered or self.crowded)

    def forget(self) -> None:
        """Let go of what one compute gathered: metadata, a timestamp, and notes on what it received."""
        self.metadata.clear()
        self.input.notes.clear()
        self.output.forget()
        self.gathered = False

    def on_execute(self, timestamp: int) -> None:
        """Tell the conditions that are asked that compute ran."""
        for condition in self.asked:
            condition.on_execute(timestamp)

    def status(self) -> Any:
        """Give the state of the node as a whole, for people to look at."""
        if self.retired:
            return _NEVER
        if self.blockers:
            return _WAIT
        return self.ask_conditions(self.engine.clock.timestamp(), only_look=True)[0]


_RANK = {_READY: 0, _WAIT_TIME: 1, _WAIT: 2, _WAIT_EVENT: 3}
