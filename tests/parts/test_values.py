"""Values on their way to a part."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

from headrace.parts.values import Values
from tests.harness import wait_until


def test_whoever_sets_a_value_while_its_part_is_started_again_waits_for_the_last_one_at_most() -> None:
    operator: Any = SimpleNamespace(name="scale", fragment=SimpleNamespace(name="server"))
    values = Values(lambda: None)
    waiting = []
    with ThreadPoolExecutor(3) as pool:
        try:
            for number in range(1, 4):  # in turn, so that the last one is known
                waiting.append(pool.submit(values.set, operator, "set_live", "gain", number))
                wait_until(lambda number=number: number in values._answers, f"call {number}")  # type: ignore[misc]
            assert [wanted.number for wanted in values.take()] == [1, 2, 3]
            (last,) = values.of("server")
            assert last.number == 3  # the only one that is sent to the process in the place of a lost one
            values.answer(last.number)
            assert not values._answers
        finally:
            values.close()
    assert [each.result() for each in waiting] == [None] * 3
