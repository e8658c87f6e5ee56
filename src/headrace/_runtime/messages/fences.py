"""Fences: numbered points on a stream, up to which the work of one operator completes in order.

A fence stands for the work that was submitted to the stream before it. It has a number, and an event recorded at
that point shows when the device has completed it. The fences of a timeline complete in the order of their numbers,
so one number, `completed`, describes the state of all of them.

Events are reused, one after the other, as in a ring: that of a fence is found by its number. A completed fence no
longer needs its event: the receiver of a message from before it compares numbers and does not wait. Recording an
event again does not affect a stream that already waits for it.

A timeline takes no lock. Fences are inserted and checked in the operator's compute or between two computes, and
never concurrently. Other threads only read: a receiver compares the number of its message with `completed`. If the
event is recorded again at that very moment, the receiver's stream waits for the later fence. It may wait longer
than necessary, but never too short.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace._runtime.messages.envelope import Envelope

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace._runtime.messages.managed_stream import ManagedStream

# With this many incomplete fences, their state is checked before another event is created.
_MANY: Final = 64


class Fences:
    """The fences of one operator on one stream.

    Only the thread that runs the operator changes a timeline. Other threads read `last`, `completed` and `is_over`,
    and may call `lend`.

    Parameters
    ----------
    stream
        The stream.

    Attributes
    ----------
    last, completed
        The numbers of the last fence and of the last fence known to be complete.
    events
        All events, always in the same list; that of a fence is at its number modulo their count.
    count
        Their number.
    reach
        Fences up to this number can reuse these events, because the next event to record is no longer needed.
    record
        Records an event on the stream.
    is_over
        Whether the run has ended: all work on all streams is complete, and the streams have been returned.
    """

    __slots__ = (
        "_behind",
        "_lent",
        "completed",
        "count",
        "events",
        "is_over",
        "last",
        "reach",
        "record",
        "stream",
    )

    def __init__(self, stream: ManagedStream) -> None:
        self.stream = stream
        self.record: Callable[[Any], object] = stream.record
        self.last = 0
        self.completed = 0
        self.is_over = False
        self.events: list[Any] = []
        self.count = 0
        self.reach = 0
        # Events that a callback waits for. Any thread may append.
        self._lent: list[Any] = []
        # The number of fences by which the device is expected to be behind.
        self._behind = 1

    def insert(self) -> Any:
        """Insert a fence after the work submitted so far, and return its event."""
        number = self.last + 1
        if number > self.reach:
            self.add_event()
        event = self.events[number % self.count]
        self.record(event)
        self.last = number
        return event

    def stamp(self, data: Any) -> Envelope:
        """Insert a fence after the work so far, and return a message that carries it."""
        message = Envelope()
        message.data = data
        message.event = self.insert()
        message.fences = self
        message.number = self.last
        message.work = message.extra = message.record = message.sent = None
        return message

    def event(self, number: int) -> Any:
        """Return the event of a fence that may be incomplete."""
        return self.events[number % self.count]

    def update(self, least: int) -> None:
        """Query which fences are complete; fences before `least` are not worth a query.

        Each query of an event is a driver call, which costs as much as everything else here. A complete fence
        implies that all earlier ones are complete, so one query is enough if the device is no further behind than
        the last time.
        """
        least = max(least, self.completed + 1)  # earlier fences no longer have their own event
        events, last, behind = self.events, self.last, self._behind
        if least > last:
            return
        number = max(last - behind, least)
        further = 0
        while not events[number % self.count].is_done:
            if number == least:
                return
            further = 2 * further or 1
            behind += further
            number = max(last - behind, least)
        self._behind = behind if further else max(behind - 1, 1)  # it may have caught up by the next time
        self._complete(number)

    def _complete(self, number: int) -> None:
        self.completed = number
        self.reach = number + self.count
        # Only now: a thread that lends an event and then finds its fence incomplete relies on this order.
        if self._lent:
            self._replace_lent()

    def lend(self, event: Any) -> None:
        """Exclude an event from reuse, because a callback waits for it; may be called from any thread."""
        self._lent.append(event)

    def is_complete(self, number: int, event: Any) -> bool:
        """Return whether the device has completed a fence; may be called from any thread."""
        # Compare again at the end: if the event was recorded for another fence in between, this one is complete.
        return number <= self.completed or event.is_done or number <= self.completed

    def is_past(self, number: int) -> bool:
        """Return whether the device has completed a fence, which may not be inserted yet; from any thread."""
        if number <= self.completed or number > self.last:
            return number <= self.completed
        return self.is_complete(number, self.event(number))

    def close(self) -> None:
        """Mark every fence as complete, because the device has finished."""
        self.is_over = True
        self.completed = self.last

    def _replace_lent(self) -> None:
        """Replace lent events whose fences are complete with new ones."""
        events, lent, count = self.events, self._lent, self.count
        for number in range(self.last - count + 1, self.completed + 1):
            if events[number % count] in lent:
                events[number % count] = self.stream.create_event()
        for event in tuple(lent):  # several threads may have lent the same event
            if event not in events:
                lent.remove(event)

    def add_event(self) -> None:
        """Make sure that an event can be recorded: an event that is no longer needed, or else a new one."""
        if self.last - self.completed >= _MANY:
            self.update(self.completed + 1)
        if self.last == self.reach:
            # In the order of their fences, the new one last; then each at its number modulo their new count.
            events, number = self.events, self.last + 1
            oldest = number % self.count if events else 0
            in_order = [*events[oldest:], *events[:oldest], self.stream.create_event()]
            self.count = len(in_order)
            newest = number % self.count
            events[:] = [*in_order[-1 - newest :], *in_order[: -1 - newest]]
            self.reach = number
