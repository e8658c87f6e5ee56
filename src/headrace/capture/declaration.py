"""Segment: operators that a run records once and then replays as one CUDA graph; how a program declares it.

The contract of its operators is one sentence, `CONTRACT`. An operator says that it fulfils it by ``capturable =
True`` in its class; headrace captures no other.
"""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING, Any

from headrace._runtime import GroupPlan, source_of
from headrace.core.errors import GraphError
from headrace.core.graph import check_group, check_member, operators_before, queues_of
from headrace.core.ports import IOSpec
from headrace.core.values import whole_number
from headrace.gpu.backend import active

if TYPE_CHECKING:
    from headrace.core.composition import Composition as Fragment
    from headrace.core.operator import Operator
    from headrace.core.outcome import SegmentOutcome


CONTRACT = (
    "a captured operator's result depends on its messages, its declared parameters (spec.param), its knobs, and "
    "arrays on the device that it declares as state (spec.state) or assigns in start; and its compute has no "
    "effect on the host"
)
MODES = ("auto", "off", "verify", "strict")


class CaptureRefused(UserWarning):
    """A segment is not captured and runs as without capture; the text says why."""


class CaptureError(RuntimeError):
    """A segment that was to be captured without fail could not be captured."""


@dataclass(frozen=True, slots=True)
class SegmentOptions:
    """How a segment is captured; see :meth:`Fragment.capture`."""

    warmup: int = 1
    check_every: float | None = 1.0
    shapes: int = 4
    strict: bool = False

    def __post_init__(self) -> None:
        for name in ("warmup", "shapes"):
            whole_number(getattr(self, name), f"capture(...): {name}", 1)
        period = self.check_every
        is_number = isinstance(period, (int, float)) and not isinstance(period, bool) and period >= 0
        if period is not None and not is_number:
            raise ValueError(
                f"capture(...): check_every must be a number of seconds, or None to compare nothing, not {period!r}"
            )


class Segment:
    """Operators that are captured as one CUDA graph; :meth:`Fragment.capture` returns it.

    Attributes
    ----------
    name, operators, options
        Its name, its operators, and how it is captured.
    state
        ``"composed"`` before the run. In the run, ``"warming up"`` and then ``"captured"``; ``"eager"`` if it runs
        as without capture, and ``"off"`` if the environment says so.
    reason
        Why it is eager; empty otherwise.
    frames, replayed, recordings
        The number of frames of the last run, of those that were replayed, and of the graphs that were recorded.
    eager_ns, replay_ns
        The host's time for a frame, in nanoseconds: the median of recent frames but the first, which may compile.
    """

    def __init__(self, name: str, operators: Sequence[Operator], options: SegmentOptions) -> None:
        self.name = name
        self.operators = tuple(operators)
        self.options = options
        self.begin_run()
        self.state = "composed"

    def begin_run(self) -> None:
        """Forget the last run."""
        self.state, self.reason = "warming up", ""
        self.frames = self.replayed = self.recordings = 0
        self.eager_ns: float | None = None
        self.replay_ns: float | None = None

    @property
    def label(self) -> str:
        """The name and, after a run, the state, for drawings."""
        return self.name if self.state == "composed" else f"{self.name}, {self.state}"

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
        """Return a line about the last run: what was captured, what was not and why, and what that saved."""
        return str(self.outcome())

    def __repr__(self) -> str:
        return f"<Segment {self.name!r}, {self.state}>"


def capture_mode() -> str:
    """Return what ``HEADRACE_CAPTURE`` asks for, or an empty text."""
    mode = os.environ.get("HEADRACE_CAPTURE", "")
    if mode and mode not in MODES:
        raise ValueError(f"HEADRACE_CAPTURE={mode!r}: must be one of {', '.join(MODES)}")
    return mode


# In compose.


