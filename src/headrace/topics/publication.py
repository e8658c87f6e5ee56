"""Publication: a topic that this program publishes, and its subscribers.

Each subscriber has a link of its own, and in front of it an outbox: a short queue with the policy of the topic. A
thread of the publication takes messages from the outboxes to the links. So `publish` only puts a message into the
outboxes, whatever the subscribers do, and a subscriber that is slow, frozen or killed costs the others nothing.
A frozen subscriber is noticed by its link, which then fails.

One ring of shared memory for all subscribers was decided against: a slot would be free when the last of them is
done with it, so that a frozen one could hold the memory of all.
"""

from __future__ import annotations

import logging
import math
import os
import socket
import threading
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.core.errors import LinkError, PeerLost, TopicError
from headrace.core.ports import IOSpec
from headrace.link.channel import pack
from headrace.link.handshake import Purpose
from headrace.link.protocol import Sample
from headrace.link.sender import Sender
from headrace.topics.discovery import check_topic, discoveries
from headrace.topics.topic_end import DESCRIBE, TOPIC, SubscribeRequest, TopicEnd, check_queue, weakly

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from headrace.core.control import TimeBase
    from headrace.link.carrier import Carrier
    from headrace.topics.discovery import Announcement, Discovery

_log = logging.getLogger("headrace.topics")
_POP, _REJECT, _FAULT = IOSpec.QueuePolicy.POP, IOSpec.QueuePolicy.REJECT, IOSpec.QueuePolicy.FAULT
_PATIENCE = 3.0  # seconds within which a subscriber must answer
_RETRY = 1.0  # seconds until a publisher that cannot be announced is announced again


class _Item(NamedTuple):
    """A message, with the event after the work on the device that makes it, if there is any."""

    sample: Sample
    event: Any = None


