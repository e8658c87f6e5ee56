"""NodeLog: the rows of one operator, from which its computes are put together.

Rows are read in the order that makes them complete: a compute writes its messages before its own row, and a message
is emitted before it is received. So computes are read before what they received and emitted, and consumers before
producers. In a long run rows are read in portions, and a compute waits until all of its rows are read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from headrace.core.graph import reachable
from headrace.observe.events.recorder import AT_START, CPU_TIME, DROPPED, DUE, FAILED, REPLAYED, TIMED
from headrace.observe.events.records import (
    NO_TIMESTAMP,
    Arrivals,
    Computes,
    Drops,
    Emissions,
    GpuWork,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headrace.observe.events.queues import Feed
    from headrace.observe.events.recorder import NodeRecorder
    from headrace.observe.events.records import QueueInfo, Times

Rows: TypeAlias = "NDArray[np.int64]"


class _Table:
    """Rows that a recorder writes, and that were read and not shown yet."""

    __slots__ = ("_written", "is_behind", "rows")

    def __init__(self, written: list[int], columns: int) -> None:
        self.rows: Rows = np.zeros((0, columns), np.int64)
        self.is_behind = False
        self._written = written

    @property
    def unread(self) -> int:
        """The number of rows that were not read yet."""
        return len(self._written) // int(self.rows.shape[1])

    def read(self, most: int | None = None) -> Rows:
        """Read rows, but at most this many, and return them."""
        columns, written = self.rows.shape[1], self._written
        count = len(written) // columns if most is None else min(len(written) // columns, most)
        self.is_behind = count == most
        ints = written[: count * columns]
        del written[: count * columns]
        rows = np.fromiter(ints, np.int64, len(ints)).reshape(-1, columns)
        self.rows = _joined(self.rows, rows)
        return rows

    def take(self, count: int) -> Rows:
        """Take the first rows."""
        taken, self.rows = self.rows[:count], self.rows[count:]
        return taken

    def rows_before(self, column: int, end: int) -> Rows:
        """Return the rows in which a column, in whose order they are, is less than `end`."""
        return self.rows[: int(self.rows[:, column].searchsorted(end))]

    def take_before(self, column: int, end: int) -> Rows:
        """Take these rows."""
        return self.take(len(self.rows_before(column, end)))


class NodeLog:
    """The computes of one operator that were read and not shown yet.

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
        self._shown_at = 0  # the end of the last of them
        self._recorder = recorder
        self._shows_emissions = shows_emissions
        self._computes = _Table(recorder.computes, 2)
        self._threads = _Table(recorder.threads, 1)
        self._facts = _Table(recorder.facts, 4)
        self._feeds: dict[Feed, _FeedLog] = {}
        self._drops: list[Drops] = []
        self._queues = {queue: _QueueLog(queue, self._drops) for queue in self.info.inputs}
        # The first compute that used a stream.
        self._first_timed: int | None = None
        # Work on the device that is not complete, as (compute, position of the timer, number of pieces), and work
        # that is, as (compute, position of the timer, start, end, whether it was alone).
        self._submitted: list[list[int]] = []
        self._completed: list[tuple[int, int, int, int, bool]] = []

    def add_feed(self, feed: Feed, consumer: NodeLog) -> None:
        """Read what this operator emits through a feed, and what another receives."""
        log = self._feeds[feed] = _FeedLog(feed)
        queue = feed.behind.info
        if queue not in consumer._queues:
            consumer._queues[queue] = _QueueLog(queue, consumer._drops)
        if self.comes_after(consumer):
            queue.closing.add(self.info)
        consumer._queues[queue].add_feed(log, None if self.info in queue.closing else self, feed.earlier)

    def comes_after(self, other: NodeLog) -> bool:
        """Return whether messages of `other` may lead here, on flows that close no cycle."""
        return other in reachable(self, lambda log: log.producers_before)

    @property
    def producers_before(self) -> list[NodeLog]:
        """The logs of the operators that it receives from, except for flows that close a cycle."""
        return [log for queue in self._queues.values() for log in queue.producers if log is not None]

    @property
    def length(self) -> int:
        """The number of computes that were not read yet."""
        return self._computes.unread

    @property
    def oldest_producer(self) -> int:
        """The first compute from which messages may yet follow."""
        return self._recorder.oldest_producer

    @property
    def producers(self) -> Times:
        """The computes whose messages wait, as far as is known."""
        return np.concatenate([np.zeros(0, np.int64), *(feed.producer for feed in self._feeds.values())])

    def read(self, most: int) -> None:
        """Read rows, but at most this many of each list."""
        self._computes.read(most)
        for queue in self._queues.values():
            queue.read(most)
        for feed in self._feeds.values():
            feed.read(most)
        self._threads.read()
        facts = self._facts.read()
        timed = facts[facts[:, 1] == TIMED]
        if len(timed):
            self._submitted += timed[:, [0, 2, 3]].tolist()
            if self._first_timed is None:
                self._first_timed = int(timed[0, 0])

    def read_gpu_times(self, is_last: bool) -> None:
        """Read the times of work that the device has completed; `is_last` if the device is idle or has failed."""
        streams = self._recorder.timer.streams
        for stream in streams:
            stream.read(is_last)
        complete = 0
        for compute, position, count in self._submitted:
            times = streams[position].times
            if len(times) < count:
                break
            for _ in range(count):
                found = times.popleft()
                if found is not None:
                    self._completed.append((compute, position, *found))
            complete += 1
        del self._submitted[:complete]

    def take_ready(self) -> Computes | None:
        """Return the computes that can be shown, or None if there are none.

        A compute can be shown when the device has completed its work, and when the computes were shown whose
        messages it received.
        """
        end = self.shown + len(self._computes.rows)
        if self._submitted:
            end = min(end, self._submitted[0][0])
        for feed in self._feeds.values():
            end = feed.known_before(end)
        for queue in self._queues.values():
            end = queue.known_before(end)
        first, count = self.shown, end - self.shown
        if count <= 0:
            return None
        started, ended = self._computes.take(count).T
        threads = self._threads.take(count)[:, 0]
        facts = self._facts.take_before(0, end)
        place, fact = facts[:, 0] - first, facts[:, 1]
        is_known = np.zeros((CPU_TIME + 1, count), np.bool_)
        is_known[fact, place] = True
        # Before the first compute that used a stream, there was nothing to time.
        is_known[TIMED, : count if self._first_timed is None else max(self._first_timed - first, 0)] = True
        # The last kinds of facts have values.
        values, has_values = np.full((2, 2, count), NO_TIMESTAMP), fact >= DUE
        values[fact[has_values] - DUE, :, place[has_values]] = facts[has_values, 2:]
        (due, skipped), cpu_times = values
        skipped[~is_known[DUE]] = 0
        messages = [queue.before(end, first, started) for queue in self._queues.values()]
        emissions = [feed.emitted_before(end) for feed in self._feeds.values()]
        self.shown, self._shown_at = end, int(ended[-1])
        return Computes(
            self.info,
            first,
            started,
            ended,
            threads if len(threads) else np.zeros(count, np.int64),
            is_known[TIMED],
            [arrivals for arrivals, _ in messages],
            self._gpu_before(end, ended),
            emissions if self._shows_emissions else [],
            [discards for _, discards in messages if discards is not None],
            is_known[REPLAYED],
            is_known[FAILED],
            due,
            skipped,
            *cpu_times,
        )

    def known_until(self, read_at: int) -> int:
        """Return the time up to which all its computes were shown; `read_at` is when they were read."""
        if len(self._computes.rows):
            return min(int(self._computes.rows[0, 1]), read_at)
        return self._shown_at if self._computes.is_behind else read_at

    def take_drops(self) -> list[Drops]:
        """Return the messages that were dropped since the last call, and that no compute will be shown with."""
        found = self._drops.copy()
        self._drops.clear()
        return found

    def forget_received(self) -> None:
        """Forget messages that will not be received any more."""
        for queue in self._queues.values():
            queue.forget_received()

    def _gpu_before(self, end: int, returned: Times) -> list[GpuWork]:
        """Return the work on the device of computes before `end`, which returned at these times."""
        if not self._completed:
            return []
        count = next((place for place, work in enumerate(self._completed) if work[0] >= end), None)
        columns = np.array(self._completed[:count], np.int64).reshape(-1, 5).T
        compute, position, started, ended, is_alone = columns
        del self._completed[:count]
        timers = self._recorder.timer.streams
        margin, may_be_exact, is_exact = np.array(
            [(each.time.margin, each.may_be_exact, each.is_exact) for each in timers]
        )[position].T
        back = returned[compute - (end - len(returned))]
        is_exact = (is_exact > 0) | ((started >= back + margin) & (may_be_exact > 0) & (is_alone > 0))
        # Of work that was not alone, nobody knows how long the device worked for whom.
        certain = np.where(is_alone > 0, np.clip(back, started, ended), ended)
        certain = np.where(is_exact, started, certain)
        found = []
        streams = self.info.streams
        # Ordinary computes and replays have different timers, and one stream in the observation.
        for stream in dict.fromkeys(streams[each] for each in np.unique(position)):
            chosen = np.isin(position, [at for at, other in enumerate(streams) if other is stream])
            shown: Any = (column[chosen] for column in (compute, started, ended, is_exact, certain))
            found.append(GpuWork(stream, *shown))
        return found


