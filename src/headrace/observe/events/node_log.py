"""NodeLog: the log of one operator, read and put in order."""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from headrace.core.ports import IOSpec
from headrace.observe.events.recorder import (
    COLUMNS,
    CONTINUE,
    DROP,
    FIRST_DISCARD,
    FIRST_PUT,
    FIRST_TAKE,
    GPU,
    KINDS,
    REPLAY,
    TAPS,
    THREAD,
    ZERO,
)
from headrace.observe.events.records import NO_TIMESTAMP, Arrivals, Computes, Discards, Emissions, GpuWork
from headrace.observe.events.taps import Tap

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headrace.observe.events.recorder import NodeRecorder
    from headrace.observe.events.records import OperatorInfo, QueueInfo, Times

__all__ = ["NodeLog"]

_log = logging.getLogger("headrace.observe")
_NONE = np.zeros(0, np.int64)
_NO_ROWS = np.zeros((0, COLUMNS), np.int64)
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
        self._takes = [
            _Takes(queue) if queue.queue.labels is None else _LabelledTakes(queue)
            for queue in self.info.inputs
        ]
        # By the position of the tap.
        self._emitted: dict[int, _Emitted] = {}
        if shows_emissions:
            for position, tap in enumerate(recorder.taps):
                if isinstance(tap, Tap):
                    self._emitted[position] = _Emitted(tap)
        # What was taken from the log and not read yet, and how much of the first part was.
        self._unread: deque[list[int]] = deque()
        self._read = 0
        self._tail = _NO_ROWS
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
        """The number of rows that were not read yet."""
        return (len(self._recorder.log) + sum(map(len, self._unread)) - self._read) // COLUMNS

    def read(self, most: int) -> None:
        """Read the log as far as it has been written, but at most this many rows of it."""
        chunk = self._take_written(most * COLUMNS)
        if not chunk:
            return
        rows = np.fromiter(chunk, np.int64, len(chunk)).reshape(-1, COLUMNS)
        if len(self._tail):
            rows = np.concatenate((self._tail, rows))
        is_end = rows[:, 0] >= 0
        ends = is_end.nonzero()[0]
        count = len(ends)
        last = int(ends[-1]) + 1 if count else 0
        self._tail = rows[last:]
        if not count:
            return
        first = self.shown + len(self._started)
        compute = np.arange(first, first + count)
        if count == last:  # nothing but the ends of computes
            computes, others = _Rows(rows[:last], compute), _Rows(_NO_ROWS, _NONE)
        else:
            is_other = ~is_end[:last]
            computes = _Rows(rows[ends], compute)
            others = _Rows(rows[:last][is_other], first + np.cumsum(is_end[:last])[is_other])
        self._started = np.concatenate((self._started, computes.rows[:, 0]))
        self._ended = np.concatenate((self._ended, computes.rows[:, 1]))
        self._threads = np.concatenate((self._threads, self._read_threads(others, first, count)))
        is_replayed = np.zeros(count, np.bool_)
        is_replayed[others.compute[others.rows[:, 0] == REPLAY] - first] = True
        self._is_replayed = np.concatenate((self._is_replayed, is_replayed))
        for position, takes in enumerate(self._takes):
            takes.add(_messages(computes, 2 if not position else None, others, *_kinds_of_queue(position)))
        bases = self._read_bases(others, compute)
        for position, tap in enumerate(self._recorder.taps):
            if isinstance(tap, Tap):
                kind = FIRST_PUT - KINDS * position
                emitted = _messages(computes, 3 if not position else None, others, kind)
                self._emissions[tap].add(bases[emitted.compute - first], emitted)
                if position in self._emitted:
                    rejected = others.of((others.rows[:, 0] == DROP) & (others.rows[:, 1] == position))
                    self._emitted[position].add(emitted, rejected)
        self._read_gpu(others.of(others.rows[:, 0] == GPU), first, count)

    def _take_written(self, most: int) -> list[int]:
        """Return what was written to the log and not read yet, but at most this many ints of it."""
        log = self._recorder.log
        written = log[:]
        del log[: len(written)]  # at once: removing little from the front of a long list would move all of it
        if not self._unread and len(written) <= most:
            return written
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
        return chunk

    def _read_gpu(self, timed: _Rows, first: int, count: int) -> None:
        """Note which computes were timed, and what they submitted."""
        is_timed = np.full(count, not self._has_stream)
        if len(timed.compute):
            self._has_stream = True
            is_timed[int(timed.compute[0]) - first :] = False
            is_timed[timed.compute - first] = True
            self._submitted += zip(
                timed.compute.tolist(), timed.rows[:, 1].tolist(), timed.rows[:, 2].tolist(), strict=True
            )
        self._is_timed = np.concatenate((self._is_timed, is_timed))

    def _read_threads(self, others: _Rows, first: int, count: int) -> Times:
        """Return the thread of each compute."""
        threads = np.full(count, self._thread)
        for row in (others.rows[:, 0] == THREAD).nonzero()[0]:
            self._thread = int(others.rows[row, 1])
            threads[others.compute[row] - first :] = self._thread
        return threads

    def _read_bases(self, others: _Rows, compute: Times) -> Times:
        """Return for each compute the one that received what it works on: itself, or one that it continues."""
        bases, first = compute, int(compute[0])
        continued = others.compute[others.rows[:, 0] == CONTINUE]
        if len(continued):
            # A function that was about to continue may have ended, and begun anew with what it received.
            continued = continued[
                [not any(takes.has(compute) for takes in self._takes) for compute in continued]
            ]
            bases = bases.copy()
            bases[continued - first] = self._base
            bases = np.maximum.accumulate(bases)
        self._base = int(bases[-1])
        return bases

    def resolve_gpu(self, is_last: bool) -> None:
        """Read the times of work that the device has completed; `is_last` if the device is idle or has failed."""
        streams = self._recorder.timer.streams
        for stream in streams:
            stream.read(is_last)
        resolved = 0
        for compute, position, count in self._submitted:
            times = streams[position].times
            if len(times) < count:
                break
            for _ in range(count):
                found = times.popleft()
                if found is not None:
                    self._completed.append((compute, position, *found))
            resolved += 1
        del self._submitted[:resolved]

    def take_ready(self) -> Computes | None:
        """Return the computes that can be shown, or None if there are none."""
        if not len(self._started):
            return None
        end = self.shown + len(self._started)
        if self._submitted:
            end = min(end, self._submitted[0][0])
        for takes in self._takes:
            end = min(end, takes.first_unknown(end))
        count = end - self.shown
        if count <= 0:
            return None
        taken = [takes.before(end) for takes in self._takes]
        batch = Computes(
            self.info,
            self.shown,
            self._started[:count],
            self._ended[:count],
            self._threads[:count],
            self._is_timed[:count],
            [arrivals for arrivals, _ in taken],
            self._gpu_before(end),
            [emitted.before(end) for emitted in self._emitted.values()],
            [discards for _, discards in taken if discards is not None],
            self._is_replayed[:count],
        )
        self._started, self._ended = self._started[count:], self._ended[count:]
        self._threads, self._is_timed = self._threads[count:], self._is_timed[count:]
        self._is_replayed = self._is_replayed[count:]
        self.shown = end
        return batch

    def _gpu_before(self, end: int) -> list[GpuWork]:
        if not self._completed:
            return []
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
            self._forget_dropped(_kinds_of_queue(position), takes)
        waiting = [each.producer for each in self._emissions.values() if len(each.producer)]
        needed = min(self.shown, self._base, *(int(producer[0]) for producer in waiting))
        return needed, np.concatenate([*waiting, [self._base]])

    def _forget_dropped(self, kinds: tuple[int, ...], takes: _Takes) -> None:
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
        written = np.concatenate((self._tail, np.array(log, np.int64).reshape(-1, COLUMNS)))
        labels = np.concatenate(
            (takes.labels, written[np.isin(written[:, 0], kinds), 1], np.array(waiting, np.int64))
        )
        for position, source in enumerate(takes.sources):
            emissions = source.emissions
            numbers = labels[labels % TAPS == position] // TAPS
            emissions.forget(int(numbers.min(initial=emissions.first + len(emissions.producer))))


