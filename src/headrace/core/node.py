"""Node: an operator in a run, as its conditions see it, with the queues of its ports.

Core must not import the runtime, whose classes implement these interfaces without deriving from them: several are
compiled, and a compiled class has no base class outside the runtime. So the interfaces are Protocols for type
checkers, and no code calls isinstance with them. What a condition is shown of the queues of a port, `Receiver` and
`Transmitter`, needs nothing of the runtime and is here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from headrace.core.condition import Condition
    from headrace.core.contexts import ExecutionContext
    from headrace.core.error_policy import FaultCounts
    from headrace.core.operator import Operator
    from headrace.core.ports import OperatorStatus, SchedulingStatusType


class Engine(Protocol):
    """The engine of a run."""

    @property
    def clock(self) -> Any:
        """The clock of the run, of the class `Clock`, whose module this one does not import."""


class Node(Protocol):
    """An operator in a run, as its conditions see it."""

    @property
    def name(self) -> str:
        """The name of the operator."""

    @property
    def operator(self) -> Operator:
        """The operator."""

    resume: Resume | None
    """What keeps it ready while its function has more to yield, if it is a function that yields."""

    @property
    def has_gone_on(self) -> bool:
        """Whether its last compute went on with messages that an earlier one had received."""

    @property
    def engine(self) -> Engine:
        """The engine of the run."""

    @property
    def computes(self) -> int:
        """The number of computes it has finished in this run."""

    @property
    def counts(self) -> FaultCounts:
        """How often its computes failed or were stuck."""

    @property
    def count_limit(self) -> int | None:
        """The number of computes after which it ends, if that is limited."""

    @property
    def context(self) -> ExecutionContext:
        """The context that is passed to `compute`."""

    @property
    def inputs(self) -> tuple[Queue, ...]:
        """The queues of all inputs."""

    @property
    def input_queues(self) -> Mapping[str, tuple[Queue, ...]]:
        """The queues of each input."""

    @property
    def counted_queues(self) -> Mapping[str, tuple[Queue, ...]]:
        """The same, with the queues of flows that were removed in the run."""

    @property
    def output_queues(self) -> Mapping[str, tuple[Queue, ...]]:
        """The queues behind each output."""

    def evaluate(self, condition: Condition) -> None:
        """Evaluate `condition` before each compute."""

    def claim_room(self, queue: Any, port: str, places: int) -> None:
        """Wait for `places` free places in a queue of `output_queues` before each compute."""

    def limit_count(self, count: int) -> None:
        """Run at most `count` times."""

    def status(self) -> SchedulingStatusType:
        """Return the state of the node as a whole."""

    def make_resume(self) -> Resume:
        """Return what keeps the node ready between the values that its function yields."""

    def receiver(self, port: str) -> Receiver:
        """Return a view of an input."""

    def transmitter(self, port: str) -> Transmitter:
        """Return a view of an output."""

    def activity(self) -> OperatorStatus:
        """Return what the operator does."""

    def join_condition(self, condition: Condition) -> None:
        """Evaluate `condition` from the next compute on; may be called from any thread."""

    def announce(self) -> None:
        """Announce that the state of a condition may have changed; may be called from any thread."""

    def request_stop(self) -> None:
        """Never run the operator again; may be called from any thread."""


class Queue(Protocol):
    """The queue of an input."""

    min_size: int
    """The number of messages that the operator needs before it runs."""

    @property
    def port(self) -> str:
        """The name of the input."""

    @property
    def consumer(self) -> Node:
        """The node that receives from it."""

    @property
    def limit(self) -> int:
        """The number of messages it holds."""

    @property
    def drops(self) -> bool:
        """Whether it drops messages when it is full."""

    @property
    def dropped(self) -> int:
        """The number of messages it dropped."""

    @property
    def has_ended(self) -> bool:
        """Whether all operators that send to it have ended."""

    @property
    def undelivered(self) -> int:
        """The number of messages still waiting when the run ended."""

    @property
    def held(self) -> int:
        """The number of messages that a join has taken, and that wait there."""

    @property
    def reasons(self) -> dict[str, int]:
        """The number of messages that a join dropped, by reason."""

    def snapshot(self) -> tuple[Any, ...]:
        """Return the waiting messages."""

    def peek(self, index: int = 0) -> Any:
        """Return a waiting message without taking it, or None if there is none."""

    def note_arrivals(self, now: Callable[[], int]) -> None:
        """Record when each message arrives, by the time that `now` returns; before the run begins."""

    def arrival(self, place: int = 0) -> int | None:
        """Return when a waiting message arrived, by default the oldest; None without one. After `note_arrivals`."""

    def __len__(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Receiver:
    """The messages waiting at an input port."""

    name: str
    queues: tuple[Queue, ...]

    @property
    def size(self) -> int:
        """The number of waiting messages."""
        # A full queue that drops its oldest message has one too many for a moment.
        return sum(min(len(queue), queue.limit) for queue in self.queues)

    @property
    def has_ended(self) -> bool:
        """Whether all operators that send to the input have ended; messages may still wait there."""
        return bool(self.queues) and all(queue.has_ended for queue in self.queues)

    @property
    def back_size(self) -> int:
        """Always 0: a message can be received as soon as it is emitted."""
        return 0

    @property
    def capacity(self) -> int:
        """The number of messages that fit."""
        return sum(queue.limit for queue in self.queues)

    def peek(self, index: int = 0) -> Any:
        """Return a waiting message without taking it: the object, or the Envelope that carries it."""
        for queue in self.queues:
            waiting = len(queue)
            if index < waiting:
                return queue.peek(index)
            index -= waiting
        return None


@dataclass(frozen=True, slots=True)
class Transmitter:
    """The room behind an output port."""

    name: str
    queues: tuple[Queue, ...]

    @property
    def size(self) -> int:
        """The number of messages that wait in the fullest of the connected queues."""
        return max((min(len(queue), queue.limit) for queue in self.queues if queue.limit), default=0)

    @property
    def back_size(self) -> int:
        """Always 0: a message can be received as soon as it is emitted."""
        return 0

    @property
    def capacity(self) -> int:
        """The number of messages that fit into the shortest of the connected queues; unlimited without any."""
        return min((queue.limit for queue in self.queues if queue.limit), default=1 << 30)

    @property
    def free(self) -> int:
        """The room in the fullest of the connected queues; unlimited without connections."""
        return min(
            (max(queue.limit - len(queue), 0) for queue in self.queues if queue.limit), default=1 << 30
        )


class Resume(Protocol):
    """Keeps a node ready while its operator has more to emit for the messages it received."""

    received: bool
    """Whether the current or last compute has received anything."""

    noted: Any
    """What `note` recorded; a node with several messages in progress keeps it for each of them."""

    def begin_step(self) -> None:
        """Begin a compute."""

    def note(self) -> None:
        """Record the metadata and timestamps of the messages that were just received."""

    def go_on(self) -> None:
        """Run the node again without a new message."""

    def end(self) -> None:
        """Wait for messages again."""

    def messages_wait(self) -> bool:
        """Return whether the next messages are waiting; changes nothing."""

    def may_receive(self) -> bool:
        """Return whether the next messages are waiting."""
