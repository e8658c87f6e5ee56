"""Pace: which operators count as slow, from the times of their computes."""

from __future__ import annotations

import pytest

from headrace._runtime.scheduling.pace import SLOW, SUSPECTED, UNKNOWN, judge

US = 1_000


SLOW_TIMES = pytest.mark.parametrize(
    "times",
    [
        pytest.param((3000 * US, 3000 * US, 3000 * US), id="it takes long"),
        pytest.param((3000 * US, 3000 * US, 6000 * US), id="it takes long beside others"),
        pytest.param((150 * US, 5 * US, 5 * US), id="it is blocked"),
        pytest.param((3000 * US, 5 * US, 100 * US), id="it is blocked for longer than others compute"),
    ],
)


@SLOW_TIMES
@pytest.mark.parametrize("slow", [UNKNOWN, 5, SUSPECTED, -1])
def test_a_compute_that_takes_long_or_is_blocked_is_slow(slow: int, times: tuple[int, int, int]) -> None:
    assert judge(slow, False, *times, True) == SLOW


@SLOW_TIMES
@pytest.mark.parametrize("is_first", [False, True])
def test_an_operator_that_was_short_is_suspected_after_one_slow_compute(
    is_first: bool, times: tuple[int, int, int]
) -> None:
    """The host may have been busy."""
    assert judge(0, is_first, *times, True) == SUSPECTED


def test_a_suspected_operator_is_short_again_after_several_short_computes() -> None:
    slow, computes = SUSPECTED, 0
    while slow:
        slow = judge(slow, False, 40 * US, 40 * US, 40 * US, True)
        computes += 1
    assert computes == 16


@pytest.mark.parametrize("slow", [0, UNKNOWN, 5, SUSPECTED])
def test_a_compute_whose_core_another_program_had_says_nothing(slow: int) -> None:
    assert judge(slow, False, 3000 * US, 5 * US, 5 * US, False) == slow


@pytest.mark.parametrize("slow", [0, UNKNOWN, 5, SUSPECTED])
def test_a_compute_that_others_kept_from_running_says_nothing(slow: int) -> None:
    assert judge(slow, False, 3000 * US, 5 * US, 2990 * US, True) == slow


@pytest.mark.parametrize(
    "times",
    [(40 * US, 40 * US, 40 * US), (90 * US, 40 * US, 40 * US), (300 * US, 40 * US, 80 * US), (5, 0, 0)],
)
def test_an_operator_is_short_after_several_short_computes(times: tuple[int, int, int]) -> None:
    slow, computes = SLOW, 0
    while slow:
        slow = judge(slow, False, *times, True)
        computes += 1
    assert computes == SLOW
    assert judge(0, False, *times, True) == 0


def test_an_operator_that_is_unknown_is_short_after_one_short_compute() -> None:
    assert judge(UNKNOWN, True, US, US, US, True) == 0


@pytest.mark.parametrize("slow", [UNKNOWN, 5, SUSPECTED])
def test_a_first_compute_on_a_worker_that_is_slow_says_nothing(slow: int) -> None:
    """It may have compiled a kernel, or made CUDA ready for the thread."""
    assert judge(slow, True, 3000 * US, 3000 * US, 3000 * US, True) == slow
    assert judge(slow, True, 3000 * US, 5 * US, 5 * US, True) == slow


def test_an_operator_that_is_handed_over_does_not_stay_slow_for_that() -> None:
    """Alone it takes 30 µs. Beside others, the hand-over takes 150 more in which nobody computes."""
    assert judge(0, False, 30 * US, 30 * US, 30 * US, True) == 0
    assert judge(SLOW, False, 180 * US, 30 * US, 60 * US, True) == SLOW - 1
