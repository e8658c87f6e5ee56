"""Streams that an operator allocates by name, and orders by hand; those that headrace does not know."""

from __future__ import annotations

from typing import Any

import pytest

from headrace import gpu
from headrace.core.errors import PortError, StreamError
from headrace.gpu import sim
from tests._runtime.streams.pipelines import answers
from tests.harness import Step, launch, once, run
from tests.harness.devices import use_device


def test_named_streams() -> None:
    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> Any:
        op_input.receive("in")
        one, other = (context.allocate_cuda_stream(name) for name in ("one", "other"))
        assert one == context.allocate_cuda_stream("one")
        assert context.device_from_stream(one) == 0
        assert context.is_gpu_available
        return int(one), int(other), int(op_input.receive_cuda_stream("in"))

    found = answers(body)
    assert len(set(found)) == 1
    assert len(set(found[0])) == 3


def test_streams_that_headrace_does_not_manage_are_refused_by_name() -> None:
    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> Any:
        op_input.receive("in")
        op_input.receive_cuda_stream("in")
        foreign = gpu.StreamHandle(sim.Device(0).create_stream())
        for call in (context.device_from_stream, op_output.set_cuda_stream):
            with pytest.raises(StreamError, match=rf"'taker': .* headrace manages .* not {int(foreign):#x}"):
                call(foreign)
        with pytest.raises(PortError, match="no output 'outt'; it has 'out'"):
            op_output.set_cuda_stream(op_input.receive_cuda_stream("in"), "outt")
        return True

    assert answers(body, outputs=("out",), frames=1) == [True]


@pytest.mark.parametrize("wrong", [None, "stream", object()])
def test_what_is_no_handle_of_a_stream_is_refused_by_name(wrong: Any) -> None:
    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> Any:
        op_input.receive("in")
        mine = op_input.receive_cuda_stream("in")
        hint = "None, which allocate_cuda_stream returns" if wrong is None else type(wrong).__name__
        for call in (
            context.device_from_stream,
            op_output.set_cuda_stream,
            *(() if wrong is None else (lambda stream: context.synchronize_streams([stream], mine),)),
        ):
            with pytest.raises(
                StreamError, match=f"'taker': .* takes the handle of a stream .* not .*{hint}"
            ):
                call(wrong)
        return True

    assert answers(body, outputs=("out",), frames=1) == [True]


def test_streams_are_synchronised_on_the_device(machine: sim.Machine) -> None:
    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> Any:
        op_input.receive("in")
        slow, target = context.allocate_cuda_stream("slow"), context.allocate_cuda_stream("target")
        launch(slow, 1.0, lambda: None)
        context.synchronize_streams([None, slow, target], target)
        event = target.stream.record()
        assert not event.is_done
        assert machine.now < 0.5  # nothing waited here
        event.sync()
        assert machine.now >= 1.0
        with pytest.raises(StreamError, match="target"):
            context.synchronize_streams([slow], None)
        return True

    assert answers(body, frames=1) == [True]


def test_with_no_device_there_are_no_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    use_device(monkeypatch, "none")

    def compose(app: Any) -> None:
        app.found = []

        def take(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            op_input.receive("in")
            app.found.append(
                (
                    context.is_gpu_available,
                    int(op_input.receive_cuda_stream("in")),
                    context.allocate_cuda_stream("a"),
                )
            )

        source = once(app)
        app.add_flow(source, Step(app, inputs=("in",), body=take, name="take"))

    assert run(compose).found == [(False, 0, None)]
