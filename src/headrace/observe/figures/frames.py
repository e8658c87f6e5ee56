"""FrameTable: every frame that the first operator of a path sends, to its end, whatever that is.

A frame is a message that the first operator sends towards the last one, to one queue or several. What follows from
it belongs to it: an operator that emits three messages for one has split it, one that emits one for ten has joined
ten. A frame has ended when nothing that follows from it is under way any more. If parts of it ended differently,
the worst counts. A frame whose compute failed goes on with its dead letter, if that is sent towards the last one.

The table follows messages by the two facts that are recorded of each: its number among those of its output and
queue, and the compute from which it follows. So it needs no clock and no guess, and what it says adds up: each
frame that was sent has exactly one `Fate`, or is under way.
"""

from __future__ import annotations

from enum import IntEnum
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from headrace.core.graph import reachable
from headrace.observe.events.flow_tables import matches
from headrace.observe.events.records import NO_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from headrace.observe.events.records import (
        Arrivals,
        Computes,
        Drops,
        Emissions,
        OperatorInfo,
        QueueInfo,
        RunInfo,
        Times,
    )

Feed: TypeAlias = "tuple[QueueInfo, int]"
"""A queue and the position of one of its outputs."""
_NONE = np.zeros(0, np.int64)


class Fate(IntEnum):
    """How a frame ended, from the best to the worst."""

    DROPPED = 0
    """On purpose: a queue's policy or a join dropped it, or an operator sent nothing on for it."""
    ARRIVED = 1
    UNTIMED = 2
    """It arrived, and its work on the device was not timed."""
    LATE = 3
    FAILED = 4
    """A compute that had received it, or that it waited for, failed for good."""
    LOST = 5
    """With a process."""


_COLUMNS = "number", "origin", "producer", "emitted", "fate", "latency", "done", "compute", "parts"
FRAME = np.dtype([(name, np.int64) for name in _COLUMNS])
"""A row for each frame, in the order in which they were sent.

=============  ======================================================================================
``number``     its number among all that were sent, from 0
``origin``     when it began: at its acquisition, when its source was due, or when it was emitted
``producer``   the compute of the first operator from which it follows
``emitted``    when it was emitted
``fate``       the worst that has happened to it so far
``latency``    the longest time until a part of it arrived; ``done`` and ``compute`` are when that was,
               and the compute of the last operator
``parts``      the number of its parts under way
=============  ======================================================================================
"""
Frames: TypeAlias = "NDArray[np.void]"


