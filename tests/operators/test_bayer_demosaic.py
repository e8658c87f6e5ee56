"""BayerDemosaicOp: colour images from mosaics."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.core import ParameterError
from headrace.operators import BayerDemosaicOp
from headrace.testing import run_operator
from tests.limits import examples
from tests.operators.cases import Array, random, without_opencv

# The colours of the first two rows, by bayer_grid_pos.
PATTERNS = {0: "BGGR", 1: "RGGB", 2: "GBRG", 3: "GRBG"}


def demosaic(mosaic: Any, **params: Any) -> Array:
    """Return what the operator makes of a mosaic."""
    (message,) = run_operator(BayerDemosaicOp, inputs=[mosaic], **params)["transmitter"]
    (tensor,) = message.values()
    return np.asarray(tensor)


def slow(mosaic: Array, pattern: str) -> Array:
    """Return the same pixel by pixel: the mean of the nearest samples of each colour, mirrored at the border."""
    rows, columns = mosaic.shape
    image = np.zeros((rows, columns, 3), mosaic.dtype)

    def mirrored(place: int, size: int) -> int:
        return 1 if place < 0 else size - 2 if place >= size else place

    for row in range(rows):
        for column in range(columns):
            samples: dict[str, list[int]] = {"R": [], "G": [], "B": []}
            own = pattern[row % 2 * 2 + column % 2]
            for i in (-1, 0, 1):
                for j in (-1, 0, 1):
                    colour = pattern[(row + i) % 2 * 2 + (column + j) % 2]
                    y, x = mirrored(row + i, rows), mirrored(column + j, columns)
                    if colour != own:
                        samples[colour].append(int(mosaic[y, x]))
            samples[own] = [int(mosaic[row, column])]
            for channel, colour in enumerate("RGB"):
                near = samples[colour]
                image[row, column, channel] = (sum(near) + len(near) // 2) // len(near)
    return image


@given(
    st.integers(1, 60),
    st.integers(1, 40),
    st.sampled_from([None, *PATTERNS]),
    st.sampled_from([np.uint8, np.uint16]),
    st.booleans(),
)
@settings(max_examples=examples(40), deadline=None)
def test_a_missing_colour_is_the_mean_of_its_neighbours(
    half_rows: int, half_columns: int, grid: int | None, dtype: Any, is_other: bool
) -> None:
    """Of every even size, with a third dimension and alpha or without; OpenCV and NumPy give the same bits."""
    mosaic = random(dtype, 2 * half_rows, 2 * half_columns)
    params = {} if grid is None else {"bayer_grid_pos": grid}
    options = {"generate_alpha": True, "alpha_value": 77} if is_other else {}
    frame = mosaic[..., None] if is_other else mosaic
    expected = slow(mosaic, PATTERNS[2 if grid is None else grid])
    fast = demosaic(frame, **params, **options)
    with without_opencv():
        np.testing.assert_array_equal(demosaic(frame, **params, **options), fast)
    np.testing.assert_array_equal(fast[..., :3], expected)
    assert fast.shape[2] == (4 if is_other else 3)
    assert (fast[..., 3:] == 77).all()


def test_the_tensor_is_taken_and_sent_by_name() -> None:
    message = {"raw": random(np.uint8, 4, 4), "other": np.zeros(3)}
    outcome = run_operator(BayerDemosaicOp, inputs=[message], in_tensor_name="raw", out_tensor_name="colour")
    ((sent,),) = outcome.values()
    assert list(sent) == ["colour"]


@pytest.mark.parametrize(
    ("frame", "text"),
    [
        (np.zeros((4, 5), np.uint8), "must be even and at least 2, not 4 rows and 5 columns"),
        (np.zeros((3, 4), np.uint8), "not 3 rows and 4 columns"),
        (np.zeros((0, 0), np.uint8), "at least 2, not 0 rows and 0 columns"),
        (np.zeros((4, 4, 3), np.uint8), r"\(rows, columns\) or \(rows, columns, 1\), not \(4, 4, 3\)"),
        (np.zeros(4, np.uint8), r"not \(4,\)"),
        (np.zeros((4, 4), np.float32), "uint8 or uint16, not float32"),
        (np.zeros((4, 8), np.uint8)[:, ::2], r"must be C-contiguous.*numpy.ascontiguousarray"),
        ({"a": np.zeros((4, 4)), "b": np.zeros((4, 4))}, "has 2 tensors, 'a', 'b'; set in_tensor_name"),
        ({}, "the message has no tensor"),
        ("text", "expected an array of any library, or a dict or TensorMap of arrays; '' is a str"),
        (None, "expected an array"),
    ],
)
def test_a_frame_that_is_no_mosaic_is_refused(frame: Any, text: str) -> None:
    with pytest.raises((TypeError, ValueError), match=text) as raised:
        run_operator(BayerDemosaicOp, inputs=[frame], name="eye")
    assert str(raised.value).startswith("operator 'eye', input 'receiver': ")


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match="no tensor 'raw'; it has 'row', 'mask'; did you mean 'row'"):
        run_operator(
            BayerDemosaicOp,
            inputs=[{"row": np.zeros((4, 4), np.uint8), "mask": np.zeros(2)}],
            in_tensor_name="raw",
        )


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"interpolation_mode": 1}, "'interpolation_mode' of .* must be one of 0, not 1"),
        ({"bayer_grid_pos": 4}, "'bayer_grid_pos' of .* must be one of 0, 1, 2, 3, not 4"),
        ({"alpha_value": -1}, "'alpha_value' of .* must be at least 0, not -1"),
        ({"generate_alpha": True, "alpha_value": 300}, "alpha_value=300 does not fit the type uint8"),
    ],
)
def test_a_wrong_parameter_is_refused(params: dict[str, Any], text: str) -> None:
    with pytest.raises((ParameterError, ValueError), match=text):
        run_operator(BayerDemosaicOp, inputs=[np.zeros((4, 4), np.uint8)], **params)


def test_something_else_than_an_allocator_is_refused() -> None:
    with pytest.raises(TypeError, match="pool must be an allocator, such as UnboundedAllocator"):
        run_operator(BayerDemosaicOp, inputs=[np.zeros((4, 4), np.uint8)], pool="big")


def test_each_mosaic_is_taken_by_its_own_shape_and_by_the_parameters_of_its_time() -> None:
    """What an operator keeps of a frame holds for frames of that kind and for these parameters."""

    class Changing(BayerDemosaicOp):
        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            super().compute(op_input, op_output, context)
            self.bayer_grid_pos = (self.bayer_grid_pos + 1) % 4
            self.alpha_value += 1

    wide, tall = random(np.uint8, 4, 8), random(np.uint8, 8, 4)
    mosaics = [wide, wide, tall, tall, wide]
    params = {"bayer_grid_pos": 0, "generate_alpha": True, "alpha_value": 5}
    found = run_operator(Changing, inputs=mosaics, **params)["transmitter"]
    for number, (mosaic, message) in enumerate(zip(mosaics, found, strict=True)):
        image = np.asarray(message.get())
        np.testing.assert_array_equal(image[..., :3], slow(mosaic, PATTERNS[number % 4]))
        assert (image[..., 3] == 5 + number).all()
