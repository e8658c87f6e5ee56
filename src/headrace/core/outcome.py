"""Outcome: how a run ended, what each operator did, and which messages were left.

An outcome is plain data: names, numbers and text. It holds no exceptions and no messages, because an exception
refers to the stack frames it was raised in, and those refer to the operators' data.

Progress: what a run has done so far, as plain data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, overload

from headrace.core.graph import is_source

if TYPE_CHECKING:
    from headrace.core.composition import Composition
    from headrace.core.error_policy import FaultCounts
    from headrace.core.graph import Graph
    from headrace.core.node import Queue
    from headrace.core.operator import Operator


T = TypeVar("T")


class EndedBy(StrEnum):
    """Why a run ended."""

    FINISHED = "finished"
    """Every source ended, and every message was processed."""
    STARVED = "starved"
    """No operator could run any more, and an operator waited for something that would never happen."""
    STOPPED = "stopped"
    """`stop_execution` was called."""
    DURATION = "duration"
    """The scheduler's ``max_duration_ms`` passed."""
    FAILED = "failed"
    """An operator, a condition or the device raised an error."""
    INTERRUPTED = "interrupted"
    """Ctrl-C or SIGTERM."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """An input or a condition that an operator waits for, and the operators that could have sent to it."""

    port: str
    """The input; empty if the operator waits for a condition or for room."""
    sources: tuple[str, ...] = ()
    """The operators that could have sent a message, with their states: ``"'camera' (ended after 3 computes)"``."""
    reason: str = ""
    """A description of what it waits for, if not a message."""

    def __str__(self) -> str:
        if not self.port:
            return self.reason
        return f"a message at {self.port!r} from {' or '.join(self.sources) or 'nobody'}"


@dataclass(frozen=True, slots=True)
class Starved:
    """An operator that waits for something that will never happen."""

    operator: str
    computes: int
    waits_for: tuple[Waiting, ...]
    left: dict[str, int] = field(default_factory=dict)
    """The number of messages left at each input."""

    def __str__(self) -> str:
        text = f"{self.operator!r} waits for {' and '.join(map(str, self.waits_for))}"
        if self.left:
            left = ", ".join(f"{_count(n, 'message')} left at {port!r}" for port, n in self.left.items())
            return f"{text}, with {left}"
        return text if self.computes else f"{text}, and never ran"


@dataclass(frozen=True, slots=True)
class ErrorRecord:
    """An error that ended a run, or was raised while it was stopped."""

    kind: str
    message: str
    where: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}{f' ({self.where})' if self.where else ''}"


@dataclass(frozen=True, slots=True)
class OperatorOutcome:
    """What one operator did in a run."""

    computes: int
    """The number of computes it finished, including those whose error was skipped or retried."""
    skipped: int = 0
    """The number of its errors that were skipped (``on_error``)."""
    restarts: int = 0
    """The number of times it was stopped and started again after an error."""
    last_error: str = ""
    """The last of those errors."""
    received: dict[str, int] | None = None
    """The number of messages it received at each input; None unless the application counts messages."""
    sent: dict[str, int] | None = None
    """The number of messages it emitted at each output; None unless the application counts messages."""
    dropped: dict[str, int] = field(default_factory=dict)
    """The number of messages dropped by each input's policy, and by each unconnected output."""
    discarded: dict[str, int] = field(default_factory=dict)
    """The number of messages that waited at each input when a compute failed, and were skipped with it."""
    undelivered: dict[str, int] = field(default_factory=dict)
    """The number of messages still waiting at each input when the run ended."""
    retries: int = 0
    """The number of times it computed again after an error (``on_error``)."""
    dead_letters: int = 0
    """The number of failed computes whose messages were sent to the output for them."""
    stuck: int = 0
    """The number of its computes that took longer than its deadline."""
    cut_off: int = 0
    """The number of its errors whose messages the end of the run kept from being tried again (``on_error``)."""
    drop_reasons: dict[str, dict[str, int]] = field(default_factory=dict)
    """How many messages a join dropped at each input, by reason; these are among `dropped`."""
    lost: dict[str, int] = field(default_factory=dict)
    """The number of messages to each input that were lost with a process (`Fragment.on_loss`)."""
    repeated: dict[str, int] = field(default_factory=dict)
    """The number of messages to each input that were sent again, to a process that took the place of a lost one."""


