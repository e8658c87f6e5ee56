"""Inlet: an input port as `receive` uses it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from penstock._runtime.messages.batch import Batch
from penstock._runtime.messages.message import Message
from penstock.core.ports import IOSpec

if TYPE_CHECKING:
    from penstock._runtime.messages.queue import Queue
    from penstock._runtime.streams.managed_stream import ManagedStream

__all__ = ["EMPTY", "NOTHING", "Inlet", "messages_in", "taking"]

NOTHING = object()
"""What is noted at an input where nothing was received."""
EMPTY = Batch()
"""What is noted at an input that was asked and had nothing."""

_POP = IOSpec.QueuePolicy.POP


class Inlet:
    """What takes the next message from an input, and what this compute took, where that is noted.

    All of it is changed in the operator's computes, or before the first.

    Attributes
    ----------
    take
        Gives the next message, or raises IndexError when there is none.
    item
        What was received in this compute, or `NOTHING`.
    own
        The stream that is ordered after each message as it is received; None where the operator asks for that.
    is_noted
        Whether more is done with a message than to order that stream (`NodeStreams.note`).
    turn, asked
        Where nothing else is noted: the last compute that received something here, and the last that found nothing.
    count
        How many messages were taken the last time.
    serves_others
        Whether any of its producers is run by other workers than its consumer is.
    """

    __slots__ = (
        "_is_receivers",
        "_takes",
        "asked",
        "count",
        "is_noted",
        "item",
        "name",
        "own",
        "queues",
        "serves_others",
        "take",
        "turn",
    )

    def __init__(self, port: IOSpec, queues: tuple[Queue, ...]) -> None:
        self.name = port.name
        self.queues = queues
        self._is_receivers = port.is_receivers
        self._takes = [(queue, taking(queue)) for queue in queues]
        self.take: Callable[[], Any]
        if port.is_receivers:
            self.take = self._take_each
        elif port.gives_tuple:
            self.take = self._take_all
        else:
            self.take = taking(queues[0])
        self.item: Any = NOTHING
        self.own: ManagedStream | None = None
        self.is_noted = True
        self.turn: int | None = None
        self.asked: int | None = None
        self.count = 1
        self.serves_others = False

    def note(self, item: Any) -> None:
        """Take note of what was received, beside what was before."""
        earlier = self.item
        if earlier is not NOTHING:
            item = Batch([*_parts(earlier), *_parts(item)])
        self.item = item

    def note_asked(self, turn: int) -> None:
        """Take note that there was nothing to receive."""
        self.asked = turn

    def recall(self, turn: int) -> None:
        """Fill in what is known of a compute that was not noted: it received so many objects without a stream."""
        if self.item is NOTHING:
            if self.turn == turn:
                self.item = Batch([None] * self.count)
            elif self.asked == turn:
                self.item = EMPTY

    def take_only_done(self) -> None:
        """From now on take only messages that the device is done with; the others stay in their queues.

        Where a full queue drops its oldest, what was done when the operator was let run may be gone. Then there may
        be nothing left but a message that is not done, and that is waited for here.
        """
        if self._is_receivers:
            self.take = self._take_each_done
        elif self.take == self._take_all:
            self.take = self._take_all_done
        else:
            self.take = self._take_done

    def _take_each(self) -> Batch:
        taken = Batch([take_one() for queue, take_one in self._takes if queue])
        self.count = len(taken)
        return taken

    def _take_all(self) -> Batch:
        taken = Batch(self.queues[0].take_all())
        self.count = len(taken)
        if not taken:
            raise IndexError
        return taken

    def _take_done(self) -> Any:
        (queue,) = self.queues
        return _pop_done(queue, waits=True)

    def _take_each_done(self) -> Batch:
        taken = Batch()
        for queue in self.queues:
            if queue:
                try:
                    taken.append(_pop_done(queue, waits=True))
                except IndexError:
                    continue
        self.count = len(taken)
        return taken

    def _take_all_done(self) -> Batch:
        (queue,) = self.queues
        taken = Batch()
        try:
            for _ in range(len(queue)):
                taken.append(_pop_done(queue, waits=not taken))
        except IndexError:
            pass
        self.count = len(taken)
        if not taken:
            raise IndexError
        return taken


def messages_in(item: Any) -> Iterator[Message | None]:
    """Give the messages in what was received at a port, None for each that was only an object."""
    for part in () if item is NOTHING else _parts(item):
        yield part if type(part) is Message else None


def taking(queue: Queue) -> Callable[[], Any]:
    """Return what takes one message from a queue: popleft itself, unless a producer may pop as well."""
    return queue.popleft if queue.policy is not _POP else queue.take


def _parts(item: Any) -> Any:
    return item if type(item) is Batch else (item,)


def _pop_done(queue: Queue, waits: bool) -> Any:
    """Take the first message of a queue if the device is done with it; raise IndexError if not."""
    first = queue[0]
    if _is_unfinished(first) and not (waits and queue.policy is _POP):
        raise IndexError
    taken = taking(queue)()  # another one, it may be, if a newer message has taken the place of the first
    if _is_unfinished(taken):
        for _, _, event in taken.marks():
            event.sync()
    return taken


def _is_unfinished(item: Any) -> bool:
    return type(item) is Message and not item.is_done
