"""Pools of streams and slices in pipelines, on the device that the process uses."""

from __future__ import annotations

from typing import Any

import pytest

from headrace import Application, CountCondition, Operator, gpu
from headrace.resources import CudaStreamPool
from tests.gpu.bench import Bench

NAMED = {"control": 16, "vision": 40}


pytestmark = pytest.mark.usefixtures("of_this_process")


class Where(Operator):
    """Notes the SMs that its stream may use, and does something when it starts."""

    def __init__(self, fragment: Any, *args: Any, then: Any = lambda: None, **kwargs: Any) -> None:
        self.then, self.found = then, []
        super().__init__(fragment, CountCondition(fragment, 2), *args, **kwargs)

    def start(self) -> None:
        self.then()

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        stream = context.allocate_cuda_stream("s")
        stream.stream.record().sync()
        self.found.append(stream.stream.resources.sm.sm_count)


class App(Application):
    def __init__(self, *pools: Any, **kwargs: Any) -> None:
        super().__init__()
        self.pools, self.kwargs_ = pools, kwargs

    def compose(self) -> None:
        self.steps = [Where(self, pool, name=f"step{n}", **self.kwargs_) for n, pool in enumerate(self.pools)]
        for step in self.steps:
            self.add_operator(step)


def sms(*pools: Any, **kwargs: Any) -> list[Any]:
    app = App(*pools, **kwargs)
    app.run()
    return [step.found for step in app.steps]


def test_the_callers_thread_is_left_as_it_was(bench: Bench) -> None:
    with gpu.partition(bench.device, [16]) as (part, _):
        previous = bench.device.set_current(part.context)
        try:
            sms(CudaStreamPool(None), CudaStreamPool(None, 0, 1))
            assert bench.device.create_stream().resources.sm.sm_count == 16
        finally:
            bench.device.set_current(previous)


class OnDefault(Operator):
    """Has the default stream, and a stream of its pool beside it."""

    def setup(self, spec: Any) -> None:
        spec.input("in")
        spec.output("out")
        spec.default_stream()

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        op_input.receive("in")
        context.allocate_cuda_stream("the only one")
        stream = op_input.receive_cuda_stream("in")
        assert not stream
        assert context.device_from_stream(stream) == 0
        assert context.device_from_stream(0) == 0
        op_output.set_cuda_stream(stream, "out")
        context.synchronize_streams([context.allocate_cuda_stream("the only one"), stream, 0], stream)
        context.synchronize_streams([stream], context.allocate_cuda_stream("the only one"))
        op_output.emit(self, "out")


class Once(Operator):
    def setup(self, spec: Any) -> None:
        spec.output("out")
        spec.default_stream()  # so that its messages bring no other stream

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        op_output.emit(1, "out")


class Last(Operator):
    def setup(self, spec: Any) -> None:
        spec.input("in")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        op_input.receive("in")
        (self.theirs,) = op_input.receive_cuda_streams("in")
        op_input.receive_cuda_stream("in")


def test_the_default_stream_is_used_and_ordered_as_any_other() -> None:
    class Defaults(Application):
        def compose(self) -> None:
            middle = OnDefault(self, CudaStreamPool(self, max_size=1), name="middle")
            self.last = Last(self, name="last")
            self.add_flow(Once(self, CountCondition(self, 20), name="once"), middle, self.last)

    app = Defaults()
    app.run()
    assert app.last.theirs.stream is gpu.LEGACY_DEFAULT_STREAM
