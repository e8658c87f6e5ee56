"""What core knows of the layers above it: interfaces, never their classes.

The runtime's classes implement these without naming them. Several of them are compiled, and a compiled class has no
base class outside of the runtime. So the interfaces are Protocols for type checkers: no code calls isinstance with
them, and this module is imported for annotations only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from penstock import gpu
    from penstock.core.clock import Clock
    from penstock.core.condition import Condition, SchedulingStatusType
    from penstock.core.contexts import ExecutionContext
    from penstock.core.operator import Operator

__all__ = ["Engine", "GreenContextPool", "Node", "Parker", "Queue", "Receiver", "Resume", "Transmitter"]


class Engine(Protocol):
    """The engine of a run."""

    @property
    def clock(self) -> Clock:
        """The clock of the run."""

    def request_stop(self) -> None:
        """End the run; may be called from any thread."""


class Node(Protocol):
    """An operator in a run: what its conditions take part in."""

    @property
    def name(self) -> str:
        """The name of the operator."""

    @property
    def operator(self) -> Operator:
        """The operator."""

    @property
    def engine(self) -> Engine:
        """The engine of the run."""

    @property
    def context(self) -> ExecutionContext:
        """The context that `compute` is given."""

    @property
    def inputs(self) -> tuple[Queue, ...]:
        """The queues of all inputs."""

    @property
    def input_queues(self) -> Mapping[str, tuple[Queue, ...]]:
        """The queues of each input."""

    @property
    def output_queues(self) -> Mapping[str, tuple[Queue, ...]]:
        """The queues behind each output."""

    def evaluate(self, condition: Condition) -> None:
        """Evaluate `condition` before each compute."""

    def claim_room(self, queue: Any, port: str, places: int) -> None:
        """Wait for so many free places in a queue of `output_queues` before each compute."""

    def limit_count(self, count: int) -> None:
        """Run at most `count` times."""

    def status(self) -> SchedulingStatusType:
        """Return the state of the node as a whole."""

    def receiver(self, port: str) -> Receiver:
        """Return a view of an input."""

    def transmitter(self, port: str) -> Transmitter:
        """Return a view of an output."""

    def announce(self) -> None:
        """Announce that the state of a condition may have changed; may be called from any thread."""

    def request_stop(self) -> None:
        """Never run the operator again; may be called from any thread."""


class Queue(Protocol):
    """The queue of an input."""

    min_size: int
    """The number of messages without which the operator does not run."""

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
    def undelivered(self) -> int:
        """The number of messages that still waited when the run ended."""

    def snapshot(self) -> tuple[Any, ...]:
        """Return the messages that wait."""

    def __len__(self) -> int: ...


class Receiver(Protocol):
    """The messages that wait at an input, for a condition to look at."""

    @property
    def queues(self) -> tuple[Queue, ...]:
        """The queues of the input."""

    @property
    def size(self) -> int:
        """The number of messages that wait."""

    @property
    def capacity(self) -> int:
        """The number of messages that fit."""

    def peek(self, index: int = 0) -> Any:
        """Return a waiting message without taking it, or None where there are fewer."""


class Transmitter(Protocol):
    """The room behind an output, for a condition to look at."""

    @property
    def queues(self) -> tuple[Queue, ...]:
        """The queues behind the output."""

    @property
    def free(self) -> int:
        """The number of free places in the fullest of the queues."""


class Resume(Protocol):
    """What keeps a node ready while its operator has more to emit for what it received."""

    @property
    def node(self) -> Node:
        """The node."""

    @property
    def received(self) -> bool:
        """Whether the compute that runs, or ran last, has received anything."""

    def begin_step(self) -> None:
        """Begin a compute."""

    def note(self) -> None:
        """Record what came with the messages that were just received."""

    def go_on(self) -> None:
        """Run the node again without a new message."""

    def end(self) -> None:
        """Wait for messages again."""

    def may_receive(self) -> bool:
        """Return whether the next messages are there."""


class Parker(Protocol):
    """The place where one worker waits."""

    def park(self, seconds: float | None) -> bool:
        """Wait until unparked (True), or until so many seconds have passed (False)."""

    def take(self) -> bool:
        """Take the permit to go on, if there is one, without waiting."""

    def unpark(self) -> None:
        """End the wait; may be called from any thread."""


class GreenContextPool(Protocol):
    """A device divided into partitions, as :class:`penstock.resources.CudaGreenContextPool` divides it."""

    name: str
    dev_id: int
    num_partitions: int
    min_sm_size: int
    default_context_index: int | str

    @property
    def sms_per_partition(self) -> list[int]:
        """The SMs that each partition was asked to have; none where they are to be equal."""

    @property
    def names(self) -> list[str]:
        """The names of the partitions that were asked for."""

    @property
    def plan(self) -> gpu.Plan:
        """What the device gives."""

    @property
    def sm_counts(self) -> list[int]:
        """The SMs that each partition gets, the leftover last."""

    def share(self, index: int | str | None = None) -> gpu.Share:
        """Return what a partition gets, by position or by name, or the default one."""

    def partition(self, index: int | str | None = None) -> gpu.Partition:
        """Return a partition by position or by name, or the default one; a run must be using the pool."""
