"""Reading ahead: bounded, in order, and over when it is closed."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from headrace.video import ReadAhead


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before  # one of another test may have ended meanwhile


def numbers(made: list[int], closed: list[bool]) -> Iterator[int]:
    try:
        for number in range(1_000_000):
            made.append(number)
            yield number
    finally:
        closed.append(True)


def test_no_more_is_made_than_may_wait() -> None:
    made: list[int] = []
    closed: list[bool] = []
    ahead = ReadAhead(numbers(made, closed), 3)
    ahead.wait(3)
    assert ahead.peek(2) == [0, 1]
    assert ahead.take(2) == [0, 1]
    ahead.wait(3)
    assert len(made) <= 6  # three that wait, two that were taken, one in the thread's hand
    ahead.close()
    ahead.close()
    assert closed == [True]


def test_an_error_comes_after_what_was_made_before_it() -> None:
    def failing() -> Iterator[int]:
        yield 1
        raise ZeroDivisionError

    ahead = ReadAhead(failing(), 4)
    assert ahead.take(2) == [1]
    assert not ahead.is_finished
    with pytest.raises(ZeroDivisionError):
        ahead.take()
    assert ahead.is_finished
    ahead.close()


def test_every_change_is_announced() -> None:
    announced = threading.Semaphore(0)
    ahead = ReadAhead((number for number in range(2)), 4, announced.release)
    for _ in range(3):  # two items and the end
        announced.acquire()
    ahead.close()


def test_asking_for_more_than_may_wait_gives_what_may() -> None:
    ahead = ReadAhead((number for number in range(5)), 2)
    ahead.wait(10)
    assert ahead.has(10)
    ahead.close()


def test_a_depth_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        ReadAhead((number for number in range(2)), 0)
