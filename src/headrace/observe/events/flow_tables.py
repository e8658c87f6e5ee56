"""FlowTables: which way each message came, and when it passed the operators on it.

Each operator has a table for each way from a source to it. A row stands for a compute that a message reached on
that way, with the times at which the operators on the way received and emitted. When an operator's computes are
shown, the rows of the operators before it are joined with what it received. A row is forgotten when no message that
follows from it waits any more.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.core.graph import edges_back
from headrace.observe.events.records import Arrivals, Flows, OperatorInfo, Path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from headrace.observe.events.records import Computes, QueueInfo, RunInfo, Times

_MOST_PATHS = 1000  # to one operator; a graph with many branches and joins has more than anyone reads
_log = logging.getLogger("headrace.observe")


class FlowTables:
    """The ways of messages to each operator of a run."""

    def __init__(self, run: RunInfo) -> None:
        self._run = run
        # By operator and path: in the order of its computes. The origin of a way that is a source alone is when its
        # computes were due.
        self._ways: defaultdict[OperatorInfo, dict[tuple[OperatorInfo, ...], Flows]] = defaultdict(dict)
        # The messages received on flows that close a cycle, until their producer is shown.
        self._closing: list[Arrivals] = []
        self._has_warned = False

    def add(self, batch: Computes) -> list[Flows]:
        """Add the computes of an operator; return the messages that reached the end of their paths with them."""
        operator, done = batch.operator, batch.done
        has_received = np.zeros(len(batch.started), np.bool_)
        found: defaultdict[tuple[OperatorInfo, ...], list[Flows]] = defaultdict(list)
        for received in batch.arrivals:
            if not len(received.compute):
                continue
            arrivals, closing = _without_closing(received)
            if closing is not None:
                self._closing.append(closing)
            places = arrivals.compute - batch.first
            has_received[places] = True
            for way in self._extended(arrivals, done[places], batch.is_timed[places]):
                found[way.path.operators].append(way)
        ways = {key: _joined(parts) for key, parts in found.items()}
        flows = []
        if operator.is_sink or operator.is_probe:
            arrived = (_arrived(way, batch) for way in ways.values())
            flows = [each for each in arrived if len(each.compute)]
        if operator.has_sent or operator.is_path:
            starts = (~has_received).nonzero()[0]
            if len(starts):
                computes, times = starts[:, None] + batch.first, np.stack((batch.started, done), 1)[starts]
                due, is_timed = batch.due[starts], batch.is_timed[starts]
                way = ways[operator,] = Flows(Path((operator,)), (), computes, times, due, is_timed)
                if operator.is_path:
                    flows.append(_arrived(replace(way, origin=times[:, 0]), batch))
            self._store(operator, ways)
        return flows

    def _store(self, operator: OperatorInfo, found: dict[tuple[OperatorInfo, ...], Flows]) -> None:
        ways = self._ways[operator]
        for key, way in found.items():
            if key in ways or len(ways) < _MOST_PATHS:
                ways[key] = _joined([ways[key], way]) if key in ways and len(ways[key].origin) else way
            elif not self._has_warned:
                self._has_warned = True
                _log.warning(
                    "more than %d paths lead to %r; the others are not tracked", _MOST_PATHS, operator.name
                )

    def _extended(self, arrivals: Arrivals, done: Times, is_timed: NDArray[np.bool_]) -> list[Flows]:
        """Return the ways on which messages came, whose receivers were `done` with them at these times."""
        found = []
        for position, output in enumerate(arrivals.queue.outputs):
            chosen = (arrivals.output == position).nonzero()[0]
            if not len(chosen):
                continue
            producer = arrivals.producer[chosen]
            for way in self._ways[output.operator].values():
                # Row `rows[i]` of the way leads to the message `of[i]`.
                of, rows = matches(way.compute, producer)
                if not len(of):
                    continue
                of = chosen[of]
                emitted = arrivals.emitted[of]
                origin = way.origin[rows]
                if len(way.path.operators) == 1:
                    origin = self._run.origins(arrivals.acq_timestamp[of], emitted, origin)
                found.append(
                    Flows(
                        Path((*way.path.operators, arrivals.queue.operator)),
                        (*way.queues, arrivals.queue),
                        np.column_stack((way.computes[rows], arrivals.compute[of])),
                        np.column_stack((way.times[rows, :-1], emitted, arrivals.received[of], done[of])),
                        origin,
                        is_timed[of],
                    )
                )
        return found

    def close_cycles(self, shown: dict[OperatorInfo, int]) -> list[Flows]:
        """Return the messages that came back to the first operator of a cycle.

        Their time begins when that operator emitted them, and ends when it received them again.
        """
        found = []
        left = []
        for arrivals in self._closing:
            # Nothing has come yet from an operator that is new.
            known = [shown.get(output.operator, 0) for output in arrivals.queue.outputs]
            if (arrivals.producer >= np.array(known, np.int64)[arrivals.output]).any():
                left.append(arrivals)
                continue
            is_timed = np.ones(len(arrivals.compute), np.bool_)
            for way in self._extended(arrivals, arrivals.received, is_timed):
                *before, last = way.path.operators
                if last in before:
                    back = way.part(slice(None), len(before) - 1 - before[::-1].index(last))
                    found.append(replace(back, origin=back.times[:, 1]))
        self._closing = left
        return found

    def forget(self, operator: OperatorInfo, oldest: int, waiting: Times) -> None:
        """Forget the computes of an operator before `oldest`, except for those of `waiting`."""
        closing = [
            arrivals.producer[arrivals.output == position]
            for arrivals in self._closing
            for position, output in enumerate(arrivals.queue.outputs)
            if output.operator is operator
        ]
        needed = np.concatenate((waiting, *closing))
        for key, way in self._ways[operator].items():
            self._ways[operator][key] = way.part((way.compute >= oldest) | np.isin(way.compute, needed))


def mark_cycles(operators: Sequence[OperatorInfo]) -> None:
    """Mark the flows that lead back to an operator that a message has passed, seen from the sources."""

    def leaving(operator: OperatorInfo) -> list[tuple[tuple[OperatorInfo, QueueInfo], OperatorInfo]]:
        queues = [queue for output in operator.outputs for queue in output.queues]
        return [((operator, queue), queue.operator) for queue in queues]

    sources = [operator for operator in operators if operator.is_source]
    for operator, queue in edges_back((*sources, *operators), leaving):
        queue.closing.add(operator)


def matches(keys: Times, wanted: Times) -> tuple[Times, Times]:
    """Find values among keys that are in order and may be there several times, or not at all.

    Return pairs of positions, that of a value and that of a key, in the order of the values.
    """
    first = keys.searchsorted(wanted, "left")
    counts = keys.searchsorted(wanted, "right") - first
    of = np.repeat(np.arange(len(wanted)), counts)
    return of, np.repeat(first - np.cumsum(counts) + counts, counts) + np.arange(len(of))


def _without_closing(arrivals: Arrivals) -> tuple[Arrivals, Arrivals | None]:
    """Return the messages that close no cycle, and those that do; other flows may lead to the same queue."""
    queue = arrivals.queue
    if not queue.closing:
        return arrivals, None
    positions = [place for place, output in enumerate(queue.outputs) if output.operator in queue.closing]
    is_closing = np.isin(arrivals.output, positions)
    return arrivals.of(~is_closing), arrivals.of(is_closing)


def _joined(parts: list[Flows]) -> Flows:
    """Return the rows of one way in the order of its computes."""
    if len(parts) == 1:
        return parts[0]
    names = ("computes", "times", "origin", "is_timed")
    columns: Any = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    way = replace(parts[0], **columns)
    return way.part(np.argsort(way.compute, kind="stable"))


def _arrived(way: Flows, batch: Computes) -> Flows:
    """Return the messages that reached the end of a way; a message has not if its last compute failed."""
    return way.part(~batch.is_failed[way.compute - batch.first]) if batch.is_failed.any() else way
