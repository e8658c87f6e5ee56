"""Outcomes: the outcome and the progress of a program, put together by the driver from those of its parts.

It has the same fields as that of one process: the operators of all parts in the order of the graph, and nothing of
the operators that stand for links. What was emitted into a flow between parts and did not reach its receiver counts
there, as in one process: as dropped by the queue, as undelivered, or as lost with a process.

For the progress, all parts are asked at once (`ProgressOfParts.find`); each answers from the thread that listens
to the driver, so a busy operator delays no answer. A part that does not answer in time, because it is frozen or a
call holds its interpreter lock, counts as it did when it last answered.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from headrace import waits
from headrace.core.graph import is_source
from headrace.core.outcome import (
    EndedBy,
    ErrorRecord,
    OperatorOutcome,
    Outcome,
    Progress,
    Starved,
    count_limits,
    fraction_of,
    progress_of,
    time_fraction,
)
from headrace.parts.cut_flow import FlowCounts, under_way

if TYPE_CHECKING:
    from concurrent.futures import Future

    from headrace.parts.calls import Calls
    from headrace.parts.cut import Cut
    from headrace.parts.cut_flow import CutFlow

Ends = tuple[FlowCounts | None, FlowCounts | None]
"""What the sender and the receiver of a flow counted; None for one whose process was lost."""

_PATIENCE = 1.0  # seconds for an answer of a part
# The first of these that a part ended by is how the program ended.
_ORDER = (
    EndedBy.INTERRUPTED,
    EndedBy.FAILED,
    EndedBy.STOPPED,
    EndedBy.DURATION,
    EndedBy.STARVED,
    EndedBy.FINISHED,
)


def merge(
    application: str,
    operators: Iterable[str],
    outcomes: Iterable[Outcome],
    flows: Sequence[tuple[CutFlow, Ends]] = (),
    ended_by: EndedBy | None = None,
    errors: Iterable[ErrorRecord] = (),
    restarts: Mapping[str, int] | None = None,
    lost: Mapping[str, int] | None = None,
) -> Outcome:
    """Return the outcome of a program.

    Parameters
    ----------
    operators
        The names of all operators, in the order of the graph; those that began in the run come behind them.
    outcomes
        Those of the parts; a part that was lost has none.
    flows
        The flows between parts, with what their ends counted.
    ended_by
        Why the driver ended the run, if it did.
    restarts
        How many times the processes of operators were started again, by the name of the operator.
    lost
        How many messages were lost after their sender had forgotten them, by the name of the flow.
    """
    parts = list(outcomes)
    known = {name: each for part in parts for name, each in part.operators.items()}
    found = {name: known.get(name, OperatorOutcome(0)) for name in operators}
    links = {flow.name for flow, _ in flows}
    found |= {name: each for name, each in known.items() if name not in found and name not in links}
    for name, count in (restarts or {}).items():
        found[name] = replace(found[name], restarts=found[name].restarts + count)
    for flow, ends in flows:
        operator, _, port = flow.input.rpartition(".")
        found[operator] = _with_flow(found[operator], port, ends, (lost or {}).get(flow.name, 0))
    ways = {part.ended_by for part in parts}
    return Outcome(
        application,
        ended_by or next((way for way in _ORDER if way in ways), EndedBy.STOPPED),
        max((part.seconds for part in parts), default=0.0),
        found,
        tuple(_named(starved, flows, found) for part in parts for starved in part.starved),
        tuple(errors),
        tuple(segment for part in parts for segment in part.segments),
    )


def _with_flow(outcome: OperatorOutcome, port: str, ends: Ends, lost: int = 0) -> OperatorOutcome:
    """Add what did not reach the queue of an input, because of the link before it, or was lost behind it."""
    sender, receiver = ends
    counts = {"lost": lost}
    if sender is not None:
        counts = {
            "dropped": sender.dropped,
            "undelivered": sender.waiting + under_way(sender, receiver),
            "lost": lost + sender.lost + (0 if receiver is not None else sender.unanswered),
            "repeated": sender.repeated,
        }
    changed: dict[str, Any] = {
        name: {**(before := getattr(outcome, name)), port: before.get(port, 0) + count}
        for name, count in counts.items()
        if count > 0
    }
    return replace(outcome, **changed) if changed else outcome


def _named(
    starved: Starved, flows: Iterable[tuple[CutFlow, Ends]], operators: Mapping[str, OperatorOutcome]
) -> Starved:
    """Name the operators that send to a flow, and what they did, in the place of the flow."""
    named: dict[str, list[str]] = {}
    reasons = [waiting.reason for waiting in starved.waits_for]
    for flow, _ in flows:
        receiver = repr(flow.input.rpartition(".")[0])
        reasons = [reason.replace(repr(flow.name), receiver) for reason in reasons]
        named[repr(flow.name)] = list(dict.fromkeys(output.rpartition(".")[0] for output in flow.outputs))
    waits_for = []
    for waiting, reason in zip(starved.waits_for, reasons, strict=True):
        sources: list[str] = []
        for source in waiting.sources:
            known, space, state = source.partition(" (")
            for name in named.get(known, ()):
                count = operators[name].computes
                done = f"after {count} compute{'' if count == 1 else 's'}"
                state = re.sub(r"after \d+ computes?", done, state)
                sources.append(f"{name!r}{space}{state}")
            sources += [] if known in named else [source]
        waits_for.append(replace(waiting, sources=tuple(sources), reason=reason))
    return replace(starved, waits_for=tuple(waits_for))


# Progress. Nobody counts until somebody asks.


@dataclass(frozen=True, slots=True)
class PartProgress:
    """What a part has done so far.

    Attributes
    ----------
    progress
        The progress of its operators and links.
    limits
        The numbers of computes after which its sources end.
    of_time
        The part of the duration of the run that is over.
    flows
        What its ends of the flows between parts have seen.
    """

    progress: Progress
    limits: Mapping[str, int | None] = field(default_factory=dict)
    of_time: float | None = None
    flows: Mapping[str, FlowCounts] = field(default_factory=dict)

    @classmethod
    def of(cls, cut: Cut) -> PartProgress:
        """Return the progress of a part; from any thread."""
        application = cut.application
        return cls(
            progress_of(application),
            count_limits(application.graph),
            time_fraction(application._headrace.engine),
            cut.counts(),
        )


def merge_progress(
    application: str,
    is_running: bool,
    operators: Sequence[Any],
    flows: Sequence[CutFlow],
    parts: Mapping[str, PartProgress],
) -> Progress:
    """Return the progress of a program, which has the operators of all parts and no links.

    Those that began in the run are behind those that were composed.
    """
    links = {flow.name for flow in flows}

    def joined(what: str) -> dict[str, Any]:
        return {
            name: value
            for part in parts.values()
            for name, value in getattr(part.progress, what).items()
            if name not in links and name.rpartition(".")[0] not in links  # the name of an operator or a port
        }

    counts = joined("computes")
    composed = [operator.name for operator in operators]
    computes = {name: counts[name] for name in (*composed, *counts) if name in counts}
    of_time = [part.of_time for part in parts.values() if part.of_time is not None]
    limits = {name: limit for part in parts.values() for name, limit in part.limits.items()}
    found = Progress(
        application,
        is_running,
        computes,
        tuple(operator.name for operator in operators if is_source(operator)) if parts else (),
        joined("waiting"),
        joined("dropped"),
        joined("computing"),
        joined("faults"),
        fraction_of(max(of_time, default=None), limits, computes) if is_running else None,
        joined("drop_reasons"),
    )
    for flow in flows:
        sender, receiver = (
            part.flows.get(flow.name) if (part := parts.get(name)) is not None else None
            for name in (flow.source, flow.target)
        )
        if sender is not None:
            if is_running:
                _add(found.waiting, flow.input, sender.waiting + under_way(sender, receiver))
            _add(found.dropped, flow.input, sender.dropped)
    return found


def _add(counts: dict[str, int], port: str, count: int) -> None:
    if count > 0:
        counts[port] = counts.get(port, 0) + count


class ProgressOfParts:
    """The progress of a run, for any thread of the driver.

    Parameters
    ----------
    application
        The application, as the driver has composed it.
    flows
        The flows between its parts.
    alive
        Returns the parts that can be asked.
    """

    def __init__(
        self, application: Any, flows: Sequence[CutFlow], alive: Callable[[], Collection[str]]
    ) -> None:
        self._name = application.name
        self._operators = list(application.graph)
        self._flows = flows
        self._alive = alive
        self._parts: dict[str, PartProgress] = {}
        self.calls: Calls | None = None
        """Asks the parts, while they run."""

    def find(self) -> Progress:
        """Return the progress of now, or else of the end; from any thread."""
        calls = self.calls
        if calls is not None and not calls.is_here:
            answers = {part: calls.call(part, "progress") for part in self._alive()}
            for part, answer in answers.items():
                answer.add_done_callback(partial(self._note, part))
            waits.wait_for_futures(list(answers.values()), _PATIENCE)
        parts = dict(self._parts)
        return merge_progress(self._name, self.calls is not None, self._operators, self._flows, parts)

    def _note(self, part: str, answer: Future[PartProgress | None]) -> None:
        said = answer.result()
        if said is not None:  # it has not ended before it could say so
            self._parts[part] = said

    def leave(self, part: str, progress: PartProgress | None = None) -> None:
        """Note that a part has ended with this progress, or is lost."""
        if progress is not None:
            self._parts[part] = replace(
                progress, progress=replace(progress.progress, waiting={}, computing={})
            )
