"""SegmentationPostprocessorOp: classes from scores."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.core import ParameterError
from headrace.operators import SegmentationPostprocessorOp
from headrace.testing import run_operator
from tests.limits import examples
from tests.operators.cases import Array, random


def classify(scores: Any, **params: Any) -> Array:
    """Return the classes of scores."""
    (message,) = run_operator(SegmentationPostprocessorOp, inputs=[scores], **params)["out_tensor"]
    assert list(message) == ["out_tensor"]
    return np.asarray(message["out_tensor"])


@given(st.integers(1, 20), st.integers(1, 20), st.integers(1, 9), st.sampled_from(["hwc", "nchw", "nhwc"]))
@settings(max_examples=examples(30), deadline=None)
def test_a_class_is_the_channel_with_the_largest_score(
    rows: int, columns: int, channels: int, form: str
) -> None:
    sizes = {"n": 1, "h": rows, "w": columns, "c": channels}
    scores = random(np.float32, *(sizes[letter] for letter in form))
    result = classify(scores, data_format=form)
    assert result.dtype == np.uint8
    expected = scores.argmax(form.index("c")).reshape(rows, columns, 1)
    np.testing.assert_array_equal(result, expected)


def _warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what operators have warned of; the log of the run itself, and of other threads, is left out."""
    return [record.message for record in caplog.records if record.name.startswith("headrace.operators.")]


def test_scores_below_zero_are_compared_too() -> None:
    assert classify(np.array([[[-3, -1, -2]]], np.float32)).tolist() == [[[1]]]


def test_of_equal_scores_the_first_counts_and_nan_never() -> None:
    nan, inf = np.nan, np.inf
    scores = np.array([[[1, 2, 2], [nan, 0, nan], [nan, nan, nan], [-inf, -inf, -inf]]], np.float32)
    assert classify(scores).reshape(-1).tolist() == [1, 1, 0, 0]


def test_as_many_classes_as_a_byte_holds() -> None:
    scores = np.zeros((1, 1, 255), np.float32)
    scores[0, 0, 254] = 1
    assert classify(scores).item() == 254


def test_a_sigmoid_is_compared_with_a_half(caplog: pytest.LogCaptureFixture) -> None:
    scores = np.array([[[0.5], [0.4999], [np.nan], [2]]], np.float32)
    assert classify(scores, network_output_type="sigmoid").reshape(-1).tolist() == [1, 0, 0, 1]
    assert _warnings(caplog) == []


def test_further_channels_of_a_sigmoid_are_ignored_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    scores = np.array([[[0.1, 0.9]]], np.float32)
    with caplog.at_level(logging.WARNING):
        outcome = run_operator(
            SegmentationPostprocessorOp, inputs=[scores, scores], network_output_type="sigmoid", name="post"
        )
    assert [np.asarray(message["out_tensor"]).item() for message in outcome["out_tensor"]] == [0, 0]
    assert _warnings(caplog) == [
        "operator 'post': the sigmoid of channel 0 decides; the other 1 of 2 channels are ignored"
    ]


@pytest.mark.parametrize(
    ("scores", "params", "text"),
    [
        (np.zeros((2, 2, 2), np.float64), {}, "the scores must be float32, not float64"),
        (
            np.zeros((2, 2), np.float32),
            {},
            r"'hwc' means 3 dimensions, and the tensor has the shape \(2, 2\)",
        ),
        (np.zeros((2, 3, 4, 5), np.float32), {"data_format": "nchw"}, "the batch must hold one image"),
        (np.zeros((2, 2, 256), np.float32), {}, "from 1 to 255 channels can be classified; .* has 256"),
        (np.zeros((2, 2, 0), np.float32), {}, "from 1 to 255 channels .* has 0"),
        (np.zeros((0, 2, 2), np.float32), {}, "has no pixels"),
        (np.zeros((4, 2, 2), np.float32)[::2], {}, "must be C-contiguous"),
        ({"a": np.zeros(1), "b": np.zeros(1)}, {}, "has 2 tensors, 'a', 'b'; set in_tensor_name"),
        ({"a": np.zeros(1)}, {"in_tensor_name": "scores"}, "no tensor 'scores'; it has 'a'"),
    ],
)
def test_scores_that_cannot_be_classified_are_refused(scores: Any, params: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text) as raised:
        run_operator(SegmentationPostprocessorOp, inputs=[scores], name="post", **params)
    assert str(raised.value).startswith("operator 'post', input 'in_tensor': ")


@pytest.mark.parametrize(
    ("params", "text"),
    [
        (
            {"network_output_type": "softmx"},
            "'network_output_type' of .* must be one of .*did you mean 'softmax'",
        ),
        ({"data_format": "chw"}, "'data_format' of .* must be one of 'hwc', 'nchw', 'nhwc', not 'chw'"),
    ],
)
def test_a_wrong_parameter_is_refused(params: dict[str, Any], text: str) -> None:
    with pytest.raises(ParameterError, match=text):
        classify(np.zeros((1, 1, 1), np.float32), **params)
