"""Outcomes: the outcome of a program, put together from those of its parts.

It has the same fields as that of one process: the operators of all parts in the order of the graph, and nothing of
the operators that stand for links. What was emitted into a flow between parts and did not reach its receiver counts
there, as in one process: as dropped by the queue, as undelivered, or as lost with a process.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headrace.core.outcome import EndedBy, ErrorRecord, OperatorOutcome, Outcome, Starved
from headrace.parts.cut_flow import FlowCounts, under_way

if TYPE_CHECKING:
    from headrace.parts.cut_flow import CutFlow

Ends = tuple[FlowCounts | None, FlowCounts | None]
"""What the sender and the receiver of a flow counted; None for one whose process was lost."""

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
