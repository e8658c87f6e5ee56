"""Pace: which operators count as slow, from the times of their computes."""

from __future__ import annotations

import pytest

from headrace._runtime.scheduling.pace import SLOW, SLOW_AT_FIRST, UNKNOWN, judge

US = 1_000


@pytest.mark.parametrize("slow", [0, 1, 5])
@pytest.mark.parametrize(
    "times",
    [
        pytest.param((3000 * US, 3000 * US, 3000 * US), id="it takes long"),
        pytest.param((3000 * US, 3000 * US, 6000 * US), id="it takes long beside others"),
        pytest.param((150 * US, 5 * US, 5 * US), id="it is blocked"),
        pytest.param((3000 * US, 5 * US, 100 * US), id="it is blocked for longer than others compute"),
    ],
)
def test_a_compute_that_takes_long_or_is_blocked_is_slow(slow: int, times: tuple[int, int, int]) -> None:
    assert judge(slow, *times) == SLOW


@pytest.mark.parametrize("slow", [0, UNKNOWN, 5])
def test_a_compute_that_others_kept_from_running_says_nothing(slow: int) -> None:
    assert judge(slow, 3000 * US, 5 * US, 2990 * US) == slow


@pytest.mark.parametrize(
    "times",
    [(40 * US, 40 * US, 40 * US), (90 * US, 40 * US, 40 * US), (300 * US, 40 * US, 80 * US), (5, 0, 0)],
)
def test_an_operator_is_short_after_several_short_computes(times: tuple[int, int, int]) -> None:
    slow, computes = SLOW, 0
    while slow:
        slow = judge(slow, *times)
        computes += 1
    assert computes == SLOW
    assert judge(0, *times) == 0


def test_an_operator_that_is_unknown_is_short_after_one_short_compute() -> None:
    assert judge(UNKNOWN, US, US, US) == 0


def test_an_operator_whose_first_compute_alone_is_slow_is_short_soon() -> None:
    """The first compute of a kernel compiles it. Were it as slow as any other, each of 16 more were handed over."""
    slow = judge(UNKNOWN, 3000 * US, 3000 * US, 3000 * US)
    assert slow == SLOW_AT_FIRST
    for _ in range(SLOW_AT_FIRST):
        assert slow
        slow = judge(slow, US, US, US)
    assert slow == 0


def test_an_operator_whose_second_compute_is_slow_too_is_slow() -> None:
    assert judge(SLOW_AT_FIRST, 3000 * US, 5 * US, 5 * US) == SLOW


def test_an_operator_that_is_handed_over_does_not_stay_slow_for_that() -> None:
    """Alone it takes 30 µs. Beside others, the hand-over takes 150 more in which nobody computes."""
    assert judge(0, 30 * US, 30 * US, 30 * US) == 0
    assert judge(SLOW, 180 * US, 30 * US, 60 * US) == SLOW - 1
