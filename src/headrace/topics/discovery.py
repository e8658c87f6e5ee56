"""Discovery: how subscribers find the publishers of a topic.

There are two ways behind one small interface: a private folder of sockets for the programs of one host
(`TopicFolder`), and Zenoh for other hosts (`ZenohDiscovery`), where the environment asks for it. Either knows names
and who is there; no frame passes through it.

Several publishers may have one name: a program that is restarted overlaps with the one before, which may hang.
A subscriber follows the newest, and goes back to the next one when the newest is gone. To refuse the second
publisher was decided against: it would have to wait for a program that may never answer.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from headrace.core.errors import LinkError, TopicError
from headrace.link.channel import Channel
from headrace.link.handshake import Purpose
from headrace.topics.topic_end import DESCRIBE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.link.carrier import Carrier
    from headrace.link.listener import FindTaker

_NAME = re.compile(r"[A-Za-z0-9_-]+(/[A-Za-z0-9_-]+)*")
_LONGEST = 56  # the path of a socket has at most 107 bytes (`folder`)
PATIENCE = 2.0
"""The seconds within which a publisher must answer; one that does not is asked again."""


@dataclass(frozen=True, slots=True, order=True)
class Publisher:
    """A publisher of a topic, as it is announced; the newest compares as the greatest."""

    started: int
    """When it began, in nanoseconds since 1970."""
    pid: int
    topic: str
    is_local: bool
    """Whether it was found on this host; one that both discoveries find is better reached without the network."""
    place: str
    """Where it listens: the name of a socket in the folder, or ``host:port``."""
    host: str = ""
    """The name of its host; empty for this host."""
    discovery: Discovery = field(compare=False, repr=False, kw_only=True)


class Announcement(Protocol):
    """A publisher that others can find, and that listens, until it is closed."""

    @property
    def watch(self) -> Watch | None:
        """Tells that somebody may have removed it; None where nobody can."""

    def is_there(self) -> bool:
        """Return whether others can find it."""

    def close(self) -> None:
        """Be found no more, and listen no more."""


class Watch(Protocol):
    """Tells that publishers have come, or that one may be gone."""

    def fileno(self) -> int:
        """Return the descriptor that becomes readable then."""

    def clear(self) -> None:
        """Let it be readable no more, until something else happens."""

    def close(self) -> None:
        """Watch no more."""


class Discovery(Protocol):
    """One way to find publishers."""

    def announce(self, topic: str, started: int, find_taker: FindTaker) -> Announcement:
        """Listen for subscribers of a topic, and let them find it; `started` is the same in all discoveries."""

    def publishers(self, topic: str = "") -> list[Publisher]:
        """Return the publishers of a topic, or of all; some may be gone."""

    def watch(self, topic: str) -> Watch:
        """Watch for new publishers of a topic; it may also tell of other topics."""

    def is_alive(self, publisher: Publisher) -> bool:
        """Return whether a publisher still listens."""

    def connect(self, publisher: Publisher, purpose: Purpose) -> Carrier:
        """Connect to a publisher, with the handshake; raise PublisherGone if it has ended, or LinkError."""


class PublisherGone(LinkError):
    """A publisher has ended."""


def check_topic(topic: object) -> str:
    """Return the name of a topic; raise TopicError if it is none."""
    if not isinstance(topic, str) or len(topic) > _LONGEST or not _NAME.fullmatch(topic):
        raise TopicError(
            f"the name of a topic has letters, digits, '_' and '-', with '/' between its parts, and at most "
            f"{_LONGEST} characters, as in 'plant/boxes', not {topic!r}"
        )
    return topic


def discoveries() -> list[Discovery]:
    """Return the ways to find publishers that this process uses."""
    from headrace.topics.folder import TopicFolder

    found: list[Discovery] = [TopicFolder()]
    if os.environ.get("HEADRACE_TOPICS_ADDRESS"):
        from headrace.topics.zenoh_discovery import zenoh_discovery

        found.append(zenoh_discovery())
    return found


# Who publishes what, now.


@dataclass(frozen=True, slots=True)
class ListedTopic:
    """A topic and its publisher."""

    topic: str
    pid: int
    host: str
    description: dict[str, Any]
    """What the publisher says of itself; empty if it does not answer."""


def list_topics(ways: Sequence[Discovery] | None = None) -> list[ListedTopic]:
    """Return the publishers of all topics, by name, the newest first; those that have ended are removed."""
    ways = discoveries() if ways is None else ways
    found = sorted(each for way in ways for each in way.publishers() if way.is_alive(each))
    # One that is found here and by the network is listed once, as found here.
    each_once = {(each.started, each.pid, each.topic): each for each in found}.values()
    return [
        ListedTopic(each.topic, each.pid, each.host, _description_of(each))
        for each in sorted(each_once, key=lambda each: (each.topic, -each.started))
    ]


def _description_of(publisher: Publisher) -> dict[str, Any]:
    """Ask a publisher what it is."""
    try:
        carrier = publisher.discovery.connect(publisher, Purpose(DESCRIBE, publisher.topic))
    except (LinkError, OSError):
        return {}
    channel = Channel(carrier)
    try:
        return channel.receive_one() or {} if channel.has_data(PATIENCE) else {}
    finally:
        channel.close()
