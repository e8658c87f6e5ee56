"""An operator that is written outside of headrace, with public names only."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace import ExecutionContext, InputContext, Operator, OperatorSpec, OutputContext, as_tensor
from headrace.testing import run_operator


class RunningMean(Operator):
    """Emits the mean of the last `window` arrays, which it keeps."""

    window: int

    def setup(self, spec: OperatorSpec) -> None:
        spec.input("frame")
        spec.output("mean")
        spec.param("window", 2, minimum=1, live=True)

    def start(self) -> None:
        self.kept: list[Any] = []

    def compute(self, op_input: InputContext, op_output: OutputContext, context: ExecutionContext) -> None:
        frame = np.asarray(as_tensor(op_input.receive("frame")))
        self.kept = [*self.kept, frame][-self.window :]
        self.metadata["frames"] = len(self.kept)
        op_output.emit(np.mean(self.kept, axis=0), "mean")


def frames(count: int) -> list[Any]:
    return [np.full((2, 2), float(number)) for number in range(count)]


def test_it_computes_in_a_pipeline_of_its_own() -> None:
    outcome = run_operator(RunningMean, inputs=frames(4), window=2)
    assert [mean[0, 0] for mean in outcome["mean"]] == [0.0, 0.5, 1.5, 2.5]
    assert [message.metadata["frames"] for message in outcome.messages["mean"]] == [1, 2, 2, 2]