@dataclass(frozen=True, slots=True)
class SegmentOutcome:
    """What became of a captured segment in a run."""

    name: str
    operators: tuple[str, ...]
    state: str
    """``"captured"``; ``"warming up"`` if the run ended too early; ``"eager"`` if its operators ran as without
    capture, ``"off"`` if that was asked for or there is no device."""
    reason: str = ""
    """Why it is eager; empty otherwise."""
    frames: int = 0
    """The number of frames; 0 if it was not recorded from the beginning."""
    replayed: int = 0
    """The number of frames that were replayed."""
    recordings: int = 0
    eager_ns: float | None = None
    """The host's time for a frame that was computed, in nanoseconds: the median of recent ones; None if there were
    none but the first of its kind, which may compile."""
    replay_ns: float | None = None
    """The host's time for a frame that was replayed, in nanoseconds: the median of recent ones."""

    @property
    def saved(self) -> float:
        """The host's time that replaying saved, in seconds; 0 where nothing is known to compare with."""
        if self.eager_ns is None or self.replay_ns is None:
            return 0.0
        return max(self.eager_ns - self.replay_ns, 0.0) * self.replayed / 1e9

    def __str__(self) -> str:
        text = f"segment {self.name!r} ({', '.join(self.operators)}): {self.state}"
        if self.reason:
            text += f", because {self.reason}"
        if self.replayed:
            text += f"; {self.replayed} of {self.frames} frames replayed"
            if self.eager_ns is not None and self.replay_ns is not None:
                text += (
                    f" in {self.replay_ns / 1e3:.1f} µs of the host's time each instead of "
                    f"{self.eager_ns / 1e3:.1f}, which saved {self.saved:.3g} s"
                )
        return text


@dataclass(frozen=True, slots=True)
class GoalOutcome:
    """How a goal was kept (:class:`headrace.observe.Goal`); the counts but `untimed` add up to `sent`."""

    is_met: bool | None = None
    """Whether it is met; None if that is not known."""
    sent: int = 0
    """The number of frames."""
    arrived: int = 0
    """The number that arrived in time."""
    late: int = 0
    """The number that arrived late."""
    failed: int = 0
    """The number that failed computes took with them."""
    dropped: int = 0
    """The number that were dropped on purpose: by a queue's policy, a join, or an operator that sent nothing on."""
    lost: int = 0
    """The number that were lost with a process, or of ticks that were skipped."""
    outstanding: int = 0
    """The number that were still under way at the end."""
    untimed: int = 0
    """The number of those that arrived whose work on the device was not timed to its end."""


