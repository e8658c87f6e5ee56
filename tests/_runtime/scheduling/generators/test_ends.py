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