class FrameTable:
    """The frames of one path.

    Parameters
    ----------
    run
        The run.
    names
        The operators that a frame has to pass in this order; it may pass others in between. It begins where the
        first one sends it, and ends in a compute of the last one or of one of its replicas.
    bound
        The time above which a frame is late.

    Attributes
    ----------
    sent
        The number of frames so far.
    newest
        The end of the newest compute that was added.
    """

    def __init__(self, run: RunInfo, names: Sequence[str], bound: int) -> None:
        self.sent = 0
        self.newest = run.started
        self._run, self._names, self._bound = run, names, bound
        self._feeds: dict[Feed, _Tokens] = {}
        self._operators: dict[OperatorInfo, _Tokens] = {}
        self._rows: Frames = np.zeros(0, FRAME)  # of those that have not ended
        self._ended: list[Frames] = []
        self.follow()

    def follow(self) -> None:
        """Find the ways that frames may take now; what is on a way that was removed goes on."""
        self._first, self._last = self._run.sender(self._names[0]), self._run.receivers(self._names[-1])
        feeds = _feeds_between(self._run, self._first, self._names[1:-1], self._last)
        for queue, position in feeds:
            self._feeds.setdefault((queue, position), _Tokens())
            self._operators.setdefault(queue.outputs[position].operator, _Tokens())
            self._operators.setdefault(queue.operator, _Tokens())

    # What happens.

    def add(self, batch: Computes) -> Frames | None:
        """Add the computes of an operator; return the frames of which a part has come too late with them."""
        operator = batch.operator
        if operator not in self._operators:
            return None
        self.newest = max(self.newest, int(batch.ended[-1]))
        late = None
        sent = [each for each in batch.emissions if (each.queue, each.output) in self._feeds]
        if operator is self._first:
            self._begin(batch, sent)
        else:
            late = self._receive(batch, _failed(batch, sent))
            for emissions in sent:
                of, frames = self._operators[operator].find(emissions.producer)
                self._send(emissions, emissions.number[of], frames)
        self._retire(batch)
        return late

    def drop(self, drops: Drops) -> None:
        """Note messages that were dropped on purpose."""
        for _, frames in self._taken(drops, keeps_early=True):
            self._release(frames)
        self._end()

    def _receive(self, batch: Computes, has_failed: NDArray[np.bool_]) -> Frames | None:
        """Let frames arrive in computes, or fail with them."""
        held, is_last = self._operators[batch.operator], batch.operator in self._last
        found = [
            (arrivals.compute[rows], frames)
            for arrivals in batch.arrivals
            for rows, frames in self._taken(arrivals)
        ]
        for discards in batch.discards:
            for _, frames in self._taken(discards):
                self._worsen(frames, Fate.FAILED)
                self._release(frames)
        if not found:
            return None
        compute, frame = (np.concatenate(column) for column in zip(*found, strict=True))
        is_failed = has_failed[compute - batch.first]
        self._worsen(frame[is_failed], Fate.FAILED)
        if not is_last:
            held.add(*self._once(compute, frame))
            return None
        late = self._arrive(batch, compute[~is_failed], frame[~is_failed])
        self._release(frame)
        return late

    def _taken(self, messages: Arrivals | Drops, keeps_early: bool = False) -> Iterator[tuple[Times, Times]]:
        """Take messages out of their queue; yield the rows of those that are parts of frames, and the frames."""
        for position in range(len(messages.queue.outputs)):
            tokens = self._feeds.get((messages.queue, position))
            if tokens is not None:
                rows = (messages.output == position).nonzero()[0]
                of, frames = tokens.take(messages.number[rows], keeps_early)
                yield rows[of], frames

    def _arrive(self, batch: Computes, compute: Times, frame: Times) -> Frames | None:
        """Note the latency of frames that the last operator received; return those that are late now."""
        places = compute - batch.first
        rows = self._find(frame)
        # Of work that was not timed, only the return of the compute is known, which is earlier.
        done = batch.done[places]
        latency = done - self._rows["origin"][rows]
        np.maximum.at(self._rows["latency"], rows, latency)
        is_longest = latency == self._rows["latency"][rows]
        self._rows["done"][rows[is_longest]] = done[is_longest]
        self._rows["compute"][rows[is_longest]] = compute[is_longest]
        is_late = latency > self._bound
        fate = np.where(
            is_late, Fate.LATE, np.where(batch.is_timed[places], int(Fate.ARRIVED), int(Fate.UNTIMED))
        )
        news = np.unique(rows[is_late & (self._rows["fate"][rows] < Fate.LATE)])
        np.maximum.at(self._rows["fate"], rows, fate)
        return self._rows[news] if len(news) else None

    def _once(self, compute: Times, frame: Times) -> tuple[Times, Times]:
        """Return the frames of each compute in its order, once, however many messages of it came there."""
        if (compute[1:] > compute[:-1]).all():
            return compute, frame
        order = np.lexsort((frame, compute))
        compute, frame = compute[order], frame[order]
        is_again = np.zeros(len(frame), np.bool_)
        is_again[1:] = (compute[1:] == compute[:-1]) & (frame[1:] == frame[:-1])
        self._release(frame[is_again])
        return compute[~is_again], frame[~is_again]

    def _begin(self, batch: Computes, sent: Sequence[Emissions]) -> None:
        """Add the frames that the first operator sent, and those that full queues rejected at once."""
        if not sent:
            return
        taken = [(each.compute, each.emitted, each.producer, each.acq_timestamp) for each in sent]
        rejected = [
            (each.rejected_by, each.rejected, each.rejected_by, np.full(len(each.rejected), NO_TIMESTAMP))
            for each in sent
        ]
        columns = [np.concatenate(column) for column in zip(*taken, *rejected, strict=True)]
        counts = [len(column) for column, *_ in (*taken, *rejected)]
        offered = _number_messages(sent, counts, *columns[:2])
        # A message that went to several queues began when it was offered to the first one that took it.
        messages, first, offered = np.unique(offered, return_index=True, return_inverse=True)
        compute, emitted, producer, timestamp = (column[first] for column in columns)
        origin = emitted
        if batch.operator.is_source:
            origin = self._run.origins(timestamp, emitted, batch.due[compute - batch.first])
        rows = np.zeros(len(messages), FRAME)
        rows["number"] = np.arange(self.sent, self.sent + len(messages))
        rows["origin"], rows["producer"], rows["emitted"] = origin, producer, emitted
        self._rows = np.concatenate((self._rows, rows))
        frames = np.split(self.sent + offered, np.cumsum(counts))
        for each, sent_on, refused in zip(sent, frames, frames[len(sent) :], strict=False):
            self._send(each, each.number, sent_on)
            # A compute that did not expect the full queue has failed.
            self._worsen(refused[batch.is_failed[each.rejected_by - batch.first]], Fate.FAILED)
        self.sent += len(messages)

    def _send(self, emissions: Emissions, numbers: Times, frames: Times) -> None:
        """Put parts of frames into a queue, with the numbers of their messages there."""
        tokens = self._feeds[emissions.queue, emissions.output]
        tokens.known = max(tokens.known, int(emissions.number.max(initial=-1)) + 1)
        np.add.at(self._rows["parts"], self._find(frames), 1)
        self._release(tokens.add(numbers, frames))

    def _retire(self, batch: Computes) -> None:
        """Let go of the frames of computes from which nothing will follow any more."""
        held = self._operators[batch.operator]
        if len(held.keys):
            end = int(held.keys[-1]) if batch.operator.goes_on else batch.first + len(batch.started)
            self._release(held.take_before(end))
        self._end()

    # The end of the run.

    def finish(self) -> tuple[Frames, int]:
        """End the frames that operators held, and those that were lost with a process.

        Return those that were still under way, and the number of those of which nobody knows what became of them.
        """
        for held in self._operators.values():
            self._release(held.take_before(_NEVER))
        unknown = [np.zeros(0, np.int64)]
        for queue in dict.fromkeys(queue for queue, _ in self._feeds):
            feeds = [tokens for feed, tokens in self._feeds.items() if feed[0] is queue]
            if queue.operator.is_cut:
                unknown += [tokens.frames for tokens in feeds]
            elif self._run.fragments:
                self._lose(feeds, queue.waiting)
        self._end()
        is_unknown = np.isin(self._rows["number"], np.concatenate(unknown))
        return self._rows[~is_unknown], int(is_unknown.sum())

    def _lose(self, feeds: list[_Tokens], waiting: int) -> None:
        """Let all but the last messages of a queue, which wait there, be lost."""
        if len(feeds) == 1:
            tokens = feeds[0]
            numbers = np.unique(tokens.keys)
            _, frames = tokens.take(numbers[: max(len(numbers) - waiting, 0)])
        elif not waiting:
            frames = np.concatenate([tokens.take(tokens.keys.copy())[1] for tokens in feeds])
        else:  # nobody knows through which output those came that wait
            return
        self._worsen(frames, Fate.LOST)
        self._release(frames)

    def take_ended(self) -> Frames:
        """Return the frames that ended since the last call."""
        ended, self._ended = self._ended, []
        return np.concatenate([self._rows[:0], *ended])

    # Inside.

    def _find(self, frames: Times) -> Times:
        found: Times = self._rows["number"].searchsorted(frames)
        return found

    def _worsen(self, frames: Times, fate: int) -> None:
        np.maximum.at(self._rows["fate"], self._find(frames), fate)

    def _release(self, frames: Times) -> None:
        """Note that parts of frames are not under way any more."""
        np.subtract.at(self._rows["parts"], self._find(frames), 1)

    def _end(self) -> None:
        has_ended = self._rows["parts"] == 0
        if has_ended.any():
            self._ended.append(self._rows[has_ended])
            self._rows = self._rows[~has_ended]


