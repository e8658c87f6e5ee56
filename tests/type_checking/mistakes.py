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
    op,
)
from headrace.conditions import CountConditon  # expect: attr-defined
from headrace.resources import CudaStreamPool, RealTimeClock  # expect: attr-defined

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


amplify("loud", gain=2.0)  # expect: call-overload
total: str = amplify(3.0)  # expect: assignment