class _Rows(NamedTuple):
    """Rows of a log, and the compute of each."""

    rows: NDArray[np.int64]
    compute: Times

    def of(self, chosen: NDArray[np.bool_]) -> _Rows:
        """Return some of them."""
        return _Rows(self.rows[chosen], self.compute[chosen])


def _kinds_of_queue(position: int) -> tuple[int, int]:
    return FIRST_TAKE - KINDS * position, FIRST_DISCARD - KINDS * position


class _Messages(NamedTuple):
    """Messages that computes took or emitted at one place, in order: the compute and the time of each.

    `value` is the label, or the acquisition timestamp; None if there are no labels, or no timestamps.
    """

    compute: Times
    time: Times
    value: Times | None = None
    is_discarded: NDArray[np.bool_] | None = None
    """Whether each was discarded; None if none was."""


def _messages(computes: _Rows, column: int | None, others: _Rows, *kinds: int) -> _Messages:
    """Return the messages at one place.

    Parameters
    ----------
    computes
        The last rows of computes; `column` has the time of a message, or None if there is no such column.
    others
        The other rows, in which messages have one of the kinds. In each compute, they follow the one in the column.
    kinds
        The kinds of messages, and of those that were discarded.
    """
    compute, times = _NONE, _NONE
    if column is not None:
        times = computes.rows[:, column]
        direct = ((times > 0) | (times == ZERO)).nonzero()[0]
        compute, times = computes.compute[direct], np.maximum(times[direct], 0)
    chosen = others.rows[:, 0] == kinds[0]
    for kind in kinds[1:]:
        chosen |= others.rows[:, 0] == kind
    if not chosen.any():
        return _Messages(compute, times)
    rows = others.of(chosen)
    values = np.concatenate((np.full(len(compute), NO_TIMESTAMP), rows.rows[:, 1]))
    is_discarded = np.concatenate((np.zeros(len(compute), np.bool_), rows.rows[:, 0] != kinds[0]))
    compute = np.concatenate((compute, rows.compute))
    order = np.argsort(compute, kind="stable")
    times = np.concatenate((times, rows.rows[:, 2]))
    return _Messages(compute[order], times[order], values[order], is_discarded[order])