def capture(fragment: Fragment, operators: Sequence[Operator], name: str, **options: Any) -> Segment:
    """Make a segment of operators; the body of :meth:`Fragment.capture`."""
    checked = SegmentOptions(**options)
    taken = {operator: segment for segment in fragment._headrace.segments for operator in segment.operators}
    for number, operator in enumerate(operators):
        check_member(fragment, operator)
        if operator in operators[:number]:
            raise GraphError(f"capture(...): operator {operator.name!r} is given twice")
        if operator in taken:
            raise GraphError(
                f"capture(...): operator {operator.name!r} is part of the segment {taken[operator].name!r} already"
            )
        if why := _why_not_declared(operator):
            raise GraphError(f"capture(...): operator {operator.name!r} {why}")
    if not operators:
        raise GraphError("capture(...) takes one operator or more: self.capture(blur, sharpen)")
    inner = fragment._headrace
    inner.check_composing(f"capture({', '.join(repr(operator.name) for operator in operators)})")
    segment = Segment(inner.qualified(name or inner.unused_name("segment")), operators, checked)
    if any(segment.name == other.name for other in inner.segments):
        raise GraphError(f"two segments are named {segment.name!r}; give one another name=...")
    inner.segments.append(segment)
    return segment


def find_segments(fragment: Fragment) -> None:
    """Check the segments that compose declared, and find those that are wanted besides."""
    inner, graph, wanted = fragment._headrace, fragment.graph, fragment._headrace.chain_options
    if wanted is None and capture_mode() == "auto":
        wanted = {}
    for segment in inner.segments:
        for operator in segment.operators:
            if operator not in graph:
                raise GraphError(f"segment {segment.name!r}: operator {operator.name!r} is not in the graph")
        check_group(f"segment {segment.name!r}", segment.operators)
    if wanted is not None:
        options = SegmentOptions(**wanted)
        taken = {operator for segment in inner.segments for operator in segment.operators}
        may_join = [op for op in graph if op not in taken and op._headrace.incoming and not _why_not(op)]
        for chain in chains_of(may_join):
            inner.segments.append(Segment(f"{chain[0].name}...{chain[-1].name}", chain, options))


# When a run begins.


def plan_groups(fragment: Fragment) -> list[GroupPlan]:
    """Return the segments that a run captures; warn about those that it cannot, whose operators run as usual."""
    mode = capture_mode()
    planned: list[GroupPlan] = []
    for segment in fragment._headrace.segments:
        segment.begin_run()
        if mode == "off" or not active().has_devices:
            segment.state = "off"
            continue
        why = _why_not_together(segment)
        if not why:
            planned.append(_plan(segment, mode))
            continue
        segment.state, segment.reason = "eager", why
        text = f"segment {segment.name!r} is not captured, and its operators run as without it: {why}"
        if segment.options.strict or mode == "strict":
            raise CaptureError(text)
        warnings.warn(CaptureRefused(text), stacklevel=2)
    return planned


def _plan(segment: Segment, mode: str) -> GroupPlan:
    from headrace.capture.segment import CapturedSegment

    make = partial(CapturedSegment, segment, mode)
    return GroupPlan(segment.name, in_order(segment.operators), make)


def _why_not_together(segment: Segment) -> str:
    for operator in segment.operators:
        if why := _why_not(operator):
            return f"operator {operator.name!r}: {why}"
    sources = [source_of(operator) for operator in segment.operators]
    devices = {source.dev_id for source in sources if source is not None}
    if len(devices) > 1:
        return f"its operators are on the devices {', '.join(map(str, sorted(devices)))}"
    return why_not_a_group(segment.operators)


def _why_not_declared(operator: Operator) -> str:
    """Return why an operator may not be captured, as it says itself; an empty text if it may."""
    said = operator.capturable
    if operator.is_function:
        kind, how = f"the function {operator.declared.__name__}", "@op(capturable=True)"  # type: ignore[attr-defined]
    else:
        kind, how = type(operator).__name__, "capturable = True in the class that has its compute"
    if said is True:
        if operator.is_function or getattr(type(operator).__setattr__, "raises_versions", False):
            return ""
        return f"must say capturable = True in its class statement ({kind}), where its parameters are watched"
    if said:
        return f"is not captured: {said}"
    return f"({kind}) does not say that it may be captured: {CONTRACT}. {how} says so"


def _why_not(operator: Operator) -> str:
    """Return why an operator cannot be part of a segment, as its declarations say; an empty text if it can."""
    if why := _why_not_declared(operator) or why_not_in_group(operator):
        return why
    if operator.is_function:
        declared: Any = operator.declared  # type: ignore[attr-defined]
        if inspect.isgeneratorfunction(declared.function):
            return "the function yields, so that it may emit several messages for one, or none"
        if "metadata" in declared.supplied:
            return "the function takes its metadata, which would stay what it was when it was recorded"
    return ""


