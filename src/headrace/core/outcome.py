"""Outcome: how a run ended, what each operator did, and which messages were left.

An outcome is plain data: names, numbers and text. It holds no exceptions and no messages, because an exception
refers to the stack frames it was raised in, and those refer to the operators' data.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Generic, Self, TypeVar, overload

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