_NEVER = 1 << 62


class _Tokens:
    """Parts of frames, by the number of the message or the compute in which they are, in its order."""

    __slots__ = ("_early", "frames", "keys", "known")

    def __init__(self) -> None:
        self.keys = self.frames = _NONE
        # The number after the last message of which is known that it was emitted.
        self.known = 0
        # The numbers of messages that were dropped before it is known that they were emitted.
        self._early = _NONE

    def add(self, keys: Times, frames: Times) -> Times:
        """Add parts of frames; return those that have left already."""
        is_early = np.isin(keys, self._early)
        self._early = self._early[self._early >= self.known]
        left = frames[is_early]
        self.keys = np.concatenate((self.keys, keys[~is_early]))
        self.frames = np.concatenate((self.frames, frames[~is_early]))
        return left

    def find(self, keys: Times) -> tuple[Times, Times]:
        """Return the parts with some keys: the positions of their keys, and their frames."""
        of, rows = matches(self.keys, keys)
        return of, self.frames[rows]

    def take(self, keys: Times, keeps_early: bool = False) -> tuple[Times, Times]:
        """Remove the parts with some keys, and return them as `find` does."""
        of, rows = matches(self.keys, keys)
        found = self.frames[rows]
        if keeps_early:
            self._early = np.concatenate((self._early, keys[keys >= self.known]))
        if len(rows):
            stays = np.ones(len(self.keys), np.bool_)
            stays[rows] = False
            self.keys, self.frames = self.keys[stays], self.frames[stays]
        return of, found

    def take_before(self, end: int) -> Times:
        """Remove the parts whose keys are less than `end`, and return their frames."""
        count = int(self.keys.searchsorted(end))
        found, self.keys, self.frames = self.frames[:count], self.keys[count:], self.frames[count:]
        return found


