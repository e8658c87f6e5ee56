"""Tensors are objects to a program: true, equal to themselves alone, with an element type of DLPack."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import headrace
from headrace.tensor import TensorMap
from headrace_holoscan import as_tensor
from headrace_holoscan.conditions import CountCondition
from headrace_holoscan.core import Application, Operator, Tensor
from headrace_holoscan.operators import PingTensorTxOp


def check(tensor: Any) -> None:
    assert isinstance(tensor, Tensor)
    assert tensor
    assert tensor == tensor
    assert (tensor == as_tensor(np.asarray(tensor))) is False
    assert (tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes) == (2, 32, 1)


def test_a_tensor_is_an_object() -> None:
    zeros = as_tensor(np.zeros((2, 3), np.float32))
    check(zeros)
    assert (zeros + 1).tolist() == [[1, 1, 1], [1, 1, 1]]
    assert {zeros: "found"}[zeros] == "found"


class Source(Operator):
    """Emits what it was made with."""

    message: Any = None

    def setup(self, spec: Any) -> None:
        spec.output("out")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        op_output.emit(self.message, "out")


class Pass(Operator):
    """Passes on what it receives, and keeps it."""

    def setup(self, spec: Any) -> None:
        spec.input("in")
        spec.output("out")
        self.taken: list[Any] = []

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        message = op_input.receive("in")
        self.taken.append(message)
        op_output.emit(message, "out")


class Sink(Operator):
    """Keeps what it receives."""

    def setup(self, spec: Any) -> None:
        spec.input("in")
        self.taken: list[Any] = []

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        self.taken.append(op_input.receive("in"))


class Derived(Sink):
    """Lets the base class do it."""

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        super().compute(op_input, op_output, context)


class Chain(Application):
    """A source, what passes on, and a sink."""

    def __init__(self, make: Any, sink: type[Sink] = Sink) -> None:
        super().__init__([])
        self.make, self.kind = make, sink

    def compose(self) -> None:
        self.middle, self.sink = Pass(self, name="middle"), self.kind(self, name="sink")
        self.add_flow(self.make(self), self.middle)
        self.add_flow(self.middle, self.sink)


FLOATS = np.zeros((2, 3), np.float32)


@pytest.mark.parametrize("sink", [Sink, Derived])
@pytest.mark.parametrize(
    ("message", "tensor_in"),
    [
        (as_tensor(FLOATS), lambda message: message),
        ({"a": FLOATS}, lambda message: message["a"]),
        ({"a": as_tensor(FLOATS), "b": "text"}, lambda message: message["a"]),
        (TensorMap(a=FLOATS), lambda message: message.get("a")),
    ],
)
def test_what_a_compute_receives_is_an_object_too(message: Any, tensor_in: Any, sink: type[Sink]) -> None:
    class Sends(Source):
        pass

    Sends.message = message
    app = Chain(lambda app: Sends(app, CountCondition(app, 1), name="source"), sink)
    app.run()
    for taken in (app.middle.taken, app.sink.taken):
        check(tensor_in(taken[0]))
        assert tensor_in(taken[0]).data == FLOATS.ctypes.data  # on the same memory


def test_what_a_ready_operator_sends_is_an_object_too() -> None:
    app = Chain(lambda app: PingTensorTxOp(app, CountCondition(app, 1), rows=2, dtype="float"))
    app.run()
    check(app.sink.taken[0]["tensor"])


def test_messages_have_tensors_of_headrace() -> None:
    """So that operators of both vocabularies share them."""
    taken: list[Any] = []

    class Keep(headrace.Operator):
        def setup(self, spec: Any) -> None:
            spec.input("in")

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            taken.append(op_input.receive("in"))

    class Mixed(headrace.Application):
        def compose(self) -> None:
            source = Source(self, CountCondition(self, 1), name="source")
            source.message = as_tensor(FLOATS)
            self.add_flow(source, Keep(self))

    Mixed([]).run()
    assert type(taken[0]) is headrace.Tensor
