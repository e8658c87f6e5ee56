"""Values on their way to a part."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.core.errors import Failure
from headrace.parts.values import Values
from tests.harness import PATIENCE, wait_until

OPERATOR: Any = SimpleNamespace(name="scale", fragment=SimpleNamespace(name="server"))
REFUSED = Failure.of(ValueError("too large"))


@contextmanager
def waiting(count: int) -> Iterator[tuple[Values, list[Future[None]]]]:
    """Values that were set by as many threads, in turn, and were sent to the part."""
    values = Values(lambda: None)
    with ThreadPoolExecutor(count) as pool:
        try:
            calls = []
            for number in range(1, count + 1):
                calls.append(pool.submit(values.set, OPERATOR, "set_live", "gain", number))
                wait_until(lambda number=number: number in values._answers, f"call {number}")  # type: ignore[misc]
            assert [wanted.number for wanted in values.take()] == list(range(1, count + 1))
            yield values, calls
        finally:
            values.close()


def sent_again(values: Values) -> list[int]:
    return [wanted.number for wanted in values.of("server")]


def test_whoever_sets_a_value_while_its_part_is_started_again_has_an_answer_of_the_new_process() -> None:
    with waiting(3) as (values, calls):
        assert sent_again(values) == [1, 2, 3]
        for number in sent_again(values):
            values.answer(number)
        assert not values._answers
        assert [call.result(PATIENCE) for call in calls] == [None] * 3
        assert sent_again(values) == [3]


def test_a_refused_value_leaves_the_accepted_one_before_it() -> None:
    with waiting(2) as (values, calls):
        values.answer(1)
        assert sent_again(values) == [1, 2]  # the second may be refused by the new process
        values.answer(2, REFUSED)
        with pytest.raises(ValueError, match="too large"):
            calls[1].result(PATIENCE)
        assert sent_again(values) == [1]
        values.answer(1)  # the new process has it
        assert sent_again(values) == [1]


def test_values_of_other_names_are_kept_beside_it() -> None:
    with waiting(1) as (values, _):
        values.answer(1)
        with ThreadPoolExecutor(1) as pool:
            call = pool.submit(values.set, OPERATOR, "set_knob", "gain", 7)
            wait_until(lambda: 2 in values._answers, "the call")
            values.take()
            values.answer(2)
            call.result(PATIENCE)
        assert sent_again(values) == [1, 2]
