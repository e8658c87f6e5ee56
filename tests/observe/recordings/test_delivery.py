"""Delivery: snapshots reach a function on another thread, in order or as they become ready."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from headrace.observe.recordings.delivery import Delivery
from headrace.observe.recordings.snapshots import Snapshot
from tests.harness import PATIENCE


class Stream:
    """A stream that has not passed its work until somebody waits for it."""

    def sync(self) -> None:
        pass


class Slow(Snapshot):
    """A snapshot that is not ready, and tells when the thread of the delivery has seen it."""

    seen = threading.Event()

    @property
    def is_ready(self) -> bool:
        if threading.current_thread().name == "delivery":
            self.seen.set()
        return super().is_ready


@pytest.mark.parametrize("in_order", [True, False])
def test_a_ready_snapshot_overtakes_another_only_if_it_may(in_order: bool) -> None:
    delivered: list[str] = []
    may_go_on = threading.Event()

    def deliver(snapshot: Snapshot, name: str) -> None:
        may_go_on.wait(PATIENCE)
        delivered.append(name)

    delivery = Delivery(deliver, "delivery", in_order)
    Slow.seen.clear()
    for snapshot, name in ((Snapshot(), "first"), (Slow(streams=[Stream()]), "slow"), (Snapshot(), "fast")):
        delivery.put(snapshot, name)
    may_go_on.set()
    assert Slow.seen.wait(PATIENCE)
    assert delivery.close() == 0
    assert delivered == (["first", "slow", "fast"] if in_order else ["first", "fast", "slow"])


def test_an_error_of_a_stream_ends_the_delivery() -> None:
    class Failing(Stream):
        def sync(self) -> None:
            raise RuntimeError("the device failed")

    delivered: list[Any] = []
    delivery = Delivery(lambda *given: delivered.append(given), "test")
    delivery.put(Snapshot(streams=[Failing(), Stream()]), None)
    delivery.close()
    assert str(delivery.error) == "the device failed"
    assert not delivered
