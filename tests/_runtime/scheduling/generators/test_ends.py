"""How a generator ends: by an exception, a stop, or after its source."""

from __future__ import annotations

from typing import Any

import pytest

from headrace import op
from tests.harness import App, MakeScheduler, Step, run, sink, source


def test_an_exception_in_the_middle_comes_out_after_what_was_emitted(scheduler: MakeScheduler) -> None:
    taken: list[int] = []

    @op
    def fail(value: int) -> Any:
        yield value
        raise ZeroDivisionError("on purpose")

    def compose(app: App) -> None:
        failing = fail(app)
        app.add_flow(source(app, range(9)), failing, sink(app, taken))

    with pytest.raises(ZeroDivisionError) as caught:
        run(compose, scheduler)
    assert caught.value.__notes__ == ["raised in compute of operator 'fail' (FunctionOperator)"]
    assert taken in ([0], [])


def test_a_generator_goes_on_with_the_next_message_where_an_exception_is_caught(
    scheduler: MakeScheduler,
) -> None:
    taken: list[int] = []
    caught: list[int] = []

    @op
    def fail(value: int) -> Any:
        if value == 1:
            raise ZeroDivisionError("at once")
        yield value
        if value == 3:
            raise ZeroDivisionError("in the middle")
        yield value

    def compose(app: App) -> None:
        failing = fail(app)
        start = failing.start

        def start_and_catch() -> None:
            start()
            compute = failing.compute

            def careful(*contexts: Any) -> None:
                try:
                    compute(*contexts)
                except ZeroDivisionError:
                    caught.append(1)

            failing.compute = careful

        failing.start = start_and_catch
        app.add_flow(source(app, range(6)), failing, sink(app, taken))

    run(compose, scheduler)
    assert taken == [0, 0, 2, 2, 3, 4, 4, 5, 5]
    assert len(caught) == 2


def test_a_stop_in_the_middle_closes_the_generator(scheduler: MakeScheduler) -> None:
    log: list[str] = []

    @op
    def endless(value: int) -> Any:
        try:
            while True:
                yield value
        finally:
            log.append("closed")

    def stop(body: Step, op_input: Any, op_output: Any) -> None:
        op_input.receive()
        if body.ticks == 3:
            body.fragment.stop_execution()

    def compose(app: App) -> None:
        going = endless(app)
        app.add_flow(source(app, range(9)), going, Step(app, inputs=["in"], body=stop))

    run(compose, scheduler)
    assert log == ["closed"]