class _OfOperators(Generic[T]):
    """A figure of a run, made from the figures of the same name of its operators."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, outcome: None, kind: type) -> Self: ...
    @overload
    def __get__(self, outcome: Outcome, kind: type) -> T: ...
    def __get__(self, outcome: Outcome | None, kind: type) -> Any:
        """Return the figure of an outcome, or this itself for its class."""
        if outcome is None:
            return self
        return self._made({name: getattr(each, self._name) for name, each in outcome.operators.items()})

    def _made(self, figures: dict[str, Any]) -> T:
        raise NotImplementedError


class _Total(_OfOperators[int]):
    def _made(self, figures: dict[str, int]) -> int:
        return sum(figures.values())


class _ByPort(_OfOperators[dict[str, T]]):
    def _made(self, figures: dict[str, dict[str, T]]) -> dict[str, T]:
        return {f"{name}.{port}": count for name, ports in figures.items() for port, count in ports.items()}


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended.

    `Application.run` returns it, the future of `run_async` holds it, and ``app.outcome`` is the outcome of the last
    run, even if `run` raised.
    """

    application: str
    ended_by: EndedBy
    seconds: float
    """How long the operators ran, by the clock of the run."""
    operators: dict[str, OperatorOutcome] = field(default_factory=dict)
    starved: tuple[Starved, ...] = ()
    errors: tuple[ErrorRecord, ...] = ()
    segments: tuple[SegmentOutcome, ...] = ()
    """The captured segments: what was recorded, what was not and why, and what that saved."""
    goals: dict[str, GoalOutcome] = field(default_factory=dict)
    """How the goals of `Fragment.expect` were kept, by their paths."""

    computes = _Total()
    """The number of computes."""
    skipped = _Total()
    """The number of errors that were skipped."""
    cut_off = _Total()
    """The number of errors whose messages the end of the run kept from being tried again."""
    restarts = _Total()
    """The number of restarts."""
    retries = _Total()
    """The number of retries."""
    dead_letters = _Total()
    """The number of failed computes whose messages were sent to an output for them."""
    stuck = _Total()
    """The number of computes that took longer than the deadline of their operator."""
    dropped = _ByPort[int]()
    """The number of messages dropped at each port, by ``"operator.port"``."""
    drop_reasons = _ByPort[dict[str, int]]()
    """How many messages a join dropped at each input, by reason, by ``"operator.port"``."""
    discarded = _ByPort[int]()
    """The number of messages skipped with a failed compute at each input, by ``"operator.port"``."""
    undelivered = _ByPort[int]()
    """The number of messages still waiting at each input, by ``"operator.port"``."""
    lost = _ByPort[int]()
    """The number of messages that were lost with a process, by the ``"operator.port"`` they were sent to."""
    repeated = _ByPort[int]()
    """The number of messages that were sent again to a restarted process, by ``"operator.port"``."""

    def __str__(self) -> str:
        ended = "reached its duration" if self.ended_by is EndedBy.DURATION else str(self.ended_by)
        at_ports = ((sum(getattr(self, what).values()), what) for what in _AT_PORTS)
        of_errors = ((getattr(self, what), what, noun) for what, (noun, _) in _OF_ERRORS.items())
        counts = [
            _count(self.computes, "compute"),
            *(f"{_count(number, 'message')} {what}" for number, what in at_ports if number),
            *(
                _count(number, noun) + (" skipped" if what == "skipped" else "")
                for number, what, noun in of_errors
                if number
            ),
        ]
        if self.segments:
            captured = sum(segment.state == "captured" for segment in self.segments)
            counts.append(f"{captured} of {_count(len(self.segments), 'segment')} captured")
        text = f"{self.application!r} {ended} after {self.seconds:.3f} s: {', '.join(counts)}"
        return "; ".join([text, *map(str, self.starved or self.errors)])

    def _repr_html_(self) -> str:
        from headrace import notebook

        columns: dict[str, list[int]] = {"computes": [each.computes for each in self.operators.values()]}
        for what in _AT_PORTS:
            columns[what] = [sum(getattr(each, what).values()) for each in self.operators.values()]
        for what, (_, title) in _OF_ERRORS.items():
            columns[title] = [getattr(each, what) for each in self.operators.values()]
        shown = {title: column for title, column in columns.items() if title == "computes" or any(column)}
        rows = [[name, *numbers] for name, *numbers in zip(self.operators, *shown.values(), strict=True)]
        return notebook.paragraph(str(self)) + notebook.table(["operator", *shown], rows)


# The counts of messages by port, and those of errors, each with its noun in a text and its title in a table.
_AT_PORTS = ("dropped", "discarded", "undelivered", "lost", "repeated")
_OF_ERRORS = {
    "skipped": ("error", "errors skipped"),
    "restarts": ("restart", "restarts"),
    "retries": ("retry", "retries"),
    "cut_off": ("cut-off retry", "retries cut off"),
    "dead_letters": ("dead letter", "dead letters"),
    "stuck": ("stuck compute", "stuck"),
}


def _count(number: int, noun: str) -> str:
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number} {noun if number == 1 else plural}"


@dataclass(frozen=True, slots=True)
class Progress:
    """What a run has done so far; see :meth:`Fragment.progress`."""

    application: str
    is_running: bool
    """Whether the run is in progress; if not, the numbers are those of the last run."""
    computes: dict[str, int] = field(default_factory=dict)
    """The number of computes that each operator has finished."""
    sources: tuple[str, ...] = ()
    """The operators that no flow leads to."""
    waiting: dict[str, int] = field(default_factory=dict)
    """The number of messages that wait at each input now, by ``"operator.port"``, if it is not 0."""
    dropped: dict[str, int] = field(default_factory=dict)
    """The number of messages dropped at each port, by ``"operator.port"``, if it is not 0."""
    computing: dict[str, float | None] = field(default_factory=dict)
    """The operators that compute now, and for how many seconds of the run's clock each of them has; None for an
    operator without a deadline, whose computes are not timed. A captured segment counts as one operator."""
    faults: dict[str, FaultCounts] = field(default_factory=dict)
    """How often computes of each operator failed or were stuck, if any did."""
    fraction: float | None = None
    """The part of the run that is done, from 0 to 1, if its end is known: by its duration, or by the number
    of computes of every source."""
    drop_reasons: dict[str, dict[str, int]] = field(default_factory=dict)
    """How many of them a join dropped, by reason, by ``"operator.port"``."""


