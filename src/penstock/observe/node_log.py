"""NodeLog: the log of one operator, read and put in order."""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING

import numpy as np

from penstock.core.ports import IOSpec
from penstock.observe.recorder import (
    CONTINUE,
    DROP,
    END,
    FIRST_PUT,
    FIRST_TAKE,
    GPU,
    KINDS,
    REPLAY,
    TAPS,
    THREAD,
    Tap,
)
from penstock.observe.records import Arrivals, Computes, Emissions, GpuWork

if TYPE_CHECKING:
    from penstock.observe.gpu_timing import StreamTimer
    from penstock.observe.recorder import NodeRecorder
    from penstock.observe.records import OperatorInfo, QueueInfo, Times
    from penstock.observe.replays import ReplayTimer

__all__ = ["NodeLog"]

_log = logging.getLogger("penstock.observe")
_NONE = np.zeros(0, np.int64)
_MOST_DROPPED = 1_000  # messages that a queue may have dropped before somebody looks for them
_POP = IOSpec.QueuePolicy.POP


class NodeLog:
    """What is known of one operator's computes, and what of it was not shown yet.

    Parameters
    ----------
    recorder
        The recorder of the operator.
    shows_emissions
        Whether computes are shown with what they emitted.

    Attributes
    ----------
    info
        The operator.
    shown
        The number of computes that were shown.
    """

    def __init__(self, recorder: NodeRecorder, shows_emissions: bool = False) -> None:
        self.info = recorder.info
        self.shown = 0
        self._recorder = recorder
        self._emissions = {tap: _Emissions() for tap in recorder.taps if isinstance(tap, Tap)}
        self._takes = [_Takes(queue) for queue in self.info.inputs]
        # By the position of the tap.
        self._emitted: dict[int, _Emitted] = {}
        if shows_emissions:
            for position, tap in enumerate(recorder.taps):
                if isinstance(tap, Tap):
                    self._emitted[position] = _Emitted(tap)
        # What was taken from the log and not read yet, and how much of the first part was.
        self._unread: deque[list[int]] = deque()
        self._read = 0
        self._tail = np.zeros((0, 3), np.int64)
        self._thread = 0
        # The last compute that did not continue an earlier one.
        self._base = 0
        # Of the computes that were not shown yet.
        self._started = self._ended = self._threads = _NONE
        self._is_timed = self._is_replayed = np.zeros(0, np.bool_)
        # Whether the operator uses a stream.
        self._has_stream = False
        # Work on the device that is not complete, as (compute, position of the timer, number of segments), and work
        # that is, as (compute, position of the timer, start, end).
        self._submitted: list[tuple[int, int, int]] = []
        self._completed: list[tuple[int, int, int, int]] = []

    def connect(self, logs: dict[OperatorInfo, NodeLog]) -> None:
        """Find the logs of the operators that this one receives from."""
        for takes in self._takes:
            takes.sources = [
                _Source(logs[tap.output.operator], logs[tap.output.operator]._emissions[tap])
                for tap in takes.queue.taps
            ]

    @property
    def length(self) -> int:
        """The length of what was not read yet."""
        return len(self._recorder.log) + sum(map(len, self._unread)) - self._read

    def read(self, most: int) -> None:
        """Read the log as far as it has been written, but at most this many ints of it."""
        log = self._recorder.log
        written = log[:]
        del log[: len(written)]  # at once: removing little from the front of a long list would move all of it
        if written:
            self._unread.append(written)
        chunk: list[int] = []
        while self._unread and len(chunk) < most:
            part = self._unread[0]
            taken = part[self._read : self._read + most - len(chunk)]
            chunk += taken
            self._read += len(taken)
            if self._read == len(part):
                self._unread.popleft()
                self._read = 0
        if not chunk:
            return
        entries = np.fromiter(chunk, np.int64, len(chunk)).reshape(-1, 3)
        entries = np.concatenate((self._tail, entries))
        is_end = entries[:, 0] == END
        ends = np.flatnonzero(is_end)
        last = int(ends[-1]) + 1 if len(ends) else 0
        self._tail = entries[last:]
        entries, is_end = entries[:last], is_end[:last]
        kinds = entries[:, 0]
        first = self.shown + len(self._started)
        compute = first + np.cumsum(is_end) - is_end
        self._started = np.concatenate((self._started, entries[ends, 1]))
        self._ended = np.concatenate((self._ended, entries[ends, 2]))
        self._threads = np.concatenate(
            (self._threads, self._read_threads(entries, compute - first, len(ends)))
        )
        is_replayed = np.zeros(len(ends), np.bool_)
        is_replayed[compute[kinds == REPLAY] - first] = True
        self._is_replayed = np.concatenate((self._is_replayed, is_replayed))
        for position, takes in enumerate(self._takes):
            rows = kinds == FIRST_TAKE + KINDS * position
            takes.add(compute[rows], entries[rows, 1], entries[rows, 2])
        # A function that was about to continue may have ended, and begun anew with what it received.
        is_take = (kinds >= FIRST_TAKE) & ((kinds - FIRST_TAKE) % KINDS == 0)
        continued = np.setdiff1d(compute[kinds == CONTINUE], compute[is_take])
        base = self._read_bases(continued, first, len(ends))
        for position, tap in enumerate(self._recorder.taps):
            if isinstance(tap, Tap):
                rows = kinds == FIRST_PUT + KINDS * position
                self._emissions[tap].add(base[compute[rows] - first], entries[rows, 2], entries[rows, 1])
                if position in self._emitted:
                    rejected = (kinds == DROP) & (entries[:, 1] == position)
                    self._emitted[position].add(
                        compute[rows], entries[rows, 2], compute[rejected], entries[rejected, 2]
                    )
        self._read_gpu(entries[kinds == GPU], compute[kinds == GPU], first, len(ends))

    def _read_gpu(self, entries: Times, compute: Times, first: int, count: int) -> None:
        """Note which computes were timed, and what they submitted."""
        is_timed = np.full(count, not self._has_stream)
        if len(compute):
            self._has_stream = True
            is_timed[int(compute[0]) - first :] = False
            is_timed[compute - first] = True
            self._submitted += zip(
                compute.tolist(), entries[:, 1].tolist(), entries[:, 2].tolist(), strict=True
            )
        self._is_timed = np.concatenate((self._is_timed, is_timed))

    def _read_threads(self, entries: Times, position: Times, count: int) -> Times:
        """Return the thread of each compute."""
        threads = np.full(count, self._thread)
        for row in np.flatnonzero(entries[:, 0] == THREAD):
            self._thread = int(entries[row, 1])
            threads[position[row] :] = self._thread
        return threads

    def _read_bases(self, continued: Times, first: int, count: int) -> Times:
        """Return for each compute the one that received what it works on: itself, or one that it continues."""
        bases = np.arange(first, first + count)
        if len(continued):
            bases[continued - first] = self._base
            bases = np.maximum.accumulate(bases)
        if count:
            self._base = int(bases[-1])
        return bases

    def resolve_gpu(self, is_last: bool) -> None:
        """Read the times of work that the device has completed; `is_last` if the device is idle or has failed."""
        resolved = 0
        complete = [_is_complete(timer) for timer in self._recorder.timers]
        for compute, position, count in self._submitted:
            timer = self._recorder.timers[position]
            try:
                if count and not complete[position] and not timer.segments[count - 1][1].is_done:
                    break
                for _ in range(count):
                    self._completed.append((compute, position, *timer.take()))
            except Exception as error:
                if not is_last:
                    raise
                _log.debug("no GPU times for a compute of %r: %s", self.info.name, error)
            resolved += 1
        del self._submitted[:resolved]

    def take_ready(self) -> Computes | None:
        """Return the computes that can be shown, or None if there are none."""
        end = self.shown + len(self._started)
        if self._submitted:
            end = min(end, self._submitted[0][0])
        for takes in self._takes:
            end = min(end, takes.first_unknown(end))
        count = end - self.shown
        if count <= 0:
            return None
        batch = Computes(
            self.info,
            self.shown,
            self._started[:count],
            self._ended[:count],
            self._threads[:count],
            self._is_timed[:count],
            [takes.before(end) for takes in self._takes],
            self._gpu_before(end),
            [emitted.before(end) for emitted in self._emitted.values()],
            self._is_replayed[:count],
        )
        self._started, self._ended = self._started[count:], self._ended[count:]
        self._threads, self._is_timed = self._threads[count:], self._is_timed[count:]
        self._is_replayed = self._is_replayed[count:]
        self.shown = end
        return batch

    def _gpu_before(self, end: int) -> list[GpuWork]:
        count = next((place for place, work in enumerate(self._completed) if work[0] >= end), None)
        work = np.array(self._completed[:count], np.int64).reshape(-1, 4)
        del self._completed[:count]
        found = []
        streams = self.info.streams
        # Ordinary computes and replays have different timers, and one stream in the observation.
        for stream in dict.fromkeys(streams[position] for position in np.unique(work[:, 1])):
            positions = [position for position, other in enumerate(streams) if other is stream]
            compute, _, started, ended = work[np.isin(work[:, 1], positions)].T
            found.append(GpuWork(stream, compute, started, ended))
        return found

    def forget(self) -> tuple[int, Times]:
        """Forget messages that were shown as received, or dropped.

        Returns the first compute that is still needed, and the computes from which messages wait or may yet come.
        """
        for position, takes in enumerate(self._takes):
            for source, number in zip(takes.sources, takes.next_numbers, strict=True):
                source.emissions.forget(number)
            self._forget_dropped(FIRST_TAKE + KINDS * position, takes)
        waiting = [each.producer for each in self._emissions.values() if len(each.producer)]
        needed = min(self.shown, self._base, *(int(producer[0]) for producer in waiting))
        return needed, np.concatenate([*waiting, [self._base]])

    def _forget_dropped(self, kind: int, takes: _Takes) -> None:
        """Forget messages that a queue has dropped for later ones, although nothing was received since."""
        queue = takes.queue.queue
        if queue.policy is not _POP or self._unread:
            return
        if all(len(source.emissions.producer) <= queue.limit + _MOST_DROPPED for source in takes.sources):
            return
        # A message is taken and noted in the log under this lock, so it is in one of these.
        with queue.lock:
            waiting = list(queue.labels)
            log = self._recorder.log[:]
        written = np.concatenate((self._tail, np.array(log, np.int64).reshape(-1, 3)))
        labels = np.concatenate(
            (takes.labels, written[written[:, 0] == kind, 1], np.array(waiting, np.int64))
        )
        for position, source in enumerate(takes.sources):
            emissions = source.emissions
            numbers = labels[labels % TAPS == position] // TAPS
            emissions.forget(int(numbers.min(initial=emissions.first + len(emissions.producer))))


