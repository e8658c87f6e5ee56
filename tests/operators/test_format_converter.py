"""FormatConverterOp: every conversion against its formula and against OpenCV."""

from __future__ import annotations

import re
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

from headrace.core import ParameterError
from headrace.operators import FormatConverterOp
from headrace.testing import run_operator
from tests.limits import THOROUGH
from tests.operators.cases import Array, random, without_opencv


def convert(frame: Any, **params: Any) -> Array:
    """Return what the operator makes of a frame."""
    (message,) = run_operator(FormatConverterOp, inputs=[frame], **params)["tensor"]
    (tensor,) = message.values()
    return np.asarray(tensor)


def every_colour() -> Array:
    """Return a picture of all combinations of 13 levels, each colour four times, in 2×2 pixels."""
    levels = np.linspace(0, 255, 13).round().astype(np.uint8)
    colours = np.stack(np.meshgrid(levels, levels, levels), axis=-1).reshape(13, 169, 3)
    return np.ascontiguousarray(colours.repeat(2, axis=0).repeat(2, axis=1)[:, :338])


RGB, RGBA = random(np.uint8, 12, 10, 3), random(np.uint8, 12, 10, 4)


# Layouts.


def placed(frame: Array, layout: str) -> Array:
    """Return an image (rows, columns, channels) in another layout."""
    frame = np.moveaxis(frame, -1, 0) if "chw" in layout else frame
    return np.ascontiguousarray(frame[None] if layout.startswith("n") else frame)


