"""Images of every format, colour tables, and how images are placed and mixed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headrace.viewer import ImageFormat, LayerError
from tests.viewer.drawing import draw, draw_one

RNG = np.random.default_rng(11)


def image(*shape: int, dtype: Any = np.uint8) -> np.ndarray:
    information = np.iinfo(dtype)
    return RNG.integers(information.min, information.max, shape, dtype=dtype, endpoint=True)


def as_8_bit(fraction: np.ndarray) -> np.ndarray:
    return np.rint(np.clip(fraction, 0, 1) * 255).astype(np.uint8)


@pytest.mark.parametrize("dtype", ["u1", "i1", "u2", "i2", "u4", "i4"])
@pytest.mark.parametrize("has_axis", [False, True])
def test_one_channel_is_drawn_grey(dtype: str, has_axis: bool) -> None:
    data = image(10, 20, dtype=dtype)
    expected = as_8_bit(data.astype(np.float64) / np.iinfo(dtype).max)
    picture = draw_one(data[..., None] if has_axis else data, type="color")
    assert (picture == expected[..., None]).all()


@pytest.mark.parametrize("channels", [3, 4])
@pytest.mark.parametrize("dtype", ["u1", "i1", "u2", "i2", "u4", "i4"])
def test_colours_are_drawn_as_shares_of_the_largest_number(dtype: str, channels: int) -> None:
    data = image(10, 20, channels, dtype=dtype)
    data[..., 3:] = np.iinfo(dtype).max
    expected = as_8_bit(data[..., :3].astype(np.float64) / np.iinfo(dtype).max)
    assert (draw_one(data, type="color") == expected).all()


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("dtype", ["f2", "f4"])
def test_floats_are_clipped_and_what_is_no_number_is_black(dtype: str, channels: int) -> None:
    data = RNG.uniform(-0.5, 1.5, (10, 20, channels)).astype(dtype)
    data[0, 0, 0] = np.nan
    data[..., 3:] = 1
    expected = as_8_bit(np.nan_to_num(data[..., :3].astype(np.float32)))
    picture = draw_one(data, type="color")
    assert (picture == expected).all()
    assert picture[0, 0, 0] == 0


def test_the_srgb_curve_is_taken_off_unless_the_picture_has_it() -> None:
    data = np.broadcast_to(np.array([0, 10, 128, 188, 255], np.uint8), (2, 5))
    srgb = ImageFormat(is_srgb=True)
    linear = draw_one(data, (5, 2), type="color", image_format=srgb)[0, :, 0]
    assert linear.tolist() == [0, 1, 55, 128, 255]
    same = draw_one(data, (5, 2), type="color", image_format=srgb, framebuffer_srgb=True)[0, :, 0]
    assert same.tolist() == [0, 10, 128, 188, 255]
    brighter = draw_one(data, (5, 2), type="color", framebuffer_srgb=True)[0, :, 0]
    assert brighter.tolist() == [0, 56, 188, 223, 255]


class BlueFirst(ImageFormat):
    """A format of a program's own: three channels, blue first."""

    def problem(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> str:
        return "" if shape[2:] == (3,) else "there must be 3 channels, blue first"

    def to_rgb(self, image: np.ndarray) -> np.ndarray:
        return super().to_rgb(image[..., ::-1])


def test_a_format_of_a_programs_own_turns_images_to_rgb() -> None:
    data = image(10, 20, 3)
    assert (draw_one(data, type="color", image_format=BlueFirst()) == data[..., ::-1]).all()


# Colour tables.

LUT = [[0, 0, 0, 0], [1, 0, 0, 1], [0, 1, 0, 0.5]]


@pytest.mark.parametrize("dtype", ["u1", "i1", "u2", "i2", "u4", "i4"])
def test_colours_are_looked_up_and_their_alpha_counts(dtype: str) -> None:
    data = np.array([[0, 1, 2, 100]], dtype)
    picture = draw_one(data, (4, 1), type="color_lut", color_lut=LUT)
    assert picture[0].tolist() == [[0, 0, 0], [255, 0, 0], [0, 128, 0], [0, 128, 0]]


def test_looked_up_colours_are_scaled_without_mixing() -> None:
    data = np.array([[1, 2]], np.uint8)
    picture = draw_one(data, (10, 4), type="color_lut", color_lut=[[0, 0, 0, 1], [1, 0, 0, 1], [0, 0, 1, 1]])
    assert {tuple(color) for color in picture.reshape(-1, 3).tolist()} == {(255, 0, 0), (0, 0, 255)}
    assert (picture[:, :5, 0] == 255).all()


# Place, size, order and opacity.


def test_an_image_fills_the_window() -> None:
    picture = draw_one(np.full((3, 5, 3), 200, np.uint8), type="color")
    assert (picture == 200).all()


def test_a_larger_image_lies_linearly_between_its_pixels() -> None:
    from PIL import Image

    data = image(7, 13, 3)
    expected = np.asarray(Image.fromarray(data).resize((20, 10), Image.Resampling.BILINEAR))
    assert np.abs(draw_one(data, type="color").astype(int) - expected).max() <= 1


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_a_smaller_image_has_the_mean_of_its_pixels(channels: int) -> None:
    data = image(40, 60, channels)
    data[..., 3:] = 255
    expected = data.reshape(10, 4, 20, 3, channels).mean(axis=(1, 3))[..., :3]
    assert np.abs(draw_one(data, (20, 10), type="color") - expected).max() <= 1


def test_a_layer_with_a_higher_priority_is_on_top_and_equals_keep_their_order() -> None:
    one, two = np.full((10, 20, 3), 50, np.uint8), np.full((10, 20, 3), 100, np.uint8)
    for first, second, expected in ((1, 0, 50), (0, 1, 100), (0, 0, 100)):
        specs = [
            {"name": "one", "type": "color", "priority": first},
            {"name": "two", "type": "color", "priority": second},
        ]
        assert (draw({"one": one, "two": two}, specs) == expected).all()


@pytest.mark.parametrize("opacity", [0.0, 0.25, 0.5, 1.0])
def test_opacity_mixes_a_layer_with_those_below(opacity: float) -> None:
    below, above = image(10, 20, 3), image(10, 20, 3)
    specs = [{"name": "below", "type": "color"}, {"name": "above", "type": "color", "opacity": opacity}]
    picture = draw({"below": below, "above": above}, specs)
    expected = below + (above.astype(float) - below) * opacity
    assert np.abs(picture - expected).max() <= 1


def test_a_view_places_an_image_and_several_draw_it_several_times() -> None:
    data = np.full((2, 2, 3), 255, np.uint8)
    views = [{"offset_x": 0.5, "width": 0.5, "height": 0.5}, {"offset_y": 0.8, "width": 0.1, "height": 0.2}]
    picture = draw_one(data, type="color", views=views)
    expected = np.zeros((10, 20), bool)
    expected[:5, 10:] = True
    expected[8:, :2] = True
    assert (picture.any(axis=2) == expected).all()


def test_a_negative_height_flips_an_image() -> None:
    data = image(10, 20, 3)
    view = {"offset_y": 1.0, "height": -1.0}
    assert (draw_one(data, type="color", views=[view]) == data[::-1]).all()
    transparent = image(10, 20, 4)  # its alpha is flipped with it
    upright = draw_one(transparent, type="color")
    assert (draw_one(transparent, type="color", views=[view]) == upright[::-1]).all()


def test_of_a_view_that_is_far_larger_the_visible_part_is_shown() -> None:
    """The window is the tenth of the view that is 45 % to the right, and 45 % down."""
    data = image(100, 200, 3)
    view = {"offset_x": -4.5, "offset_y": -4.5, "width": 10, "height": 10}
    assert (draw_one(data, (20, 10), type="color", views=[view]) == data[45:55, 90:110]).all()
    flipped = {"offset_x": -4.5, "offset_y": 5.5, "width": 10, "height": -10}
    assert (draw_one(data, (20, 10), type="color", views=[flipped]) == data[::-1][45:55, 90:110]).all()


def test_an_image_that_is_not_contiguous_is_drawn() -> None:
    data = image(20, 40, 3)
    assert (draw_one(data[::2, ::-2], type="color") == data[::2, ::-2]).all()


# What is refused.


@pytest.mark.parametrize(
    ("data", "spec", "what"),
    [
        (
            np.zeros((4, 4, 2), np.uint8),
            {},
            r"layer 'it' \(color\).*shape \(4, 4, 2\).*uint8; no image format fits",
        ),
        (np.zeros((4, 4, 3), np.float64), {}, "float64; no image format fits.*image_format"),
        (np.zeros((4,), np.uint8), {}, r"an image must be \(rows, columns\)"),
        (np.zeros((0, 4, 3), np.uint8), {}, "none of them 0"),
        (np.zeros((2, 4, 4, 3), np.uint8), {}, r"shape \(2, 4, 4, 3\)"),
        (np.zeros((4, 4), np.uint8), {"image_format": BlueFirst()}, "there must be 3 channels, blue first"),
        (np.zeros((4, 4), np.uint8), {"type": "color_lut"}, "no color_lut.*set the parameter color_lut"),
        (np.zeros((4, 4), np.float32), {"type": "color_lut", "color_lut": LUT}, "looked up by one channel"),
        (np.zeros((4, 4, 3), np.uint8), {"type": "color_lut", "color_lut": LUT}, "looked up by one channel"),
    ],
)
def test_an_image_that_does_not_fit_is_refused_by_name(data: Any, spec: dict[str, Any], what: str) -> None:
    with pytest.raises(LayerError, match=what):
        draw_one(data, **{"type": "color", **spec})


@pytest.mark.parametrize("table", [[[1, 0, 0]], [[1, 0, 0, 2]], [1, 0, 0, 1], [["a"] * 4]])
def test_a_wrong_colour_table_is_refused(table: Any) -> None:
    with pytest.raises(ValueError, match="color_lut must be rows of 4 numbers"):
        draw_one(np.zeros((4, 4), np.uint8), type="color_lut", color_lut=table)