def _number_messages(
    sent: Sequence[Emissions], counts: Sequence[int], compute: Times, offered: Times
) -> Times:
    """Return a number for each message that was offered: those that queues took of each feed, and then the others.

    An operator offers a message to all queues behind an output one after the other. So the third message of a
    compute is the third one in each of these queues, in which some of them may have been rejected.
    """
    outputs = [each.queue.outputs[each.output] for each in sent]
    ports = list(dict.fromkeys(outputs))
    feed = np.repeat([*range(len(sent))] * 2, counts)
    port = np.array([ports.index(output) for output in outputs])[feed]
    place, group = np.zeros(len(compute), np.int64), compute * len(sent) + feed
    order = np.lexsort((offered, group))
    place[order] = np.arange(len(compute)) - group[order].searchsorted(group[order])
    found: Times = (compute * len(ports) + port) * (place.max(initial=0) + 1) + place
    return found


def _failed(batch: Computes, sent: Sequence[Emissions]) -> NDArray[np.bool_]:
    """Return which computes failed, and sent no dead letter that goes on towards the last operator."""
    if not batch.is_failed.any():
        return batch.is_failed
    has_failed = batch.is_failed.copy()
    for each in sent:
        if each.queue.outputs[each.output].port == batch.operator.letters:
            has_failed[each.compute - batch.first] = False
    return has_failed


def _feeds_between(
    run: RunInfo, first: OperatorInfo, through: Sequence[str], last: Sequence[OperatorInfo]
) -> list[Feed]:
    """Return the feeds on all ways from an operator to one of the last ones, through others in this order."""
    feeds = [
        (output.operator, queue, position)
        for queue in run.queues
        for position, output in enumerate(queue.outputs)
        if output.operator not in queue.closing
    ]
    behind_of: dict[OperatorInfo, list[OperatorInfo]] = {}
    before_of: dict[OperatorInfo, list[OperatorInfo]] = {}
    for source, queue, _ in feeds:
        behind_of.setdefault(source, []).append(queue.operator)
        before_of.setdefault(queue.operator, []).append(source)
    found: list[Feed] = []
    for begin, ends in pairwise([[first], *([run.operator(name)] for name in through), last]):
        behind = reachable(begin[0], lambda one: behind_of.get(one, ()))
        before = set().union(*(reachable(end, lambda one: before_of.get(one, ())) for end in ends))
        leg = [
            (queue, position)
            for source, queue, position in feeds
            if source in behind and queue.operator in before
        ]
        if not leg:
            return []
        found += leg
    return found
