"""A program of all that users annotate and call, with the types that a type checker finds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, assert_type

from headrace import (
    Application,
    Condition,
    CountCondition,
    ExecutionContext,
    InputContext,
    Operator,
    OperatorSpec,
    Outcome,
    OutputContext,
    SchedulingStatusType,
    Subgraph,
    declared,
    op,
    parameter,
)
from headrace.core import REQUIRED, OperatorStatus, Port, Scheduler
from headrace.core.function import FunctionOperator
from headrace.observe import Goal, Tracker
from headrace.operators import FormatConverterOp, PingTxOp
from headrace.resources import CudaGreenContext, CudaGreenContextPool, CudaStreamPool, ThreadPool
from headrace.testing import run_operator


@op
def sensor(*, samples: int) -> Iterator[float]:
    yield from range(samples)


@op
def amplify(value: float, *, gain: float = 1.0) -> float:
    return gain * value


@op(outputs=("low", "high"), on_error={"skip": 3})
def split(value: float) -> tuple[float | None, float | None]:
    return (value, None) if value < 1 else (None, value)


class Even(Condition):
    """A condition with a parameter."""

    least: int

    def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
        waiting = self.receiver("in").size
        assert_type(waiting, int)
        return (SchedulingStatusType.READY if waiting > self.least else SchedulingStatusType.WAIT), None


class Scale(Operator):
    """An operator whose parameter is annotated, as a field of a dataclass is."""

    factor: float
    on_error = {"restart": 3}  # noqa: RUF012  (a table to read)

    def setup(self, spec: OperatorSpec) -> None:
        spec.input("in")
        spec.output("out")
        spec.param("factor", 2.0)

    def compute(self, op_input: InputContext, op_output: OutputContext, context: ExecutionContext) -> None:
        value = op_input.receive("in")
        stream = op_input.receive_cuda_stream("in")
        assert_type(int(stream), int)
        assert_type(context.timestamp, int)
        assert_type(context.get_operator_status("scale"), OperatorStatus)
        op_output.emit(self.factor * value, "out")


@declared
class Offset(Operator):
    """An operator whose parameters are the fields of its class: a type checker knows its constructor."""

    kinds: ClassVar[int] = 2
    offset: float = 1.0
    mode: str = parameter(default="fast", choices=("fast", "exact"), live=True)
    places: list[int] = parameter(default_factory=list)
    must: int = parameter(default=REQUIRED, minimum=0)


@declared
class Scaled(Subgraph):
    """A subgraph with a parameter."""

    factor: float = parameter(default=2.0, minimum=0)

    def compose(self) -> None:
        scale = Scale(self, CountCondition(self, 3), factor=self.factor)
        assert_type(scale["in"], Port)
        self.add_input("value", scale["in"])
        self.add_output("result", scale)
        assert_type(self.fragment.name, str)


class Wired(Application):
    def compose(self) -> None:
        source, scaled, last = sensor(self, samples=3), Scaled(self, name="left"), amplify(self)
        assert_type(source >> scaled, Scaled)
        assert_type(scaled["result"] >> last, FunctionOperator)
        source >> (amplify(self), amplify(self)) >> Scale(self)["in"] >> Scale(self)
        self.add_flow(source, scaled, last, size=2)
        self.add_flow(source["out"], (last, scaled["value"]))
        PingTxOp(self, CountCondition(self, 3), on_error="skip", workers=2, deadline="5ms", name="tx")
        offset = Offset(self, CountCondition(self, 3), offset=2, mode="exact", must=1, name="offset")
        assert_type(offset.mode, str)
        assert_type(offset.places, list[int])
        Offset(self, *self.from_config("offset"), **self.kwargs("more"))
        Scaled(self, self.from_config("left"), factor=3.0, name="right")
        FormatConverterOp(self, self.from_config("convert"), out_dtype="rgb888", **self.kwargs("more"))


class Program(Application):
    def compose(self) -> None:
        source = sensor(self, CountCondition(self, 3), samples=3, name="source")
        assert_type(source, FunctionOperator)
        assert_type(amplify(self, gain=2.0, on_error="skip"), FunctionOperator)
        scale = Scale(self, factor=2.0, name="scale")
        self.add_flow(source, scale, {("out", "in")})
        pool = self.make_thread_pool("workers", 2)
        assert_type(pool, ThreadPool)
        pool.add(scale, pin_operator=True, pin_cores=[0])
        assert_type(self.scheduler(), Scheduler)
        slices = self.add_default_green_context_pool(0, {"vision": 16})
        assert_type(slices, CudaGreenContextPool)
        CudaStreamPool(self, cuda_green_context=CudaGreenContext(self, slices, "vision"))
        CudaStreamPool(self, cuda_green_context=CudaGreenContextPool(self, sms_per_partition=[16]))
        assert_type(slices.share("vision").sm_count, int)


# Called without a fragment, a decorated function is the function.
assert_type(amplify(3.0, gain=2.0), float)
assert_type(sensor(samples=2), Iterator[float])
assert_type(split(0.5), tuple[float | None, float | None])
assert_type(Program().run(), Outcome)
assert_type(Program().run_async().result(), Outcome)
assert_type(run_operator(amplify, inputs=[1.0])["out"], list[Any])
assert_type(run_operator(Scale, inputs=[1.0], factor=3.0).operator, Scale)
assert_type(run_operator(lambda app: Scale(app, factor=3.0), inputs=[1.0]).operator.factor, float)
assert_type(Program().track(), Tracker)
assert_type(Program().expect("source->scale", p99="5ms"), Goal)
