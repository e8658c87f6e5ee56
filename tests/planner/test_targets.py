"""Goals of a plan as people write them."""

from __future__ import annotations

import pytest

from headrace.planner import Target


@pytest.mark.parametrize(
    ("text", "subject", "figure", "bound"),
    [
        ("control: p99 < 500us", "control", "p99", 500e3),
        ("camera -> display: p50<20ms", "camera -> display", "p50", 20e6),
        ("vision: rate >= 60", "vision", "rate", 60),
        ("vision: rate > 50Hz", "vision", "rate", 50),
        ("a: p99 <= 1s", "a", "p99", 1e9),
    ],
)
def test_a_goal_is_read(text: str, subject: str, figure: str, bound: float) -> None:
    target = Target.parse(text)
    assert (target.subject, target.figure) == (subject, figure)
    assert target.bound == pytest.approx(bound)
    assert Target.parse(str(target)) == target


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("control p99 < 500us", "a goal is written as"),
        ("control: p98 < 500us", "did you mean 'p99'"),
        ("control: p99 > 500us", "p99 is bounded by '<'"),
        ("vision: rate < 60", "rate is bounded by '>='"),
        ("control: p99 < 0ms", "must be a finite number above 0"),
        ("control: rate >= nan", "must be a finite number above 0"),
        ("control: rate >= inf", "must be a finite number above 0"),
        ("control: p99 < soon", "p99 must be"),
    ],
)
def test_another_text_is_refused_with_what_would_be_right(text: str, error: str) -> None:
    with pytest.raises(ValueError, match="goal") as raised:
        Target.parse(text)
    assert error in str(raised.value)


def test_the_rate_of_a_clock_is_met_within_a_thousandth_and_a_latency_exactly() -> None:
    rate, latency = Target.parse("a: rate >= 60"), Target.parse("a: p99 < 1ms")
    assert rate.is_met(59.95)
    assert not rate.is_met(59.9)
    assert latency.is_met(1e6)
    assert not latency.is_met(1e6 + 1)


def test_a_goal_keeps_its_bound_and_figures_have_few_digits() -> None:
    target = Target.parse("net: p99 < 12.3456789ms")
    assert Target.parse(str(target)) == target
    assert [target.shown(value) for value in (1_500, 12_345_678, 2.5e9, 3e10)] == [
        "1.5us",
        "12.35ms",
        "2500ms",
        "30s",
    ]
