"""Where the time of a message went: in which queue, in which operator on the host, and on the device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from penstock.observe.records import Computes, Flows, OperatorInfo

__all__ = ["Breakdown", "Part", "RecentWork"]

_REMEMBERED = 20_000  # computes of each operator


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a message's time."""

    kind: str
    """``"queue"``, ``"host"`` (in `compute`), ``"gpu"``, or ``"device"`` (waiting for the device)."""
    where: str
    """The queue, as in ``"display.in"``, or the operator."""
    slice: str
    """The slice of the device, for work on one."""
    duration: int
    """Nanoseconds."""

    def __str__(self) -> str:
        text = {
            "queue": f"in the queue {self.where}",
            "host": f"in compute of {self.where}",
            "gpu": f"on the GPU for {self.where}",
            "device": f"waiting for the GPU in {self.where}",
        }[self.kind]
        return f"{self.duration / 1e6:.3f} ms {text}{f' (slice {self.slice})' if self.slice else ''}"


@dataclass(frozen=True, slots=True)
class Breakdown:
    """The parts of a message's time, in their order; they add up to all of it."""

    parts: tuple[Part, ...]

    @property
    def largest(self) -> Part:
        """The largest part."""
        return max(self.parts, key=lambda part: part.duration)

    def __str__(self) -> str:
        shown = [part for part in self.parts if part.duration >= 1000] or [self.largest]
        return ", ".join(map(str, sorted(shown, key=lambda part: -part.duration)))


class RecentWork:
    """When recent computes ended on the host, and when the device worked for them."""

    def __init__(self) -> None:
        self._work: dict[OperatorInfo, _Work] = {}

    def add(self, computes: Computes) -> None:
        """Remember computes that submitted work to the device."""
        if computes.gpu:
            self._work.setdefault(computes.operator, _Work()).add(computes)

    def breakdown(self, flows: Flows, row: int, start: int, origin: int) -> Breakdown:
        """Return where the time of one message went, from the operator at `start` of its path on.

        The walk goes back in time from the end, and asks at each operator what held the message up. If that was the
        work of the operator on the device: its beginning was held up by the device's work for the operator before,
        if that ended after the message was received; otherwise by the host, which had to submit it first. If it was
        the host: the compute, and before it the queue.
        """
        operators = flows.path.operators
        times = flows.times[row].tolist()
        walk = _Walk(int(flows.done[row]), origin)
        intervals = [
            self._interval(operators[at], int(flows.computes[row, at])) for at in range(len(operators))
        ]
        last = intervals[-1]
        by_device = last is not None and last.ended >= walk.at
        for place in range(len(operators) - 1, start - 1, -1):
            operator, received = operators[place], times[2 * place]
            own = intervals[place]
            if by_device and own is not None:
                walk.back_to(own.started, "gpu", operator.name, operator.slice)
                before = intervals[place - 1] if place > start else None
                by_device = before is not None and before.ended > received
                if by_device and before is not None:
                    walk.back_to(before.ended, "device", operator.name, operator.slice)
                    continue
                walk.back_to(own.submitted, "device", operator.name, operator.slice)
            walk.back_to(received, "host", operator.name)
            if place > start:
                walk.back_to(times[2 * place - 1], "queue", flows.queues[place - 1].name)
        walk.back_to(origin, "host", operators[start].name)
        return Breakdown(tuple(reversed(walk.parts)))

    def _interval(self, operator: OperatorInfo, compute: int) -> _Interval | None:
        work = self._work.get(operator)
        return None if work is None else work.interval(compute)


class _Walk:
    """Goes back in time, and notes what each piece of it was spent on."""

    def __init__(self, at: int, origin: int) -> None:
        self.at = at
        self.parts: list[Part] = []
        self._origin = origin

    def back_to(self, time: int, kind: str, where: str, slice_name: str = "") -> None:
        """Go back to a time, which was spent in one way; go nowhere if the time has been reached already."""
        time = max(time, self._origin)
        if time < self.at:
            self.parts.append(Part(kind, where, slice_name, self.at - time))
            self.at = time


class _Interval(NamedTuple):
    """A compute's work on the device: when the host had submitted it, when it began and ended."""

    submitted: int
    started: int
    ended: int


class _Work:
    """The work of an operator's recent computes on the device, a row for each piece of it."""

    def __init__(self) -> None:
        # Columns: the compute, when it ended on the host, when the device began and ended.
        self._rows = np.zeros((0, 4), np.int64)

    def add(self, computes: Computes) -> None:
        rows = [
            np.column_stack(
                (work.compute, computes.ended[work.compute - computes.first], work.started, work.ended)
            )
            for work in computes.gpu
        ]
        joined = np.concatenate((self._rows, *rows))
        self._rows = joined[np.argsort(joined[:, 0], kind="stable")][-_REMEMBERED:]

    def interval(self, compute: int) -> _Interval | None:
        first, end = np.searchsorted(self._rows[:, 0], (compute, compute + 1))
        if first == end:
            return None
        rows = self._rows[first:end]
        return _Interval(int(rows[0, 1]), int(rows[:, 2].min()), int(rows[:, 3].max()))
