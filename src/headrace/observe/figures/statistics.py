"""Statistics of a run: what each operator, queue and path did, and how long it took.

They are made of the whole run, or of its last seconds (`run_figures`), and shown as tables, as JSON and to
Prometheus.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, TypeVar

from headrace.core.outcome import GoalOutcome
from headrace.observe.events.clock_offsets import ClockOffset
from headrace.observe.figures.distribution import Summary

if TYPE_CHECKING:
    from headrace.observe.figures.goals import Goal

SATURATED = 0.9
"""The share of the time from which on something is called saturated."""
WAITS = 0.75
"""The share of a compute's time without the processor from which on it is said to wait. Computes that last longer
than a millisecond share the interpreter with others, so some of that time is no wait of their own."""
FEW = 10
"""The number of computes below which nothing is called saturated: what runs once is busy all of its time."""
FAULTS = ("skipped_errors", "restarts", "retries", "dead_letters", "stuck", "cut_off")
"""What the numbers of an operator's `FaultCounts` are called here."""
_NOTHING = Summary()


@dataclass(frozen=True, slots=True)
class OperatorStatistics:
    """The statistics of one operator.

    Attributes
    ----------
    count
        The number of computes.
    rate
        The computes per second, by the intervals from the end of the first to the end of the last; 0 for fewer than
        two. In a window, also by the time since the last one, when the next is overdue.
    host
        The time in `compute` on the host.
    gpu
        The time on the device, of the computes that submitted work to it: the span from where the first kernel
        begins to where the last one ends. Where the device was idle before, it may have waited for the host to
        launch, and the time is a bound. If at least a tenth of the times are exact, only these count.
    kernels
        The time of kernels and copies alone, where they were asked for (`Tracker`, ``kernels=True``).
    busy
        The share of the time in which it computed on the host.
    gpu_busy
        The share of the time in which the device certainly worked for it.
    skipped_errors
        The number of errors of its computes that were skipped (`Operator.on_error`).
    restarts, retries, dead_letters
        The number of its restarts and retries after errors, and of failed computes whose messages were sent on.
    stuck
        The number of computes that took longer than its deadline (`OperatorSpec.deadline`).
    cut_off
        The number of errors whose messages the end of the run kept from being tried again.
    waits
        The share of its computes' time in which their thread did not have the processor, of those that were looked
        at; None if none was.
    interpreter
        The part of these shares in which it may have waited for the lock of the interpreter: other threads of the
        process had a processor meanwhile. A bound; the rest is a wait of its own, as for a device or a file.
    is_parallel
        Whether it computes beside others (`Operator.parallel`).
    waiting
        The shares of the time in which it waited between its computes, from the first of them on: for a
        ``"message"``, for its ``"clock"``, for the ``"gpu"`` to complete what a `CudaStreamCondition` waits for,
        for ``"room"`` behind it, and for a ``"worker"``; or, as bounds, for ``"memory"`` or a worker, or ``"held"``
        by another condition, a retry or a queue of which it is not known when there was room.
    lateness
        How long after they were due the ticks of its `PeriodicCondition` began, the first not counted.
    late_ticks, skipped_ticks
        The number of ticks that began when the next one was due already, and of those that its policy skipped.
    """

    name: str
    count: int = 0
    rate: float = 0.0
    host: Summary = _NOTHING
    gpu: Summary = _NOTHING
    kernels: Summary = _NOTHING
    slice: str = ""
    sm_count: int = 0
    busy: float = 0.0
    gpu_busy: float = 0.0
    skipped_errors: int = 0
    restarts: int = 0
    retries: int = 0
    dead_letters: int = 0
    stuck: int = 0
    cut_off: int = 0
    lateness: Summary = _NOTHING
    late_ticks: int = 0
    skipped_ticks: int = 0
    waits: float | None = None
    interpreter: float | None = None
    is_parallel: bool = False
    waiting: dict[str, float] = field(default_factory=dict)

    @property
    def latest(self) -> int:
        """The lateness of its latest tick, in nanoseconds."""
        return self.lateness.max

    @property
    def is_saturated(self) -> bool:
        """Whether it was busy at least 90 % of the time, on the host or on the device, and not just a few times."""
        return self.count >= FEW and max(self.busy, self.gpu_busy) >= SATURATED


