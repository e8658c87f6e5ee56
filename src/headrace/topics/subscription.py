"""Subscription: a topic that this program receives, from whichever publisher there is.

A thread of the subscription looks for the newest publisher and connects to it, again and again: when a newer one
comes, when the publisher ends, is killed, or is silent. It sleeps until a discovery tells of a publisher or the
link has failed. Messages take a shorter way: the link's own thread puts them into the inbox, a short queue with a
policy, and announces them.

Publishers number their messages, so what is lost anywhere on the way is a gap in the numbers, and is counted when
the next message is taken. Numbers of another publisher begin at 1: what a restarted publisher sent before this
subscriber found it counts as missed, too. What the one before published and could not send any more is not known.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.core.control import TimeBase, counts_since_1970
from headrace.core.errors import CrossingError, LinkError, PeerLost, TopicError
from headrace.core.ports import IOSpec
from headrace.link.receiver import Receiver
from headrace.topics.discovery import PublisherGone, check_topic, discoveries
from headrace.topics.topic_end import MOST_PLACES, SubscribeRequest, TopicEnd, check_queue, weakly

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from headrace.link.protocol import Sample
    from headrace.topics.discovery import Discovery, Publisher, Watch

_log = logging.getLogger("headrace.topics")
_REJECT, _FAULT = IOSpec.QueuePolicy.REJECT, IOSpec.QueuePolicy.FAULT
_RETRY = 1.0  # seconds until a publisher that is there and did not answer is asked again


class Message(NamedTuple):
    """A message of a topic."""

    data: Any
    acq_timestamp: int | None
    metadata: dict[str, Any] | None
    number: int
    """The messages of its publisher up to this one."""
    published: int
    """When it was published, in nanoseconds since 1970 by the clock of the publisher."""
    time_base: TimeBase | None = None
    """What `acq_timestamp` means; None if it means nothing here, unless it counts since 1970."""

    def acquired(self, here: TimeBase | None) -> int | None:
        """Return when it was acquired, by a clock of this program; None if that is not known."""
        timestamp = self.acq_timestamp
        if timestamp is None or counts_since_1970(timestamp):
            return timestamp
        if self.time_base is None or here is None:
            return None
        return self.time_base.convert(timestamp, here)


class Subscription(TopicEnd):
    """A topic that this program receives, until it is closed.

    One that is dropped without `close` ends, too, and the log says so.

    Parameters
    ----------
    topic
        The name.
    program
        The name of the program, which the publisher is told.
    size, policy
        The inbox: its length, and what it does when it is full. With FAULT the publisher's own queue fills instead.
    wants_last
        Whether to get the last message that was published before, if the publisher keeps it.
    on_change
        Called, on any thread, when a message has come or the topic has ended. It must not close the subscription.
    ways
        How publishers are found; by default as the environment says.
    """

    def __init__(
        self,
        topic: str,
        *,
        program: str = "",
        size: int = 1,
        policy: IOSpec.QueuePolicy = IOSpec.QueuePolicy.POP,
        wants_last: bool = True,
        on_change: Callable[[], object] = lambda: None,
        ways: Sequence[Discovery] | None = None,
    ) -> None:
        super().__init__(check_topic(topic))
        check_queue(f"Subscription({topic!r})", size, policy, MOST_PLACES)
        self.received = 0
        """The number of messages that were taken."""
        self.missed = 0
        """The number of messages that were published since it joined and that it did not take."""
        self.undelivered = 0
        """The number of messages that had come and were not taken when it was closed."""
        self.connections = 0
        """How often it has connected to a publisher."""
        self.has_ended = False
        """Whether the publisher that it followed said that the topic has ended; another one may begin it again."""
        self.description: dict[str, Any] = {}
        """What the publisher says of itself."""
        self._request = SubscribeRequest(topic, size, wants_last, program=program)
        self._policy = policy
        self._on_change = on_change
        self._lock = threading.Lock()
        self._inbox: deque[tuple[_Link, Message]] = deque()
        # Which publisher the last message came from, and its number.
        self._last_from: Publisher | None = None
        self._last_number = 0
        # The publishers that refused, which are not asked again.
        self._refused: set[Publisher] = set()
        self._retry_at: float | None = None
        self._ways = discoveries() if ways is None else ways
        self._link: _Link | None = None  # to the publisher that it follows
        self._watches: list[Watch] = []
        try:
            self._watches += (way.watch(topic) for way in self._ways)
        except BaseException:
            self._release()
            raise
        self._thread.start()

    def take(self) -> Message | None:
        """Return the next message, or None if there is none now."""
        with self._lock:
            if not self._inbox:
                return None
            link, message = self._inbox.popleft()
            self.received += 1
            before = 0
            if link.publisher == self._last_from:
                before = self._last_number
            elif self._last_from is None:  # what was published before it joined is not missed
                before = min(link.published_before, message.number - 1)
            self.missed += message.number - before - 1
            self._last_from, self._last_number = link.publisher, message.number
        if self._policy is _FAULT:
            link.receiver.give_credits(1)
        return message

    @property
    def waiting(self) -> int:
        """The number of messages in the inbox."""
        return len(self._inbox)

    @property
    def is_connected(self) -> bool:
        """Whether it has a publisher now."""
        return self._link is not None

    def _release(self) -> None:
        for watch in self._watches:
            watch.close()
        if self._link is not None:
            self._link.close()
            self._link = None
        with self._lock:
            self.undelivered = len(self._inbox)
            self._inbox.clear()

    def __repr__(self) -> str:
        state = "connected" if self.is_connected else "waits for a publisher"
        return f"<Subscription {self.topic!r}: {self.received} received, {self.missed} missed, {state}>"

    # Messages, on the thread of the link.

    def _drain(self, link: _Link) -> None:
        """Put what has arrived into the inbox."""
        has_come = False
        with self._lock:
            while (sample := self._sample_of(link)) is not None:
                number, published, data = sample.data
                if not number:  # what the publisher says of itself
                    self.description = data
                    link.published_before, link.time_base = data["published"], data["time"]
                elif link.publisher == link.joined_after and number <= link.known:
                    pass  # the last message, which was there before the connection broke
                else:
                    has_come = True
                    details = sample.acq_timestamp, sample.metadata
                    message = Message(data, *details, number, published, link.time_base)
                    if self._put(link, message):
                        continue  # the credit is given when it is taken
                link.receiver.give_credits(1)
        if has_come:
            self._tell()

    def _sample_of(self, link: _Link) -> Sample | None:
        """Return what arrived next; what cannot be read here is reported once, and missed."""
        while True:
            try:
                return link.receiver.take()
            except CrossingError as error:
                link.receiver.give_credits(1)
                self._report(error)

    def _put(self, link: _Link, message: Message) -> bool:
        """Put a message into the inbox, by the policy; return whether it keeps its place on the link."""
        if self._policy is _FAULT:
            self._inbox.append((link, message))
            return True
        if len(self._inbox) >= self._request.size:
            if self._policy is _REJECT:
                return False
            self._inbox.popleft()
        self._inbox.append((link, message))
        return False

    # The thread.

    def _descriptors(self) -> Iterable[int]:
        """Return what tells of publishers."""
        return [watch.fileno() for watch in self._watches]

    def _step(self, readable: set[int]) -> float | None:
        link = self._link
        if link is not None and link.is_over:
            self._leave(link)
        try:
            for watch in self._watches:
                watch.clear()
            self._follow_newest()
        except (OSError, TopicError) as error:  # the folder is not private any more, or no descriptor is left
            self._report(error)
            self._retry_at = time.monotonic() + _RETRY
        return None if self._retry_at is None else self._retry_at - time.monotonic()

    def _leave(self, link: _Link) -> None:
        """Close a link that has failed or ended."""
        self._drain(link)
        self._link = None
        failure = link.receiver.failure
        if failure is None:
            self.has_ended = True
            self._tell()
        elif not isinstance(failure, PeerLost):
            self._report(failure)
        link.close()

    def _follow_newest(self) -> None:
        """Connect to the newest publisher that answers, unless it is followed already."""
        self._retry_at = None
        known = sorted((each for way in self._ways for each in way.publishers(self.topic)), reverse=True)
        self._refused.intersection_update(known)
        for publisher in known:
            if self._link is not None and publisher <= self._link.publisher:
                return
            if publisher in self._refused or self._is_closing:
                continue
            if self._connect(publisher):
                return

    def _connect(self, publisher: Publisher) -> bool:
        try:
            carrier = publisher.discovery.connect(publisher, self._request.purpose())
        except PublisherGone:
            return False
        except PeerLost:
            self._retry_at = time.monotonic() + _RETRY
            return False
        except (LinkError, OSError, TopicError) as error:
            self._refused.add(publisher)
            _log.warning("topic %r cannot be received from process %d: %s", self.topic, publisher.pid, error)
            return False
        if self._link is not None:  # of an older publisher
            self._link.close()
        with self._lock:
            known = self._inbox[-1] if self._inbox else None
            after = self._last_from if known is None else known[0].publisher
            number = self._last_number if known is None else known[1].number
        receiver = Receiver(carrier, self._request.terms(), _do_nothing)
        link = _Link(receiver, publisher, after, number)
        receiver.on_event = partial(weakly(self._arrived), link)
        self.connections += 1
        self.has_ended = False
        self._link = link
        self._arrived(link)
        return True

    def _tell(self) -> None:
        """Tell the program that something has changed; messages go on if it fails."""
        try:
            self._on_change()
        except Exception as error:
            self._report(error)

    def _arrived(self, link: _Link) -> None:
        """Handle that something has changed at a link."""
        self._drain(link)
        if link.is_over:
            self._wake_up.set()


@dataclass(slots=True, eq=False)
class _Link:
    """The link to one publisher."""

    receiver: Receiver
    publisher: Publisher
    joined_after: Publisher | None
    """The publisher of the last message before, and the number of that message."""
    known: int
    published_before: int = 0
    """The number of messages that were published when it joined."""
    time_base: TimeBase | None = None
    """What the timestamps of its messages mean."""

    @property
    def is_over(self) -> bool:
        """Whether nothing more comes."""
        return self.receiver.failure is not None or self.receiver.has_ended

    def close(self) -> None:
        """Close the link.

        A received array leads to its receiver, which leads no further then. The garbage collector does not see the
        way through the memory of an array, so an operator that keeps a frame would keep itself and its program.
        """
        self.receiver.on_event = _do_nothing
        self.receiver.close()


def _do_nothing() -> None:
    pass