LAYOUTS = ["hwc", "chw", "nhwc", "nchw"]
CONVERSIONS: list[tuple[Array, dict[str, Any]]] = [
    (RGB, {"out_dtype": "rgb888"}),
    (RGB, {"out_dtype": "float32", "scale_min": -1.0, "out_channel_order": [2, 1, 0]}),
    (RGB, {"out_dtype": "rgba8888", "alpha_value": 7}),
    (RGBA, {"out_dtype": "float32"}),
    (random(np.float32, 5, 7, 3), {"out_dtype": "rgb888"}),
    (random(np.uint16, 5, 7, 4), {"out_dtype": "rgb888"}),
    (random(np.uint8, 5, 7, 1), {"out_dtype": "float32"}),
    (RGB, {"out_dtype": "rgb888", "resize_height": 7, "resize_width": 5, "resize_mode": 1}),
    (
        RGBA,
        {"out_dtype": "float32", "resize_height": 20, "resize_width": 30, "out_channel_order": [1, 0, 2]},
    ),
]
# Each conversion with each layout of the input, with planes or without at either end; and each pair of layouts with
# some conversion. The first dimension of a batch of one is only taken off and put back.
PLACED = [
    (*conversion, in_layout, LAYOUTS[out % len(LAYOUTS)])
    for number, conversion in enumerate(CONVERSIONS)
    for place, in_layout in enumerate(LAYOUTS)
    for out in (range(len(LAYOUTS)) if THOROUGH else [number + place + place // 2])
]


@pytest.mark.parametrize(("frame", "params", "in_layout", "out_layout"), PLACED)
def test_a_layout_changes_the_place_of_values_alone(
    frame: Array, params: dict[str, Any], in_layout: str, out_layout: str
) -> None:
    expected = placed(convert(frame, **params), out_layout)
    result = convert(placed(frame, in_layout), in_layout=in_layout, out_layout=out_layout, **params)
    np.testing.assert_array_equal(result, expected)
    assert result.flags.c_contiguous


@pytest.mark.parametrize("out_layout", ["hwc", "chw", "nhwc", "nchw"])
@pytest.mark.parametrize("in_layout", ["hwc", "chw", "nhwc", "nchw"])
@pytest.mark.parametrize("frame", [RGB, random(np.float32, 5, 7, 1)], ids=["bytes", "floats"])
def test_without_a_copy_only_the_strides_change(frame: Array, in_layout: str, out_layout: str) -> None:
    given = placed(frame, in_layout)
    params = {"in_layout": in_layout, "out_layout": out_layout, "copy": False}
    result = convert(given, out_dtype="float32" if frame.dtype == np.float32 else "uint8", **params)
    np.testing.assert_array_equal(result, placed(frame, out_layout))
    assert np.shares_memory(result, given)


def test_a_frame_that_changes_is_copied_in_any_case() -> None:
    for params in (
        {"out_channel_order": [2, 1, 0]},
        {"out_dtype": "float32"},
        {"resize_height": 12, "resize_width": 10},
    ):
        params = {"out_dtype": "rgb888", "out_layout": "chw", **params}
        np.testing.assert_array_equal(convert(RGB, copy=False, **params), convert(RGB, **params))
    grey = random(np.uint8, 5, 7)
    assert convert(grey, copy=False, out_dtype="uint8", out_layout="nchw").shape == (1, 1, 5, 7)
    assert convert(random(np.uint8, 6, 4), copy=False, in_dtype="yuv420", out_dtype="yuv420").shape == (6, 4)


def test_yuv_becomes_planes_of_rgb_and_planes_become_yuv() -> None:
    yuv = convert(RGB, out_dtype="yuv420")
    np.testing.assert_array_equal(convert(placed(RGB, "chw"), in_layout="chw", out_dtype="yuv420"), yuv)
    params = {"in_dtype": "yuv420", "out_dtype": "rgb888"}
    np.testing.assert_array_equal(
        convert(yuv, out_layout="nchw", **params), placed(convert(yuv, **params), "nchw")
    )


@pytest.mark.parametrize(
    ("frame", "params", "text"),
    [
        (
            RGB,
            {"in_layout": "nchw"},
            r"in_layout='nchw' means an image of the shape \(1, channels, rows, columns\)",
        ),
        (np.stack([RGB, RGB]), {"in_layout": "nhwc"}, r"shape \(1, rows, columns, channels\), not \(2, 12"),
        (RGB[None], {}, r"not \(1, 12, 10, 3\); in_layout names other layouts"),
        (RGB, {"in_layout": "chw"}, "has 12"),
        (RGB[:, :, 0].copy(), {"in_dtype": "nv12", "in_layout": "chw"}, "in_layout='chw' means"),
        (
            RGB[:, :, :1].copy(),
            {"in_dtype": "nv12", "in_layout": "chw"},
            "nv12 has no channels that in_layout='chw'",
        ),
        (RGB, {"out_dtype": "yuv420", "out_layout": "chw"}, "yuv420 has no channels that out_layout='chw'"),
    ],
)
def test_an_image_of_another_layout_is_refused(frame: Array, params: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        convert(frame, **{"out_dtype": "rgb888", **params})


# Elements and channels.


@pytest.mark.parametrize(("least", "most"), [(0.0, 1.0), (-1.0, 1.0), (0.0, 255.0), (1.0, 0.0), (5.0, 5.0)])
def test_bytes_become_floats_of_a_range(least: float, most: float) -> None:
    result = convert(RGB, out_dtype="float32", scale_min=least, scale_max=most)
    assert result.dtype == np.float32
    expected = least + RGB / 255 * (most - least)
    np.testing.assert_allclose(result, expected, atol=2e-7 * max(abs(least), abs(most)))


def test_values_beyond_the_range_are_saturated_and_nan_is_0() -> None:
    frame = np.array([[[np.nan, np.inf, -np.inf], [1e30, -1e30, 0.5]]], np.float32)
    assert convert(frame, out_dtype="uint8").tolist() == [[[0, 255, 0], [255, 0, 128]]]


def test_uint8_with_alpha_stays_as_it_is_unless_it_is_called_rgba() -> None:
    assert convert(RGBA, out_dtype="uint8").shape == RGBA.shape


@pytest.mark.parametrize("channels", [3, 4])
def test_16_bits_become_8_by_full_range(channels: int) -> None:
    frame = random(np.uint16, 16, 16, channels)
    frame[0, 0] = 65535
    frame[0, 1] = 0
    result = convert(frame, out_dtype="rgb888")
    assert result.shape == (16, 16, 3)
    assert np.abs(result - frame[..., :3] / 257).max() <= 0.5
    assert (result[0, 0] == 255).all()
    assert (result[0, 1] == 0).all()


# YUV.


def yuv_formula(y: Array, u: Array, v: Array, red: float, blue: float, limited: bool) -> Array:
    """Return RGB by the formula of a standard, in double precision."""
    y, u, v = y.astype(float), u - 128.0, v - 128.0
    if limited:
        y, u, v = np.maximum(y - 16, 0) * 255 / 219, u * 255 / 224, v * 255 / 224
    green = 1 - red - blue
    r = y + 2 * (1 - red) * v
    b = y + 2 * (1 - blue) * u
    g = (y - red * r - blue * b) / green
    return np.clip(np.stack([r, g, b], axis=-1), 0, 255)


def planes_of(frame: Array, layout: str) -> tuple[Array, Array, Array]:
    """Return luma and chroma of a frame, each as large as the image."""
    if layout in ("yuyv", "uyvy"):
        y = frame[..., 0 if layout == "yuyv" else 1]
        chroma = frame[..., 1 if layout == "yuyv" else 0]
        return y, chroma[:, ::2].repeat(2, axis=1), chroma[:, 1::2].repeat(2, axis=1)
    rows = len(frame) // 3 * 2
    y, rest = frame[:rows], frame[rows:]
    if layout == "yuv420":
        u, v = rest.reshape(2, rows // 2, -1)
    else:
        u, v = rest[:, ::2], rest[:, 1::2]
    return y, u.repeat(2, axis=0).repeat(2, axis=1), v.repeat(2, axis=0).repeat(2, axis=1)


BT601, BT709 = (0.299, 0.114), (0.2126, 0.0722)


@pytest.mark.parametrize(
    ("name", "standard", "limited"),
    [
        ("nv12", BT709, False),
        ("nv12_bt709_hdtv", BT709, False),
        ("nv12_bt709_csc", BT709, True),
        ("nv12_bt601_full", BT601, False),
        ("yuv420", BT601, False),
        ("yuyv", BT601, True),
        ("uyvy", BT601, True),
    ],
)
def test_a_yuv_format_is_converted_by_its_standard(
    name: str, standard: tuple[float, float], limited: bool
) -> None:
    frame = random(np.uint8, 40, 38, 2) if name in ("yuyv", "uyvy") else random(np.uint8, 99, 38)
    expected = yuv_formula(*planes_of(frame, name.partition("_")[0]), *standard, limited)
    check_rounded(expected, frame, in_dtype=name, out_dtype="rgb888")


def check_rounded(expected: Array, frame: Array, **params: Any) -> None:
    """Compare a conversion with its formula: NumPy rounds it to the nearest, and OpenCV is within 1."""
    assert np.abs(convert(frame, **params) - expected).max() <= 1.02
    with without_opencv():
        assert np.abs(convert(frame, **params) - expected).max() <= 0.52


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", ["nv12", "nv12_bt709_csc", "nv12_bt601_full", "yuv420", "yuyv", "uyvy", ""])
def test_between_rgb_and_yuv_opencv_differs_from_a_gpu_by_at_most_1(name: str, seed: int) -> None:
    """Random sizes, some larger than what is converted at a time."""
    pytest.importorskip("cv2")
    source = np.random.default_rng(seed)
    rows, columns = (2 * int(half) for half in source.integers(1, 80, 2))
    shape = {"yuyv": (rows, columns, 2), "uyvy": (rows, columns, 2), "": (rows, columns, 3)}
    frame = random(np.uint8, *shape.get(name, (rows * 3 // 2, columns)), seed=seed)
    params = {"in_dtype": name, "out_dtype": "rgb888", "out_channel_order": source.permutation(3).tolist()}
    if name == "":
        params = {"out_dtype": "yuv420"}
    fast = convert(frame, **params)
    with without_opencv():
        difference = np.abs(convert(frame, **params).astype(int) - fast)
    assert difference.max() <= 1


@pytest.mark.parametrize("seed", range(20))
def test_every_order_of_channels_by_opencv_is_exact(seed: int) -> None:
    pytest.importorskip("cv2")
    source = np.random.default_rng(seed)
    taken = int(source.integers(3, 5))
    rows, columns = (int(size) for size in source.integers(1, 40, 2))
    frame = random(np.uint8, rows, columns, taken, seed=seed)
    made = str(source.choice(["rgb888", "rgba8888", "float32"]))
    count = 4 if made == "rgba8888" else 3
    order = source.permutation(max(taken, count))[:count].tolist()
    params = {"out_dtype": made, "out_channel_order": order, "alpha_value": int(source.choice([9, 255]))}
    fast = convert(frame, **params)
    with without_opencv():
        np.testing.assert_array_equal(convert(frame, **params), fast)


@pytest.mark.parametrize(("library", "most"), [("NumPy", 0.51), ("OpenCV", 1.01)])
def test_rgb_becomes_yuv420_by_its_formula(library: str, most: float) -> None:
    picture = every_colour()
    with without_opencv() if library == "NumPy" else nullcontext():
        result = convert(picture, out_dtype="yuv420")
    y, u, v = planes_of(result, "yuv420")
    red, green, blue = (picture[..., channel].astype(float) for channel in range(3))
    luma = 0.299 * red + 0.587 * green + 0.114 * blue
    assert np.abs(y - luma).max() <= most
    assert np.abs(u - np.clip(128 + (blue - luma) / 1.772, 0, 255)).max() <= most
    assert np.abs(v - np.clip(128 + (red - luma) / 1.402, 0, 255)).max() <= most


# What is refused.


@pytest.mark.parametrize(
    ("frame", "params", "text"),
    [
        (np.zeros(4, np.uint8), {}, r"\(rows, columns, channels\), not \(4,\)"),
        (np.zeros((2, 2, 2, 3), np.uint8), {}, r"not \(2, 2, 2, 3\)"),
        (np.zeros((2, 2, 3), np.float64), {}, "uint8, uint16 or float32, not float64"),
        (np.zeros((0, 4, 3), np.uint8), {}, "has no pixels"),
        (np.zeros((4, 4, 0), np.uint8), {}, "has no pixels"),
        (np.zeros((4, 8, 3), np.uint8)[:, ::2], {}, "must be C-contiguous"),
        (np.zeros((4, 4, 5), np.uint8), {}, r"up to 4 channels; the shape \(4, 4, 5\) has 5"),
        (np.zeros((4, 4), np.uint16), {}, "uint16 images have 3 or 4 channels, not 1"),
        (RGBA, {"in_dtype": "rgb888"}, r"'rgb888' means uint8 of the shape \(rows, columns, 3\); received"),
        (RGB, {"in_dtype": "float32"}, "'float32' means float32 of the shape .*; received uint8"),
        (random(np.float32, 4, 4, 4), {}, "float32 with 4 channels cannot be converted to rgb888; it can be"),
        (
            random(np.uint8, 4, 4),
            {},
            "uint8 with 1 channels cannot be converted to rgb888.*'uint8', 'float32'",
        ),
        (random(np.uint16, 4, 4, 3), {"out_dtype": "float32"}, "rgb161616 .* cannot be converted to float32"),
        (RGBA, {"out_dtype": "yuv420"}, "rgba8888 with 4 channels cannot be converted to yuv420"),
        (
            random(np.uint8, 3, 4, 3),
            {"out_dtype": "yuv420"},
            "even rows and columns, not 3 rows and 4 columns",
        ),
        (random(np.uint8, 4, 4), {"in_dtype": "nv12"}, r"\(3/2 rows, columns\).*received uint8 .* \(4, 4\)"),
        (random(np.uint8, 6, 5), {"in_dtype": "yuv420"}, "even"),
        (random(np.uint8, 6, 4, 2), {"in_dtype": "nv12"}, r"3/2 rows"),
        (random(np.uint8, 6, 4, 3), {"in_dtype": "yuyv"}, r"\(rows, even columns, 2\)"),
        (random(np.uint8, 6, 3, 2), {"in_dtype": "uyvy"}, r"\(rows, even columns, 2\)"),
        (random(np.float32, 6, 4), {"in_dtype": "nv12"}, "received float32"),
        (random(np.uint8, 6, 4), {"in_dtype": "nv12", "out_dtype": "rgba8888"}, "nv12 .* to rgba8888"),
        (
            random(np.uint8, 6, 4),
            {"in_dtype": "nv12", "resize_height": 2, "resize_width": 2},
            "can be resized",
        ),
        (
            random(np.float32, 6, 4, 3),
            {"resize_height": 2, "resize_width": 2},
            "can be resized, not 'float32'",
        ),
        ({"a": RGB, "b": RGB}, {}, "has 2 tensors, 'a', 'b'; set in_tensor_name"),
        ([RGB], {}, "expected an array of any library.*'' is a list"),
    ],
)
def test_a_frame_that_cannot_be_converted_is_refused(frame: Any, params: dict[str, Any], text: str) -> None:
    with pytest.raises((TypeError, ValueError), match=text) as raised:
        run_operator(FormatConverterOp, inputs=[frame], name="format", **{"out_dtype": "rgb888", **params})
    assert str(raised.value).startswith("operator 'format', input 'source_video': ")


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("element", [np.uint8, np.uint16, np.float32])
def test_a_refusal_offers_what_can_be_done_and_nothing_else(element: Any, channels: int) -> None:
    frame = random(element, 4, 4, channels)
    possible, offers = set(), []
    for target in ("uint8", "rgb888", "rgba8888", "float32", "yuv420"):
        try:
            convert(frame, out_dtype=target)
            possible.add(target)
        except ValueError as error:
            offers += re.findall("it can be converted to (.*)", str(error))
    assert possible or element == np.uint16
    for offer in offers:
        assert set(re.findall("'(.*?)'", offer)) == possible


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"out_dtype": "rgb88"}, "'out_dtype' of .* must be one of .*did you mean 'rgb888'"),
        ({"in_dtype": "nv21"}, "'in_dtype' of .* must be one of .*'nv12'"),
        ({"alpha_value": 256}, "'alpha_value' of .* must be at most 255, not 256"),
        ({"resize_height": -1}, "'resize_height' of .* must be at least 0, not -1"),
        ({"resize_height": 2**20, "resize_width": 2**20}, "are more than 2147483647 pixels"),
        ({"scale_max": float("inf")}, r"'scale_max' of .* must be at most 3\.40.*e\+38, not inf"),
        ({"scale_min": float("nan")}, "'scale_min' of .* must be at least .* not nan"),
        ({"resize_mode": 3}, "must not be 3: it is 0 .cubic. or one of 1 nearest, 2 linear"),
        ({"out_channel_order": ["r"]}, "must not be .'r'.: it is a list of ints"),
        ({"out_channel_order": [0, 1]}, "must hold 3 different numbers from 0 to 2 for this output, not"),
        ({"out_channel_order": [0, 1, 3]}, "must hold 3 different numbers"),
        ({"out_channel_order": [0, 1, 1]}, "must hold 3 different numbers"),
        (
            {"out_channel_order": [0, 1, 2], "out_dtype": "rgba8888"},
            "must hold 4 different numbers from 0 to 3",
        ),
        ({"out_channel_order": [0, 1, 2], "out_dtype": "yuv420"}, "yuv420 has no channels"),
    ],
)
def test_a_wrong_parameter_is_refused(params: dict[str, Any], text: str) -> None:
    with pytest.raises((ParameterError, ValueError), match=text):
        run_operator(FormatConverterOp, inputs=[RGB], **{"out_dtype": "rgb888", **params})


def test_a_range_without_width_cannot_be_made_bytes() -> None:
    with pytest.raises(ValueError, match="scale_min=1.0 and scale_max=1.0 must differ"):
        convert(random(np.float32, 2, 2, 3), out_dtype="uint8", scale_min=1.0)


def test_the_element_type_stays_the_same_over_a_run() -> None:
    with pytest.raises(ValueError, match="the element type changed from uint8 to float32"):
        run_operator(FormatConverterOp, inputs=[RGB, RGB.astype(np.float32)], out_dtype="rgb888")


def test_the_output_format_must_be_given() -> None:
    with pytest.raises(TypeError, match="out_dtype"):
        run_operator(FormatConverterOp, inputs=[RGB])


@pytest.mark.parametrize("changed", ["alpha_value", "out_channel_order"])
def test_each_frame_is_converted_by_its_own_shape_and_by_the_parameters_of_its_time(changed: str) -> None:
    """What an operator keeps of a frame holds for frames of that kind and for these parameters."""

    class Changing(FormatConverterOp):
        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            super().compute(op_input, op_output, context)
            if changed == "alpha_value":
                self.alpha_value += 1
            else:
                self.out_channel_order.reverse()  # in place

    frames = [RGB, RGB, RGB[:6], RGB[:6], RGB]
    order = [0, 1, 2, 3]
    params: dict[str, Any] = {"out_dtype": "rgba8888", "alpha_value": 7, "out_channel_order": list(order)}
    found = run_operator(Changing, inputs=frames, **params)["tensor"]
    for number, (frame, message) in enumerate(zip(frames, found, strict=True)):
        alpha = 7 + number if changed == "alpha_value" else 7
        expected = np.dstack([frame, np.full(frame.shape[:2], alpha, np.uint8)])
        if changed == "out_channel_order" and number % 2:
            expected = expected[..., ::-1]
        np.testing.assert_array_equal(np.asarray(message.get()), expected)