@dataclass(frozen=True, slots=True)
class QueueStatistics:
    """The statistics of one queue.

    Attributes
    ----------
    name
        The operator and the port; with a number if the port has several queues.
    depth
        The number of messages that waited at the end, or wait now.
    most
        The largest number of messages that waited at once.
    dropped
        The number of messages that the full queue dropped.
    discarded
        The number of messages that were discarded, because the compute that they waited for had failed.
    busy
        The share of its places that were taken, on average, by messages that were received later.
    """

    name: str
    received: int = 0
    depth: int = 0
    most: int = 0
    dropped: int = 0
    discarded: int = 0
    wait: Summary = _NOTHING
    busy: float = 0.0


@dataclass(frozen=True, slots=True)
class LinkStatistics:
    """The statistics of one link between two processes.

    Attributes
    ----------
    name
        The outputs and the input between which it is, as in ``"edge.camera.out -> server.detector.frame"``.
    count
        The number of messages that were sent and taken.
    rate
        The messages per second.
    time
        The time from where a message is sent to where it is in the queue of its receiver.
    """

    name: str
    count: int = 0
    rate: float = 0.0
    time: Summary = _NOTHING


@dataclass(frozen=True, slots=True)
class WorkersStatistics:
    """How busy the worker threads were that share some operators.

    Attributes
    ----------
    name
        ``"workers"`` for those of the scheduler, else the name of the thread pool.
    busy
        The share of their time in which they computed.
    """

    name: str
    count: int
    busy: float = 0.0
    operators: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SliceStatistics:
    """How busy a slice of a device was.

    Attributes
    ----------
    name
        The device and the name of the slice; ``"all SMs"`` for operators without one.
    key
        The same in short, as in ``"0:live"`` and ``"0:*"``.
    busy
        The share of the time in which at least one operator's work was on it. If some computes were not
        timed on the device, those that were stand for them.
    """

    name: str
    sm_count: int
    busy: float = 0.0
    operators: tuple[str, ...] = ()
    key: str = ""


@dataclass(frozen=True, slots=True)
class PathStatistics:
    """How long messages took on one path.

    Attributes
    ----------
    name
        The names of its operators, joined by ``","``.
    latency
        From the acquisition or the emission at the source to the end of the last operator's work on the
        device, of the messages for which that end was timed.
    """

    name: str
    count: int
    rate: float
    latency: Summary
    operators: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SegmentStatistics:
    """The statistics of one captured segment.

    Attributes
    ----------
    state
        As in :class:`headrace.core.SegmentOutcome`.
    reason
        Why it is eager; empty otherwise.
    replayed
        The number of frames that were replayed; they count as computes of its operators.
    """

    name: str
    operators: tuple[str, ...]
    state: str = ""
    reason: str = ""
    frames: int = 0
    replayed: int = 0


@dataclass(frozen=True, slots=True)
class GoalStatistics(GoalOutcome):
    """How a goal was kept so far, with what it is about: its path, and its bounds if another has the same path."""

    name: str = ""

    @classmethod
    def of(cls, goal: Goal) -> GoalStatistics:
        """Return the counts of a goal, and whether it is met."""
        return cls(**goal.counts, name=goal.name)