def _is_complete(timer: StreamTimer | ReplayTimer) -> bool:
    """Return whether the device has completed everything that was timed: one question for many segments."""
    try:
        return bool(timer.segments[-1][1].is_done)
    except Exception:  # there are none, or the device has failed, which shows again
        return False


class _Emissions:
    """The messages that passed one tap, from the number `first` on."""

    __slots__ = ("acq_timestamp", "emitted", "first", "producer")

    def __init__(self) -> None:
        self.first = 0
        self.producer = self.emitted = self.acq_timestamp = _NONE

    def add(self, producer: Times, emitted: Times, acq_timestamp: Times) -> None:
        """Add messages: their computes, times and timestamps."""
        self.producer = np.concatenate((self.producer, producer))
        self.emitted = np.concatenate((self.emitted, emitted))
        self.acq_timestamp = np.concatenate((self.acq_timestamp, acq_timestamp))

    def forget(self, number: int) -> None:
        """Forget the messages before a number."""
        count = number - self.first
        if count > 0:
            self.first = number
            self.producer = self.producer[count:]
            self.emitted = self.emitted[count:]
            self.acq_timestamp = self.acq_timestamp[count:]


class _Emitted:
    """The messages that passed one tap in computes that were not shown yet."""

    __slots__ = ("_compute", "_count", "_emitted", "_rejected", "_rejected_in", "tap")

    def __init__(self, tap: Tap) -> None:
        self.tap = tap
        self._count = 0
        self._compute = self._emitted = self._rejected_in = self._rejected = _NONE

    def add(self, compute: Times, emitted: Times, rejected_in: Times, rejected: Times) -> None:
        """Add messages, and those that the full queue rejected."""
        self._compute = np.concatenate((self._compute, compute))
        self._emitted = np.concatenate((self._emitted, emitted))
        self._rejected_in = np.concatenate((self._rejected_in, rejected_in))
        self._rejected = np.concatenate((self._rejected, rejected))

    def before(self, end: int) -> Emissions:
        """Return what computes before `end` emitted."""
        count = int(np.searchsorted(self._compute, end))
        rejections = int(np.searchsorted(self._rejected_in, end))
        queue = self.tap.behind.info
        emissions = Emissions(
            queue,
            queue.taps.index(self.tap),
            self._compute[:count],
            np.arange(self._count, self._count + count),
            self._emitted[:count],
            self._rejected[:rejections],
        )
        self._count += count
        self._compute, self._emitted = self._compute[count:], self._emitted[count:]
        self._rejected_in, self._rejected = self._rejected_in[rejections:], self._rejected[rejections:]
        return emissions