def progress_of(fragment: Composition) -> Progress:
    """Return the progress of the run of a fragment, or of its last run.

    It takes no lock. Every number was right at some moment of the call, but they may differ by the computes that
    finished meanwhile.
    """
    if fragment._headrace.progress_elsewhere is not None:
        elsewhere: Progress = fragment._headrace.progress_elsewhere()
        return elsewhere
    graph, engine = fragment.graph, fragment._headrace.engine
    nodes = [operator._headrace.node for operator in graph if operator._headrace.node is not None]
    computes = {node.name: node.computes for node in nodes}
    return Progress(
        fragment.name,
        engine is not None,
        computes,
        tuple(operator.name for operator in _sources(graph)),
        count_by_port(graph, lambda queue: len(queue) + queue.held),
        count_by_port(graph, lambda queue: queue.dropped),
        {} if engine is None else engine.computing_for(),
        {node.name: replace(node.counts) for node in nodes if node.counts},
        fraction_of(time_fraction(engine), {} if engine is None else count_limits(graph), computes),
        {
            f"{operator.name}.{port}": reasons
            for operator in graph
            for port, reasons in drop_reasons_of(operator).items()
        },
    )


def stuck_operators(fragment: Composition) -> list[str]:
    """Return the operators whose computes take longer than their deadlines, in words."""
    limits = {each.name: each.spec.time_limit for each in fragment.graph if each.spec.time_limit}
    computing = progress_of(fragment).computing if limits else {}
    return [
        f"operator {name!r} has computed for {seconds:.1f} s; its deadline is {limits[name] / 1e9:g} s"
        for name, seconds in computing.items()
        if name in limits and seconds is not None and seconds * 1e9 > limits[name]
    ]


def drop_reasons_of(operator: Operator) -> dict[str, dict[str, int]]:
    """Return how many messages a join dropped, by input and reason."""
    if operator._headrace.node is None:
        return {}
    return {queue.port: dict(queue.reasons) for queue in operator._headrace.node.inputs if queue.reasons}


def time_fraction(engine: Any) -> float | None:
    """Return the part of the duration of a run that is over, if it has one."""
    limit = None if engine is None else engine.limit
    duration = 0 if engine is None else engine.scheduler.max_duration_ms * 1_000_000
    return 1 - (limit - engine.clock.timestamp()) / duration if limit is not None and duration > 0 else None


def count_limits(graph: Graph) -> dict[str, int | None]:
    """Return the number of computes after which each source ends; None for one without a limit."""
    return {
        operator.name: None if operator._headrace.node is None else operator._headrace.node.count_limit
        for operator in _sources(graph)
    }


def fraction_of(
    of_time: float | None, limits: Mapping[str, int | None], computes: Mapping[str, int]
) -> float | None:
    """Return the part of a run that is done, if its end is known."""
    found = [] if of_time is None else [of_time]
    known = {name: limit for name, limit in limits.items() if limit is not None}
    if limits and len(known) == len(limits):
        done = sum(min(computes.get(name, 0), limit) for name, limit in known.items())
        found.append(done / max(sum(known.values()), 1))
    return min(max(found), 1.0) if found else None


def _sources(graph: Graph) -> list[Operator]:
    return [operator for operator in graph if is_source(operator)]


def count_by_port(graph: Graph, count: Callable[[Queue], int]) -> dict[str, int]:
    """Return the sum of `count` over the queues of each port, by ``"operator.port"``, if it is not 0."""
    return {
        f"{operator.name}.{port}": number
        for operator in graph
        for port, number in counts_of(operator, count).items()
    }


def counts_of(operator: Operator, count: Callable[[Queue], int]) -> dict[str, int]:
    """Return the sum of `count` over the queues of each port of an operator, if it is not 0.

    The queues behind a connected output belong to the connected inputs, and count for them.
    """
    if operator._headrace.node is None:
        return {}
    counts: dict[str, int] = {}
    unconnected = {
        name: tuple(queue for queue in queues if queue.consumer is None)
        for name, queues in operator._headrace.node.output_queues.items()
    }
    for ports in (operator._headrace.node.counted_queues, unconnected):
        for name, queues in ports.items():
            total = sum(map(count, queues))
            if total:
                counts[name] = counts.get(name, 0) + total
    return counts