@dataclass(frozen=True, slots=True)
class Statistics:
    """The statistics of a run, so far or in all.

    Attributes
    ----------
    sources
        The number of messages that each output of a source emitted, by ``"operator.port"``.
    kernels
        Whether kernels are known one by one, or why not; empty if nobody asked for them.
    links
        The links between the processes of the parts.
    clocks
        How the clock of each part is related to that of the time line, for a run in several processes.
    fragments
        The fragment of each operator, by name, for a run in several processes.
    streams
        The operators whose work was on each stream of a device, by the first stream of each.
    """

    application: str = ""
    seconds: float = 0.0
    operators: tuple[OperatorStatistics, ...] = ()
    queues: tuple[QueueStatistics, ...] = ()
    paths: tuple[PathStatistics, ...] = ()
    sources: dict[str, int] = field(default_factory=dict)
    segments: tuple[SegmentStatistics, ...] = ()
    workers: tuple[WorkersStatistics, ...] = ()
    slices: tuple[SliceStatistics, ...] = ()
    kernels: str = ""
    goals: tuple[GoalStatistics, ...] = ()
    links: tuple[LinkStatistics, ...] = ()
    clocks: dict[str, ClockOffset] = field(default_factory=dict)
    fragments: dict[str, str] = field(default_factory=dict)
    streams: tuple[tuple[str, ...], ...] = ()

    @property
    def advice(self) -> tuple[str, ...]:
        """What could be gained by other streams, and by computes beside others, in words."""
        from headrace.observe.figures.advice import advice

        return tuple(advice(self))

    @property
    def saturated(self) -> tuple[str, ...]:
        """The operators, threads, slices and queues that were busy at least 90 % of the time, in words.

        They determine the rate, and messages wait for them.
        """
        return tuple(_saturated(self))

    def operator(self, name: str) -> OperatorStatistics:
        """Return the statistics of an operator; raise KeyError if there is none of this name."""
        return _by_name(self.operators, name, "operator")

    def queue(self, name: str) -> QueueStatistics:
        """Return the statistics of a queue, as in ``"display.in"``."""
        return _by_name(self.queues, name, "queue")

    def path(self, name: str) -> PathStatistics:
        """Return the statistics of a path, as in ``"camera,blur,display"``."""
        return _by_name(self.paths, name, "path")

    def segment(self, name: str) -> SegmentStatistics:
        """Return the statistics of a captured segment."""
        return _by_name(self.segments, name, "segment")

    def to_json(self, indent: int | None = 2) -> str:
        """Return all figures as JSON; durations are in nanoseconds."""
        figures = asdict(self, dict_factory=lambda pairs: {k: v for k, v in pairs if k != "cumulative"})
        return json.dumps({**figures, "saturated": self.saturated, "advice": self.advice}, indent=indent)

    def to_prometheus(self) -> str:
        """Return all figures in the text format of Prometheus; durations are in seconds."""
        from headrace.observe.figures.prometheus import StatisticsCollector

        return StatisticsCollector(lambda: [self]).text().decode()

    def __str__(self) -> str:
        from headrace.observe.figures.tables import statistics_text

        return statistics_text(self)

    def _repr_html_(self) -> str:
        from headrace.observe.figures.tables import statistics_html

        return statistics_html(self)


_Named = TypeVar("_Named", OperatorStatistics, QueueStatistics, PathStatistics, SegmentStatistics)


def _by_name(found: tuple[_Named, ...], name: str, kind: str) -> _Named:
    for each in found:
        if each.name == name:
            return each
    raise KeyError(f"there is no {kind} {name!r}; there are {', '.join(repr(each.name) for each in found)}")


def _saturated(statistics: Statistics) -> list[str]:
    """Return what is saturated, in words, the busiest first.

    Something that is busy nearly all of the time determines the rate of a pipeline. Messages wait for it or are
    lost, however even the latencies of the others look. If an operator computes all of the time, its workers and
    queues are no news; if the device works for it all of the time, its slice and queues are none. An operator that
    only waits in its computes says nothing of what it waits for.
    """
    # Of what kind it is, how busy it is, in words, and its operators.
    loads: list[tuple[str, float, str, tuple[str, ...]]] = []
    for operator in statistics.operators:
        name, busy, gpu_busy = operator.name, operator.busy, operator.gpu_busy
        if operator.count >= FEW:
            is_waiting = operator.waits is not None and operator.waits >= WAITS
            does = "waits in compute" if is_waiting else "computes"
            loads.append(
                ("waits" if is_waiting else "host", busy, f"{name} {does} {busy:.0%} of the time", (name,))
            )
            loads.append(("gpu", gpu_busy, f"the GPU works for {name} {gpu_busy:.0%} of the time", (name,)))
    if not loads:
        return []
    for each in statistics.workers:
        who = "the only worker computes" if each.count == 1 else f"the {each.count} workers compute"
        loads.append(
            ("workers", each.busy, f"{each.name}: {who} {each.busy:.0%} of the time", each.operators)
        )
    loads += [
        ("slices", each.busy, f"{each.name} works {each.busy:.0%} of the time", each.operators)
        for each in statistics.slices
    ]
    for queue in statistics.queues:
        if queue.received >= FEW:
            text = f"the queue {queue.name} is {queue.busy:.0%} full on average"
            loads.append(("queues", queue.busy, text, (queue.name.rpartition(".")[0],)))
    found = []
    named: dict[str, set[str]] = {kind: set() for kind in _EXPLAINED_BY}
    for kind, busy, text, operators in sorted(loads, key=lambda load: (load[0] not in _OWN, -load[1])):
        explained = set().union(*(named[other] for other in _EXPLAINED_BY[kind]))
        if busy >= SATURATED and not explained.intersection(operators):
            found.append(text)
            named[kind].update(operators)
    return found


# What is saturated because something else is: the kinds that explain each kind.
_EXPLAINED_BY = {
    "host": (),
    "waits": (),
    "gpu": (),
    "workers": ("host", "waits"),
    "slices": ("gpu",),
    "queues": ("host", "waits", "gpu", "workers", "slices"),
}
_OWN = ("host", "waits", "gpu")
