"""Segment: operators that a run records once and then replays as one CUDA graph."""

from __future__ import annotations

import inspect
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.core.errors import GraphError, choices
from headrace.core.graph import check_member

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headrace.core.fragment import Fragment
    from headrace.core.graph import Flow
    from headrace.core.operator import Operator
    from headrace.core.outcome import SegmentOutcome

__all__ = [
    "MODES",
    "CaptureError",
    "CaptureRefused",
    "Segment",
    "SegmentOptions",
    "capture_mode",
    "check_operators",
    "check_segments",
    "find_chains",
    "why_not_captured",
]

MODES = ("auto", "off", "verify", "strict")
OUTPUTS = ("copy", "ring")


class CaptureRefused(UserWarning):
    """A segment, or a part of it, is not recorded and runs as without capture; the text says why."""


class CaptureError(RuntimeError):
    """A segment that was to be recorded without fail could not be recorded."""


@dataclass(frozen=True, slots=True)
class SegmentOptions:
    """How a segment is recorded; see :meth:`Fragment.capture`."""

    warmup: int = 3
    verify: int = 2
    shapes: int = 4
    outputs: str = "copy"
    slots: int = 4
    strict: bool = False

    def __post_init__(self) -> None:
        for name, least in (("warmup", 1), ("verify", 0), ("shapes", 1), ("slots", 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(f"capture(...): {name} must be an int of {least} or more, not {value!r}")
        if self.outputs not in OUTPUTS:
            raise ValueError(
                f"capture(...): outputs must be one of {choices(OUTPUTS, str(self.outputs))}, not {self.outputs!r}"
            )


class Segment:
    """Operators that are recorded as one CUDA graph; :meth:`Fragment.capture` returns it.

    Attributes
    ----------
    name
        Its name, for messages and drawings.
    operators
        Its operators.
    options
        How it is recorded.
    state
        ``"composed"`` before the run. In the run, ``"warming up"``, ``"verifying"`` and ``"captured"``, one after
        the other; ``"eager"`` if it runs as without capture, and ``"off"`` if the environment says so.
    reason
        Why it is eager, or recorded in parts; empty otherwise.
    frames, replayed
        The number of frames of the last run, and of those that were replayed.
    recordings
        The number of recordings that were made.
    eager_ns, replay_ns
        The host's time for a frame, in nanoseconds: the median of recent frames of each kind, or None.
    """

    def __init__(
        self, name: str, operators: Sequence[Operator], options: SegmentOptions, is_found: bool = False
    ) -> None:
        self.name = name
        self.operators = tuple(operators)
        self.options = options
        self.is_found = is_found
        """Whether `capture_chains` found it; it may then be divided where an operator cannot be recorded."""
        self.state = "composed"
        self.reason = ""
        self.frames = 0
        self.replayed = 0
        self.recordings = 0
        self.eager_ns: float | None = None
        self.replay_ns: float | None = None

    @property
    def label(self) -> str:
        """The name and, after a run, the state, for drawings."""
        return self.name if self.state == "composed" else f"{self.name}, {self.state}"

    @property
    def saved(self) -> float:
        """The host's time that replaying saved in the last run, in seconds."""
        return self.outcome().saved

    def outcome(self) -> SegmentOutcome:
        """Return what became of it in the last run, as plain data."""
        from headrace.core.outcome import SegmentOutcome  # importing it takes time, and only runs need it

        return SegmentOutcome(
            self.name,
            tuple(operator.name for operator in self.operators),
            self.state,
            self.reason,
            self.frames,
            self.replayed,
            self.recordings,
            self.eager_ns,
            self.replay_ns,
        )

    def report(self) -> str:
        """Return a line about the last run: what was recorded, what was not and why, and what that saved."""
        return str(self.outcome())

    def __repr__(self) -> str:
        return f"<Segment {self.name!r}, {self.state}>"


def capture_mode() -> str:
    """Return what ``HEADRACE_CAPTURE`` asks for, or an empty text."""
    mode = os.environ.get("HEADRACE_CAPTURE", "")
    if mode and mode not in MODES:
        raise ValueError(f"HEADRACE_CAPTURE={mode!r}: must be one of {', '.join(MODES)}")
    return mode


def check_operators(fragment: Fragment, operators: Iterable[Any], known: Iterable[Segment]) -> None:
    """Raise for operators that cannot form a segment, whatever they are connected to."""
    taken = {operator: segment for segment in known for operator in segment.operators}
    seen: set[Operator] = set()
    for operator in operators:
        check_member(fragment, operator)
        if operator in seen:
            raise GraphError(f"capture(...): operator {operator.name!r} is given twice")
        if operator in taken:
            raise GraphError(
                f"capture(...): operator {operator.name!r} is part of the segment {taken[operator].name!r} already"
            )
        seen.add(operator)
    if not seen:
        raise GraphError("capture(...) takes one operator or more: self.capture(blur, sharpen)")


def check_segments(segments: Sequence[Segment]) -> None:
    """Raise for a segment whose operators are not connected, form a cycle, or are left and entered again."""
    for segment in segments:
        where = f"segment {segment.name!r}"
        members = set(segment.operators)
        reached = {segment.operators[0]}
        new = [segment.operators[0]]
        while new:
            operator = new.pop()
            for other in _neighbours(operator):
                if other in members and other not in reached:
                    reached.add(other)
                    new.append(other)
        apart = [operator.name for operator in segment.operators if operator not in reached]
        if apart:
            raise GraphError(
                f"{where}: {choices(apart)} and {segment.operators[0].name!r} are not connected; a segment is a "
                "set of connected operators, so make two"
            )
        for operator in segment.operators:
            for flow in operator._outgoing:
                _check_way_back(where, members, flow)


def _neighbours(operator: Operator) -> list[Operator]:
    return [flow.target for flow in operator._outgoing] + [flow.source for flow in operator._incoming]


def _check_way_back(where: str, members: set[Operator], flow: Flow) -> None:
    """Raise if messages of a flow come back into the segment after they left it, or to where they were."""
    is_inside = flow.target in members
    seen: set[Operator] = set()
    new = [flow.target]
    while new:
        operator = new.pop()
        for following in operator._outgoing:
            target = following.target
            if is_inside:
                if target is flow.source:
                    raise GraphError(
                        f"{where}: its operators form a cycle ({flow}); a segment has none, so leave one "
                        "of them out"
                    )
                if target not in members:
                    continue
            elif target in members:
                raise GraphError(
                    f"{where}: messages leave it by {flow} and come back by {following}; add the operators in "
                    "between, or make two segments"
                )
            if target not in seen:
                seen.add(target)
                new.append(target)


def why_not_captured(operator: Operator) -> str:
    """Return why an operator cannot be part of a segment, as its declarations say; an empty text if it can."""
    if operator.capturable is not True:
        return (
            operator.capturable or f"{type(operator).__name__} says that it cannot be recorded (capturable)"
        )
    if operator.on_error != "stop":
        return f"it has on_error={operator.on_error!r}, and a replay does not call its compute"
    if operator.conditions:
        return (
            f"it has the condition {next(iter(operator.conditions))!r}; an operator of a segment runs for "
            "each frame"
        )
    spec = operator.spec
    if not spec.inputs:
        return "it has no input, and a segment runs when it receives"
    for port in (*spec.inputs.values(), *spec.outputs.values()):
        if port.conditions:
            return f"port {port.name!r} has a condition of its own"
        if port.size != 1:
            return f"port {port.name!r} does not carry one message at a time"
    if spec.or_combined or spec.multi_port:
        return "it has a condition over several ports"
    if operator.is_function:
        declared: Any = operator.declared  # type: ignore[attr-defined]
        if inspect.isgeneratorfunction(declared.function):
            return "the function yields, so that it may emit several messages for one, or none"
        if "metadata" in declared.supplied:
            return "the function takes its metadata, which would stay what it was when it was recorded"
    if any(operator in pool.operators for pool in operator.fragment._thread_pools):
        return "it is assigned to a thread pool, and a segment runs on one thread"
    return ""


def find_chains(fragment: Fragment, known: Sequence[Segment], options: SegmentOptions) -> list[Segment]:
    """Return the longest chains of operators that may be recorded and are in no other segment."""
    taken = {operator for segment in known for operator in segment.operators}

    def may(operator: Operator) -> bool:
        return operator not in taken and bool(operator._incoming) and not why_not_captured(operator)

    def only_next(operator: Operator) -> Operator | None:
        targets = {flow.target for flow in operator._outgoing}
        if len(targets) != 1:
            return None
        (target,) = targets
        sources = {flow.source for flow in target._incoming}
        inputs = [flow.input for flow in target._incoming]
        if sources != {operator} or target is operator or len(set(inputs)) < len(inputs):
            return None
        # Messages do not wait inside a segment.
        waits = any((flow.size or 1) > 1 or flow.policy is not None for flow in target._incoming)
        return (
            None if waits or any(port.policy is not None for port in target.spec.inputs.values()) else target
        )

    follows = {operator: only_next(operator) for operator in fragment.graph if may(operator)}
    later = {target for target in follows.values() if target is not None}
    found: list[Segment] = []
    for operator in follows:
        if operator in later and any(follows.get(one) is operator for one in follows):
            continue
        chain: list[Operator] = []
        one: Operator | None = operator
        while one is not None and one in follows and one not in chain:
            chain.append(one)
            one = follows[one]
        if len(chain) > 1:
            name = f"{chain[0].name}...{chain[-1].name}"
            found.append(Segment(name, chain, options, is_found=True))
    return found