class _Emissions:
    """The messages that passed one tap, from the number `first` on."""

    __slots__ = ("acq_timestamp", "emitted", "first", "producer")

    def __init__(self) -> None:
        self.first = 0
        self.producer = self.emitted = self.acq_timestamp = _NONE

    def add(self, producer: Times, messages: _Messages) -> None:
        """Add messages that follow from some computes."""
        timestamps = messages.value
        if timestamps is None:
            timestamps = np.full(len(producer), NO_TIMESTAMP)
        self.producer = np.concatenate((self.producer, producer))
        self.emitted = np.concatenate((self.emitted, messages.time))
        self.acq_timestamp = np.concatenate((self.acq_timestamp, timestamps))

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

    def add(self, messages: _Messages, rejected: _Rows) -> None:
        """Add messages, and those that the full queue rejected."""
        self._compute = np.concatenate((self._compute, messages.compute))
        self._emitted = np.concatenate((self._emitted, messages.time))
        self._rejected_in = np.concatenate((self._rejected_in, rejected.compute))
        self._rejected = np.concatenate((self._rejected, rejected.rows[:, 2]))

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
    """The messages that were taken from one queue and not shown yet.

    Those of a failed compute, which are discarded, were not received. This class is for queues without labels,
    which one tap leads to: messages leave them in the order in which they entered.

    Attributes
    ----------
    sources
        What the messages come from, one for each tap before the queue.
    next_numbers
        For each source, the number of the first message that was not shown as received.
    """

    __slots__ = ("_compute", "_is_discarded", "_received", "next_numbers", "queue", "sources")

    def __init__(self, queue: QueueInfo) -> None:
        self.queue = queue
        self.sources: list[_Source] = []
        self.next_numbers = [0] * len(queue.taps)
        self._compute = self._received = _NONE
        self._is_discarded = np.zeros(0, np.bool_)

    @property
    def labels(self) -> Times:
        """The labels of the messages, if they have any."""
        return _NONE

    def has(self, compute: int) -> bool:
        """Return whether a compute took a message."""
        first, end = np.searchsorted(self._compute, (compute, compute + 1))
        return bool(end > first)

    def add(self, messages: _Messages) -> None:
        """Add messages."""
        is_discarded = messages.is_discarded
        if is_discarded is None:
            is_discarded = np.zeros(len(messages.compute), np.bool_)
        self._compute = np.concatenate((self._compute, messages.compute))
        self._received = np.concatenate((self._received, messages.time))
        self._is_discarded = np.concatenate((self._is_discarded, is_discarded))

    def first_unknown(self, end: int) -> int:
        """Return the first compute that received a message of which not enough is known; `end` if there is none."""
        if not len(self._compute):
            return end
        (source,), (number,) = self.sources, self.next_numbers
        emissions = source.emissions
        skipped = number - emissions.first
        known = len(emissions.producer) - skipped
        if source.log.info not in self.queue.closing:
            known = int(emissions.producer.searchsorted(source.log.shown)) - skipped
        return end if known >= len(self._compute) else min(end, int(self._compute[known]))

    def before(self, end: int) -> tuple[Arrivals, Discards | None]:
        """Return the messages that computes before `end` received, and those that were discarded with them."""
        if not self.sources:  # nothing is connected to the input
            return Arrivals(self.queue, _NONE, _NONE, _NONE, _NONE, _NONE, _NONE, _NONE), None
        count = int(self._compute.searchsorted(end))
        (source,), (number,) = self.sources, self.next_numbers
        emissions = source.emissions
        places = slice(number - emissions.first, number - emissions.first + count)
        self.next_numbers = [number + count]
        return self._taken(
            count,
            np.zeros(count, np.int64),
            np.arange(number, number + count),
            emissions.producer[places],
            emissions.emitted[places],
            emissions.acq_timestamp[places],
        )

    def _taken(
        self, count: int, output: Times, number: Times, producer: Times, emitted: Times, acq_timestamp: Times
    ) -> tuple[Arrivals, Discards | None]:
        """Remove the first messages, and return those that were received, and those that were discarded."""
        compute, received = self._compute[:count], self._received[:count]
        is_discarded = self._is_discarded[:count]
        self._compute, self._received = self._compute[count:], self._received[count:]
        self._is_discarded = self._is_discarded[count:]
        arrivals = Arrivals(self.queue, compute, output, number, producer, emitted, received, acq_timestamp)
        if not is_discarded.any():
            return arrivals, None
        discards = Discards(self.queue, *(each[is_discarded] for each in (compute, output, number, received)))
        return arrivals.of(~is_discarded), discards


