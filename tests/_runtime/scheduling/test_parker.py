"""Parker: one permit ends one wait, in whichever order they come."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headrace._runtime.scheduling.ready_queue import Parker, ReadyQueue


@pytest.mark.parametrize("handles_signals", [False, True])
def test_a_permit_that_came_first_ends_one_wait_and_no_other(handles_signals: bool) -> None:
    parker = Parker(ReadyQueue(), handles_signals)
    parker.unpark()
    assert parker.park(None)
    assert not parker.park(0.0)


def test_a_permit_that_a_clock_takes_is_taken() -> None:
    """Otherwise it would end the next wait as well, and the next one that is given would be one too many."""
    parker = Parker(ReadyQueue())
    assert not parker.take()
    parker.unpark()
    assert parker.take()
    assert not parker.take()
    assert not parker.park(0.0)
    parker.unpark()  # as it may be, once


class Messages:
    """Where the worker waits for messages, and the other workers of its run."""

    def __init__(
        self,
        happens: Callable[[Parker], object] = lambda _: None,
        arrived: tuple[str, ...] = (),
        has_others: bool = False,
    ) -> None:
        self.parker = Parker(ReadyQueue(), waiting=self, has_others=has_others)
        self.happens = happens
        self.arrived = arrived
        self.is_closed = False
        self.shortest = 0.0
        self.waits: list[float] = []
        self.log: list[str] = []

    def find_messages(self) -> Messages:
        self.log.append("begins")
        return self

    def wait(self, seconds: float | None) -> tuple[str, ...]:
        if seconds is not None:
            self.waits.append(seconds)
        self.happens(self.parker)
        return self.arrived

    def leave_parked(self, parker: Parker) -> bool:
        self.log.append("is not parked")
        return parker._permit.locked()  # without a permit, nobody has woken it

    def serve(self, arrived: tuple[str, ...]) -> None:
        self.log += arrived

    def end(self) -> None:
        self.log.append("ends")

    def wake(self) -> None:
        self.log.append("is woken")


def test_a_worker_that_waits_for_messages_serves_them_when_it_is_not_parked_any_more() -> None:
    messages = Messages(arrived=("serves",))
    assert messages.parker.park(None)
    assert messages.log == ["begins", "is not parked", "serves", "ends"]


def test_a_permit_ends_the_wait_for_messages() -> None:
    messages = Messages(Parker.unpark)
    assert messages.parker.park(None)
    assert messages.log == ["begins", "is woken", "ends"]
    assert not messages.parker.take()


def test_a_permit_that_comes_with_a_message_does_not_end_the_next_wait() -> None:
    messages = Messages(Parker.unpark, ("serves",))
    assert messages.parker.park(None)
    assert messages.log == ["begins", "is woken", "is not parked", "serves", "ends"]
    assert not messages.parker.take()


@pytest.fixture
def pass_time(monkeypatch: pytest.MonkeyPatch) -> Callable[[Parker], object]:
    """A millisecond passes at each call, and no time in between."""
    now = 100.0

    def pass_a_millisecond(_: Parker) -> None:
        nonlocal now
        now += 1e-3

    monkeypatch.setattr("headrace._runtime.scheduling.ready_queue.monotonic", lambda: now)
    return pass_a_millisecond


def test_the_end_of_a_wait_is_not_for_messages_if_that_wait_may_be_too_long(pass_time: Any) -> None:
    messages = Messages(pass_time)
    messages.shortest = 2e-3
    assert not messages.parker.park(3.5e-3)
    assert messages.waits == pytest.approx([3.5e-3, 2.5e-3])


def test_a_worker_that_is_alone_waits_for_messages_until_the_last_moment(pass_time: Any) -> None:
    messages = Messages(pass_time)
    assert not messages.parker.park(1.5e-3)
    assert messages.waits == pytest.approx([1.5e-3, 0.5e-3])
    assert messages.log == ["begins", "ends"]


def test_a_worker_beside_others_leaves_messages_to_them_before_a_deadline() -> None:
    """It would wake one of them for the deadline before it handled a message."""
    messages = Messages(has_others=True)
    assert not messages.parker.park(1e-4)
    assert messages.log == []
    messages.parker.unpark()
    assert messages.parker.park(0.5)
    assert messages.log == ["begins", "ends"]


def test_a_worker_leaves_where_no_message_comes_any_more_and_waits_for_its_permit() -> None:
    def close(parker: Parker) -> None:
        assert not messages.is_closed, "it waits there again"
        messages.is_closed = True

    messages = Messages(close)
    messages.end = messages.parker.unpark  # type: ignore[method-assign]
    assert messages.parker.park(None)
