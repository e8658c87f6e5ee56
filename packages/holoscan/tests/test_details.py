"""What programs of the SDK hit one by one: each as it is there, which runs of version 4.6.0 have shown."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.viewer import InputSpec as DrawnSpec
from headrace_holoscan import as_tensor, core, graphs
from headrace_holoscan.conditions import (
    CountCondition,
    ExpiringMessageAvailableCondition,
    MemoryAvailableCondition,
)
from headrace_holoscan.core import (
    Application,
    Condition,
    Fragment,
    Operator,
    SchedulingStatusType,
)
from headrace_holoscan.gxf import GXFNetworkContext
from headrace_holoscan.network_contexts import UcxContext
from headrace_holoscan.operators import HolovizOp, InferenceOp, PingTxOp, V4L2CameraPassthroughOp
from headrace_holoscan.resources import BlockMemoryPool, UcxEntitySerializer, UnboundedAllocator
from headrace_holoscan.schedulers import EventBasedScheduler, GreedyScheduler
from tests.inference import models

READY, NEVER = SchedulingStatusType.READY, SchedulingStatusType.NEVER


class App(Application):
    """An application whose compose is a function."""

    def __init__(self, make: Any) -> None:
        super().__init__([])
        self.make = make

    def compose(self) -> None:
        self.make(self)


class Tx(Operator):
    """Sends numbers, and notes when it is started and stopped."""

    notes: list[str] = []  # noqa: RUF012 (one of all operators)
    raises = False

    def setup(self, spec: Any) -> None:
        spec.output("out")
        self.sent = 0

    def start(self) -> None:
        self.notes.append(f"start {self.name}")
        if self.raises:
            raise ValueError("in start")

    def stop(self) -> None:
        self.notes.append(f"stop {self.name}")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        self.sent += 1
        op_output.emit(self.sent, "out")


class Rx(Tx):
    """Receives."""

    def setup(self, spec: Any) -> None:
        spec.input("in")
        self.taken: list[Any] = []

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        self.taken.append(op_input.receive("in"))


class FailsToStart(Rx):
    """Raises in start."""

    raises = True


@pytest.fixture(autouse=True)
def notes() -> list[str]:
    Tx.notes.clear()
    return Tx.notes


@pytest.mark.parametrize("scheduler", [GreedyScheduler, EventBasedScheduler])
def test_an_operator_whose_start_raises_is_not_stopped(scheduler: Any, notes: list[str]) -> None:
    def make(app: Any) -> None:
        app.scheduler(scheduler(app))
        app.add_flow(Tx(app, CountCondition(app, 1), name="tx"), FailsToStart(app, name="rx"))

    with pytest.raises(ValueError, match="in start"):
        App(make).run()
    assert notes == ["start tx", "start rx", "stop tx"]


class Answers(Condition):
    """Gives one answer."""

    def __init__(self, *args: Any, answer: Any, **kwargs: Any) -> None:
        self.answer = answer
        super().__init__(*args, **kwargs)

    def check(self, timestamp: int) -> Any:
        return self.answer


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        (READY, "must return a tuple, not"),
        (None, "must return a tuple, not None"),
        ([READY, None], "must return a tuple, not"),
        ((READY, None, 1), "a tuple of size 2"),
        ((1, None), "first element is a SchedulingStatusType, not 1"),
        ((SchedulingStatusType.WAIT_TIME, 1.5), "second element is an int or None, not 1.5"),
    ],
)
def test_the_answers_of_native_conditions_are_checked(answer: Any, what: str) -> None:
    def make(app: Any) -> None:
        condition = Answers(app, answer=answer, name="c")
        app.add_flow(Tx(app, condition, CountCondition(app, 2), name="tx"), Rx(app, name="rx"))

    with pytest.raises(RuntimeError, match=what):
        App(make).run()


def test_a_native_condition_that_waits_without_a_time_is_asked_again() -> None:
    class Second(Condition):
        asked = 0

        def check(self, timestamp: int) -> Any:
            self.asked += 1
            return (SchedulingStatusType.WAIT_TIME if self.asked == 1 else READY), None

    def make(app: Any) -> None:
        app.rx = Rx(app, name="rx")
        app.add_flow(Tx(app, Second(app, name="c"), CountCondition(app, 2), name="tx"), app.rx)

    app = App(make)
    app.run()
    assert app.rx.taken == [1, 2]


@pytest.mark.parametrize(("size", "computes"), [(16, 2), (64, 2), (100, 2), (256, 2), (257, 0), (513, 0)])
def test_memory_may_be_waited_for_over_several_blocks(size: int, computes: int) -> None:
    def make(app: Any) -> None:
        pool = BlockMemoryPool(app, storage_type=2, block_size=64, num_blocks=4, name="pool")
        waits = MemoryAvailableCondition(app, pool, min_bytes=size, name="memory")
        app.rx = Rx(app, name="rx")
        app.add_flow(Tx(app, waits, CountCondition(app, 2), pool, name="tx"), app.rx)

    app = App(make)
    app.run()
    assert len(app.rx.taken) == computes


def test_an_expiring_message_without_a_timestamp_ends_the_run(caplog: pytest.LogCaptureFixture) -> None:
    def make(app: Any) -> None:
        app.rx = Rx(
            app,
            ExpiringMessageAvailableCondition(app, max_batch_size=3, max_delay_ns=1_000, receiver="in"),
            name="rx",
        )
        app.tx = Tx(app, CountCondition(app, 5), name="tx")
        app.add_flow(app.tx, app.rx)

    app = App(make)
    with caplog.at_level(logging.ERROR, "headrace.holoscan"):
        app.run()
    assert app.tx.sent < 5
    assert app.rx.taken == []
    assert "input 'in' carries no timestamp" in caplog.text


def test_attributes_that_the_sdk_does_not_set_are_read_only() -> None:
    fragment = Fragment()
    operator, condition = Rx(fragment, name="rx"), CountCondition(fragment, 3, name="c")
    allocator, tensor = UnboundedAllocator(fragment, name="a"), as_tensor(np.zeros(3))
    for owner, names in (
        (operator, "fragment conditions resources args id description operator_type next_flows"),
        (condition, "fragment args id description gxf_typename condition_type"),
        (allocator, "fragment args id description gxf_typename resource_type"),
        (operator.spec, "fragment inputs outputs description"),
        (operator.spec.inputs["in"], "name io_type conditions connector_type"),
        (tensor, "shape strides dtype device data size ndim nbytes itemsize"),
    ):
        for name in names.split():
            with pytest.raises(AttributeError, match=r"no setter|read-only"):
                setattr(owner, name, object())


def test_a_wrong_call_is_answered_with_the_right_one() -> None:
    app = Application()
    with pytest.raises(
        TypeError, match=r"CountCondition is .*, not 5; inside compose: CountCondition\(self, \.\.\.\)"
    ):
        CountCondition(5)
    with pytest.raises(TypeError, match=r"GreedyScheduler: too many .*; it takes \(fragment, \*, clock=None"):
        GreedyScheduler(app, 4)


def test_a_network_context_can_be_made() -> None:
    fragment = Fragment()
    context = UcxContext(fragment, serializer=UcxEntitySerializer(fragment, name="s"), name="net")
    assert isinstance(context, GXFNetworkContext)
    assert isinstance(context, core.NetworkContext)
    assert "name: net" in repr(context)
    assert fragment.network_context(context) is context
    assert UcxContext(fragment).name == "ucx_context"


def test_the_graphs_of_version_3_have_their_names() -> None:
    assert isinstance(graphs.FlowGraph(), core.Graph)
    assert issubclass(graphs.OperatorFlowGraph, core.OperatorGraph)
    assert issubclass(graphs.FragmentFlowGraph, core.FragmentGraph)


def test_frames_of_a_camera_are_passed_on() -> None:
    def make(app: Any) -> None:
        app.rx = Rx(app, name="rx")
        passes = V4L2CameraPassthroughOp(app)
        assert passes.name == "v4l2_camera_passthrough"
        app.add_flow(PingTxOp(app, CountCondition(app, 2), name="tx"), passes, {("out", "input")})
        app.add_flow(passes, app.rx, {("output", "in")})

    app = App(make)
    app.run()
    assert app.rx.taken == [1, 2]


def test_the_tables_of_holoviz_name_its_enumerations() -> None:
    from headrace_holoscan.operators import (  # type: ignore[attr-defined]
        _holoviz_str_to_image_format,
        _holoviz_str_to_input_type,
        _holoviz_str_to_yuv_model_conversion,
    )

    assert _holoviz_str_to_input_type["points"] is HolovizOp.InputType.POINTS
    assert _holoviz_str_to_image_format["r8g8b8a8_unorm"] is HolovizOp.ImageFormat.R8G8B8A8_UNORM
    assert _holoviz_str_to_yuv_model_conversion["yuv_709"] is HolovizOp.YuvModelConversion.YUV_709


class Points(Operator):
    """Sends points in 3D, and where the camera is."""

    def setup(self, spec: Any) -> None:
        spec.output("out")
        spec.output("eye")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        op_output.emit({"it": np.zeros((2, 3), np.float32)}, "out")
        op_output.emit([0.0, 0.0, 2.0], "eye")


def scene_in_3d(**parameters: Any) -> None:
    """Run a program that shows points in 3D, and moves the camera."""

    class Scene(Application):
        def compose(self) -> None:
            viewer = HolovizOp(
                self, tensors=[{"name": "it", "type": "points_3d"}], name="viewer", **parameters
            )
            points = Points(self, CountCondition(self, 1), name="points")
            self.add_flow(points, viewer, {("out", "receivers"), ("eye", "camera_eye_input")})

    Scene().run()


def test_a_scene_in_3d_runs_without_a_window_and_its_camera_has_no_effect(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene_in_3d(headless=True, camera_eye=[0.0, 0.0, 3.0], enable_depth_buffer_output=False)
    assert "the camera of 'viewer' has no effect" in caplog.text


def test_a_scene_in_3d_in_a_picture_is_refused_with_what_shows_it() -> None:
    with pytest.raises(ValueError, match="it is in 3D, which Rerun alone shows"):
        scene_in_3d(headless=True, enable_render_buffer_output=True)


@pytest.mark.parametrize(
    "name", ["enable_depth_buffer_input", "enable_depth_buffer_output", "enable_camera_pose_output"]
)
def test_depths_and_the_pose_of_the_camera_are_refused(name: str) -> None:
    with pytest.raises(RuntimeError, match=f"{name}.*there are no depths and no pose to send: Rerun shows"):
        scene_in_3d(**{name: True})


SPEC = ("it", "points")


def test_the_colour_of_a_spec_is_a_list() -> None:
    spec = HolovizOp.InputSpec(*SPEC)
    assert spec.color == [1.0, 1.0, 1.0, 1.0]
    spec.color = (0, 0.5, 1, 1)
    assert spec.color == [0.0, 0.5, 1.0, 1.0]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("opacity", "a"), ("opacity", None), ("priority", 1.5), ("color", "abcd"), ("line_width", "a")),
        *(
            ("text", "abc"),
            ("text", [1]),
            ("image_format", "r8g8b8_unorm"),
            ("type", "lines"),
            ("views", [1]),
        ),
        *(("yuv_range", "itu_full"), ("depth_map_render_mode", "points")),
    ],
)
def test_a_spec_refuses_a_value_of_another_type(name: str, value: Any) -> None:
    with pytest.raises(TypeError):
        setattr(HolovizOp.InputSpec(*SPEC), name, value)
    with pytest.raises(AttributeError):
        HolovizOp.InputSpec(*SPEC).nothing = 1


@pytest.mark.parametrize(
    ("name", "value", "drawn"),
    [
        *(("opacity", 2.0, 1.0), ("opacity", -1.0, 0.0), ("line_width", 0.0, 1.0), ("point_size", -1.0, 1.0)),
        *(("color", [2.0, 0.0], (1.0, 0.0, 1.0, 1.0)), ("priority", -3, -3), ("text", ["a"], ["a"])),
    ],
)
def test_a_value_that_cannot_be_drawn_is_kept(name: str, value: Any, drawn: Any) -> None:
    spec = HolovizOp.InputSpec(*SPEC)
    setattr(spec, name, value)
    assert getattr(spec, name) == value
    copied = spec.copy()
    assert type(copied) is DrawnSpec
    assert getattr(copied, name) == drawn


def test_views_of_a_spec_take_any_size() -> None:
    view = HolovizOp.InputSpec.View()
    view.width = 0
    view.matrix = [1.0] * 16
    assert (view.width, view.matrix) == (0.0, [1.0] * 16)
    with pytest.raises(TypeError):
        view.matrix = [1.0] * 15
    spec = HolovizOp.InputSpec(*SPEC)
    spec.views = [view]
    (drawn,) = spec.copy().views
    assert (drawn.width, hasattr(drawn, "matrix")) == (1.0, False)  # Rerun's viewer has a camera


def test_a_spec_is_made_of_a_name_and_a_type() -> None:
    with pytest.raises(TypeError):
        HolovizOp.InputSpec("it")
    with pytest.raises(RuntimeError, match="nope"):
        HolovizOp.InputSpec("it", "nope")


@pytest.mark.parametrize("given", [None, {}, {"first": None}])
def test_a_map_of_models_may_be_none(given: Any) -> None:
    fragment = Fragment()
    maps = {"model_path_map": {"first": "one.onnx"}, "pre_processor_map": {"first": ["a"]}}
    inference = InferenceOp(
        fragment,
        backend="onnxrt",
        allocator=UnboundedAllocator(fragment, name="allocator"),
        inference_map={"first": ["c"]},
        activation_map=given,
        **maps,
    )
    assert inference.activation_map == {}


def test_a_model_that_has_not_run_yet_sends_zeros(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")

    class Frames(Rx):
        def setup(self, spec: Any) -> None:
            spec.output("out")
            spec.output("models")

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            op_output.emit({"a": np.ones(3, np.float32), "b": np.ones(3, np.float32)}, "out")
            op_output.emit([InferenceOp.ActivationSpec("second", 0)], "models")

    def make(app: Any) -> None:
        app.rx = Rx(app, name="rx")
        path = models.scaling(tmp_path, 2, shape=(1, 3))
        inference = InferenceOp(
            app,
            backend="onnxrt",
            allocator=UnboundedAllocator(app, name="allocator"),
            model_path_map={"first": path, "second": path},
            pre_processor_map={"first": ["a"], "second": ["b"]},
            inference_map={"first": ["c"], "second": ["d"]},
            activation_map={"first": "1", "second": "1"},
            infer_on_cpu=True,
            input_on_cuda=False,
            output_on_cuda=False,
            transmit_on_cuda=False,
        )
        source = Frames(app, CountCondition(app, 1), name="source")
        app.add_flow(source, inference, {("out", "receivers"), ("models", "model_activation_specs")})
        app.add_flow(inference, app.rx, {("transmitter", "in")})

    app = App(make)
    app.run()
    (message,) = app.rx.taken
    assert np.asarray(message.get("c")).any()
    assert not np.asarray(message.get("d")).any()
    assert np.asarray(message.get("d")).shape == np.asarray(message.get("c")).shape
