"""check_recording: a recording is a test of one operator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace import Operator, op
from headrace.conditions import CountCondition
from headrace.core.errors import GraphError
from headrace.gpu import sim
from headrace.observe import PortRecorder, watch
from headrace.testing import check_recording
from tests.harness import App, Consumer, Doubler, Producer, Step, sink, source


class Scale(Operator):
    factor: float

    def setup(self, spec: Any) -> None:
        spec.input("in")
        spec.output("out")
        spec.param("factor", 2.0)

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        op_output.emit(op_input.receive("in") * self.factor, "out")


def recorded(path: Path, ports: list[str], values: list[Any]) -> None:
    def compose(app: Any) -> None:
        scale = Scale(app, name="scale")
        app.add_flow(source(app, values, name="camera"), scale, sink(app, []))

    app = App(compose)
    watch(app, PortRecorder(path, ports))
    app.run()


VALUES = [1.0, np.arange(3.0), -0.5]


def test_a_difference_is_named(tmp_path: Path) -> None:
    recorded(tmp_path / "a.mcap", ["scale"], VALUES)
    with pytest.raises(AssertionError, match="message 0 of 'scale.out': data was 2.0, and is now 3.0"):
        check_recording(Scale, tmp_path / "a.mcap", name="scale", factor=3.0)


def test_a_tolerance_allows_small_differences_only(tmp_path: Path) -> None:
    recorded(tmp_path / "a.mcap", ["scale"], VALUES)
    factor = 2.0 + 1e-9
    with pytest.raises(AssertionError, match="message 0"):
        check_recording(Scale, tmp_path / "a.mcap", name="scale", factor=factor)
    assert check_recording(Scale, tmp_path / "a.mcap", name="scale", rtol=1e-6, factor=factor) == 3
    with pytest.raises(AssertionError, match="message 0"):
        check_recording(Scale, tmp_path / "a.mcap", name="scale", rtol=1e-12, factor=factor)


def test_missing_and_additional_messages_are_named(tmp_path: Path) -> None:
    recorded(tmp_path / "a.mcap", ["scale"], VALUES)

    class Silent(Scale):
        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            op_input.receive("in")

    class Twice(Scale):
        def setup(self, spec: Any) -> None:
            super().setup(spec)
            spec.outputs["out"].size = 2

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            data = op_input.receive("in") * 2.0
            op_output.emit(data, "out")
            if np.ndim(data) == 0 and data < 0:
                op_output.emit(data, "out")

    with pytest.raises(AssertionError, match="message 0 of 'scale.out' was recorded and not emitted"):
        check_recording(Silent, tmp_path / "a.mcap", name="scale")
    with pytest.raises(AssertionError, match="message 3 of 'scale.out' was emitted and not recorded"):
        check_recording(Twice, tmp_path / "a.mcap", name="scale")


@op(outputs="out")
def halve(value: float) -> float:
    return value / 2


def test_a_function_is_checked(tmp_path: Path) -> None:
    def compose(app: Any) -> None:
        half = halve(app, name="half")
        app.add_flow(source(app, [1.0, 2.0], name="camera"), half, sink(app, []))

    app = App(compose)
    watch(app, PortRecorder(tmp_path / "a.mcap", ["half.out", "camera"]))
    app.run()
    assert check_recording(halve, tmp_path / "a.mcap", name="half") == 2


def test_an_input_without_recorded_messages_is_named(tmp_path: Path) -> None:
    recorded(tmp_path / "a.mcap", ["scale.out"], VALUES)
    with pytest.raises(
        GraphError, match="no messages of input 'in' of 'scale'; record 'scale.in', or the outputs"
    ):
        check_recording(Scale, tmp_path / "a.mcap", name="scale")


def test_frames_of_a_device_are_compared(tmp_path: Path, machine: sim.Machine) -> None:
    def compose(app: Any) -> None:
        doubler = Doubler(app, name="doubler")
        app.add_flow(
            Producer(app, CountCondition(app, 4), name="producer"), doubler, Consumer(app, name="consumer")
        )

    app = App(compose)
    watch(app, PortRecorder(tmp_path / "a.mcap", ["doubler"]))
    app.run()
    assert check_recording(Doubler, tmp_path / "a.mcap", name="doubler") == 4
    with pytest.raises(
        AssertionError,
        match=r"message 1 of 'doubler.out': data\[0\] was 2, and is now 1; 1 of 1 elements differ, most at",
    ):
        check_recording(Copier, tmp_path / "a.mcap", name="doubler")


class Copier(Operator):
    """Passes frames on as they are."""

    def setup(self, spec: Any) -> None:
        spec.input("in")
        spec.output("out")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        op_output.emit(op_input.receive("in"), "out")


class Total(Operator):
    """Takes three messages at once."""

    def setup(self, spec: Any) -> None:
        spec.input("in", size=3)
        spec.output("out")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        op_output.emit(sum(op_input.receive("in")), "out")


def test_several_messages_of_one_compute_reach_the_operator(tmp_path: Path) -> None:
    def compose(app: Any) -> None:
        burst = Step(
            app,
            CountCondition(app, 2),
            outputs=[("out", {"size": 3})],
            body=lambda self, i, o: [o.emit(10 * self.ticks + n, "out") for n in range(3)],
            name="burst",
        )
        total = Total(app, name="total")
        app.add_flow(burst, total, sink(app, []))

    app = App(compose)
    watch(app, PortRecorder(tmp_path / "a.mcap", ["burst", "total.out"]))
    app.run()
    assert check_recording(Total, tmp_path / "a.mcap", name="total") == 2
