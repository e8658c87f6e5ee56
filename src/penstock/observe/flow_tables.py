"""FlowTables: which way each message came, and when it passed the operators on it.

Each operator has a table for each way from a source to it. A row stands for a compute that a message reached on
that way, with the times at which the operators on the way received and emitted. When an operator's computes are
shown, the rows of the operators before it are joined with what it received. A row is forgotten when no message that
follows from it waits any more.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from penstock.observe.records import Arrivals, Flows, OperatorInfo, Path, QueueInfo

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.observe.records import Computes, RunInfo, Times

__all__ = ["FlowTables"]

_MOST_PATHS = 1000  # to one operator; a graph with many branches and joins has more than anyone reads
_log = logging.getLogger("penstock.observe")


@dataclass(eq=False, slots=True)
class _Way:
    """A way to an operator, and the computes that messages reached on it.

    `times` has two columns for each operator, the times of receiving and emitting, but only one for the last, which
    may emit several times.
    """

    path: Path
    queues: tuple[QueueInfo, ...]
    compute: Times
    times: NDArray[np.int64]
    origin: Times

    def rows(self, chosen: Times) -> _Way:
        """Return the way with some of the rows."""
        return _Way(self.path, self.queues, self.compute[chosen], self.times[chosen], self.origin[chosen])


class FlowTables:
    """The ways of messages to each operator of a run."""

    def __init__(self, run: RunInfo) -> None:
        self._run = run
        self._ways: dict[OperatorInfo, dict[tuple[OperatorInfo, ...], _Way]] = {
            operator: {} for operator in run.operators
        }
        # What was received through queues that close a cycle, until its producer is shown.
        self._closing: list[Arrivals] = []
        self._has_warned = False

    def add(self, batch: Computes) -> list[Flows]:
        """Add the computes of an operator; return the messages that reached the end of their way with them."""
        operator = batch.operator
        has_received = np.zeros(len(batch.started), np.bool_)
        found: dict[tuple[OperatorInfo, ...], list[_Way]] = {}
        for arrivals in batch.arrivals:
            if not len(arrivals.compute):
                continue
            if arrivals.queue.closes_cycle:
                self._closing.append(arrivals)
                continue
            has_received[arrivals.compute - batch.first] = True
            for way in self._extended(arrivals):
                found.setdefault(way.path.operators, []).append(way)
        if operator.is_leaf:
            done = batch.done
            return [_finished(_joined(ways), done, batch.first) for ways in found.values()]
        starts = np.flatnonzero(~has_received)
        if len(starts):
            started = batch.started[starts]
            path = Path((operator,))
            found[path.operators] = [_Way(path, (), starts + batch.first, started[:, None], started)]
        self._store(operator, found)
        return []

    def _store(self, operator: OperatorInfo, found: dict[tuple[OperatorInfo, ...], list[_Way]]) -> None:
        ways = self._ways[operator]
        for key, parts in found.items():
            if key in ways:
                parts.insert(0, ways[key])
            elif len(ways) >= _MOST_PATHS:
                if not self._has_warned:
                    self._has_warned = True
                    _log.warning(
                        "more than %d paths lead to %r; the others are not tracked",
                        _MOST_PATHS,
                        operator.name,
                    )
                continue
            ways[key] = _joined(parts)

    def _extended(self, arrivals: Arrivals) -> list[_Way]:
        """Return the ways on which messages reached the operator that received them."""
        found = []
        for position, output in enumerate(arrivals.queue.outputs):
            chosen = np.flatnonzero(arrivals.output == position)
            if not len(chosen):
                continue
            producer = arrivals.producer[chosen]
            for way in self._ways[output.operator].values():
                first = np.searchsorted(way.compute, producer, "left")
                counts = np.searchsorted(way.compute, producer, "right") - first
                total = int(counts.sum())
                if not total:
                    continue
                # Row `rows[i]` of the way leads to the message `of[i]`.
                of = chosen[np.repeat(np.arange(len(chosen)), counts)]
                rows = np.repeat(first - np.cumsum(counts) + counts, counts) + np.arange(total)
                emitted = arrivals.emitted[of]
                times = np.column_stack((way.times[rows], emitted, arrivals.received[of]))
                origin = way.origin[rows]
                if len(way.path.operators) == 1:
                    origin = self._run.origins(arrivals.acq_timestamp[of], emitted)
                path = Path((*way.path.operators, arrivals.queue.operator))
                found.append(_Way(path, (*way.queues, arrivals.queue), arrivals.compute[of], times, origin))
        return found

    def close_cycles(self, shown: dict[OperatorInfo, int]) -> list[Flows]:
        """Return the messages that came back to the first operator of a cycle.

        Their time ends when that operator received them again.
        """
        found = []
        left = []
        for arrivals in self._closing:
            is_known = np.ones(len(arrivals.compute), np.bool_)
            for position, output in enumerate(arrivals.queue.outputs):
                rows = arrivals.output == position
                is_known[rows] = arrivals.producer[rows] < shown[output.operator]
            if not is_known.all():
                left.append(arrivals)
                continue
            first = arrivals.queue.operator
            for way in self._extended(arrivals):
                operators = way.path.operators
                start = len(operators) - 2 - operators[-2::-1].index(first) if first in operators[:-1] else 0
                path = Path(operators[start:])
                times = way.times[:, 2 * start :]
                times = np.column_stack((times, times[:, -1]))
                found.append(
                    Flows(path, way.compute, times, times[:, 0] if start else way.origin, way.queues[start:])
                )
        self._closing = left
        return found

    def forget(self, operator: OperatorInfo, needed: int) -> None:
        """Forget the computes of an operator before `needed`."""
        for arrivals in self._closing:
            for position, output in enumerate(arrivals.queue.outputs):
                if output.operator is operator:
                    rows = arrivals.output == position
                    needed = min([needed, *arrivals.producer[rows][:1].tolist()])
        for key, way in self._ways[operator].items():
            count = int(np.searchsorted(way.compute, needed))
            if count:
                self._ways[operator][key] = way.rows(np.arange(count, len(way.compute)))


def _joined(parts: list[_Way]) -> _Way:
    """Return the rows of one way in the order of its computes."""
    if len(parts) == 1:
        return parts[0]
    compute = np.concatenate([part.compute for part in parts])
    way = _Way(
        parts[0].path,
        parts[0].queues,
        compute,
        np.concatenate([part.times for part in parts]),
        np.concatenate([part.origin for part in parts]),
    )
    return way.rows(np.argsort(compute, kind="stable"))


def _finished(way: _Way, done: Times, first: int) -> Flows:
    times = np.column_stack((way.times, done[way.compute - first]))
    return Flows(way.path, way.compute, times, way.origin, way.queues)
