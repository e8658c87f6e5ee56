"""list_topics: who publishes what, now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.core.errors import LinkError
from headrace.link.channel import Channel
from headrace.link.handshake import Purpose
from headrace.topics.discovery import discoveries
from headrace.topics.topic_end import DESCRIBE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.topics.discovery import Discovery, Publisher

_PATIENCE = 2.0  # seconds for a publisher to say what it publishes


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
        return channel.receive_one() or {} if channel.has_data(_PATIENCE) else {}
    finally:
        channel.close()
