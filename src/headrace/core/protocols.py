"""The interfaces through which core refers to the layers above it, without importing their classes.

The runtime's classes implement these interfaces without deriving from them. Several are compiled, and a compiled
class has no base class outside the runtime. So the interfaces are Protocols for type checkers: no code calls
isinstance with them, and this module is imported for annotations only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from headrace import gpu
    from headrace.core.claim import Request
    from headrace.core.clock import Clock
    from headrace.core.condition import Condition, SchedulingStatusType
    from headrace.core.contexts import ExecutionContext
    from headrace.core.operator import Operator
    from headrace.core.outcome import Outcome

__all__ = [
    "Engine",
    "GreenContextPool",
    "Launches",
    "Node",
    "Observer",
    "Parker",
    "Pausing",
    "Queue",
    "Receiver",
    "Replays",
    "Resume",
    "Segment",
    "Transmitter",
]


class Engine(Protocol):
    """The engine of a run."""

    @property
    def clock(self) -> Clock:
        """The clock of the run."""

    @property
    def pausing(self) -> Pausing:
        """The pauses of the run."""

    def request_stop(self) -> None:
        """End the run; may be called from any thread."""


class Pausing(Protocol):
    """The pauses of a run; any thread may call these methods."""

    requests: deque[Request]
    """What was requested and not carried out yet."""

    def wake(self) -> None:
        """Wake the workers, which carry out the requests; called after one was appended."""

    def wait(self, timeout: float | None) -> bool:
        """Wait until the run is paused and nothing computes."""


class Node(Protocol):
    """An operator in a run, as its conditions see it."""

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
    def computes(self) -> int:
        """The number of computes it has finished in this run."""

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
    def output_queues(self) -> Mapping[str, tuple[Queue, ...]]:
        """The queues behind each output."""

    @property
    def scheduled(self) -> Node:
        """The node that is scheduled for this operator: itself, or that of its segment."""

    def evaluate(self, condition: Condition) -> None:
        """Evaluate `condition` before each compute."""

    def claim_room(self, queue: Any, port: str, places: int) -> None:
        """Wait for `places` free places in a queue of `output_queues` before each compute."""

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
    def undelivered(self) -> int:
        """The number of messages still waiting when the run ended."""

    def snapshot(self) -> tuple[Any, ...]:
        """Return the waiting messages."""

    def peek(self, index: int = 0) -> Any:
        """Return a waiting message without taking it, or None if there is none."""

    def note_arrivals(self, now: Callable[[], int]) -> None:
        """Record when each message arrives, by the time that `now` returns; before the run begins."""

    def oldest_arrival(self) -> int | None:
        """Return when the oldest waiting message arrived, or None if none waits; only after `note_arrivals`."""

    def __len__(self) -> int: ...


class Receiver(Protocol):
    """The messages waiting at an input, as a condition sees them."""

    @property
    def queues(self) -> tuple[Queue, ...]:
        """The queues of the input."""

    @property
    def size(self) -> int:
        """The number of waiting messages."""

    @property
    def capacity(self) -> int:
        """The number of messages that fit."""

    def peek(self, index: int = 0) -> Any:
        """Return a waiting message without taking it, or None if there are fewer."""


class Transmitter(Protocol):
    """The room behind an output, as a condition sees it."""

    @property
    def queues(self) -> tuple[Queue, ...]:
        """The queues behind the output."""

    @property
    def free(self) -> int:
        """The number of free places in the fullest of the queues."""


class Resume(Protocol):
    """Keeps a node ready while its operator has more to emit for the messages it received."""

    @property
    def node(self) -> Node:
        """The node."""

    @property
    def received(self) -> bool:
        """Whether the current or last compute has received anything."""

    def begin_step(self) -> None:
        """Begin a compute."""

    def note(self) -> None:
        """Record the metadata and timestamps of the messages that were just received."""

    def go_on(self) -> None:
        """Run the node again without a new message."""

    def end(self) -> None:
        """Wait for messages again."""

    def may_receive(self) -> bool:
        """Return whether the next messages are waiting."""


class Parker(Protocol):
    """The place where one worker waits."""

    def park(self, seconds: float | None) -> bool:
        """Wait until unparked (True), or until `seconds` have passed (False)."""

    def take(self) -> bool:
        """Take the permit, if there is one, without waiting."""

    def unpark(self) -> None:
        """End the wait; may be called from any thread."""


class GreenContextPool(Protocol):
    """A device divided into partitions, as :class:`headrace.resources.CudaGreenContextPool` divides it."""

    name: str
    dev_id: int
    num_partitions: int
    min_sm_size: int
    default_context_index: int | str

    @property
    def sms_per_partition(self) -> list[int]:
        """The number of SMs requested for each partition; empty for equal partitions."""

    @property
    def names(self) -> list[str]:
        """The names of the requested partitions."""

    @property
    def plan(self) -> gpu.Plan:
        """The partitions that the device provides."""

    @property
    def sm_counts(self) -> list[int]:
        """The number of SMs that each partition gets, the leftover last."""

    def share(self, index: int | str | None = None) -> gpu.Share:
        """Return the share of a partition, by position or by name, or of the default one."""

    def partition(self, index: int | str | None = None) -> gpu.Partition:
        """Return a partition by position or by name, or the default one; a run must be using the pool."""


class Segment(Protocol):
    """Operators that are captured as one CUDA graph: `headrace.capture.Segment`."""

    name: str
    operators: tuple[Operator, ...]
    state: str
    reason: str
    frames: int
    replayed: int
    recordings: int

    @property
    def label(self) -> str:
        """The name and, after a run, the state, for drawings."""

    @property
    def saved(self) -> float:
        """The host's time that replaying saved in the last run, in seconds."""

    def report(self) -> str:
        """Return a line about the last run."""


