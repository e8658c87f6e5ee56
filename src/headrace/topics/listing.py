"""list_topics: who publishes what, now."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace import waits
from headrace.core.errors import LinkError
from headrace.link.receiver import Receiver
from headrace.topics.discovery import discoveries
from headrace.topics.topic_end import SubscribeRequest

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
    """Join a topic for the moment in which its publisher says what it is."""
    request = SubscribeRequest(publisher.topic, wants_last=False, program="headrace topics")
    came = threading.Event()
    try:
        carrier = publisher.discovery.connect(publisher, request.purpose())
    except (LinkError, OSError):
        return {}
    receiver = Receiver(carrier, request.terms(), came.set)
    until = time.monotonic() + _PATIENCE
    try:
        while (sample := receiver.take()) is None:
            if (
                receiver.failure is not None
                or receiver.has_ended
                or not waits.wait(came, until - time.monotonic())
            ):
                return {}
            came.clear()
        description: dict[str, Any] = sample.data[2]
    except LinkError:
        return {}
    finally:
        receiver.close()
    return description