class _LabelledTakes(_Takes):
    """The messages of a queue with labels: several taps lead to it, or it drops messages."""

    __slots__ = ("_label",)

    def __init__(self, queue: QueueInfo) -> None:
        super().__init__(queue)
        self._label = _NONE

    @property
    def labels(self) -> Times:
        """The labels of the messages."""
        return self._label

    def add(self, messages: _Messages) -> None:
        """Add messages."""
        super().add(messages)
        if messages.value is not None:
            self._label = np.concatenate((self._label, messages.value))

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
            unknown = (~is_known).nonzero()[0]
            if len(unknown):
                end = min(end, int(self._compute[rows][unknown[0]]))
        return end

    def before(self, end: int) -> tuple[Arrivals, Discards | None]:
        """Return the messages that computes before `end` received, and those that were discarded with them."""
        count = int(self._compute.searchsorted(end))
        output, number = self._label[:count] % TAPS, self._label[:count] // TAPS
        producer, emitted, acq_timestamp = (np.zeros(count, np.int64) for _ in range(3))
        for position, source in enumerate(self.sources):
            emissions = source.emissions
            rows = (output == position).nonzero()[0]
            if len(rows):
                places = number[rows] - emissions.first
                producer[rows] = emissions.producer[places]
                emitted[rows] = emissions.emitted[places]
                acq_timestamp[rows] = emissions.acq_timestamp[places]
                self.next_numbers[position] = int(number[rows[-1]]) + 1
        self._label = self._label[count:]
        return self._taken(count, output, number, producer, emitted, acq_timestamp)
