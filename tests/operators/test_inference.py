"""InferenceOp on host memory: models run on what arrives, by name, and send what they return."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace import waits
from headrace.operators import InferenceOp
from headrace.testing import run_operator
from tests.inference import models
from tests.operators.inference_runs import inference, one_model, values

pytest.importorskip("onnxruntime")


def test_a_model_runs_on_each_message(tmp_path: Path) -> None:
    frames = [np.full((2, 3), number, np.float32) for number in range(3)]
    sent = inference([{"x": frame} for frame in frames], **one_model(models.scaling(tmp_path)))
    assert [np.asarray(message["y"]).tolist() for message in sent] == [
        (2 * frame).tolist() for frame in frames
    ]


def test_messages_may_be_tensor_maps_dicts_or_bare_arrays(tmp_path: Path) -> None:
    path = models.scaling(tmp_path)
    for message in ({"x": values(1, 2, 3)}, {"": values(1, 2, 3)}, values(1, 2, 3)):
        (sent,) = inference([message], **one_model(path))
        assert np.asarray(sent["y"]).tolist() == [[2, 4, 6]]


def test_tensors_are_found_over_all_connections_and_others_are_ignored(tmp_path: Path) -> None:
    (sent,) = inference(
        [{"left": values(5, 6), "unused": values(0)}],
        [{"right": values(1, 2)}],
        **one_model(models.sum_and_difference(tmp_path), ["left", "right"], ["s", "d"]),
    )
    assert np.asarray(sent["s"]).tolist() == [6, 8]
    assert np.asarray(sent["d"]).tolist() == [4, 4]


def test_several_models_send_one_message(tmp_path: Path) -> None:
    for parallel in (True, False):
        (sent,) = inference(
            [{"x": values(1, 2, 3)}],
            model_path_map={"two": models.scaling(tmp_path, 2), "three": models.scaling(tmp_path, 3)},
            pre_processor_map={"two": ["x"], "three": ["x"]},
            inference_map={"two": ["double"], "three": ["triple"]},
            parallel_inference=parallel,
        )
        assert {name: np.asarray(tensor).tolist() for name, tensor in sent.items()} == {
            "double": [[2, 4, 6]],
            "triple": [[3, 6, 9]],
        }


def test_out_tensor_names_choose_what_is_sent(tmp_path: Path) -> None:
    path = models.sum_and_difference(tmp_path)
    (sent,) = inference(
        [{"a": values(5), "b": values(1)}],
        **one_model(path, ["a", "b"], ["s", "d"]),
        in_tensor_names=["a", "b"],
        out_tensor_names=["d"],
    )
    assert list(sent) == ["d"]


def test_later_frames_do_not_overwrite_outputs_that_are_held(tmp_path: Path) -> None:
    frames = [np.full((4, 3), number, np.float32) for number in range(20)]
    sent = inference([{"x": frame} for frame in frames], **one_model(models.scaling(tmp_path)))
    held = [np.asarray(message["y"]) for message in sent]
    assert [array.mean() for array in held] == [2.0 * number for number in range(20)]
    assert len({array.ctypes.data for array in held}) == 20


def test_shapes_that_differ_by_axes_of_one_fit(tmp_path: Path) -> None:
    path = models.scaling(tmp_path, shape=[1, 2, 2, 1])
    for shape in [(2, 2), (2, 2, 1), (1, 2, 2), (1, 2, 2, 1), (1, 1, 2, 2, 1)]:
        (sent,) = inference([{"x": np.ones(shape, np.float32)}], **one_model(path))
        assert sent["y"].shape == (1, 2, 2, 1)


def test_a_strided_input_is_read_in_its_order(tmp_path: Path) -> None:
    frame = np.arange(12, dtype=np.float32).reshape(3, 4).T
    (sent,) = inference([{"x": frame}], **one_model(models.scaling(tmp_path)))
    assert np.array_equal(np.asarray(sent["y"]), 2 * frame)


def test_shapes_may_change_where_that_is_allowed(tmp_path: Path) -> None:
    frames = [{"x": np.ones((rows, 3), np.float32)} for rows in (2, 5)]
    path = models.scaling(tmp_path)
    sent = inference(frames, **one_model(path), dynamic_input_dims=True)
    assert [message["y"].shape for message in sent] == [(2, 3), (5, 3)]
    with pytest.raises(
        RuntimeError, match=r"'x' was \(2, 3\) in the first frame and is \(5, 3\) now: set dynamic_"
    ):
        inference(frames, **one_model(path))


def test_an_output_may_have_a_shape_that_depends_on_the_data(tmp_path: Path) -> None:
    sent = inference(
        [{"x": values(0, 1, 0)}, {"x": values(1, 1, 1)}],
        **one_model(models.positions(tmp_path), outputs=["w"]),
    )
    assert [np.asarray(message["w"]).tolist() for message in sent] == [[[1]], [[0, 1, 2]]]


# When models run.


def counting(tmp_path: Path, frames: int, **parameters: Any) -> list[list[float]]:
    """Run a model on frames 1, 2, ...; return the number in what was sent for each."""
    messages = [{"x": values(number, 0, 0)} for number in range(1, frames + 1)]
    sent = inference(messages, **one_model(models.scaling(tmp_path, 1)), **parameters)
    return [np.asarray(message["y"])[0, 0] for message in sent]


@pytest.mark.parametrize("every", ["3", 3, [3]])
def test_a_temporal_map_runs_a_model_on_the_first_frame_and_then_seldom(tmp_path: Path, every: Any) -> None:
    assert counting(tmp_path, 8, temporal_map={"m": every}) == [1, 1, 1, 4, 4, 4, 7, 7]


@pytest.mark.parametrize("off", ["0", 0, False])
def test_a_model_that_is_not_active_sends_nothing_before_it_ran(tmp_path: Path, off: Any) -> None:
    assert counting(tmp_path, 3, activation_map={"m": off}) == []


def test_activation_specs_switch_models_on_and_off(tmp_path: Path) -> None:
    from headrace.testing import Message

    messages = [Message({"x": values(number, 0, 0)}, at=f"{number * 10}ms") for number in range(1, 7)]
    specs = [
        Message([InferenceOp.ActivationSpec("m", True)], at="15ms"),
        Message([InferenceOp.ActivationSpec("m", False)], at="35ms"),
        Message(InferenceOp.ActivationSpec("m"), at="55ms"),
    ]
    sent = inference(
        messages, specs=specs, **one_model(models.scaling(tmp_path, 1)), activation_map={"m": "0"}
    )
    assert [np.asarray(message["y"])[0, 0] for message in sent] == [2, 3, 3, 3, 6]


def test_a_model_that_is_not_due_needs_no_tensor(tmp_path: Path) -> None:
    sent = inference(
        [{"x": values(1, 2, 3)}, {}], **one_model(models.scaling(tmp_path)), temporal_map={"m": 2}
    )
    assert len(sent) == 2


# What is wrong with what arrives.


def test_a_missing_tensor_is_an_error_that_says_what_came(tmp_path: Path) -> None:
    with pytest.raises(
        RuntimeError,
        match="operator 'inference', input 'receivers': model 'm' needs the tensor 'x'; the messages have 'X', "
        "'other'; did you mean 'X'",
    ):
        inference([{"X": values(1)}], [{"other": values(1)}], **one_model(models.scaling(tmp_path)))


def test_two_tensors_of_one_name_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="needs the tensor 'x', and two messages brought the tensor 'x'"):
        inference([{"x": values(1)}], [{"x": values(1)}], **one_model(models.scaling(tmp_path)))


@pytest.mark.parametrize(
    ("tensor", "found"),
    [
        (np.ones((2, 4), np.float32), r"float32 \(2, 4\)"),
        (np.ones((2, 3), np.float64), r"float64 \(2, 3\)"),
        (np.ones(3, np.uint8), r"uint8 \(3,\)"),
        (np.ones((2, 2, 3), np.float32), r"float32 \(2, 2, 3\)"),
        (np.float32(1), r"float32 \(\)"),
    ],
)
def test_a_tensor_that_does_not_fit_is_an_error(tmp_path: Path, tensor: Any, found: str) -> None:
    with pytest.raises(
        RuntimeError,
        match=rf"operator 'inference': model 'm': the tensor 'frame' must be float32 \(n, 3\), for the input 'x', "
        rf"and is {found}",
    ):
        inference([{"frame": np.asarray(tensor)}], **one_model(models.scaling(tmp_path), ["frame"]))


def test_what_is_no_array_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="'x' is a str .builtins.str cannot be a tensor"):
        inference(["text"], **one_model(models.scaling(tmp_path)))


@pytest.mark.parametrize(
    ("specs", "wrong"),
    [
        ([InferenceOp.ActivationSpec("n", True)], "there is no model 'n'; there is 'm'"),
        (["m"], "expected a list of InferenceOp.ActivationSpec, received 'm'"),
    ],
)
def test_a_wrong_activation_spec_is_an_error(tmp_path: Path, specs: Any, wrong: str) -> None:
    with pytest.raises(RuntimeError, match=f"operator 'inference', input 'model_activation_specs': {wrong}"):
        inference([values(1, 2, 3)] * 3, specs=[specs], **one_model(models.scaling(tmp_path)))


# Failures in a run.


def test_a_failure_names_the_model_and_its_file(tmp_path: Path) -> None:
    path = models.picking(tmp_path)
    with pytest.raises(
        RuntimeError,
        match=rf"operator 'inference': model 'm' \(ONNX Runtime \(CPUExecutionProvider\), {path}\) failed:",
    ):
        inference([np.array([9])], **one_model(path))


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_a_failure_of_one_of_several_models_leaves_nothing_running(tmp_path: Path, failing: int) -> None:
    names = ["a", "b", "c"]
    with pytest.raises(RuntimeError, match=f"model '{names[failing]}'") as raised:
        inference(
            [{"good": np.array([1]), "bad": np.array([9])}],
            model_path_map={name: models.picking(tmp_path) for name in names},
            pre_processor_map={name: ["bad" if at == failing else "good"] for at, name in enumerate(names)},
            inference_map={name: [name] for name in names},
        )
    assert not any("model" in thread.name for thread in threading.enumerate())
    assert raised.value.__cause__ is not None


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("failing", [0, 1])
def test_a_failure_is_raised_when_the_other_models_have_ended(
    failing: int, kind: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other models end only when they are waited for."""
    from concurrent.futures import ThreadPoolExecutor

    from headrace.operators.inference import _call_together

    go_on, ended = threading.Event(), threading.Event()
    wait = waits.wait_for_futures

    def fail() -> list[Any]:
        raise kind("no")

    def finish() -> list[Any]:
        go_on.wait()
        ended.set()
        return []

    def wait_for(futures: Any) -> bool:
        go_on.set()
        return wait(futures)

    monkeypatch.setattr(waits, "wait_for_futures", wait_for)

    calls = [list, finish, finish]
    calls[failing] = fail
    with ThreadPoolExecutor(2) as threads, pytest.raises(kind, match="no"):
        try:
            _call_together(threads, calls)
        finally:
            had_ended = ended.is_set()
            go_on.set()
            assert had_ended


def test_it_says_what_runs_each_model(tmp_path: Path) -> None:
    made: list[InferenceOp] = []

    class Kept(InferenceOp):
        def start(self) -> None:
            assert self.runtimes == {}
            super().start()
            made.append(self)

    inputs = {"receivers": [[{"x": values(1, 2, 3)}]]}
    run_operator(Kept, inputs=inputs, backend="onnxrt", **one_model(models.scaling(tmp_path)))
    assert made[0].runtimes == {"m": "ONNX Runtime (CPUExecutionProvider)"}