class _FeedLog:
    """The messages of one output into one queue, from the number `first` on.

    Attributes
    ----------
    messages
        A column for each: the compute it follows from, when it was emitted, its acquisition timestamp, and the
        compute that emitted it.
    shown
        The number of the first message that was not shown as emitted.
    """

    def __init__(self, feed: Feed) -> None:
        emitter = feed.emitter
        self.first = self.shown = 0
        self.messages: Rows = np.zeros((4, 0), np.int64)
        self._queue = feed.behind.info
        self._position = self._queue.feeds.index(feed)
        self._timestamps = _Table(emitter.timestamps, 2)
        self._rejections = _Table(emitter.rejections, 2)
        self._emissions = _Table(emitter.emissions, 2)
        self._numbers = None if emitter.numbers is None else _Table(emitter.numbers, 1)

    @property
    def end(self) -> int:
        """The number after the last message that is known."""
        return self.first + len(self.producer)

    @property
    def producer(self) -> Times:
        """The compute that each message follows from."""
        found: Times = self.messages[0]
        return found

    def read(self, most: int) -> None:
        """Read rows, but at most this many."""
        self._emissions.read(most)
        emitted, producer = self._emissions.take(most).T
        self._timestamps.read()
        self._rejections.read()
        compute = producer
        if self._numbers is not None:
            self._numbers.read()
            compute = self._numbers.take(len(emitted))[:, 0]
        timestamp = np.full(len(emitted), NO_TIMESTAMP)
        number, value = self._timestamps.take_before(0, self.end + len(emitted)).T
        timestamp[number - self.end] = value
        if len(emitted):
            self.messages = np.hstack((self.messages, (producer, emitted, timestamp, compute)))

    def known_before(self, end: int) -> int:
        """Return the first compute of whose messages not all are known; `end` if there is none."""
        return min(end, int(self.messages[3, -1])) if self._emissions.is_behind else end

    def emitted_before(self, end: int) -> Emissions:
        """Return what computes before `end` emitted."""
        unseen = self.messages[:, self.shown - self.first :]
        producer, emitted, timestamp, compute = unseen[:, : unseen[3].searchsorted(end)]
        number = np.arange(self.shown, self.shown + len(compute))
        self.shown += len(compute)
        rejected, rejected_by = self._rejections.take_before(1, end).T
        return Emissions(
            self._queue,
            self._position,
            compute,
            number,
            emitted,
            producer,
            timestamp,
            rejected,
            rejected_by,
        )

    def forget(self, number: int) -> None:
        """Forget the messages before a number that were shown as emitted."""
        count = min(number, self.shown) - self.first
        if count > 0:
            self.first += count
            self.messages = self.messages[:, count:]