class Publication(TopicEnd):
    """A topic that this program publishes, until it is closed.

    One that is dropped without `close` ends, too, and the log says so.

    Parameters
    ----------
    topic
        The name.
    program
        The name of the program, which is shown to subscribers.
    size, policy
        The queue in front of each subscriber: its length, and what it does when it is full.
    keep_last
        Whether the last message is kept for subscribers that join later.
    time_base
        What the acquisition timestamps mean: None if they are of a time that means nothing elsewhere, as that of
        a simulated device. Those that count since 1970 mean the same everywhere.
    on_room
        Called, on any thread, when `has_room` or `is_idle` may have become true. It must not close the publication.
    ways
        How it is found; by default as the environment says.
    """

    def __init__(
        self,
        topic: str,
        *,
        program: str = "",
        size: int = 1,
        policy: IOSpec.QueuePolicy = _POP,
        keep_last: bool = True,
        time_base: TimeBase | None = None,
        on_room: Callable[[], object] = lambda: None,
        ways: Sequence[Discovery] | None = None,
    ) -> None:
        super().__init__(check_topic(topic))
        check_queue(f"Publication({topic!r})", size, policy)
        self.program = program
        self.size, self.policy = size, policy
        self.published = 0
        """The number of messages that were published."""
        self._time_base = time_base
        self._keep_last = keep_last
        self._on_room = on_room
        self._lock = threading.Lock()
        self._last: _Item | None = None
        self._gone_sent = self._gone_lost = 0
        self._subscribers: list[Subscriber] = []
        self._arriving: list[Subscriber] = []  # whose connection is made, and who have not answered
        self._announced: dict[Discovery, Announcement] = {}
        self._look_again_at = math.inf
        ways = discoveries() if ways is None else ways
        # By the clocks of two hosts, a publisher that is there already may seem to begin later than this one.
        self._started = max(time.time_ns(), self._find_others(ways) + 1)
        self._thread.start()
        try:
            for way in ways:
                self._announce(way)
                self._wake_up.set()
        except BaseException:
            self.close()
            raise

    def _announce(self, way: Discovery) -> None:
        self._announced[way] = way.announce(self.topic, self._started, weakly(self._taker_of))

    # What the operator uses.

    def publish(
        self,
        data: Any,
        *,
        acq_timestamp: int | None = None,
        metadata: dict[str, Any] | None = None,
        event: Any = None,
    ) -> None:
        """Send a message to every subscriber; it is copied later, so it must not be changed any more.

        Parameters
        ----------
        data
            The message.
        acq_timestamp, metadata
            What travels with it: when it was acquired, in nanoseconds, and metadata.
        event
            An event after the work on the device that makes it.
        """
        with self._lock:
            self.published += 1
            item = _Item(Sample((self.published, time.time_ns(), data), acq_timestamp, metadata), event)
            if self._keep_last:
                self._last = item
            for subscriber in self._subscribers:
                subscriber.offer(item)
            is_awaited = bool(self._subscribers)
        if is_awaited:
            self._wake_up.set()

    @property
    def has_room(self) -> bool:
        """Whether a message can be published now; only with the policy FAULT it may have to wait."""
        if self.policy is not _FAULT:
            return True
        with self._lock:  # a message that is being put back is nowhere for a moment
            return all(not each.is_full for each in self._subscribers)

    @property
    def is_idle(self) -> bool:
        """Whether every message was sent, or given up."""
        with self._lock:
            return not any(each.outbox or each.is_sending for each in self._subscribers)

    @property
    def sent(self) -> int:
        """The number of messages that were sent, to all subscribers together."""
        return self._gone_sent + sum(each.sent for each in self._subscribers)

    @property
    def lost(self) -> int:
        """The number of messages that subscribers did not get, because they were too slow or went away."""
        return self._gone_lost + sum(each.lost for each in self._subscribers)

    @property
    def subscribers(self) -> list[Subscriber]:
        """Those who are connected."""
        return list(self._subscribers)

    def describe(self) -> dict[str, Any]:
        """Return what a subscriber is told when it joins, and whoever asks."""
        return {
            "topic": self.topic,
            "program": self.program,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "policy": self.policy.name,
            "published": self.published,
            "time": self._time_base,
            "subscribers": [
                {
                    "pid": each.request.pid,
                    "program": each.request.program,
                    "sent": each.sent,
                    "lost": each.lost,
                }
                for each in self.subscribers
            ],
        }

    def _release(self) -> None:
        """Tell the subscribers that the topic has ended; what is still in their outboxes is lost, and counted."""
        for announcement in self._announced.values():
            announcement.close()
        for subscriber in (*self._arriving, *self._subscribers):
            subscriber.sender.end()
            self._remove(subscriber)
        self._last = None

    def __repr__(self) -> str:
        counts = f"{self.published} published, {self.sent} sent, {self.lost} lost"
        return f"<Publication {self.topic!r}: {counts}, {len(self._subscribers)} subscribers>"

    # The threads of the listeners.

    def _taker_of(self, purpose: Purpose) -> Callable[[Carrier], None] | None:
        """Return what makes a subscriber of a connection, or answers it; None if it is for another topic."""
        if purpose == Purpose(DESCRIBE, self.topic):
            return self._tell
        if purpose.kind != TOPIC:
            return None
        request = SubscribeRequest.of(purpose)
        return partial(self._join, request) if request.topic == self.topic else None

    def _tell(self, carrier: Carrier) -> None:
        """Send the description of the topic, which ends the connection."""
        carrier.send(*pack(self.describe()))
        carrier.close()

    def _join(self, request: SubscribeRequest, carrier: Carrier) -> None:
        # The message has other receivers, and each subscriber may write to what it got.
        sender = Sender(carrier, request.terms(), self._wake_up.set, sends_in_place=False)
        subscriber = Subscriber(request, sender, self.size, self.policy)
        with self._lock:
            self._arriving.append(subscriber)
        self._wake_up.set()

    # The thread of the publication.

    def _descriptors(self) -> Iterable[int]:
        """Return what tells of a change where the topic is announced."""
        announced = list(self._announced.values())
        return {each.watch.fileno() for each in announced if each.watch is not None}

    def _step(self, readable: set[int]) -> float | None:
        if readable.intersection(self._descriptors()) or time.monotonic() >= self._look_again_at:
            self._announce_again()
        for subscriber in (*self._arriving, *self._subscribers):
            try:
                if subscriber in self._arriving:
                    self._admit(subscriber)
                self._flush(subscriber)
            except Exception as error:  # the others go on
                self._report(error, str(subscriber))
                self._remove(subscriber)
        try:
            self._on_room()
        except Exception as error:  # of the program, whose subscribers go on
            self._report(error)
        until = min((self._look_again_at, *(each.until for each in self._arriving)))
        return None if until == math.inf else until - time.monotonic()

    def _announce_again(self) -> None:
        """Announce the topic once more where somebody has removed what announces it; subscribers stay connected."""
        self._look_again_at = math.inf
        for way, announcement in list(self._announced.items()):
            if announcement.watch is None:
                continue
            try:
                announcement.watch.clear()
                if not announcement.is_there():
                    self._announce(way)
                    announcement.close()
            except (
                OSError,
                TopicError,
            ) as error:  # the folder is not private any more, or no descriptor is left
                self._report(error)
                self._look_again_at = time.monotonic() + _RETRY

    def _admit(self, subscriber: Subscriber) -> None:
        """Tell a subscriber what the topic is; when it has taken that, it is there, and gets messages."""
        sender = subscriber.sender
        if not subscriber.is_described:
            subscriber.is_described = sender.send(Sample((0, time.time_ns(), self.describe())))
        if sender.credited:
            with self._lock:
                self._arriving.remove(subscriber)
                self._subscribers.append(subscriber)
                if self._last is not None and subscriber.request.wants_last:
                    subscriber.offer(self._last)
        elif time.monotonic() >= subscriber.until:
            self._report(PeerLost("it has not answered"), str(subscriber))
            self._remove(subscriber)

    def _flush(self, subscriber: Subscriber) -> None:
        """Send what a subscriber can take now; remove it if its link has failed."""
        sender = subscriber.sender
        while sender.failure is None and not sender.has_ended:
            with self._lock:
                item = subscriber.next()
            if item is None:
                break
            has_gone = self._send(subscriber, item)
            with self._lock:
                subscriber.after(item, has_gone)
            if not has_gone:
                break
        if sender.failure is not None:
            self._report(sender.failure, str(subscriber))
        if sender.failure is not None or sender.has_ended:
            self._remove(subscriber)

    def _send(self, subscriber: Subscriber, item: _Item) -> bool:
        """Send a message, or give it up; return False if it has to wait."""
        try:
            if item.event is not None:
                item.event.sync()
            is_sent = subscriber.sender.send(item.sample)
        except LinkError:
            return False
        except Exception as error:
            # A message that cannot be sent: an object that cannot be pickled, or work on the device that failed.
            self._report(error)
            subscriber.lost += 1
            return True
        subscriber.sent += is_sent
        return is_sent

    def _remove(self, subscriber: Subscriber) -> None:
        with self._lock:
            if subscriber in self._subscribers:
                self._subscribers.remove(subscriber)
                self._gone_sent += subscriber.sent
                self._gone_lost += subscriber.lost + len(subscriber.outbox)
            elif subscriber in self._arriving:
                self._arriving.remove(subscriber)
        subscriber.sender.close()

    def _find_others(self, ways: Sequence[Discovery]) -> int:
        """Warn of the publishers that are there, and return when the newest of them began; 0 without any."""
        newest = 0
        for way in ways:
            for other in way.publishers(self.topic):
                if not way.is_alive(other):
                    continue
                _log.warning(
                    "topic %r is published by process %d%s, too; subscribers follow the newest publisher, which is "
                    "this one now",
                    self.topic,
                    other.pid,
                    f" on {other.host}" if other.host else "",
                )
                newest = max(newest, other.started)
        return newest


