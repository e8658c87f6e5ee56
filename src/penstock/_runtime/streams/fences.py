"""Trail: the marks that one operator leaves on one stream, and what must live until they are passed.

A mark stands for the work submitted to the stream until then. It is known by its number, and an event that was
recorded at that moment tells when the device has passed it. The marks of a trail are passed in the order of
their numbers, so that one number, `passed`, says all that is known about them.

Events are recorded again and again. A mark that is known to be passed needs its event no more: whoever has a
message from before it compares numbers, and has nothing to wait for. Recording an event again does not disturb
a stream that was told to wait for it before.

A trail takes no lock. Marks are left, and looked at, in the operator's compute or between two of them, which
never happens twice at once. Other threads only read: those that received a message compare its number with
`passed`. One that does so in the very moment in which the event is used again has its stream wait for the later
mark: longer than it need have, never too short.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from typing import TYPE_CHECKING, Any

from penstock._runtime.messages.message import Message

if TYPE_CHECKING:
    from penstock._runtime.streams.managed_stream import ManagedStream

__all__ = ["Trail"]

# After so much more was kept it looks again: at every compute would free it a little sooner, and cost far more.
_STRIDE = 6
# With so many marks not known to be passed it looks before it makes one more event.
_MANY = 16


class Trail:
    """The marks that one operator leaves on one stream.

    Parameters
    ----------
    stream
        The stream.
    limit
        How much may be kept at once.

    Attributes
    ----------
    marked, passed
        The number of the last mark, and of the last that the device is known to have passed.
    look_at
        How much is kept when it is time to look again.
    is_over
        Whether the run has ended: all work is done, on this stream and on every other, and they are no more.
    """

    __slots__ = (
        "_behind",
        "_events",
        "_kept",
        "_lent",
        "_limit",
        "_numbers",
        "_reach",
        "_record",
        "is_over",
        "look_at",
        "marked",
        "passed",
        "stream",
    )

    def __init__(self, stream: ManagedStream, limit: int) -> None:
        self.stream = stream
        self.marked = 0
        self.passed = 0
        self.look_at = min(_STRIDE, limit)
        self.is_over = False
        self._limit = limit
        self._record = stream.record
        # All events, in the order in which they were recorded: the last is that of the last mark.
        self._events: deque[Any] = deque()
        # Up to this number marks can be left with them, and none is recorded again that may still be needed.
        self._reach = 0
        self._lent: list[Any] = []
        # How many marks the device is expected to be behind.
        self._behind = 1
        # What must live, in the order in which it was given to `keep`, and the number of the mark that ends it.
        self._kept: list[Any] = []
        self._numbers: list[int] = []

    @property
    def is_full(self) -> bool:
        """Whether as much is kept as may be."""
        return len(self._kept) >= self._limit

    @property
    def kept(self) -> int:
        """How many objects are kept."""
        return sum(len(received) for received in self._kept if type(received) is list)

    def mark(self) -> Any:
        """Leave a mark after what was submitted so far, and give its event."""
        number = self.marked + 1
        if number > self._reach:
            self._add_event()
        event = self._events.popleft()
        self._record(event)
        self._events.append(event)
        self.marked = number
        return event

    def message(self, data: Any) -> Message:
        """Leave a mark after what was submitted so far, and give a message that carries it."""
        # As `mark`, without the call: this is in every step of every operator that uses streams.
        number = self.marked + 1
        if number > self._reach:
            self._add_event()
        events = self._events
        record = self._record
        event = events.popleft()
        record(event)
        events.append(event)
        message = Message()
        message.data = data
        message.trail = self
        message.event = event
        message.number = self.marked = number
        message.emitted = None
        message.also = None
        message.details = None
        return message

    def keep(self, received: Any) -> int:
        """Have something live until a mark is passed that comes after now, and say how much is kept so.

        That is the next one, which the next `emit` leaves. If there was none since the last time, one is left
        now: for an operator that emits nothing, every other time.
        """
        numbers = self._numbers
        number = self.marked + 1
        if numbers and numbers[-1] == number:
            self.mark()
        numbers.append(number)
        self._kept.append(received)
        return len(numbers)

    def look(self) -> None:
        """Let go of what need not live any more."""
        numbers = self._numbers
        if self.is_full and numbers[0] > self.marked:
            self.mark()  # or nothing would ever tell that the oldest need not live
        if numbers and numbers[0] <= self.marked:
            # It may be known already, from having looked for an event to record: those before are not there to ask.
            least = max(numbers[0], self.passed + 1)
            if least <= self.marked:
                self._advance(least)
            finished = bisect_right(numbers, self.passed)
            del numbers[:finished], self._kept[:finished]
        self.look_at = min(len(numbers) + _STRIDE, self._limit)

    def oldest(self) -> Any:
        """Give the event of the mark that the oldest of what is kept waits for, where it is full."""
        return self._events[self._numbers[0] - self.marked - 1]

    def lend(self, event: Any) -> None:
        """Never record an event again, because somebody waits to be told of it; may be called from any thread."""
        self._lent.append(event)

    def forget(self) -> None:
        """Let go of everything: the device is done."""
        self.is_over = True
        self.passed = self.marked
        self._numbers.clear()
        self._kept.clear()

    def _advance(self, least: int) -> None:
        """Find out which marks the device has passed; those before `least` are not worth a look.

        Each look at an event is a call into the driver, which costs as much as all else here. A mark that has been
        passed speaks for those before it, so one is enough where the device is no further behind than it was the
        last time.
        """
        events, marked, behind = self._events, self.marked, self._behind
        number = max(marked - behind, least)
        further = 0
        while not events[number - marked - 1].is_done:
            if number == least:
                return
            further = 2 * further or 1
            behind += further
            number = max(marked - behind, least)
        self._behind = behind if further else max(behind - 1, 1)  # the next time it may have caught up
        self.passed = number
        self._reach = number + len(events)
        # Only now: whoever lends an event, and then finds its mark not passed, relies on being seen here.
        if self._lent:
            self._replace_lent()

    def _replace_lent(self) -> None:
        """Put new events in the place of those that were lent and whose marks are passed."""
        events, lent = self._events, self._lent
        for place in range(len(events) - (self.marked - self.passed)):
            if events[place] in lent:
                events[place] = self.stream.create_event()
        for event in tuple(lent):  # several may have been lent the same one
            if event not in events:
                lent.remove(event)

    def _add_event(self) -> None:
        """See to it that an event can be recorded: one that is needed no more, or else a new one."""
        if self.marked - self.passed >= _MANY:
            self._advance(self.passed + 1)
        if self.marked == self._reach:
            self._events.appendleft(self.stream.create_event())
            self._reach += 1