def in_order(operators: Sequence[Operator]) -> list[Operator]:
    """Return operators without a cycle, each after those that it receives from."""
    members = dict.fromkeys(operators)
    sources = {
        operator: [one for one in operators_before(operator) if one in members] for operator in operators
    }
    return list(TopologicalSorter(sources).static_order())


def why_not_in_group(operator: Operator) -> str:
    """Return why an operator cannot run as a part of a group, as its declarations say; an empty text if it can."""
    if operator.on_error != "stop":
        return f"it has on_error={operator.on_error!r}, and a replay does not call its compute"
    if operator.conditions:
        return (
            f"it has the condition {next(iter(operator.conditions))!r}; an operator of a segment runs for "
            "each frame"
        )
    spec = operator.spec
    if operator._headrace.dynamic_flows is not None:
        return "its flows are chosen after each compute, and a replay does not call its compute"
    if not spec.every_input:
        return "it has no input, and a segment runs when it receives"
    for port in (*spec.every_input.values(), *spec.every_output.values()):
        if port.is_execution:
            return "it orders the computes of others, or is ordered by them, and a replay does not call its compute"
        if port.conditions:
            return f"port {port.name!r} has a condition of its own"
        if port.size != 1:
            return f"port {port.name!r} does not carry one message at a time"
    if spec.or_combined or spec.multi_port:
        return "it has a condition over several ports"
    if any(operator in pool.operators for pool in operator.fragment._headrace.thread_pools):
        return "it is assigned to a thread pool, and a segment runs on one thread"
    return ""


def why_not_a_group(operators: Sequence[Operator]) -> str:
    """Return why operators cannot run as one, as the flows between them say; an empty text if they can."""
    members = set(operators)
    for operator in operators:
        for queue in (
            queue for port in operator.spec.every_input.values() for queue in queues_of(operator, port)
        ):
            if queue.policy is IOSpec.QueuePolicy.LATEST:
                return f"operator {operator.name!r} receives a message several times, at a queue with LATEST"
        for name in operator.spec.every_input:
            flows = [flow for flow in operator._headrace.incoming if flow.input == name]
            inner = [flow for flow in flows if flow.source in members]
            if inner and len(flows) > 1:
                return f"operator {operator.name!r}: several flows lead to input {name!r}"
            for flow in inner:
                sent = flow.source.spec.every_output[flow.output].policy
                policy = flow.policy or operator.spec.every_input[name].policy or sent
                if (flow.size or 1) > 1 or policy not in (None, IOSpec.QueuePolicy.FAULT):
                    return (
                        f"{flow} has a size or a policy of its own, and messages do not wait inside a segment"
                    )
    return ""


def chains_of(operators: Sequence[Operator]) -> list[list[Operator]]:
    """Return the longest chains of two or more of these operators; no message forks, joins or waits in one."""
    follows: dict[Operator, Operator | None] = {}
    for operator in operators:
        targets = {flow.target for flow in operator._headrace.outgoing}
        target = targets.pop() if len(targets) == 1 else None
        follows[operator] = target if target is not None and _follows_only(target, operator) else None
    later = set(follows.values())
    found: list[list[Operator]] = []
    for first in follows:
        chain: list[Operator] = []
        one: Operator | None = first
        while first not in later and one is not None and one in follows and one not in chain:
            chain.append(one)
            one = follows[one]
        if len(chain) > 1:
            found.append(chain)
    return found


def _follows_only(target: Operator, operator: Operator) -> bool:
    """Return whether an operator receives from another alone, and no message waits between them."""
    inputs = [flow.input for flow in target._headrace.incoming]
    waits = any((flow.size or 1) > 1 or flow.policy is not None for flow in target._headrace.incoming)
    waits = waits or any(port.policy is not None for port in target.spec.every_input.values())
    return (
        {flow.source for flow in target._headrace.incoming} == {operator} != {target}
        and len(set(inputs)) == len(inputs)
        and not waits
    )
