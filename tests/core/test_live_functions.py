"""Live parameters of functions: @op(live=...)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headrace import Application, CountCondition, op, parameter
from headrace.core import GraphError
from tests.harness import MakeScheduler


@op
def source() -> int:
    return 1


def program(function: Any, set_at: Callable[[Any], None], schedule: MakeScheduler | None = None) -> list[Any]:
    """Run a function on three messages, and call `set_at` with its operator when the second one arrives."""
    seen: list[Any] = []

    class Program(Application):
        def compose(self) -> None:
            if schedule is not None:
                self.scheduler(schedule(self))
            stage = function(self, name="stage")
            count = 0

            @op
            def numbers() -> int:
                nonlocal count
                count += 1
                if count == 2:
                    set_at(stage)
                return count

            @op
            def sink(value: Any) -> None:
                seen.append(value)

            self.add_flow(numbers(self, CountCondition(self, 3)), stage, sink(self))

    Program().run()
    return seen


def test_a_change_takes_effect_with_the_next_call(scheduler: MakeScheduler) -> None:
    @op(live={"gain": parameter(minimum=0, maximum=100), "start": parameter()})
    def scale(value: int, *, gain: int = 1, start: int = 0, fixed: int = 7) -> tuple[int, int, int]:
        return value * gain, start, fixed

    def change(stage: Any) -> None:
        stage.set_live("gain", 10)
        stage.set_live("start", 5)  # every operator has a method of this name

    seen = program(scale, change, scheduler)
    assert seen[0][2] == 7
    assert seen[1:] == [(20, 5, 7), (30, 5, 7)]


def test_a_function_that_yields_keeps_its_values_until_its_next_message() -> None:
    @op(live="gain")
    def twice(value: int, *, gain: int = 1) -> Iterator[int]:
        yield value * gain
        yield value * gain

    seen = program(twice, lambda stage: stage.set_live("gain", 10))
    assert seen == [1, 1, 20, 20, 30, 30]


def test_what_cannot_be_live_is_told() -> None:
    with pytest.raises(GraphError, match="stage has no parameter 'gian'; it has 'gain'"):

        @op(live=["gian"])
        def stage(value: int, *, gain: int = 1) -> int:
            return value

    with pytest.raises(
        GraphError, match=r"'gain' of scale must be declared by parameter\(minimum=...\), not 3"
    ):

        @op(live={"gain": 3})
        def scale(value: int, *, gain: int = 1) -> int:
            return value

    with pytest.raises(GraphError, match="numbers yields and has no inputs, so it is called once in a run"):

        @op(live="gain")
        def numbers(*, gain: int = 1) -> Iterator[int]:
            yield gain
