"""Fences: the points on one stream behind which the work of one operator is complete.

A fence stands for the work that was submitted to the stream before it. It is known by its number, and an event that
was recorded at that point tells when the device has completed it. The fences of a timeline complete in the order of
their numbers, so one number, `completed`, holds all that is known about them.

Events are recorded again and again. A fence that is known to be complete needs its event no more: whoever has a
message from before it compares numbers and has nothing to wait for. Recording an event again does not disturb a
stream that was told earlier to wait for it.

A timeline takes no lock. Fences are inserted and checked in the operator's compute, or between two of them, which
never happens twice at once. Other threads only read: a receiver compares the number of its message with
`completed`. If the event is recorded again at that very moment, the receiver's stream waits for the later fence. It
waits longer than it needs to, never too short.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock._runtime.streams.managed_stream import ManagedStream

__all__ = ["Fences", "is_complete"]

# With so many fences not known to be complete, they are checked before one more event is made.
_MANY = 16


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
        The number of the last fence, and of the last that the device is known to have completed.
    is_over
        Whether the run has ended: all work is done, on this stream and on every other, and the streams are gone.
    """

    __slots__ = (
        "_behind",
        "_events",
        "_lent",
        "_reach",
        "_record",
        "completed",
        "is_over",
        "last",
        "stream",
    )

    def __init__(self, stream: ManagedStream) -> None:
        self.stream = stream
        self.last = 0
        self.completed = 0
        self.is_over = False
        self._record = stream.record
        # All events, in the order in which they were recorded: the last one belongs to the last fence.
        self._events: deque[Any] = deque()
        # Fences up to this number can be inserted with them: the event to be recorded next is needed no more.
        self._reach = 0
        # Events that somebody waits for. Any thread may append.
        self._lent: list[Any] = []
        # How many fences the device is expected to be behind.
        self._behind = 1

    def insert(self) -> Any:
        """Insert a fence after the work submitted so far, and return its event."""
        number = self.last + 1
        if number > self._reach:
            self._add_event()
        events = self._events
        record = self._record
        event = events.popleft()
        record(event)
        events.append(event)
        self.last = number
        return event

    def event(self, number: int) -> Any:
        """Return the event of a fence that is not known to be complete."""
        return self._events[number - self.last - 1]

    def update(self, least: int) -> None:
        """Find out which fences are complete; those before `least` are not worth a query.

        Each query of an event is a call into the driver, which costs as much as all else here. A fence that is
        complete speaks for those before it, so one query is enough where the device is no further behind than it
        was the last time.
        """
        least = max(least, self.completed + 1)  # those before have no event of their own any more
        events, last, behind = self._events, self.last, self._behind
        if least > last:
            return
        number = max(last - behind, least)
        further = 0
        while not events[number - last - 1].is_done:
            if number == least:
                return
            further = 2 * further or 1
            behind += further
            number = max(last - behind, least)
        self._behind = behind if further else max(behind - 1, 1)  # the next time it may have caught up
        self.completed = number
        self._reach = number + len(events)
        # Only now: a thread that lends an event and then finds its fence incomplete relies on being seen here.
        if self._lent:
            self._replace_lent()

    def lend(self, event: Any) -> None:
        """Never record an event again, because a callback waits for it; may be called from any thread."""
        self._lent.append(event)

    def close(self) -> None:
        """Mark every fence as complete: the device is done."""
        self.is_over = True
        self.completed = self.last

    def _replace_lent(self) -> None:
        """Replace the events that were lent and whose fences are complete by new ones."""
        events, lent = self._events, self._lent
        for place in range(len(events) - (self.last - self.completed)):
            if events[place] in lent:
                events[place] = self.stream.create_event()
        for event in tuple(lent):  # several may have been lent the same one
            if event not in events:
                lent.remove(event)

    def _add_event(self) -> None:
        """Make sure that an event can be recorded: one that is needed no more, or else a new one."""
        if self.last - self.completed >= _MANY:
            self.update(self.completed + 1)
        if self.last == self._reach:
            self._events.appendleft(self.stream.create_event())
            self._reach += 1


def is_complete(fences: Fences, number: int, event: Any) -> bool:
    """Return whether the device has completed a fence; may be called from any thread."""
    # Compared again at the end: if the event was recorded for another fence in between, this one is complete.
    return number <= fences.completed or event.is_done or number <= fences.completed
