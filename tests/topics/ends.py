"""Publications and subscriptions that tests wait for."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from headrace.core import IOSpec
from headrace.topics import Message, Publication, Subscription
from tests.harness import PATIENCE, wait_until

POP, REJECT, FAULT = IOSpec.QueuePolicy.POP, IOSpec.QueuePolicy.REJECT, IOSpec.QueuePolicy.FAULT


@contextmanager
def published(topic: str = "a", **options: Any) -> Iterator[Publication]:
    publication = Publication(topic, **options)
    try:
        yield publication
    finally:
        publication.close()


class Reader:
    """A subscription that a test takes messages from, and waits for."""

    def __init__(self, topic: str = "a", **options: Any) -> None:
        self._changed = threading.Condition()
        self.subscription = Subscription(topic, on_change=self._tell, **options)

    def _tell(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def next(self) -> Message:
        """Wait for the next message."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.subscription.waiting, PATIENCE), "no message came"
        message = self.subscription.take()
        assert message is not None
        return message

    def values(self, count: int) -> list[Any]:
        return [self.next().data for _ in range(count)]

    def wait_for_end(self) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.subscription.has_ended, PATIENCE), "no end came"


@contextmanager
def reading(topic: str = "a", **options: Any) -> Iterator[Reader]:
    reader = Reader(topic, **options)
    try:
        yield reader
    finally:
        reader.subscription.close()


def await_subscribers(publication: Publication, count: int = 1) -> None:
    wait_until(lambda: len(publication.subscribers) == count, f"{count} subscribers")


def await_idle(publication: Publication) -> None:
    wait_until(lambda: publication.is_idle, "everything was sent")


def await_connection(reader: Reader, count: int = 1) -> None:
    wait_until(lambda: reader.subscription.connections == count, f"connection {count}")


def link_of(reader: Reader) -> Any:
    """Return the link to the publisher, which may have heard of it before the reader has it."""
    wait_until(lambda: reader.subscription.is_connected, "the link")
    return reader.subscription._link
