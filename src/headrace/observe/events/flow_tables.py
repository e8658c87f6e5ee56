"""FlowTables: which way each message came, and when it passed the operators on it.

Each operator has a table for each way from a source to it. A row stands for a compute that a message reached on
that way, with the times at which the operators on the way received and emitted. When an operator's computes are
shown, the rows of the operators before it are joined with what it received. A row is forgotten when no message that
follows from it waits any more.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from headrace.observe.events.records import Arrivals, Flows, OperatorInfo, Path, QueueInfo

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headrace.observe.events.records import Computes, RunInfo, Times

_MOST_PATHS = 1000  # to one operator; a graph with many branches and joins has more than anyone reads
_log = logging.getLogger("headrace.observe")


@dataclass(eq=False, slots=True)
class _Way:
    """A way to an operator, and the computes that messages reached on it.

    `times` has two columns for each operator, the times of receiving and emitting, but only one for the last,
    which may emit several times. The rows are in the order of the last column of `computes`. `origin` is when the
    messages began; of a way that is a source alone, when its computes were due.
    """

    path: Path
    queues: tuple[QueueInfo, ...]
    computes: NDArray[np.int64]
    times: NDArray[np.int64]
    origin: Times

    def rows(self, chosen: Times | NDArray[np.bool_]) -> _Way:
        """Return the way with some of the rows."""
        return _Way(self.path, self.queues, self.computes[chosen], self.times[chosen], self.origin[chosen])


class FlowTables:
    """The ways of messages to each operator of a run."""

    def __init__(self, run: RunInfo) -> None:
        self._run = run
        self._ways: defaultdict[OperatorInfo, dict[tuple[OperatorInfo, ...], _Way]] = defaultdict(dict)
        # The messages received on flows that close a cycle, until their producer is shown.
        self._closing: list[Arrivals] = []
        self._has_warned = False

    def add(self, batch: Computes) -> list[Flows]:
        """Add the computes of an operator; return the messages that reached the end of their paths with them."""
        operator = batch.operator
        has_received = np.zeros(len(batch.started), np.bool_)
        found: dict[tuple[OperatorInfo, ...], list[_Way]] = {}
        for received in batch.arrivals:
            if not len(received.compute):
                continue
            arrivals, closing = _without_closing(received)
            if closing is not None:
                self._closing.append(closing)
            has_received[arrivals.compute - batch.first] = True
            for way in self._extended(arrivals):
                found.setdefault(way.path.operators, []).append(way)
        flows = []
        if operator.is_sink or operator.is_probe:
            done = batch.done
            arrived = (_finished(_joined(ways), batch, done) for ways in found.values())
            flows = [each for each in arrived if len(each.compute)]
        if operator.has_sent or operator.is_path:
            starts = (~has_received).nonzero()[0]
            if len(starts):
                started = batch.started[starts, None]
                path = Path((operator,))
                computes = starts[:, None] + batch.first
                found[path.operators] = [_Way(path, (), computes, started, batch.due[starts])]
                if operator.is_path:
                    way = replace(found[path.operators][0], origin=started[:, 0])
                    flows.append(_finished(way, batch, batch.done))
            self._store(operator, found)
        return flows

    def _store(self, operator: OperatorInfo, found: dict[tuple[OperatorInfo, ...], list[_Way]]) -> None:
        ways = self._ways[operator]
        for key, parts in found.items():
            if key in ways:
                known = ways[key]
                way = _joined(parts)  # of later computes than those that are known
                ways[key] = way if not len(known.origin) else _concatenated([known, way])
                continue
            if len(ways) >= _MOST_PATHS:
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
            chosen = (arrivals.output == position).nonzero()[0]
            if not len(chosen):
                continue
            producer = arrivals.producer[chosen]
            for way in self._ways[output.operator].values():
                # Row `rows[i]` of the way leads to the message `of[i]`.
                of, rows = matches(way.computes[:, -1], producer)
                if not len(of):
                    continue
                of = chosen[of]
                emitted = arrivals.emitted[of]
                origin = way.origin[rows]
                if len(way.path.operators) == 1:
                    origin = self._run.origins(arrivals.acq_timestamp[of], emitted, origin)
                found.append(
                    _Way(
                        Path((*way.path.operators, arrivals.queue.operator)),
                        (*way.queues, arrivals.queue),
                        np.column_stack((way.computes[rows], arrivals.compute[of])),
                        np.column_stack((way.times[rows], emitted, arrivals.received[of])),
                        origin,
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
            for way in self._extended(arrivals):
                *before, last = way.path.operators
                if last not in before:
                    continue
                start = len(before) - 1 - before[::-1].index(last)
                times = np.column_stack((way.times, way.times[:, -1]))[:, 2 * start :]
                path = Path(way.path.operators[start:])
                is_timed = np.ones(len(times), np.bool_)
                found.append(
                    Flows(path, way.queues[start:], way.computes[:, start:], times, times[:, 1], is_timed)
                )
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
            compute = way.computes[:, -1]
            self._ways[operator][key] = way.rows((compute >= oldest) | np.isin(compute, needed))


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


def _joined(parts: list[_Way]) -> _Way:
    """Return the rows of one way in the order of its computes."""
    if len(parts) == 1:
        return parts[0]
    way = _concatenated(parts)
    return way.rows(np.argsort(way.computes[:, -1], kind="stable"))


def _concatenated(parts: list[_Way]) -> _Way:
    return _Way(
        parts[0].path,
        parts[0].queues,
        np.concatenate([part.computes for part in parts]),
        np.concatenate([part.times for part in parts]),
        np.concatenate([part.origin for part in parts]),
    )


def _finished(way: _Way, batch: Computes, done: Times) -> Flows:
    """Return the messages that reached the end of a way; a message has not if its last compute failed."""
    if batch.is_failed.any():
        way = way.rows(~batch.is_failed[way.computes[:, -1] - batch.first])
    places = way.computes[:, -1] - batch.first
    times = np.column_stack((way.times, done[places]))
    return Flows(way.path, way.queues, way.computes, times, way.origin, batch.is_timed[places])