class _QueueLog:
    """The messages that left one queue and were not shown yet.

    Messages of a failed compute, which are discarded, were not received, and those that the full queue dropped
    neither.

    Attributes
    ----------
    producers
        The log of the operator before each feed, or None if it closes a cycle.
    """

    def __init__(self, queue: QueueInfo, drops: list[Drops]) -> None:
        receiver = queue.queue.receiver
        self._receipts = _Table(receiver.receipts, 2)
        self._order = _Table(receiver.order, 1)
        self._queue = queue
        # Of a queue whose messages leave it in any order: the number of each, the first one that has not left, and
        # the later ones that have.
        self._receiver = receiver
        self._places: _Table | None = None
        self._first, self._gone = 0, _NONE
        self.producers: list[NodeLog | None] = []
        self._feeds: list[_FeedLog] = []
        # For each feed, the number of messages that were shown, and all before them.
        self._shown: list[int] = []
        self._drops = drops

    def add_feed(self, feed: _FeedLog, producer: NodeLog | None, earlier: int) -> None:
        """Read the messages of a feed, too; `earlier` messages came before through the only other one."""
        self.producers.append(producer)
        self._feeds.append(feed)
        self._shown.append(0)
        if len(self._feeds) == 2:
            # The order of messages is written from now on. All of those before came through the first feed.
            before = np.zeros((earlier - self._shown[0], 1), np.int64)
            self._order.rows = _joined(before, self._order.rows)

    def read(self, most: int) -> None:
        """Read rows, but at most this many."""
        self._receipts.read(most)
        self._order.read()
        if self._places is None and self._receiver.places is not None:
            self._places = _Table(self._receiver.places, 1)
        if self._places is not None:
            self._places.read()

    def _find(self, count: int) -> tuple[Times, Times]:
        """Return for each of the first rows through which feed its message came, and the message's number."""
        # Its place behind those that have all left.
        place = np.arange(count) if self._places is None else self._places.rows[:count, 0] - self._first
        if len(self._feeds) == 1:
            return np.zeros(count, np.int64), self._shown[0] + place
        order = self._order.rows[:, 0]
        position, number = order[place], np.zeros(count, np.int64)
        for feed, shown in enumerate(self._shown):
            chosen = position == feed
            number[chosen] = shown + (order == feed).cumsum()[place[chosen]] - 1
        return position, number

    def _take(self, count: int) -> None:
        """Take the first rows, whose messages have left."""
        self._receipts.take(count)
        if self._places is not None:
            gone = np.sort(np.concatenate((self._gone, self._places.take(count)[:, 0])))
            count = int((gone - np.arange(len(gone)) == self._first).sum())
            self._gone = gone[count:]
        self._first += count
        if len(self._feeds) == 1:
            self._shown[0] += count
            return
        left = np.bincount(self._order.take(count)[:, 0], minlength=len(self._feeds))
        self._shown = (np.array(self._shown, np.int64) + left).tolist()

    def known_before(self, end: int) -> int:
        """Return the first compute that received a message of which not enough is known; `end` if there is none."""
        rows = self._receipts.rows
        if self._receipts.is_behind:
            end = min(end, int(rows[-1, 1]))
        position, number = self._find(len(rows))
        known = [
            feed.end if producer is None else min(feed.end, feed.shown)
            for feed, producer in zip(self._feeds, self.producers, strict=True)
        ]
        is_unknown = number >= np.array(known, np.int64)[position]
        if is_unknown.any():
            end = min(end, int(rows[is_unknown.argmax(), 1]))
        return end

    def before(self, end: int, first: int, started: Times) -> tuple[Arrivals, Drops | None]:
        """Return the messages that computes before `end` received, and those that were discarded with them.

        The computes from `first` on started at these times.
        """
        received, compute = self._receipts.rows_before(1, end).T
        output, number = self._find(len(compute))
        columns = np.zeros((3, len(compute)), np.int64)
        for position, feed in enumerate(self._feeds):
            chosen = output == position
            columns[:, chosen] = feed.messages[:3, number[chosen] - feed.first]
        self._take(len(compute))
        producer, emitted, timestamp = columns
        # A message may also come while the compute that takes it runs.
        taken = received == AT_START
        received[taken] = np.maximum(started[compute[taken] - first], emitted[taken])
        arrivals = Arrivals(self._queue, compute, output, number, producer, emitted, received, timestamp)
        is_received = received >= 0
        if is_received.all():
            return arrivals, None
        is_dropped = received < _DROPS
        columns = np.stack((output, number, np.where(is_dropped, received - DROPPED, ~received)))
        if is_dropped.any():
            self._drops.append(Drops(self._queue, *columns[:, is_dropped]))
        is_discarded = ~is_received & ~is_dropped
        discards = Drops(self._queue, *columns[:, is_discarded]) if is_discarded.any() else None
        return arrivals.of(is_received), discards

    def forget_received(self) -> None:
        """Forget messages that will not be received any more."""
        # Also what was dropped since: the next compute, with which it would be shown, may never come.
        is_dropped = self._receipts.rows[:, 0] < _DROPS
        dropped = len(is_dropped) if is_dropped.all() else int(is_dropped.argmin())
        position, number = self._find(dropped)
        emitters = zip(self._feeds, self.producers, strict=True)
        limits = [_NEVER if producer is None else feed.shown for feed, producer in emitters]
        is_early = number >= np.array(limits, np.int64)[position]
        if is_early.any():
            dropped = int(is_early.argmax())
        if dropped:
            at = self._receipts.rows[:dropped, 0] - DROPPED
            self._drops.append(Drops(self._queue, position[:dropped], number[:dropped], at))
            self._take(dropped)
        for feed, shown in zip(self._feeds, self._shown, strict=True):
            feed.forget(shown)


_NONE = np.zeros(0, np.int64)
_NEVER = 1 << 62
_DROPS = DROPPED // 2  # what is less stands for a message that was dropped


def _joined(first: Rows, second: Rows) -> Rows:
    return second if not len(first) else first if not len(second) else np.concatenate((first, second))
