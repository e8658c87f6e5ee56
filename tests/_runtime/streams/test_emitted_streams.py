"""The stream that travels with what is emitted: the operator's own, a borrowed one, or the default one."""

from __future__ import annotations

from typing import Any

import pytest

from headrace import CountCondition
from tests.harness import (
    Producer,
    Step,
    once,
    run,
)
from tests.harness.devices import use_device


def test_what_is_emitted_carries_the_stream() -> None:
    streams: list[tuple[int, list[Any]]] = []

    def compose(app: Any) -> None:
        def middle(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            data = op_input.receive("in")
            self.mine = op_input.receive_cuda_stream("in")
            op_output.emit(data, "out")

        def last(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            op_input.receive("in")
            streams.append((middle_step.mine, op_input.receive_cuda_streams("in")))

        middle_step = Step(app, inputs=("in",), outputs=("out",), body=middle, name="middle")
        app.add_flow(Producer(app, CountCondition(app, 3), name="producer"), middle_step)
        app.add_flow(middle_step, Step(app, inputs=("in",), body=last, name="last"))

    run(compose)
    assert all(found == [mine] for mine, found in streams)


def test_what_stands_for_a_stream_where_there_is_no_device_can_be_emitted_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use_device(monkeypatch, "none")

    def compose(app: Any) -> None:
        def pass_on(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            data = op_input.receive("in")
            op_output.set_cuda_stream(op_input.receive_cuda_stream("in"), "out")
            op_output.emit(data, "out")

        source = once(app)
        app.last = Step(
            app, inputs=("in",), body=lambda self, i, o, c: setattr(self, "got", i.receive("in")), name="last"
        )
        step = Step(app, inputs=("in",), outputs=("out",), body=pass_on, name="step")
        app.add_flow(source, step)
        app.add_flow(step, app.last)

    assert run(compose).last.got == 1