class _Source:
    """One of the taps before a queue: the log of its operator, and the messages that passed it."""

    __slots__ = ("emissions", "log")

    def __init__(self, log: NodeLog, emissions: _Emissions) -> None:
        self.log = log
        self.emissions = emissions


class _Takes:
    """The messages that were received from one queue and not shown yet.

    Attributes
    ----------
    sources
        What the messages come from, one for each tap before the queue.
    next_numbers
        For each source, the number of the first message that was not shown as received.
    """

    __slots__ = ("_compute", "_count", "_label", "_received", "next_numbers", "queue", "sources")

    def __init__(self, queue: QueueInfo) -> None:
        self.queue = queue
        self.sources: list[_Source] = []
        self.next_numbers = [0] * len(queue.taps)
        self._count = 0
        self._compute = self._label = self._received = _NONE

    @property
    def labels(self) -> Times:
        """The labels of the messages."""
        return self._label

    def add(self, compute: Times, label: Times, received: Times) -> None:
        """Add messages; without labels, they are numbered as they come."""
        if self.queue.queue.labels is None:
            label = np.arange(self._count, self._count + len(compute)) * TAPS
        self._count += len(compute)
        self._compute = np.concatenate((self._compute, compute))
        self._label = np.concatenate((self._label, label))
        self._received = np.concatenate((self._received, received))

    def first_unknown(self, end: int) -> int:
        """Return the first compute that received a message of which not enough is known; `end` if there is none."""
        for position, source in enumerate(self.sources):
            emissions = source.emissions
            rows = self._label % TAPS == position
            place = self._label[rows] // TAPS - emissions.first
            is_known = place < len(emissions.producer)
            if source.log.info not in self.queue.closing:
                producer = (
                    emissions.producer[np.minimum(place, len(emissions.producer) - 1)]
                    if is_known.any()
                    else place
                )
                is_known &= producer < source.log.shown
            unknown = np.flatnonzero(~is_known)
            if len(unknown):
                end = min(end, int(self._compute[rows][unknown[0]]))
        return end

    def before(self, end: int) -> Arrivals:
        """Return the messages that computes before `end` received."""
        count = int(np.searchsorted(self._compute, end))
        output, number = self._label[:count] % TAPS, self._label[:count] // TAPS
        producer, emitted, acq_timestamp = (np.zeros(count, np.int64) for _ in range(3))
        for position, source in enumerate(self.sources):
            emissions = source.emissions
            rows = np.flatnonzero(output == position)
            if len(rows):
                places = number[rows] - emissions.first
                producer[rows] = emissions.producer[places]
                emitted[rows] = emissions.emitted[places]
                acq_timestamp[rows] = emissions.acq_timestamp[places]
                self.next_numbers[position] = int(number[rows[-1]]) + 1
        arrivals = Arrivals(
            self.queue,
            self._compute[:count],
            output,
            number,
            producer,
            emitted,
            self._received[:count],
            acq_timestamp,
        )
        self._compute, self._label = self._compute[count:], self._label[count:]
        self._received = self._received[count:]
        return arrivals
