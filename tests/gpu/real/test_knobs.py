"""Knobs as CuPy, PyTorch and Numba take them on a real GPU, in ordinary runs and in captured segments."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from headrace import Application, CountCondition, Operator

pytestmark = pytest.mark.usefixtures("real")

FRAMES, COUNT = 60, 1 << 16
captured_or_not = pytest.mark.parametrize("capture", [None, {"check_every": 0}], ids=["ordinary", "captured"])


def sent(number: int) -> int:
    return number % 7 + 1


class Source(Operator):
    """Sends CuPy's arrays, after it has set the knobs of every stage."""

    def setup(self, spec: Any) -> None:
        spec.output("out")

    def start(self) -> None:
        self.number = 0

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        import cupy

        for operator in self.fragment.stages:
            operator.set_knob("gain", self.number % 5)
        op_output.emit(cupy.full(COUNT, sent(self.number), cupy.float32), "out")
        self.number += 1


class Stage(Operator):
    capturable = True

    def setup(self, spec: Any) -> None:
        spec.input("in")
        spec.output("out")


class WithCupy(Stage):
    capturable = True

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        import cupy

        gain = cupy.asarray(context.knob("gain", np.float32))
        assert (gain.shape, gain.dtype) == ((), np.float32)
        op_output.emit(cupy.asarray(op_input.receive("in")) * gain, "out")


class WithTorch(Stage):
    capturable = True

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        import torch

        knob = context.knob("gain", torch.float32)
        gain = torch.as_tensor(knob, device="cuda")
        assert gain.shape == ()
        assert gain.data_ptr() == knob.data
        op_output.emit(torch.as_tensor(op_input.receive("in"), device="cuda") * gain, "out")


class WithDLPack(Stage):
    capturable = True

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        import torch

        knob = context.knob("gain", torch.bfloat16)
        gain = torch.from_dlpack(knob)
        assert (gain.dtype, gain.data_ptr()) == (torch.bfloat16, knob.data)
        frame = torch.as_tensor(op_input.receive("in"), device="cuda")
        op_output.emit((frame * gain).to(torch.float32), "out")


class Sink(Operator):
    def setup(self, spec: Any) -> None:
        spec.input("in")

    def start(self) -> None:
        self.frames: list[Any] = []
        self.seen: list[float] = []

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        import cupy

        self.frames.append(cupy.asarray(op_input.receive("in")))
        if len(self.frames) > 16:  # long after it was sent
            self.read(1)

    def stop(self) -> None:
        self.read(len(self.frames))

    def read(self, count: int) -> None:
        import cupy

        for frame in self.frames[:count]:
            values = np.unique(cupy.asnumpy(frame))
            assert len(values) == 1, "all elements see one value"
            self.seen.append(float(values[0]))
        del self.frames[:count]


class Chain(Application):
    def __init__(self, kinds: list[type[Operator]], capture: dict[str, Any] | None) -> None:
        super().__init__([])
        self.kinds, self.options = kinds, capture

    def compose(self) -> None:
        self.stages = [kind(self, name=f"stage{number}") for number, kind in enumerate(self.kinds)]
        self.sink = Sink(self, name="sink")
        source = Source(self, CountCondition(self, FRAMES), name="source")
        for one, other in pairwise([source, *self.stages, self.sink]):
            self.add_flow(one, other)
        if self.options is not None:
            self.segment = self.capture(*self.stages, **self.options)


@captured_or_not
@pytest.mark.parametrize("kind", [WithCupy, WithTorch, WithDLPack])
def test_a_library_reads_the_value_of_each_frame(kind: type[Operator], capture: Any) -> None:
    pytest.importorskip("cupy")
    if kind is not WithCupy:
        pytest.importorskip("torch")
    if kind is WithDLPack:
        pytest.importorskip("ml_dtypes")
    app = Chain([kind], capture)
    app.run()
    assert app.sink.seen == [sent(n) * (n % 5) for n in range(FRAMES)]
    if capture is not None:
        assert (app.segment.state, app.segment.reason) == ("captured", "")
        assert app.segment.replayed > FRAMES // 2


def test_libraries_are_mixed_in_a_segment() -> None:
    """The stages of a segment see the values of one moment, so the gain of a frame is the same in both."""
    pytest.importorskip("cupy")
    pytest.importorskip("torch")
    app = Chain([WithCupy, WithTorch], {"warmup": 3})
    app.run()
    assert (app.segment.state, app.segment.reason) == ("captured", "")
    assert app.sink.seen == [sent(n) * (n % 5) ** 2 for n in range(FRAMES)]