class Subscriber:
    """One subscriber of a publication, and its outbox. Whoever changes it holds the lock of the publication."""

    def __init__(
        self, request: SubscribeRequest, sender: Sender, size: int, policy: IOSpec.QueuePolicy
    ) -> None:
        self.request = request
        self.sender = sender
        self.sent = 0
        self.lost = 0
        """The number of messages that its outbox dropped, or that could not be sent."""
        self.outbox: deque[_Item] = deque()
        self.is_sending = False
        self._size, self._policy = size, policy
        self.is_described = False
        """Whether it was told what the topic is."""
        self.until = time.monotonic() + _PATIENCE
        """When it must have answered."""

    def __str__(self) -> str:
        return f", subscriber {self.request.program!r} ({self.request.pid})"

    @property
    def is_full(self) -> bool:
        """Whether its outbox has no room."""
        return len(self.outbox) + self.is_sending >= self._size

    def offer(self, item: _Item) -> None:
        """Put a message into the outbox, by the policy."""
        if self.is_full:
            if self._policy is _REJECT:
                self.lost += 1
                return
            if self.outbox:  # or else the message that is being sent; `after` counts it if it was not
                self.lost += 1
                self.outbox.popleft()
        self.outbox.append(item)

    def next(self) -> _Item | None:
        """Take the next message to be sent, or None."""
        if not self.outbox:
            return None
        self.is_sending = True
        return self.outbox.popleft()

    def after(self, item: _Item, has_gone: bool) -> None:
        """Note that a message was sent, or put it back, unless newer ones have taken its place."""
        self.is_sending = False
        if has_gone:
            return
        if len(self.outbox) < self._size:
            self.outbox.appendleft(item)
        else:
            self.lost += 1
