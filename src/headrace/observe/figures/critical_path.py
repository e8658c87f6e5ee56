"""Where the time of each message went, from its origin to the end of its path; for traces and goals.

The time between the origin of a message and the moment its last work was complete is divided without gaps. The
division goes backwards from the end, always to what had to end last:

- The last work of an operator on the device is *GPU time* of that operator. It began when the operator's stream had
  passed the work of the operators before. If that work ended after the message was received, it is what the device
  waited for, and the way leads on along the device. Otherwise it leads to the host.
- On the host, the time from receiving to emitting is *compute time*. If the device began later than the compute
  ended, the time in between is a *wait for the GPU*: the stream was busy with earlier messages.
- Between emitting and receiving, three things may have to come: the end of the operator's last compute, the other
  messages that this compute receives, and the operator's turn. Up to the first it is *queue time*: the message was
  behind others. From there to the second it is a *wait for a message*, and from there on a *wait for a worker*,
  unless the operator could be held by something else (`OperatorInfo.waits_for`), which is said then. If the
  receiver waits for the work of its messages (`CudaStreamCondition`), all of that begins at the end of that work;
  before, the way leads along the device.
- The time before the first operator received anything, if the message has an older acquisition timestamp, comes
  *before* the path.

So a kernel that runs while the host is already two operators further is charged once, and only if somebody waited
for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from headrace.observe.events.records import NO_TIMESTAMP
from headrace.observe.figures.recent_computes import Column

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headrace.observe.events.records import Flows, Times
    from headrace.observe.figures.recent_computes import RecentComputes


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a message's time.

    Attributes
    ----------
    kind
        ``"before"`` (from the acquisition to the first operator), ``"queue"`` (behind earlier messages),
        ``"message"`` (waiting for another one of the same compute), ``"worker"``, ``"memory"`` or ``"held"``
        (`OperatorInfo.waits_for`), ``"host"`` (in `compute`), ``"link"`` (from one process to another),
        ``"device"`` (waiting for the device), ``"gpu"``, or ``"unknown"``.
    where
        The queue, as in ``"display.in"``, or the operator.
    slice
        The slice of the device, for work on one.
    duration
        Nanoseconds.
    """

    kind: str
    where: str
    slice: str
    duration: int

    def __str__(self) -> str:
        text = {
            "before": f"before {self.where}",
            "queue": f"in the queue {self.where}",
            "message": f"waiting for another message of {self.where}",
            "worker": f"waiting for a worker to run {self.where}",
            "memory": f"until {self.where} ran: waiting for memory, or for a worker",
            "held": f"until {self.where} ran: waiting for a worker, a condition, a retry or room",
            "host": f"in compute of {self.where}",
            "link": f"on the link {self.where}",
            "gpu": f"on the GPU for {self.where}",
            "unknown": f"on the way from {self.where}",
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


@dataclass(eq=False, slots=True)
class Division:
    """The times of messages of one path, divided.

    Attributes
    ----------
    places
        The parts in the order of the path: the kind, the operator or the queue, and the slice, as in `Part`.
    parts
        A row for each message: the nanoseconds in each part. Their sum is the latency.
    """

    places: list[tuple[str, str, str]]
    parts: NDArray[np.int64]

    @property
    def names(self) -> list[str]:
        """The parts as text, as in ``"queue display.in"`` and ``"gpu display"``."""
        return [f"{kind} {where}" for kind, where, _ in self.places]

    def breakdown(self, row: int) -> Breakdown:
        """Return where the time of one message went."""
        durations = zip(self.places, self.parts[row].tolist(), strict=True)
        return Breakdown(tuple(Part(*place, duration) for place, duration in durations if duration))


def divide(flows: Flows, computes: RecentComputes) -> Division:
    """Divide the times of messages that reached the end of a path.

    Of a compute that is not known any more, what a message did counts as time on the host, and its wait as time in
    the queue.
    """
    operators = flows.path.operators
    forgotten = np.full(len(Column), NO_TIMESTAMP)
    forgotten[Column.BEFORE] = -NO_TIMESTAMP
    tables, places = [], []
    for position, operator in enumerate(operators):
        columns, is_known = computes.find(operator, flows.computes[:, position])
        tables.append(np.where(is_known, columns, forgotten[:, None]))
        queue = ("queue", flows.queues[position - 1].name, "")
        places += [
            queue if position else ("before", operator.name, ""),
            ("message", operator.name, ""),
            (operator.waits_for(), operator.name, ""),
            ("link" if operator.is_link else "host", operator.name, ""),
            ("device", operator.name, operator.slice),
            ("gpu", operator.name, operator.slice),
        ]
    return Division(places, _Walk(flows, tables).parts.T)


class _Walk:
    """The walk back along one path, for all its messages at once.

    `_at` is the operator that each message has been followed back to, `_time` the time, and `_on_gpu` whether its
    work on the device is what comes next.

    Attributes
    ----------
    parts
        A row for each part of the path, six for each operator: before it, waiting for messages and for its turn,
        on the host, waiting for the device, and on the device.
    """

    def __init__(self, flows: Flows, tables: list[NDArray[np.int64]]) -> None:
        count, length = len(flows.compute), len(tables)
        self._origin = flows.origin
        self._time = flows.done.copy()
        self._at = np.full(count, length - 1)
        self._on_gpu = tables[-1][Column.GPU_ENDED] >= self._time
        self.parts = np.zeros((_PARTS * length, count), np.int64)
        for position in range(length - 1, -1, -1):
            before, message, turn, host, device, _ = self.parts[_PARTS * position : _PARTS * (position + 1)]
            received = flows.times[:, 2 * position]
            launched = self._through_gpu(position, tables, received)
            here = (self._at == position) & ~self._on_gpu
            ended = tables[position][Column.ENDED]
            # The device began later than the compute ended: its stream was busy.
            is_late = launched & (self._time > ended) & (ended >= received)
            self._pass(device, is_late, ended)
            self._pass(host, here, received)
            if not position:
                self._pass(before, np.ones(count, np.bool_), self._origin)
                return
            emitted = flows.times[:, 2 * position - 1]
            begin, along = emitted, np.zeros(count, np.bool_)
            if flows.path.operators[position].waits_for_work:
                target, waited_for = self._work_before(position, tables)
                along = here & (waited_for > emitted) & (waited_for <= self._time)
                begin = np.where(along, waited_for, emitted)
            came, last_ended = tables[position][[Column.CAME, Column.BEFORE]]
            self._pass(turn, here, np.maximum(np.maximum(came, last_ended), begin))
            self._pass(message, here, np.maximum(last_ended, begin))
            self._pass(before, here, begin)
            if along.any():
                self._at[along], self._on_gpu[along] = target[along], True
            self._at[here & ~along] = position - 1

    def _through_gpu(
        self, position: int, tables: list[NDArray[np.int64]], received: Times
    ) -> NDArray[np.bool_]:
        """Pass the work on the device at one operator; return the messages for which it waited for the host."""
        here: NDArray[np.bool_] = (self._at == position) & self._on_gpu
        if not here.any():
            return here
        began, ended, worked, last, delay = tables[position][Column.GPU_BEGAN : Column.CAME]
        host, device, gpu = self.parts[_PARTS * position + 3 : _PARTS * (position + 1)]
        self._pass(gpu, here, last)
        target, waited_for = self._work_before(position, tables)
        along = here & (waited_for > received) & (waited_for <= self._time + _TOLERANCE)
        # Until the compute returned, the host may have launched, or waited for the device.
        self._pass(host, along & (delay > 0), last - delay)
        self._pass(device, along, waited_for)
        self._at[along] = target[along]
        launched: NDArray[np.bool_] = here & ~along
        # The pieces before the last one: it waited for something else. The waits come before the work.
        self._pass(gpu, launched, np.maximum(last - (worked - (ended - last)), began))
        self._pass(device, launched, began)
        self._on_gpu[launched] = False
        return launched

    def _work_before(self, position: int, tables: list[NDArray[np.int64]]) -> tuple[Times, Times]:
        """Return the nearest operator before it that used the device, and when that work ended.

        A message carries its work through the others.
        """
        target = np.full(len(self._time), -1)
        ended = np.full(len(self._time), NO_TIMESTAMP)
        for earlier in range(position):
            done = tables[earlier][Column.GPU_ENDED]
            target = np.where(done != NO_TIMESTAMP, earlier, target)
            ended = np.where(done != NO_TIMESTAMP, done, ended)
        return target, ended

    def _pass(self, part: Times, chosen: NDArray[np.bool_], back_to: Times) -> None:
        """Go back to a time, and charge a part with what lies between, as far as it is after the origin."""
        back_to = np.where(chosen, np.minimum(back_to, self._time), self._time)
        part += np.maximum(self._time, self._origin) - np.maximum(back_to, self._origin)
        self._time = back_to


_TOLERANCE = 2_000  # nanoseconds by which the times of two events on the device may be wrong
_PARTS = 6  # of each operator
