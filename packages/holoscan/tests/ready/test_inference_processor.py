"""InferenceProcessorOp: every operation on the results of networks."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.testing import OperatorResult, run_operator
from headrace_holoscan.ready import InferenceProcessorOp
from tests.limits import examples
from tests.operators.cases import Array, random


def process(message: Any, operations: dict[str, Any], **params: Any) -> OperatorResult:
    """Run the operator on one message."""
    return run_operator(
        InferenceProcessorOp, inputs={"receivers": [[message]]}, process_operations=operations, **params
    )


def result(message: Any, operations: dict[str, Any], **params: Any) -> dict[str, Array]:
    """Return what the operator emits for one message."""
    (sent,) = process(message, operations, **params)["transmitter"]
    return {name: np.asarray(tensor) for name, tensor in sent.items()}


# Maxima.


@given(st.integers(1, 12), st.integers(1, 12), st.integers(1, 5))
@settings(max_examples=examples(25), deadline=None)
def test_the_place_of_each_channels_maximum_is_found(rows: int, columns: int, channels: int) -> None:
    maps = random(np.float32, 1, rows, columns, channels)
    found = result({"maps": maps}, {"maps": ["max_per_channel_scaled"]}, processed_map={"maps": ["maxima"]})[
        "maxima"
    ]
    assert found.shape == (1, 2 * channels)
    for channel in range(channels):
        row, column = np.unravel_index(maps[0, ..., channel].argmax(), (rows, columns))
        expected = [np.float32(row) / np.float32(rows), np.float32(column) / np.float32(columns)]
        assert found[0, 2 * channel : 2 * channel + 2].tolist() == expected


def test_very_small_values_have_a_maximum_too() -> None:
    maps = np.full((1, 2, 2, 1), -1e9, np.float32)
    maps[0, 1, 1] = -1e8
    found = result({"m": maps}, {"m": ["max_per_channel_scaled"]}, processed_map={"m": ["maxima"]})
    assert found["maxima"].tolist() == [[0.5, 0.5]]


# Pictures.


def test_a_histogram_is_equalized() -> None:
    picture = np.array([[[0.0, 1.0, 2.0, 4.0]]], np.float32)
    (found,) = result(
        {"p": picture}, {"p": ["scale_intensity_cpu"]}, processed_map={"p": ["picture"]}
    ).values()
    assert found.shape == (1, 4, 3)
    assert found[0, :, 0].tolist() == [0, 85, 170, 255]
    assert (found == found[..., :1]).all()


def test_negative_and_equal_values_are_equalized_too() -> None:
    params = {"processed_map": {"p": ["picture"]}}
    negative = np.array([[[-4.0, -2.0]]], np.float32)
    (found,) = result({"p": negative}, {"p": ["scale_intensity_cpu"]}, **params).values()
    assert found[0, :, 0].tolist() == [0, 255]
    (found,) = result(
        {"p": np.full((1, 3, 3), 7, np.float32)}, {"p": ["scale_intensity_cpu"]}, **params
    ).values()
    assert (found == 0).all()


# Text.


def test_values_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    process(
        {"a": np.array([[0.5, 1e10]], np.float32), "b": np.array([3, -4], np.int32)},
        {"a": ["print"], "b": ["print_int32"]},
    )
    assert capsys.readouterr().out == "0.5, 1e+10\n3, -4\n"


@pytest.mark.parametrize(
    ("scores", "text"),
    [
        ([2.0, -1.0], "in. Confidence: 0.880797"),
        ([0.0, 1.0], "out. Confidence: 0.731059"),
        ([1e4, -1e4], "in. Confi"),
    ],
)
def test_the_likelier_of_two_texts_is_printed(
    scores: list[float], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    process({"s": np.array(scores, np.float32)}, {"s": ["print_custom_binary_classification,in,out"]})
    assert capsys.readouterr().out.startswith(text)


def test_the_likelier_of_two_classes_is_written_to_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLOSCAN_ANALYTICS_DATA_DIRECTORY", str(tmp_path))
    scores = [{"s": np.array(pair, np.float32)} for pair in ([2, -1], [-1, 0])]
    run_operator(
        InferenceProcessorOp,
        inputs={"receivers": [scores]},
        process_operations={"s": "export_binary_classification_to_csv,app,in,out,sure"},
        disable_transmitter=True,
    )
    (file,) = tmp_path.glob("app/*/data.csv")
    with file.open(newline="") as lines:
        assert list(csv.reader(lines)) == [["in", "out", "sure"], ["1", "0", "0.880797"], ["0", "1", "0.5"]]


def test_a_value_that_is_no_number_is_never_the_maximum() -> None:
    maps = np.zeros((1, 4, 8, 3), np.float32)
    maps[0, 0, 1] = np.nan  # before the maximum, behind it, and everywhere
    maps[0, 1, 2, 0] = 0.5
    maps[0, 3, 6, 1] = -1.0
    maps[..., 1] -= 2
    maps[0, 2, 4, 1] = -1.5
    maps[..., 2] = np.nan
    found = result({"m": maps}, {"m": ["max_per_channel_scaled"]}, processed_map={"m": ["maxima"]})
    np.testing.assert_array_equal(found["maxima"], [[0.25, 0.25, 0.5, 0.5, 0.0, 0.0]])


def test_a_picture_of_the_largest_and_smallest_numbers_is_equalized() -> None:
    most = np.finfo(np.float32).max
    picture = np.array([[[-most, 0, most, -3e38]]], np.float32)
    found = result({"p": picture}, {"p": ["scale_intensity_cpu"]}, processed_map={"p": ["even"]})["even"]
    assert found[0, :, 0].tolist() == [0, 170, 255, 85]


# Boxes.

CONFIG = """
generate_boxes:
  display: {width: 100, height: 50}
  params: {label_file: labels.txt, threshold: 0.6}
  objects: {cat: 2, object: 1}
  color: {cat: "1 0 0 0.5", object: 0 1 0}
