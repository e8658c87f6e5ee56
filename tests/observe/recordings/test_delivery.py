"""Delivery: snapshots reach a function on another thread, in order."""

from __future__ import annotations

from typing import Any

from headrace.observe.recordings.delivery import Delivery
from headrace.observe.recordings.snapshots import Snapshot


class Stream:
    """A stream that has not passed its work until somebody waits for it."""

    def sync(self) -> None:
        pass


def test_a_snapshot_waits_for_those_before_it() -> None:
    delivered: list[str] = []
    delivery = Delivery(lambda snapshot, name: delivered.append(name), "delivery")
    for snapshot, name in (
        (Snapshot(), "first"),
        (Snapshot(streams=[Stream()]), "slow"),
        (Snapshot(), "fast"),
    ):
        delivery.put(snapshot, name)
    assert delivery.close() == 0
    assert delivered == ["first", "slow", "fast"]


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
