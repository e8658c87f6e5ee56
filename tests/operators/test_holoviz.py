"""HolovizOp: its parameters, inputs and outputs."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.conditions import PeriodicCondition
from headrace.core import Arg, ParameterError
from headrace.operators import HolovizOp
from headrace.viewer import InputSpec, LayerError, Renderer
from headrace.viewer.display import OutletError
from tests.harness import App, source
from tests.operators.viewing import pictures, view

RNG = np.random.default_rng(3)
IMAGE = RNG.integers(0, 256, (10, 20, 3), dtype=np.uint8)
BOX = np.array([[0.1, 0.2], [0.6, 0.8]], np.float32)


@pytest.fixture(autouse=True)
def nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.delenv("HEADRACE_VIEW", raising=False)
    before = set(threading.enumerate())
    yield
    assert not [thread for thread in set(threading.enumerate()) - before if "headrace" in thread.name]


def test_the_parameters_have_the_names_and_defaults_of_the_reference() -> None:
    app = App(lambda app: app.add_operator(HolovizOp(app)))
    app.compose_graph()
    viewer: Any = app.graph.find("holoviz_op")
    assert (viewer.width, viewer.height, viewer.framerate, viewer.window_title) == (1920, 1080, 60, "Holoviz")
    assert set(viewer.spec.inputs) == {
        "receivers",
        "input_specs",
    }
    assert not viewer.spec.outputs


def test_a_picture_without_a_window_is_that_of_the_renderer() -> None:
    tensors: list[Any] = [
        {"name": "image", "type": "color"},
        {"name": "box", "type": "rectangles", "priority": 1},
    ]
    message = {"image": IMAGE, "box": BOX}
    (picture,) = pictures([message], tensors=tensors)
    assert (picture == Renderer(20, 10, tensors).render(message)).all()


def test_ports_that_are_enabled_by_a_configuration_exist() -> None:
    app = App(
        lambda app: app.add_operator(HolovizOp(app, Arg("enable_render_buffer_output", True), name="it"))
    )
    app.compose_graph()
    assert set(app.graph.find("it").spec.outputs) == {"render_buffer_output"}


def test_a_message_that_is_one_array_is_the_tensor_without_a_name() -> None:
    assert (pictures([IMAGE])[0][..., :3] == IMAGE).all()
    assert (pictures([IMAGE], tensors=[{"name": "", "type": "color"}])[0][..., :3] == IMAGE).all()


def test_without_tensors_a_later_connection_is_drawn_above_an_earlier_one() -> None:
    made: list[Any] = []

    def compose(app: Any) -> None:
        from tests.harness import sink

        viewer = HolovizOp(app, width=20, height=10, headless=True, enable_render_buffer_output=True)
        for name, image in (("below", IMAGE), ("above", 255 - IMAGE)):
            app.add_flow(source(app, [{name: image}], name=name), viewer, {("out", "receivers")})
        app.add_flow(viewer, sink(app, made), {("render_buffer_output", "in")})

    App(compose).run()
    assert (np.asarray(made[0]["render_buffer_output"])[..., :3] == 255 - IMAGE).all()


def test_tensors_come_from_several_connections_and_others_are_ignored() -> None:
    made: list[Any] = []

    def compose(app: Any) -> None:
        tensors = [{"name": "image", "type": "color"}, {"name": "box", "type": "rectangles"}]
        viewer = HolovizOp(
            app, tensors=tensors, width=20, height=10, headless=True, enable_render_buffer_output=True
        )
        app.add_flow(source(app, [{"image": IMAGE}], name="one"), viewer, {("out", "receivers")})
        app.add_flow(
            source(app, [{"box": BOX, "image": IMAGE * 0, "more": BOX}], name="two"),
            viewer,
            {("out", "receivers")},
        )
        from tests.harness import sink

        app.add_flow(viewer, sink(app, made), {("render_buffer_output", "in")})

    App(compose).run()
    expected = Renderer(20, 10, [{"name": "image", "type": "color"}, {"name": "box", "type": "rectangles"}])
    assert (
        np.asarray(made[0]["render_buffer_output"]) == expected.render({"image": IMAGE, "box": BOX})
    ).all()


def test_a_missing_tensor_is_an_error_that_names_operator_and_input() -> None:
    with pytest.raises(
        LayerError, match="operator 'holoviz_op', input 'receivers': layer 'box'.*tensors are 'image'"
    ):
        pictures([{"image": IMAGE}], tensors=[{"name": "box", "type": "rectangles"}])


def test_a_message_that_is_no_array_is_an_error() -> None:
    with pytest.raises(TypeError, match="operator 'holoviz_op', input 'receivers'.*'' is a str"):
        pictures(["text"])


def test_errors_are_raised_in_the_pipeline_though_nobody_looks() -> None:
    with pytest.raises(LayerError, match="uint8; coordinates must be"):
        view([{"box": IMAGE}], tensors=[{"name": "box", "type": "rectangles"}])


# Specifications at run time.


def test_specifications_at_run_time_change_and_add_layers() -> None:
    red, blue = InputSpec("box", "rectangles"), InputSpec("late", "points")
    red.color = [1, 0, 0, 1]
    blue.color = [0, 0, 1, 1]
    late = np.array([[0.92, 0.95]], np.float32)
    messages = [{"box": BOX}, {"box": BOX, "late": late}, {"box": BOX, "late": late}, {"box": BOX}]

    def body(self: Any, op_input: Any, op_output: Any) -> None:
        op_output.emit(messages[self.ticks - 1], "out")
        if self.ticks == 2:
            op_output.emit([red, blue], "specs")

    from headrace.conditions import CountCondition
    from tests.harness import Step, sink

    made: list[Any] = []

    def compose(app: Any) -> None:
        both = Step(app, CountCondition(app, 4), outputs=["out", "specs"], body=body, name="both")
        viewer = HolovizOp(
            app,
            tensors=[{"name": "box", "type": "rectangles"}],
            width=20,
            height=10,
            headless=True,
            enable_render_buffer_output=True,
        )
        app.add_flow(both, viewer, {("out", "receivers"), ("specs", "input_specs")})
        app.add_flow(viewer, sink(app, made), {("render_buffer_output", "in")})

    App(compose).run()
    first, second, third, fourth = [np.asarray(message["render_buffer_output"])[..., :3] for message in made]
    assert (first[2, 5].tolist(), first[9, 18].tolist()) == ([255, 255, 255], [0, 0, 0])
    assert (second[2, 5].tolist(), second[9, 18].tolist()) == ([255, 0, 0], [0, 0, 255])
    assert (third == second).all(), "they stay in effect"
    assert (fourth[2, 5].tolist(), fourth[9, 18].tolist()) == ([255, 0, 0], [0, 0, 0])


@pytest.mark.parametrize("message", ["text", [3], [{"name": "it"}]])
def test_a_wrong_specification_at_run_time_is_an_error(message: Any) -> None:
    with pytest.raises(ValueError, match="operator 'holoviz_op', input 'input_specs'"):
        pictures([IMAGE], {"input_specs": [message]})


# Buffers.


def test_a_buffer_that_comes_in_is_filled_and_goes_out() -> None:
    buffer = np.zeros((10, 20, 4), np.uint8)
    _, emitted = view(
        [IMAGE],
        {"render_buffer_input": [{"buffer": buffer}]},
        headless=True,
        enable_render_buffer_input=True,
        enable_render_buffer_output=True,
    )
    assert (buffer[..., :3] == IMAGE).all()
    assert np.shares_memory(np.asarray(emitted["render_buffer_output"][0]["render_buffer_output"]), buffer)


@pytest.mark.parametrize(
    ("buffer", "what"),
    [
        (np.zeros((10, 20, 3), np.uint8), r"must be \(10, 20, 4\) of uint8.*\(10, 20, 3\)"),
        (np.zeros((10, 20, 4), np.int8), "dtype int8"),
        (np.zeros((10, 40, 4), np.uint8)[:, ::2], "contiguous"),
        ("text", "expected an array"),
        ({"one": IMAGE, "two": IMAGE}, "this has 2"),
    ],
)
def test_a_buffer_that_does_not_fit_is_an_error(buffer: Any, what: str) -> None:
    with pytest.raises((ValueError, TypeError), match=f"input 'render_buffer_input'.*{what}"):
        view([IMAGE], {"render_buffer_input": [buffer]}, headless=True, enable_render_buffer_input=True)


def test_a_read_only_buffer_is_an_error() -> None:
    buffer = np.zeros((10, 20, 4), np.uint8)
    buffer.flags.writeable = False
    with pytest.raises(ValueError, match="read-only; send one that can be drawn to"):
        view([IMAGE], {"render_buffer_input": [buffer]}, headless=True, enable_render_buffer_input=True)


def test_a_layer_that_a_message_adds_needs_its_tensor_in_that_frame() -> None:
    with pytest.raises(LayerError, match="'absent'"):
        pictures([{"image": IMAGE}], {"input_specs": [[InputSpec("absent", "points")]]})


def test_a_page_that_was_asked_for_needs_its_library(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "aiohttp.web", None)
    monkeypatch.setenv("DISPLAY", ":0")
    view([IMAGE])
    assert "shows nothing: aiohttp is needed" in caplog.text
    monkeypatch.setenv("HEADRACE_VIEW", "page")
    with pytest.raises(ImportError, match=r"aiohttp is needed .* pip install '(?:\.|headrace)\[view\]'"):
        view([IMAGE])


# Parameters that are refused.


@pytest.mark.parametrize(
    ("parameters", "what"),
    [
        ({"fullscreen": True, "headless": True}, "exclude each other"),
        ({"width": 0}, "'width' of .* must be at least 1"),
        ({"framerate": 0}, "'framerate' of .* must be at least"),
        ({"font_path": "/no/such/font.ttf"}, "'/no/such/font.ttf': there is no such file"),
        (
            {"tensors": [{"name": "it", "type": "color", "colour": 1}]},
            "HolovizOp 'holoviz_op'.*unknown keys colour",
        ),
        ({"tensors": ["it"]}, "must be described by a dict"),
        ({"color_lut": [[1, 2]]}, "color_lut must be rows of 4"),
    ],
)
def test_a_wrong_parameter_is_refused(parameters: dict[str, Any], what: str) -> None:
    with pytest.raises(ParameterError, match=what):
        view([IMAGE], **parameters)


# Files and Rerun, named by the environment.


def test_files_are_written_beside_or_without_a_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("av")
    from PIL import Image

    monkeypatch.setenv("HEADRACE_VIEW", f"{tmp_path}/it.png,{tmp_path}/it.mp4")
    viewer, _ = view([IMAGE, 255 - IMAGE], headless=True)
    with Image.open(tmp_path / "it.png") as image:
        assert (np.asarray(image) == 255 - IMAGE).all()
    assert (tmp_path / "it.mp4").stat().st_size > 0
    assert viewer.frames_received == 2
    assert viewer.frames_received == viewer.frames_shown + viewer.frames_dropped


def test_a_picture_has_the_time_of_its_frame_by_the_runs_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    times: list[float] = []

    class Outlet:
        def wants_picture(self) -> bool:
            return True

        def show(self, picture: Any, is_still: bool) -> None:
            times.append(picture.scene.time)

        def close(self) -> None:
            pass

    monkeypatch.setattr(HolovizOp, "_open_outlet", lambda *_: Outlet())
    monkeypatch.setenv("HEADRACE_VIEW", "page")

    def compose(app: Any) -> None:
        camera = source(app, [IMAGE] * 20, PeriodicCondition(app, "100ms"))
        app.add_flow(camera, HolovizOp(app, width=20, height=10), {("out", "receivers")})

    App(compose).run()
    assert times == sorted(times)
    assert times[-1] - 1.9 == pytest.approx(0, abs=1e-6)  # the last picture is always shown


def test_a_file_that_cannot_be_written_is_named_with_the_operator(tmp_path: Path) -> None:
    pytest.importorskip("av")
    (tmp_path / "no_folder").write_text("")
    for name in ("it.mp4", "it.png"):
        path = tmp_path / "no_folder" / name
        with pytest.raises(OutletError, match="no_folder") as raised:
            view([IMAGE], outlets=str(path), name="screen")
        assert str(raised.value).startswith(f"operator 'screen': the outlet {str(path)!r} failed: ")


def test_a_recording_for_rerun_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rerun = pytest.importorskip("rerun")
    monkeypatch.setenv("HEADRACE_VIEW", f"{tmp_path}/it.rrd")
    kinds = {
        "image": "color",
        "box": "rectangles",
        "points": "points",
        "lines": "lines",
        "strip": "line_strip",
        "three": "triangles",
        "text": "text",
        "points_3d": "points_3d",
        "lines_3d": "lines_3d",
        "strip_3d": "line_strip_3d",
        "three_3d": "triangles_3d",
    }
    coordinates = RNG.random((6, 3)).astype(np.float32)
    message = {
        name: IMAGE if kind == "color" else coordinates if "3d" in kind else coordinates[:, :2].copy()
        for name, kind in kinds.items()
    }
    tensors = [
        {"name": name, "type": kind, **({"text": ["one", "two"]} if kind == "text" else {})}
        for name, kind in kinds.items()
    ]
    view([message], tensors=tensors, headless=True)
    data = (tmp_path / "it.rrd").read_bytes()
    assert data.startswith(b"RRF2")
    del rerun


def test_a_layer_in_3d_needs_an_outlet_that_shows_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = [{"name": "it", "type": "points_3d"}]
    message = {"it": RNG.random((6, 3)).astype(np.float32)}
    where = "operator 'holoviz_op', input 'receivers'"
    text = rf"{where}: layer 'it' \(points_3d\): it is in 3D, which Rerun alone shows"
    with pytest.raises(LayerError, match=text):
        view([message], tensors=tensors, outlets=f"{tmp_path}/it.png")
    with pytest.raises(LayerError, match=text):
        view([message], tensors=tensors, headless=True, enable_render_buffer_output=True)
    view([message], tensors=tensors, headless=True)  # nothing is shown
    pytest.importorskip("rerun")
    view([message], tensors=tensors, outlets=f"{tmp_path}/it.rrd,{tmp_path}/it.png")
    assert (tmp_path / "it.rrd").exists()
    assert (tmp_path / "it.png").exists()
