"""Mistakes that a type checker finds before the program runs; each line names the code of its error."""
# ruff: noqa: B018, F401, F841

from __future__ import annotations

import headrace
from headrace import (
    Application,
    CountCondition,
    EventBasedScheduler,
    ExecutionContext,
    InputContext,
    Operator,
    OperatorSpec,
    OutputContext,
    declared,
    op,
    parameter,
)
from headrace.conditions import CountConditon  # expect: attr-defined
from headrace.operators import CameraSimOp, FormatConverterOp, HolovizOp, InferenceOp, PingTxOp
from headrace.resources import BlockMemoryPool, CudaStreamPool, RealTimeClock  # expect: attr-defined

headrace.Opertor  # expect: attr-defined


@op
def amplify(value: float, *, gain: float = 1.0) -> float:
    return gain * value


@op(on_error="ignore")  # expect: call-overload
def ignore(value: float) -> None: ...


class Scale(Operator):
    factor: float
    on_error = "retry"  # expect: assignment

    def setup(self, spec: OperatorSpec) -> None:
        spec.input("in", size="large")  # expect: arg-type
        spec.parameter("factor", 2.0)  # expect: attr-defined

    def compute(self, op_input: InputContext, op_output: OutputContext, context: ExecutionContext) -> None:
        value = op_input.recieve("in")  # expect: attr-defined
        op_output.emit(value * self.facter, "out")  # expect: attr-defined
        op_output.emit("out", 3)  # expect: arg-type
        name: str = context.timestamp  # expect: assignment


@declared
class Offset(Operator):
    offset: float = 1.0
    mode: int = parameter(default="fast")  # expect: assignment
    least: int = parameter(default=3, minimun=3)  # expect: call-overload


class Half(Operator):
    def compute(self, op_input: InputContext) -> None: ...  # expect: override


class Program(Application):
    def compose(self) -> None:
        scale = Scale(self, 3)  # expect: arg-type
        self.add_flow(scale, amplify)  # expect: arg-type
        self.add_flow(scale, amplify(self).name)  # expect: arg-type
        CountCondition(self, count="3")  # expect: arg-type
        CudaStreamPool(self, cuda_green_context=scale)  # expect: arg-type
        self.make_thread_pool("workers").add("scale")  # expect: arg-type
        self.scheduler(EventBasedScheduler)  # expect: arg-type
        self.run().ended_at  # expect: attr-defined
        FormatConverterOp(self, in_dype="rgb888")  # expect: call-arg
        FormatConverterOp(self, out_dtype=8)  # expect: arg-type
        HolovizOp(self, headles=True)  # expect: call-arg
        InferenceOp(self, model_path_maps={})  # expect: call-arg
        CameraSimOp(self, CountCondition(self, 3), hight=480)  # expect: call-arg
        PingTxOp(self, count=3)  # expect: call-arg
        Offset(self, ofset=2)  # expect: call-arg
        Offset(self, offset="2")  # expect: arg-type
        Offset(self, 3)  # expect: arg-type
        CountCondition(self, conut=3)  # expect: call-arg
        BlockMemoryPool(self, blok_size=64)  # expect: call-arg
        EventBasedScheduler(self, max_duration=3)  # expect: call-arg
        scale >> amplify  # expect: operator
        scale >> "amplify"  # expect: operator
        scale["in", "out"] >> scale  # expect: index


amplify("loud", gain=2.0)  # expect: call-overload
total: str = amplify(3.0)  # expect: assignment