"""


@pytest.fixture
def config(tmp_path: Path) -> str:
    (tmp_path / "labels.txt").write_text("none\ncat\ndog\n")
    (tmp_path / "boxes.yaml").write_text(CONFIG)
    return str(tmp_path / "boxes.yaml")


def test_boxes_of_the_best_objects_are_drawn(config: str) -> None:
    boxes = np.array(
        [[10, 5, 20, 10], [0, 0, 50, 25], [50, 25, 100, 50], [1, 1, 2, 2], [2, 2, 4, 4]], np.float32
    )
    message = {
        "boxes": boxes[None],
        "scores": np.array([[0.7, 0.9, 0.8, 0.5, 0.65]], np.float32),
        "labels": np.array([[1, 1, 1, 1, 2]], np.int64),
    }
    found = result(message, {"boxes:scores:labels": ["generate_boxes"]}, config_path=config)
    assert set(found) == {"cat0", "cattext0", "cat1", "cattext1", "object0", "objecttext0"}
    np.testing.assert_allclose(found["cat0"], [[[0, 0], [0.5, 0.5]]])
    np.testing.assert_allclose(found["cat1"], [[[0.5, 0.5], [1, 1]]])
    np.testing.assert_allclose(found["cattext1"], [[[1, 0.5, 0.05]]])
    np.testing.assert_allclose(
        found["object0"], [[[0.02, 0.04], [0.04, 0.08]]]
    )  # a dog: its label has no count


def test_objects_that_are_not_there_are_out_of_the_picture(config: str) -> None:
    message = {
        "boxes": np.zeros((0, 4), np.float32),
        "scores": np.zeros(0, np.float32),
        "labels": np.zeros(0, np.int64),
    }
    found = result(message, {"boxes:scores:labels": ["generate_boxes"]}, config_path=config)
    np.testing.assert_allclose(found["cat1"], np.zeros((1, 2, 2)))
    np.testing.assert_allclose(found["cattext1"], [[[1.1, 1.1, 0.05]]])


def test_masks_are_drawn_in_colour_and_forgotten_in_the_next_frame(config: str) -> None:
    masks = np.zeros((2, 50, 100), np.float32)
    masks[0, :10] = 1
    masks[1, 40:] = 1
    labels = np.array([1, 2], np.int64)
    messages = [
        {"masks": masks, "scores": np.array(scores, np.float32), "labels": labels}
        for scores in ([0.9, 0.7], [0.1, 0.7])
    ]
    sent = run_operator(
        InferenceProcessorOp,
        inputs={"receivers": [messages]},
        process_operations={"masks:scores:labels": ["generate_boxes"]},
        config_path=config,
    )["transmitter"]
    first, second = (np.asarray(message["holoviz_masks"]) for message in sent)
    assert first.shape == (50, 100, 4)
    assert first[0, 0].tolist() == [1, 0, 0, 0.5]
    assert first[45, 0].tolist() == [0, 1, 0, 1]
    assert first[20, 0].tolist() == [0, 0, 0, 0]
    assert not second[0].any()


# Messages.


def test_tensors_are_found_in_all_messages_and_several_operations_follow_each_other(
    capsys: pytest.CaptureFixture[str],
) -> None:
    outcome = run_operator(
        InferenceProcessorOp,
        inputs={"receivers": [[{"a": np.array([1], np.float32)}], [{"b": np.zeros((1, 2, 2), np.float32)}]]},
        process_operations={"a": ["print"], "b": ["print", "scale_intensity_cpu"]},
        processed_map={"b": "picture"},
    )
    assert list(outcome["transmitter"][0]) == ["picture"]
    assert capsys.readouterr().out == "1\n0, 0, 0, 0\n"
    assert outcome.operator.name == "postprocessor"


def test_only_the_results_that_were_asked_for_are_emitted() -> None:
    message = {"a": np.zeros((1, 2, 2), np.float32), "b": np.zeros((1, 2, 2), np.float32)}
    operations = {"a": ["scale_intensity_cpu"], "b": ["scale_intensity_cpu"]}
    names = {"processed_map": {"a": ["x"], "b": ["y"]}}
    assert set(result(message, operations, **names)) == {"x", "y"}
    assert set(result(message, operations, out_tensor_names=["y"], **names)) == {"y"}


@pytest.mark.parametrize(
    ("operations", "names", "where"),
    [
        (
            {"a": ["scale_intensity_cpu"], "b": ["scale_intensity_cpu"]},
            {"a": ["x"], "b": ["x"]},
            "processed_map['a'] and processed_map['b']",
        ),
        (
            {"a": ["scale_intensity_cpu", "scale_intensity_cpu"]},
            {"a": ["x", "x"]},
            "processed_map['a'] and processed_map['a']",
        ),
    ],
)
def test_two_results_of_one_name_are_refused_before_the_first_frame(
    operations: dict[str, Any], names: dict[str, Any], where: str
) -> None:
    text = f"operator 'results': two results are named 'x', and one would replace the other ({where} have it)"
    with pytest.raises(ValueError, match=re.escape(text)):
        run_operator(
            InferenceProcessorOp,
            inputs={"receivers": [[]]},
            process_operations=operations,
            processed_map=names,
            name="results",
        )


def test_a_result_may_have_a_name_that_no_operation_uses() -> None:
    message = {"a": np.zeros((1, 2, 2), np.float32), "b": np.zeros((1, 2, 2), np.float32)}
    operations = {"a": ["scale_intensity_cpu"], "b": ["print"]}
    assert list(result(message, operations, processed_map={"a": ["x"], "b": ["x"]})) == ["x"]


def test_a_result_does_not_replace_a_box(config: str) -> None:
    message = {
        "boxes": np.zeros((1, 1, 4), np.float32),
        "scores": np.array([[0.7]], np.float32),
        "labels": np.array([[1]], np.int64),
        "picture": np.zeros((1, 2, 2), np.float32),
    }
    operations = {"boxes:scores:labels": ["generate_boxes"], "picture": ["scale_intensity_cpu"]}
    with pytest.raises(
        ValueError,
        match="two results are named 'cat0'.*generate_boxes of 'boxes:scores:labels' and processed_map",
    ):
        result(message, operations, processed_map={"picture": ["cat0"]}, config_path=config)


def test_two_messages_with_one_tensor_are_refused() -> None:
    def run(first: Any, second: Any) -> OperatorResult:
        return run_operator(
            InferenceProcessorOp,
            inputs={"receivers": [[first], [second]]},
            process_operations={"a": ["print"]},
        )

    array = np.array([1], np.float32)
    with pytest.raises(ValueError, match="input 'receivers': .*two messages brought the tensor 'a'"):
        run({"a": array}, {"a": array})
    with pytest.raises(ValueError, match="two messages brought the tensor ''"):
        run(array, array)
    run({"a": array, "unused": array}, {"unused": array})


def test_a_single_array_needs_no_name(capsys: pytest.CaptureFixture[str]) -> None:
    process(np.array([2], np.float32), {"scores": ["print"]})
    assert capsys.readouterr().out == "2\n"


def test_without_a_transmitter_there_is_no_output() -> None:
    outcome = process({"a": np.zeros(1, np.float32)}, {"a": ["print"]}, disable_transmitter=True)
    assert dict(outcome) == {}


def test_a_configuration_decides_whether_there_is_an_output() -> None:
    from headrace.core import Arg

    outcome = run_operator(
        lambda app: InferenceProcessorOp(
            app, [Arg("disable_transmitter", True), Arg("process_operations", {"a": ["print"]})]
        ),
        inputs={"receivers": [[{"a": np.zeros(1, np.float32)}]]},
    )
    assert dict(outcome) == {}

    def late(app: Any) -> Any:
        operator = InferenceProcessorOp(app, process_operations={"a": ["print"]})
        operator.add_arg(disable_transmitter=True)
        return operator

    with pytest.raises(ValueError, match="it is given when the operator is made, not later"):
        run_operator(late, inputs={"receivers": [[{"a": np.zeros(1, np.float32)}]]})


# What is refused.

KERNEL = 'extern "C" __global__ void customKernel1(const float* in, float* out, size_t count) { }'
ON_DEVICE = {"input_on_cuda": True, "output_on_cuda": True}


@pytest.mark.parametrize(
    ("operations", "params", "text"),
    [
        (
            {"a": ["prnt"]},
            {},
            r"process_operations\['a'\]: the operation 'prnt' is not known.*did you mean 'print'",
        ),
        ({"a": []}, {}, "the list of operations is empty"),
        ({"a": [3]}, {}, "an operation is named by a str, not 3"),
        ({"a": ["print_custom_binary_classification,x"]}, {}, "takes 2 texts, separated by commas, .* not 1"),
        (
            {"a": ["max_per_channel_scaled"]},
            {},
            r"need 1 names in processed_map\['a'\] for their results, not 0",
        ),
        ({"a:b": ["print"]}, {}, "only generate_boxes takes several tensors"),
        ({"a:b": ["generate_boxes"]}, {}, "generate_boxes needs config_path"),
        ({"a": ["print"]}, {"config_path": "/nowhere.yaml"}, "there is no file '/nowhere.yaml'"),
        ({"a": ["custom_cuda_kernel-1"]}, {}, "'custom_cuda_kernel-1' names no kernel of custom_kernels"),
        (
            {"a": ["print"]},
            {"custom_kernels": {"kernel-1": KERNEL}},
            "custom_kernels has 'kernel-1'; a key is",
        ),
        ({"a": ["print"]}, {"custom_kernels": {"cuda_kernel-1": " "}}, "cuda_kernel-1 is missing or empty"),
        ({"a": ["print"]}, {"custom_kernels": {"out_dtype-1": "kInt8"}}, "cuda_kernel-1 is missing or empty"),
        ({"a": ["print"]}, {"custom_kernels": {"cuda_kernel-1": "no.cu"}}, "there is no file 'no.cu'"),
        (
            {"a": ["print"]},
            {"custom_kernels": {"cuda_kernel-2": KERNEL}},
            "define the function customKernel2",
        ),
        (
            {"a": ["custom_cuda_kernel-1"]},
            {"custom_kernels": {"cuda_kernel-1": KERNEL}, "processed_map": {"a": ["b"]}},
            "runs on a device: set input_on_cuda=True and output_on_cuda=True",
        ),
        (
            {"a": ["print"]},
            {"custom_kernels": {"cuda_kernel-1": KERNEL, "out_dtype-1": "float"}},
            "out_dtype-1='float' is not known; it is one of 'kFloat32'",
        ),
        (
            {"a": ["print"]},
            {"custom_kernels": {"cuda_kernel-1": KERNEL, "thread_per_block-1": "64,64"}},
            "product is at most 1024, not 64,64",
        ),
        (
            {"a": ["print"]},
            {"custom_kernels": {"cuda_kernel-1": KERNEL, "output_dimensions-1": "2,x"}},
            "output_dimensions-1 must be positive numbers separated by commas, not '2,x'",
        ),
    ],
)
def test_a_wrong_parameter_is_refused(operations: dict[str, Any], params: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text) as raised:
        process({"a": np.zeros(1, np.float32)}, operations, name="post", **params)
    assert str(raised.value).startswith("operator 'post'")


@pytest.mark.parametrize(
    ("array", "operation", "text"),
    [
        (
            np.zeros((2, 2), np.float32),
            "max_per_channel_scaled",
            r"float32 of the shape \(1, rows, columns, channels\)",
        ),
        (np.zeros((1, 2, 2, 2)), "max_per_channel_scaled", "not float64 of the shape"),
        (np.zeros((1, 4, 2, 2), np.float32)[:, ::2], "max_per_channel_scaled", "must be C-contiguous"),
        (np.zeros((1, 0, 2, 2), np.float32), "max_per_channel_scaled", "rows, columns, channels"),
        (
            np.zeros((3, 2, 2), np.float32),
            "scale_intensity_cpu",
            r"float32 of the shape \(1, rows, columns\)",
        ),
        (np.full((1, 2, 2), np.nan, np.float32), "scale_intensity_cpu", "the values must be finite"),
        (np.zeros(3, np.float64), "print", "the values must be float32, not float64"),
        (np.zeros(3, np.float32), "print_int32", "the values must be int32, not float32"),
        (np.zeros(0, np.float32), "print", "the tensor has no values"),
        (np.zeros(3, np.float32), "print_custom_binary_classification,a,b", "two scores of float32, not 3"),
    ],
)
def test_a_tensor_that_an_operation_cannot_take_is_refused(array: Array, operation: str, text: str) -> None:
    with pytest.raises(ValueError, match=text) as raised:
        process({"a": array}, {"a": [operation]}, processed_map={"a": ["b"]}, name="post")
    assert str(raised.value).startswith(f"operator 'post', {operation.partition(',')[0]} of 'a'")


def test_a_tensor_that_is_missing_is_named() -> None:
    with pytest.raises(ValueError, match="needs the tensor 'scores'; the messages have 'score'"):
        process({"score": np.zeros(1, np.float32)}, {"scores": ["print"]})


def test_a_result_that_nothing_computes_is_named() -> None:
    with pytest.raises(ValueError, match="out_tensor_names has 'x', and no operation has that result"):
        process({"a": np.zeros(1, np.float32)}, {"a": ["print"]}, out_tensor_names=["x"])


def test_a_kernel_has_no_substitute_on_the_host() -> None:
    with pytest.raises(ValueError, match="a CUDA kernel runs on a GPU, and this tensor is in host memory"):
        process(
            {"a": np.zeros(1, np.float32)},
            {"a": ["custom_cuda_kernel-1"]},
            processed_map={"a": ["b"]},
            custom_kernels={"cuda_kernel-1": KERNEL},
            **ON_DEVICE,
        )


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("other: 1", "has no section generate_boxes"),
        ("generate_boxes: {params: {}}", "generate_boxes: params: there is no label_file"),
        ("generate_boxes: {params: {label_file: none.txt}}", "the label file .*none.txt.* cannot be read"),
        (
            "generate_boxes: {params: {label_file: labels.txt}, objects: {cat: many}}",
            "objects: cat must be a whole number, not 'many'",
        ),
        (
            "generate_boxes: {params: {label_file: labels.txt}, objects: [cat]}",
            r"objects must be names with values, not",
        ),
        ("generate_boxes: {params: [1]}", "params must be names with values"),
        (
            "generate_boxes: {params: {label_file: labels.txt, threshold: x}}",
            "threshold must be a number, not 'x'",
        ),
        (
            "generate_boxes: {params: {label_file: labels.txt}, color: {cat: red}}",
            "color: cat must be 3 or 4 numbers",
        ),
        ("generate_boxes: {params: {label_file: binary.txt}}", "the label file .*binary.txt' cannot be read"),
        ("generate_boxes: [", "cannot be read as YAML"),
        ("generate_boxes: \x00", "cannot be read as YAML"),
        ("generate_boxes: {params: {label_file: labels.txt}, display: {width: 0}}", "must be positive"),
    ],
)
def test_a_wrong_file_of_boxes_is_refused_by_operator_and_file(content: str, text: str, config: str) -> None:
    Path(config).write_text(content)
    Path(config).with_name("binary.txt").write_bytes(b"\xff\xfe\xff")
    message = {name: np.zeros(1, np.float32) for name in ("boxes", "scores", "labels")}
    with pytest.raises(ValueError, match=text) as refused:
        process(message, {"boxes:scores:labels": ["generate_boxes"]}, config_path=config)
    assert str(refused.value).startswith(
        "operator 'postprocessor', process_operations['boxes:scores:labels']: "
    )
    assert f"the file {config!r}" in str(refused.value)


def test_labels_that_are_no_numbers_are_refused_by_operator(config: str) -> None:
    message = {"boxes": np.zeros((1, 4), np.float32), "scores": np.ones(1, np.float32)}
    message["labels"] = np.array([np.nan], np.float32)
    with pytest.raises(
        ValueError, match=r"operator 'postprocessor'.*the labels must be whole numbers, not \[nan\]"
    ):
        process(message, {"boxes:scores:labels": ["generate_boxes"]}, config_path=config)


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ("boxes:scores", "takes tensors with the words scores, labels, and boxes or masks"),
        ("boxes:scores:scores_b:labels", "have the word 'scores' in their names; one must"),
    ],
)
def test_the_tensors_of_boxes_are_known_by_their_names(names: str, text: str, config: str) -> None:
    with pytest.raises(ValueError, match=text):
        process({}, {names: ["generate_boxes"]}, config_path=config)


def test_boxes_must_be_as_many_as_scores(config: str) -> None:
    message = {
        "boxes": np.zeros((1, 4), np.float32),
        "scores": np.ones(2, np.float32),
        "labels": np.zeros(2, np.int64),
    }
    with pytest.raises(ValueError, match="2 scores need 4 numbers each in boxes, not 4"):
        process(message, {"boxes:scores:labels": ["generate_boxes"]}, config_path=config)
