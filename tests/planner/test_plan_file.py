"""A plan as a file: written, read, checked, and declared in compose."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace import Application, CountCondition, Operator
from headrace._runtime import StreamLayout
from headrace.core.errors import ConfigError, GraphError
from headrace.core.outcome import EndedBy
from headrace.gpu import sim
from headrace.planner import Plan, read_plan
from headrace.planner.plan import write_plan

PLAN = Plan(
    "NVIDIA H200 (simulated)",
    132,
    {"camera": ["net", "log"], "net": ["show"], "show": [], "log": []},
    {"net": (16, ["net", "show"])},
    [["net", "show"]],
    [],
    {"net: p99 < 500us": 380e3},
    {"net": 41.5e3},
)


class Step(Operator):
    """Sends on what it receives; the first one sends numbers."""

    capturable = True

    def setup(self, spec: Any) -> None:
        if self.name != "camera":
            spec.input("in")
        if self.name not in ("show", "log"):
            spec.output("out")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        value = op_input.receive("in") if "in" in self.spec.inputs else 1
        if "out" in self.spec.outputs:
            op_output.emit(value, "out")


class Program(Application):
    """A camera, a network, a display and a log."""

    def compose(self) -> None:
        camera = Step(self, CountCondition(self, 3), name="camera")
        net, show, log = (Step(self, name=name) for name in ("net", "show", "log"))
        self.add_flow(camera, net, show)
        self.add_flow(camera, log)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(write_plan(PLAN, {"net": "because: it needs them"}, ["for a test"]))
    assert read_plan(path) == PLAN
    assert "# because: it needs them" in path.read_text()


@pytest.mark.parametrize("name", ["no", "1", "a: b", "ein Wört", "#x", "null", "{}"])
def test_any_name_of_an_operator_is_read_as_it_was_written(name: str, tmp_path: Path) -> None:
    plan = Plan("device", 8, {name: []}, {name: (8, [name])})
    path = tmp_path / "plan.yaml"
    path.write_text(write_plan(plan, {}))
    assert read_plan(path) == plan


def test_operators_work_on_the_slices_of_a_plan_and_the_others_on_what_is_left() -> None:
    with sim.Machine("h200"):
        app = Program()
        app.use_plan(PLAN)
        app.compose_graph()
        streams = {one.name: stream for stream in StreamLayout(app.graph) for one in stream.operators}
        assert streams["net"] is streams["show"]
        assert streams["net"].origin == "slice net: 16 SMs, device 0"
        assert streams["camera"].origin == streams["log"].origin == "slice leftover: 116 SMs, device 0"
        assert app.run().ended_by is EndedBy.FINISHED
        app.use_plan(None)
        app.compose_graph()
        assert {stream.origin for stream in StreamLayout(app.graph)} == {"any SM, device 0"}


def test_the_environment_gives_a_plan_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(write_plan(PLAN, {}))
    monkeypatch.setenv("HEADRACE_PLAN", str(path))
    with (
        sim.Machine("orin"),
        pytest.raises(GraphError, match="made for NVIDIA H200.*with 132 SMs, and this is"),
    ):
        Program().compose_graph()


def test_a_segment_of_a_plan_is_captured() -> None:
    with sim.Machine("h200"):
        app = Program()
        app.use_plan(Plan("NVIDIA H200 (simulated)", 132, PLAN.operators, segments=[["net", "show"]]))
        app.compose_graph()
        assert [[one.name for one in each.operators] for each in app.segments] == [["net", "show"]]


@pytest.mark.parametrize(
    ("operators", "error"),
    [
        ({"camera": ["net", "log"], "net": ["show"], "show": []}, "operator 'log' is not in the plan"),
        ({**PLAN.operators, "old": []}, "operator 'old' is not in the program"),
        ({**PLAN.operators, "net": []}, "'net' sends to 'show', and not to none"),
    ],
)
def test_a_plan_for_another_graph_says_what_differs(operators: dict[str, list[str]], error: str) -> None:
    app = Program()
    app.use_plan(Plan("NVIDIA H200 (simulated)", 132, operators))
    with sim.Machine("h200"), pytest.raises(GraphError, match="made for another graph") as raised:
        app.compose_graph()
    assert error in str(raised.value)


@pytest.mark.parametrize(
    ("edited", "error"),
    [
        ({"slices": {"all": (4000, ["net"])}}, "4000 SMs requested"),
        ({"shared_streams": [["net"]]}, "share_stream takes two operators or more"),
        ({"segments": [[]]}, "takes one operator or more"),
    ],
)
def test_an_edited_plan_that_cannot_be_declared_is_named(edited: dict[str, Any], error: str) -> None:
    app = Program()
    app.use_plan(Plan("NVIDIA H200 (simulated)", 132, PLAN.operators, **edited))
    with sim.Machine("h200"), pytest.raises(GraphError, match="the plan: ") as raised:
        app.compose_graph()
    assert error in str(raised.value)


def test_slices_are_declared_in_one_place() -> None:
    class Divided(Program):
        def compose(self) -> None:
            self.add_default_green_context_pool(0, [16])
            super().compose()

    app = Divided()
    app.use_plan(PLAN)
    with sim.Machine("h200"), pytest.raises(GraphError, match="declare the slices in one place"):
        app.compose_graph()


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("[]", "must be a mapping of names"),
        (
            "device: {name: x, sms: 8}\noperators: {}\nslice: {}",
            "there is no 'slice'; .* did you mean 'slices'",
        ),
        ("device: {name: x, sms: many}\noperators: {}", "sms must be a number of SMs"),
        (
            "device: {name: x, sms: 8}\noperators: {a: {}}\nslices: {s: {sms: 8, operators: [b]}}",
            "no operator 'b'",
        ),
        (
            "device: {name: x, sms: 8}\noperators: {a: {}}\nslices: {s: {sms: 8, operators: [a, a]}}",
            "appears twice",
        ),
        ("device: [", "is not valid YAML"),
    ],
)
def test_a_file_that_is_no_plan_is_an_error_that_says_where(text: str, error: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=error):
        read_plan(path)


def test_a_file_that_is_not_there_is_an_error_that_says_who_writes_it() -> None:
    with pytest.raises(ConfigError, match="headrace plan"):
        read_plan("nowhere.yaml")
