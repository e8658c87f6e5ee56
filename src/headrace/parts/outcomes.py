"""Outcomes: the outcome of a program, put together from those of its parts.

It has the same fields as that of one process: the operators of all parts in the order of the graph, and nothing of
the operators that stand for links. Messages that were under way between two parts when the run ended are undelivered
at the input that they were sent to. Messages that were lost with a process are `lost` there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.core.outcome import EndedBy, ErrorRecord, OperatorOutcome, Outcome

if TYPE_CHECKING:
    pass

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
    ended_by: EndedBy | None = None,
    errors: Iterable[ErrorRecord] = (),
    lost: Mapping[tuple[str, str], int] = {},
    restarts: Mapping[str, int] = {},
) -> Outcome:
    """Return the outcome of a program.

    Parameters
    ----------
    operators
        The names of all operators, in the order of the graph.
    outcomes
        Those of the parts; a part that was lost has none.
    ended_by
        Why the driver ended the run, if it did.
    lost
        The number of messages that were lost on the way to each input.
    restarts
        How many times the processes of operators were started again.
    """
    parts = list(outcomes)
    known = {name: each for part in parts for name, each in part.operators.items()}
    found: dict[str, OperatorOutcome] = {}
    for name in operators:
        each = known.get(name, OperatorOutcome(0))
        missing = {port: count for (operator, port), count in lost.items() if operator == name and count}
        if missing or restarts.get(name):
            each = replace(each, lost=missing, restarts=each.restarts + restarts.get(name, 0))
        found[name] = each
    ways = {part.ended_by for part in parts}
    return Outcome(
        application,
        ended_by or next((way for way in _ORDER if way in ways), EndedBy.STOPPED),
        max((part.seconds for part in parts), default=0.0),
        found,
        tuple(starved for part in parts for starved in part.starved),
        tuple(errors),
        tuple(segment for part in parts for segment in part.segments),
    )
