"""The offset of another host's clock, from answers with made-up delays."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.observe.events.clock_offsets import (
    Answer,
    ClockOffset,
    OffsetMeasurement,
    clock_offset,
    describe_clocks,
)

DELAYS = st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 10**9)), min_size=1, max_size=20)


@given(true=st.integers(-(10**15), 10**15), delays=DELAYS)
def test_the_true_offset_lies_within_the_error(true: int, delays: list[tuple[int, int]]) -> None:
    answers = [
        Answer(number, number + there - true, number + there + back)
        for number, (there, back) in enumerate(delays)
    ]
    found = clock_offset(answers)
    assert abs(found.offset - true) <= found.error
    assert found.error == (min(there + back for there, back in delays) + 1) // 2


def test_the_fastest_answer_counts_until_it_is_old() -> None:
    measured = OffsetMeasurement()
    assert measured.add(Answer(100, 1000, 110)) == ClockOffset(-895, 5, is_shared=False)
    for _ in range(15):
        assert measured.add(Answer(200, 1150, 300)).error == 5
    assert measured.is_sure
    assert measured.add(Answer(200, 1150, 300)) == ClockOffset(-900, 50, is_shared=False)


def test_clocks_are_stated() -> None:
    clocks = {"a": ClockOffset(), "b": ClockOffset(-1_500_000, 20_000, is_shared=False), "c": ClockOffset()}
    assert describe_clocks(clocks) == [
        "clocks: a, c read the clock of one host, offset 0",
        "clock of b: -1.500 ms ± 0.020 ms added",
    ]
    assert describe_clocks({}) == []
