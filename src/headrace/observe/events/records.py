"""The events of a run: its graph, and its computes with their times.

All times are nanoseconds of one time line: the run's clock if time is simulated, else the host's monotonic clock.
`RunInfo.epoch` added to a time gives the time since the epoch.

Computes come in batches, as NumPy arrays: thousands of them cost little more than one.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.core.condition import Condition
from headrace.core.error_policy import FaultCounts
from headrace.observe.events.clock_offsets import ClockOffset

Times = NDArray[np.int64]

NO_TIMESTAMP = -(1 << 62)
"""The acquisition timestamp of a message that has none."""


@dataclass(eq=False, slots=True)
class OperatorInfo:
    """An operator of an observed run.

    Attributes
    ----------
    slice
        The name of its slice of the device; empty if it may use all SMs.
    sm_count
        The number of SMs of its slice; 0 without one.
    segment
        The captured segment that it belongs to.
    is_probe
        Whether paths also end here; a watcher may set it in `begin`.
    is_path
        Whether it is a path by itself, if messages begin here; a watcher may set it in `begin`.
    goes_on
        Whether a compute may go on with messages that an earlier one received, and emit what follows from them.
    is_parallel
        Whether it computes beside others (`Operator.parallel`).
    is_cut
        Whether it is a link of which an end was started again, so that nobody knows which messages crossed it.
    is_link
        Whether it stands for a link between two processes; its computes are messages from sent to taken.
    node
        The operator in the run, for its counts.
    """

    name: str
    index: int
    inputs: list[QueueInfo] = field(default_factory=list)
    outputs: list[OutputInfo] = field(default_factory=list)
    streams: list[StreamInfo] = field(default_factory=list)
    slice: str = ""
    sm_count: int = 0
    segment: SegmentInfo | None = field(default=None, repr=False)
    is_probe: bool = False
    is_path: bool = False
    goes_on: bool = False
    is_parallel: bool = False
    is_cut: bool = False
    is_link: bool = False
    node: Any = field(default=None, repr=False)

    @property
    def frames_kept(self) -> int:
        """The number of received frames that are kept for the device; a segment counts at its first operator."""
        nodes = [self.node]
        segment = self.segment
        if segment is not None and segment.captured is not None and segment.operators[0] is self:
            nodes.append(segment.captured.node)
        return sum(int(node.lifetimes.frames_in_flight) for node in nodes if node.lifetimes is not None)

    @property
    def faults(self) -> FaultCounts:
        """How often its computes failed or were stuck so far."""
        counts: FaultCounts = self.node.counts
        return counts

    @property
    def _conditions(self) -> Sequence[Condition]:
        """The conditions that the program gave it."""
        return () if self.node is None else self.node.operator._headrace.conditions

    @property
    def waits_for_work(self) -> bool:
        """Whether it computes only when the work of its messages is complete (`CudaStreamCondition`)."""
        return any(condition.waits_for_streams for condition in self._conditions)

    def waits_for(self, is_due: bool = False) -> str:
        """Return what it waits for when its messages are there and its last compute has ended.

        A ``"worker"``, if nothing else can hold it. Otherwise that is a bound, and which of them it waited for is
        not known: ``"memory"`` (`MemoryAvailableCondition`), or ``"held"`` for any other condition that does not
        just count messages and computes, for retries, and for room in a queue behind it that has been full.

        Parameters
        ----------
        is_due
            Whether its clock has ticked, too, and there is room in the queues whose room is known.
        """
        if self.node is None:
            return "held"
        if any(condition.waits_for_memory for condition in self._conditions):
            return "memory"
        holds = any(
            type(condition).attach is Condition.attach
            and not condition.waits_for_streams
            and not (is_due and condition._headrace.ticks is not None)
            for condition in self._conditions
        )
        behind = [queue for output in self.outputs for queue in output.queues]
        is_full = any(queue.most >= queue.size and not (is_due and queue.room_is_known) for queue in behind)
        return "held" if holds or self.faults.retries or is_full else "worker"

    @property
    def is_source(self) -> bool:
        """Whether no flow leads to it, or led to it, in this process or another; as `core.graph.is_source`."""
        return not any(queue.outputs for queue in self.inputs)

    @property
    def letters(self) -> str:
        """The output of its dead letters; empty without one."""
        port: str = "" if self.node is None else self.node.operator._headrace.error_policy.dead_letter
        return port

    @property
    def is_sink(self) -> bool:
        """Whether nothing is connected to its outputs, but for dead letters, in this process or another."""
        return not any(output.queues for output in self.outputs if output.port != self.letters)

    @property
    def has_sent(self) -> bool:
        """Whether messages of it may be under way: something is connected to its outputs, or was."""
        return any(output.was_connected for output in self.outputs)


@dataclass(eq=False, slots=True)
class OutputInfo:
    """An output of an operator, with the queues behind it.

    Attributes
    ----------
    feeds
        What its messages pass through, one for each queue.
    was_connected
        Whether there has been a queue behind it.
    """

    operator: OperatorInfo
    port: str
    queues: list[QueueInfo] = field(default_factory=list)
    feeds: list[Any] = field(default_factory=list, repr=False)
    was_connected: bool = False
    # The number of messages that passed other feeds before the first one of these, less those that it has seen.
    _earlier: int = field(default=0, repr=False)

    def feed(self, feeds: list[Any], queues: list[QueueInfo]) -> None:
        """Send its messages through these feeds to these queues, from now on."""
        count = self.count
        self._earlier = count - (feeds[0].passed_on if feeds else 0)
        self.feeds, self.queues = feeds, queues
        self.was_connected |= bool(queues)

    @property
    def is_inner(self) -> bool:
        """Whether it leads only to operators of the same captured segment, so that its messages may be replayed."""
        return bool(self.queues) and all(queue.is_inner for queue in self.queues)

    @property
    def count(self) -> int:
        """The number of messages emitted so far."""
        return self._earlier + (self.feeds[0].passed_on if self.feeds else 0)

    @property
    def name(self) -> str:
        """The operator and the port, as in ``"camera.out"``."""
        return f"{self.operator.name}.{self.port}"


@dataclass(eq=False, slots=True)
class QueueInfo:
    """A queue of an input.

    Attributes
    ----------
    size
        The number of messages that it holds.
    index
        The position among all queues of the run.
    outputs
        The outputs that emit into it.
    feeds
        What the messages of each of these outputs pass through.
    closing
        The operators from which messages here have passed the operator before: they close a cycle.
    queue
        The queue in the run.
    """

    operator: OperatorInfo
    port: str
    size: int
    index: int
    outputs: list[OutputInfo] = field(default_factory=list)
    feeds: list[Any] = field(default_factory=list, repr=False)
    closing: set[OperatorInfo] = field(default_factory=set, repr=False)
    queue: Any = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """The operator and the port, as in ``"display.in"``; of a link, the queue from which it sends."""
        return f"{self.operator.name}{', sender' if self.operator.is_link else f'.{self.port}'}"

    @property
    def is_inner(self) -> bool:
        """Whether an operator of the same captured segment emits into it, so that its messages may be replayed."""
        segment = self.operator.segment
        if segment is None or segment.captured is None:
            return False
        return any(output.operator.segment is segment for output in self.outputs)

    @property
    def room_is_known(self) -> bool:
        """Whether its messages leave it in the order of their numbers, and each makes room for one more.

        Not if several outputs emit into it, if a join takes from it, if it is in another process, or if its sender
        waits for room for several messages.
        """
        if len(self.outputs) != 1 or self.operator.is_link or getattr(self.queue, "limit", 0) != self.size:
            return False
        sender = self.outputs[0].operator
        ports = () if sender.node is None else sender.node.operator.spec.outputs.values()
        return all(port.size == 1 for port in ports) and not any(
            port in sender.node.operator.spec.outputs
            for condition in sender._conditions
            for port in condition.port_names
        )

    @property
    def depth(self) -> int:
        """The number of messages that wait now, also in a join."""
        lock = getattr(self.queue, "lock", None)
        # A message that is dropped leaves the queue after the one that it is dropped for was added.
        with nullcontext() if lock is None else lock:
            return len(self.queue) + int(self.queue.held)

    @property
    def waiting(self) -> int:
        """The number of messages that wait now, or that waited when the run ended."""
        return int(self.queue.undelivered) or self.depth

    @property
    def most(self) -> int:
        """The largest number of messages that waited at once so far."""
        return max((feed.emitter.most for feed in self.feeds), default=0)

    @property
    def dropped(self) -> int:
        """The number of messages dropped so far, because the queue was full, or by a join."""
        return int(self.queue.dropped)

    @property
    def drop_reasons(self) -> dict[str, int]:
        """How many of them a join dropped, by reason."""
        return dict(self.queue.reasons)

    @property
    def discarded(self) -> int:
        """The number of messages discarded so far, because the compute that they waited for had failed."""
        return int(self.queue.discarded)


@dataclass(eq=False, slots=True)
class StreamInfo:
    """A stream that an operator submits work to.

    Attributes
    ----------
    number
        The position among the streams of the operator.
    segment
        The name of the captured segment whose work is shown as a whole, since the driver does not divide
        it.
    """

    operator: OperatorInfo
    device: int
    handle: int
    number: int
    segment: str = ""

    @property
    def name(self) -> str:
        """The operator, with a number if it has several streams; or the segment."""
        if self.segment:
            return self.segment
        return self.operator.name if not self.number else f"{self.operator.name} {self.number + 1}"


@dataclass(eq=False, slots=True)
class Arrivals:
    """The messages that a batch of computes received from one queue, in order.

    Attributes
    ----------
    compute
        The compute that received each: its number among all computes of the operator, from 0.
    output
        Where each was emitted: the position in `queue.outputs`.
    number
        The number of each among the messages from that output to this queue, from 0.
    producer
        The compute whose messages it follows from: its number among all computes of the operator that
        emitted.
    acq_timestamp
        The acquisition timestamps, or `NO_TIMESTAMP`.
    """

    queue: QueueInfo
    compute: Times
    output: Times
    number: Times
    producer: Times
    emitted: Times
    received: Times
    acq_timestamp: Times

    @property
    def wait(self) -> Times:
        """How long each waited in the queue."""
        return self.received - self.emitted

    def of(self, chosen: NDArray[np.bool_]) -> Arrivals:
        """Return some of them."""
        columns = [getattr(self, column.name) for column in fields(self)[1:]]
        return Arrivals(self.queue, *(column[chosen] for column in columns))


@dataclass(eq=False, slots=True)
class Drops:
    """Messages that nobody receives.

    A full queue dropped them, a join found nothing that goes with them, or they were discarded with a compute that
    failed (`Operator.on_error`).

    Attributes
    ----------
    output
        Where each was emitted: the position in `queue.outputs`.
    number
        The number of each among the messages from that output to this queue, from 0.
    dropped
        When each left the queue.
    """

    queue: QueueInfo
    output: Times
    number: Times
    dropped: Times


@dataclass(eq=False, slots=True)
class Emissions:
    """The messages that a batch of computes emitted into one queue, in order; some are dropped later.

    Attributes
    ----------
    output
        Where they were emitted: the position in `queue.outputs`.
    compute
        The compute that emitted each: its number among all computes of the operator, from 0.
    number
        The number of each among the messages from that output to this queue, from 0.
    producer
        The compute that each follows from; an earlier one than `compute` if that goes on with its messages.
    acq_timestamp
        The acquisition timestamps, or `NO_TIMESTAMP`.
    rejected
        When the full queue rejected further messages, which have no number.
    rejected_by
        The compute that emitted each of these.
    """

    queue: QueueInfo
    output: int
    compute: Times
    number: Times
    emitted: Times
    producer: Times
    acq_timestamp: Times
    rejected: Times
    rejected_by: Times


@dataclass(eq=False, slots=True)
class GpuWork:
    """The work of a batch of computes on one stream; a compute that waits in between has several pieces.

    Attributes
    ----------
    started
        When each piece could begin: its stream had passed what it waits for.
    is_exact
        Whether each began at `started`, because all of it had been launched by then. Otherwise the device may have
        waited for the host to launch it, and the time is a bound.
    certain
        From when on the device certainly worked on each: `started`, or, if that is not exact, the moment at which
        the compute returned.
    """

    stream: StreamInfo
    compute: Times
    started: Times
    ended: Times
    is_exact: NDArray[np.bool_]
    certain: Times


@dataclass(eq=False, slots=True)
class Computes:
    """A batch of finished computes of one operator, in order; their work on the device is complete.

    Attributes
    ----------
    first
        The number of the first among all computes of the operator, from 0.
    threads
        The thread of each; 0 if threads are not noted.
    is_timed
        Whether the work of each on the device was timed, or it has no stream. An operator that computes
        thousands of times a second has only some computes timed.
    emissions
        What they emitted, if a watcher wants to know (`Watcher.wants_emissions`).
    discards
        What was discarded because they had failed.
    is_replayed
        Whether each did not take place, because a captured segment replayed a recording of it.
    is_failed
        Whether each failed for good, and gave its messages up.
    due
        When each was due by the operator's clock (`PeriodicCondition`), or `NO_TIMESTAMP`.
    skipped
        How many ticks of that clock were skipped before each.
    cpu_time
        How long the thread of each had the processor, or `NO_TIMESTAMP` for most of them.
    others_cpu_time
        For how long other threads of the process had one meanwhile, of the same computes.
    """

    operator: OperatorInfo
    first: int
    started: Times
    ended: Times
    threads: Times
    is_timed: NDArray[np.bool_]
    arrivals: list[Arrivals]
    gpu: list[GpuWork]
    emissions: list[Emissions]
    discards: list[Drops]
    is_replayed: NDArray[np.bool_]
    is_failed: NDArray[np.bool_]
    due: Times
    skipped: Times
    cpu_time: Times
    others_cpu_time: Times

    @property
    def ticks(self) -> NDArray[np.bool_]:
        """Whether each was a tick of a clock."""
        found: NDArray[np.bool_] = self.due != NO_TIMESTAMP
        return found

    @property
    def gpu_time(self) -> Times:
        """How long the device worked for each, at most: from where its work could begin to where it ended."""
        total = np.zeros(len(self.started), np.int64)
        for work in self.gpu:
            np.add.at(total, work.compute - self.first, work.ended - work.started)
        return total

    @property
    def certain_gpu_time(self) -> Times:
        """How long the device certainly worked for each; less than `gpu_time` where that is only a bound."""
        total = np.zeros(len(self.started), np.int64)
        for work in self.gpu:
            np.add.at(total, work.compute - self.first, work.ended - work.certain)
        return total

    @property
    def gpu_is_exact(self) -> NDArray[np.bool_]:
        """Whether `gpu_time` is the time of each; otherwise it is a bound, of which the host may be part."""
        exact = np.ones(len(self.started), np.bool_)
        for work in self.gpu:
            exact[work.compute[~work.is_exact] - self.first] = False
        return exact

    @property
    def uses_gpu(self) -> NDArray[np.bool_]:
        """Whether each submitted work to the device."""
        found = np.zeros(len(self.started), np.bool_)
        for work in self.gpu:
            found[work.compute - self.first] = True
        return found

    @property
    def done(self) -> Times:
        """When the work of each was complete, on the host and on the device."""
        done = self.ended.copy()
        for work in self.gpu:
            np.maximum.at(done, work.compute - self.first, work.ended)
        return done


@dataclass(frozen=True, slots=True)
class Path:
    """A way of messages through operators, from a source to a sink."""

    operators: tuple[OperatorInfo, ...]

    @property
    def name(self) -> str:
        """The names of its operators, joined by ``","``, without links: the same as in one process."""
        return ",".join(operator.name for operator in self.without_links.operators)

    @property
    def without_links(self) -> Path:
        """The same way as if all operators were in one process."""
        if not any(operator.is_link for operator in self.operators):
            return self
        return Path(tuple(operator for operator in self.operators if not operator.is_link))


@dataclass(eq=False, slots=True)
class Flows:
    """Messages that reached the end of one path, in order.

    Attributes
    ----------
    computes
        A row for each: its computes, one for each operator of the path.
    times
        A row for each: the times at which each operator of the path received and emitted. The first operator
        receives when its compute begins; the last one emits when its work is complete.
    origin
        When each began: its acquisition timestamp, or else the time at which the first operator emitted it.
    queues
        The queues between the operators.
    is_timed
        Whether the end is known. Otherwise it is the return of the last compute; the device may have worked
        on.
    """

    path: Path
    queues: tuple[QueueInfo, ...]
    computes: NDArray[np.int64]
    times: NDArray[np.int64]
    origin: Times
    is_timed: NDArray[np.bool_]

    @property
    def compute(self) -> Times:
        """The compute of the last operator that each reached."""
        return self.computes[:, -1]

    @property
    def done(self) -> Times:
        """When the work of the last operator was complete."""
        return self.times[:, -1]

    @property
    def latency(self) -> Times:
        """The time from the origin to the end."""
        return self.done - self.origin

    def part(self, rows: Times | NDArray[np.bool_] | slice, start: int = 0) -> Flows:
        """Return some of them, from the operator at `start` of the path on, where their time then begins."""
        origin = self.times[:, 2 * start + 1] if start else self.origin
        return Flows(
            Path(self.path.operators[start:]),
            self.queues[start:],
            self.computes[rows, start:],
            self.times[rows, 2 * start :],
            origin[rows],
            self.is_timed[rows],
        )


@dataclass(eq=False, slots=True)
class SegmentInfo:
    """A captured segment of an observed run.

    Attributes
    ----------
    segment
        The `headrace.core.Segment`.
    captured
        The segment in the run; None if it is not recorded in this run.
    """

    name: str
    operators: list[OperatorInfo]
    segment: Any = field(repr=False)
    captured: Any = field(default=None, repr=False)

    @property
    def state(self) -> str:
        """The state of the segment, as that of `headrace.core.Segment`."""
        return str(self.segment.state)

    @property
    def reason(self) -> str:
        """Why it is eager; empty otherwise."""
        return str(self.segment.reason)

    @property
    def frames(self) -> int:
        """The number of frames so far."""
        # Until the end of the run, its parts count.
        return int(self.segment.frames or (0 if self.captured is None else self.captured.frames))

    @property
    def replayed(self) -> int:
        """The number of frames that were replayed so far."""
        return int(self.segment.replayed or (0 if self.captured is None else self.captured.replayed))


SHARED_WORKERS = "workers"
"""The name of the workers that run the operators of no pool."""


@dataclass(eq=False, slots=True)
class WorkersInfo:
    """Worker threads of an observed run that share operators."""

    name: str
    count: int
    operators: list[OperatorInfo]


@dataclass(eq=False, slots=True)
class RunInfo:
    """An observed run.

    Attributes
    ----------
    epoch
        The time since the epoch at time 0 of the time line; 0 if time is simulated.
    is_virtual
        Whether time is simulated.
    clock_offset
        What the run's clock showed at time 0 of the time line.
    device_sm_counts
        The number of SMs of each device in use.
    clock_errors
        The largest possible error of each device's clock, in nanoseconds.
    segments
        The captured segments.
    left_out
        The names of the operators that do not run, because a recording is played behind them.
    workers
        The worker threads, by the operators that they share.
    kernels
        Whether kernels and copies are known one by one, or why not; empty if nobody wants to know.
    clocks
        For a run in several processes: how the clock of each part is related to that of the time line.
    threads
        For a run in several processes: the part and the name of each thread.
    fragments
        For a run in several processes: the part of each operator, by name.
    pages
        For a run in several processes: the address of the dashboard of each part that has one.
    """

    application: str
    operators: list[OperatorInfo]
    started: int
    epoch: int
    is_virtual: bool
    clock_offset: int = 0
    device_sm_counts: dict[int, int] = field(default_factory=dict)
    clock_errors: dict[int, int] = field(default_factory=dict)
    segments: list[SegmentInfo] = field(default_factory=list)
    left_out: frozenset[str] = frozenset()
    workers: list[WorkersInfo] = field(default_factory=list)
    kernels: str = ""
    clocks: dict[str, ClockOffset] = field(default_factory=dict)
    threads: dict[int, tuple[str, str]] = field(default_factory=dict)
    fragments: dict[str, str] = field(default_factory=dict)
    pages: dict[str, str] = field(default_factory=dict)

    def join(self, operators: list[OperatorInfo]) -> None:
        """Add operators that began while the run was in progress; the workers that belong to no pool run them."""
        self.operators += operators
        if operators:
            shared = next((each for each in self.workers if each.name == SHARED_WORKERS), None)
            if shared is None:
                shared = WorkersInfo(SHARED_WORKERS, 1, [])
                self.workers.insert(0, shared)
            shared.operators += operators

    def operator(self, name: str) -> OperatorInfo:
        """Return the operator of a name; raise KeyError if there is none."""
        for operator in self.operators:
            if operator.name == name:
                return operator
        raise KeyError(name)

    def sender(self, name: str) -> OperatorInfo:
        """Return the operator that sends the messages of an operator: what collects those of its replicas."""
        results = f"{name}[results]"
        return next((each for each in self.operators if each.name == results), None) or self.operator(name)

    def receivers(self, name: str) -> list[OperatorInfo]:
        """Return the operators that compute what an operator receives: its replicas, if it has some."""
        found: list[OperatorInfo] = []
        while replica := next(
            (each for each in self.operators if each.name == f"{name}[{len(found)}]"), None
        ):
            found.append(replica)
        return found or [self.operator(name)]

    @property
    def queues(self) -> list[QueueInfo]:
        """The queues of all inputs."""
        return [queue for operator in self.operators for queue in operator.inputs]

    def origins(self, acq_timestamps: Times, emitted: Times, due: Times) -> Times:
        """Return when messages began: when they were acquired, or their source was due, or they were emitted.

        A timestamp counts from the epoch, or is that of the run's clock. The one that lies just before the emission
        is meant; a timestamp for which this holds for neither is ignored.
        """
        origins = np.where(due != NO_TIMESTAMP, np.minimum(due, emitted), emitted)
        for offset in (self.epoch, self.clock_offset):
            shown = acq_timestamps - offset
            age = emitted - shown
            is_near = (acq_timestamps != NO_TIMESTAMP) & (age > -_EARLIEST) & (age < _OLDEST)
            origins = np.where(is_near, np.minimum(shown, emitted), origins)
        return origins


_EARLIEST = 1_000_000  # nanoseconds by which two clocks may differ
_OLDEST = 600_000_000_000  # ten minutes: an acquisition that is older belongs to another clock