class Launches(Protocol):
    """What launches a recorded graph."""

    def launch(self, addresses: tuple[int, ...], stream: gpu.StreamHandle) -> None:
        """Launch the graph for a frame whose arrays are at these addresses."""

    def close(self) -> None:
        """Release the graph; the device has finished."""


class Replays(Protocol):
    """What watches the replays of operators that are recorded together."""

    def new_marks(self, inner: Any) -> Any:
        """Return what notes where the work of each operator begins and ends in a graph; None if nobody wants it.

        `inner` has the inputs inside the segment that the messages of each output go to.
        """

    def around(self, replay: Callable[..., None]) -> Callable[..., None]:
        """Return what to call in place of `replay`, with the same arguments."""

    def around_launches(self, launches: Any, marks: Any, managed: Any) -> Launches:
        """Return what launches a recorded graph in place of `launches`, on a managed stream.

        `marks` tells where the work of each operator begins and ends in the graph; None if nobody wanted to know.
        """


class Observer(Protocol):
    """What watches a run: the only way in which tracking, traces and loggers take part in it."""

    def make_queue(self, consumer: Any, port: str, limit: int, policy: Any) -> Any:
        """Return a queue in place of the runtime's own, with the same arguments."""

    def attach(self, engine: Any) -> None:
        """Prepare to watch a run, after its nodes and queues were created and before anything is started."""

    def around(self, node: Any, compute: Callable[..., None]) -> Callable[..., None]:
        """Return a compute to run in place of `compute`."""

    def uses_stream(self, node: Any, managed: Any) -> None:
        """Note that a node will submit work to a stream; called once for each, in its compute."""

    def watch_replays(self, captured: Any) -> Replays:
        """Return what watches the replays of operators that are recorded together, which do not compute then."""

    def finish(self) -> None:
        """Complete what was watched: the device is idle, and the streams still exist."""

    def close(self, outcome: Outcome | None) -> None:
        """End: the run is over; `outcome` is None if there is none."""
