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


@pytest.mark.parametrize("in_order", [True, False])
def test_a_ready_snapshot_overtakes_another_only_if_it_may(in_order: bool) -> None:
    delivered: list[str] = []
    fast = threading.Event()

    def deliver(snapshot: Snapshot, name: str) -> None:
        delivered.append(name)
        fast.set()

    delivery = Delivery(deliver, "test", in_order)
    slow = Snapshot(_streams=[Stream()])
    delivery.put(slow, "slow")
    delivery.put(Snapshot(), "fast")
    if not in_order:
        assert fast.wait(PATIENCE)
    assert delivery.close() == 0
    assert delivered == (["slow", "fast"] if in_order else ["fast", "slow"])


def test_an_error_of_a_stream_reaches_whoever_takes_the_snapshot() -> None:
    class Failing(Stream):
        def sync(self) -> None:
            raise RuntimeError("the device failed")

    errors: list[Any] = []
    delivery = Delivery(lambda snapshot, _: errors.append(snapshot.error), "test")
    delivery.put(Snapshot(_streams=[Failing(), Stream()]), None)
    delivery.close()
    assert [str(error) for error in errors] == ["the device failed"]
