"""Images of every format, colour tables, and how images are placed and mixed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headrace.viewer import ImageFormat, LayerError
from tests.limits import pairs
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
@pytest.mark.parametrize("dtype", ["u1", "i1"])
def test_colours_of_8_bits_are_drawn_as_they_are(dtype: str, channels: int) -> None:
    data = image(10, 20, channels, dtype=dtype)
    data[..., 3:] = np.iinfo(dtype).max
    expected = as_8_bit(data[..., :3].astype(np.float64) / np.iinfo(dtype).max)
    assert (draw_one(data, type="color") == expected).all()


@pytest.mark.parametrize(
    ("name", "dtype", "channels"),
    [
        ("r16g16b16a16_unorm", "u2", 4),
        ("r16g16b16a16_snorm", "i2", 4),
        ("r16g16b16_unorm", "u2", 3),
        ("r16g16b16_snorm", "i2", 3),
        ("r8_uint", "u1", 1),
        ("r16_sint", "i2", 1),
        ("r32_uint", "u4", 1),
    ],
)
def test_formats_that_are_named_are_drawn(name: str, dtype: str, channels: int) -> None:
    data = image(10, 20, channels, dtype=dtype)
    data[..., 3:] = np.iinfo(dtype).max
    expected = as_8_bit(data[..., :3].astype(np.float64) / np.iinfo(dtype).max)
    assert (draw_one(data, type="color", image_format=name) == expected).all()


@pytest.mark.parametrize(
    ("name", "dtype", "channels"),
    [
        ("r16_sfloat", "f2", 1),
        ("r32_sfloat", "f4", 1),
        ("r16g16b16_sfloat", "f2", 3),
        ("r32g32b32_sfloat", "f4", 3),
        ("r16g16b16a16_sfloat", "f2", 4),
        ("r32g32b32a32_sfloat", "f4", 4),
    ],
)
def test_floats_are_clipped_and_what_is_no_number_is_black(name: str, dtype: str, channels: int) -> None:
    data = RNG.uniform(-0.5, 1.5, (10, 20, channels)).astype(dtype)
    data[0, 0, 0] = np.nan
    data[..., 3:] = 1
    expected = as_8_bit(np.nan_to_num(data[..., :3].astype(np.float32)))
    picture = draw_one(data, type="color", image_format=name)
    assert (picture == expected).all()
    assert picture[0, 0, 0] == 0


def test_blue_first_is_put_in_order() -> None:
    data = image(10, 20, 4)
    data[..., 3] = 255
    assert (draw_one(data, type="color", image_format="b8g8r8a8_unorm") == data[..., 2::-1]).all()


@pytest.mark.parametrize(("name", "shifts"), [("a2b10g10r10", (0, 10, 20)), ("a2r10g10b10", (20, 10, 0))])
def test_words_of_ten_bits_are_unpacked(name: str, shifts: tuple[int, ...]) -> None:
    channels = RNG.integers(0, 1024, (10, 20, 3), dtype=np.uint32)
    words = sum(channels[..., place] << shift for place, shift in enumerate(shifts)) | np.uint32(3 << 30)
    picture = draw_one(words.astype(np.uint32), type="color", image_format=f"{name}_unorm_pack32")
    assert (picture == as_8_bit(channels / 1023)).all()


# What OpenCV has for full and narrow range, and the definitions for the rest, stand in for a reference here: each
# conversion is written down once more, by the definition of luma and chroma.
LUMA = {"yuv_601": (0.299, 0.114), "yuv_709": (0.2126, 0.0722), "yuv_2020": (0.2627, 0.0593)}


def yuv_of(rgb: np.ndarray, model: str, is_narrow: bool, bits: int = 8) -> np.ndarray:
    kr, kb = LUMA[model]
    red, green, blue = rgb[..., 0], rgb[..., 1], rgb[..., 2]
    y = kr * red + (1 - kr - kb) * green + kb * blue
    u, v = (blue - y) / (2 * (1 - kb)), (red - y) / (2 * (1 - kr))
    unit, most = 1 << (bits - 8), (1 << bits) - 1
    if is_narrow:
        planes = [16 * unit + 219 * unit * y, 128 * unit + 224 * unit * u, 128 * unit + 224 * unit * v]
    else:
        planes = [most * y, 128 * unit + most * u, 128 * unit + most * v]
    return np.rint(np.clip(np.stack(planes, axis=-1), 0, most)).astype(np.uint8 if bits == 8 else np.uint16)


@pytest.mark.parametrize(
    ("name", "model", "yuv_range"),
    pairs(
        [
            "y8u8y8v8_422",
            "u8y8v8y8_422",
            *(f"y{bits}_{planes}_{sub}" for bits in (8, 16) for planes in "23" for sub in ("420", "422")),
        ],
        ["yuv_601", "yuv_709", "yuv_2020"],
        ["itu_full", "itu_narrow"],
    ),
)
def test_every_yuv_format_gives_back_the_colours_it_was_made_of(
    name: str, model: str, yuv_range: str
) -> None:
    # Blocks of one colour, so that it does not matter between which samples chroma is interpolated.
    colors = RNG.uniform(0.1, 0.9, (1, 1, 3))
    rgb = np.broadcast_to(colors, (10, 20, 3))
    bits = 16 if name.startswith("y16") else 8
    yuv = yuv_of(rgb, model, yuv_range == "itu_narrow", bits)
    y, u, v = yuv[..., 0], yuv[..., 1][:, ::2], yuv[..., 2][:, ::2]
    if name.startswith("y8u8"):
        data = np.stack([y[:, ::2], u, y[:, 1::2], v], axis=-1).reshape(10, 20, 2)
        full = name
    elif name.startswith("u8y8"):
        data = np.stack([u, y[:, ::2], v, y[:, 1::2]], axis=-1).reshape(10, 20, 2)
        full = name
    else:
        _, planes, sub = name.split("_")
        if sub == "420":
            u, v = u[::2], v[::2]
        parts = [np.stack([u, v], axis=-1)] if planes == "2" else [u, v]
        flat = np.concatenate([y.reshape(-1), *(part.reshape(-1) for part in parts)])
        data = flat.reshape(-1, 20)
        b = bits
        full = f"y{b}_u{b}v{b}_2plane_{sub}" if planes == "2" else f"y{b}_u{b}_v{b}_3plane_{sub}"
    picture = draw_one(
        data, type="color", image_format=f"{full}_unorm", yuv_model_conversion=model, yuv_range=yuv_range
    )
    assert np.abs(picture.astype(int) - as_8_bit(rgb)).max() <= 2


def test_chroma_lies_where_its_location_says() -> None:
    y = np.full((2, 8), 128, np.uint8)
    u = np.full((2, 4), 128, np.uint8)
    v = np.tile(np.array([128, 128, 228, 228], np.uint8), (2, 1))
    data = np.concatenate([y.reshape(-1), u.reshape(-1), v.reshape(-1)]).reshape(4, 8)
    red = [
        draw_one(
            data, (8, 2), type="color", image_format="y8_u8_v8_3plane_422_unorm", x_chroma_location=location
        )[0, :, 0].astype(int)
        for location in ("cosited_even", "midpoint")
    ]
    change = 1.402 * 100
    expected = [np.array([0, 0, 0, 0.5, 1, 1, 1, 1]), np.array([0, 0, 0, 0.25, 0.75, 1, 1, 1])]
    for found, share in zip(red, expected, strict=True):
        assert np.abs(found - np.minimum(128 + change * share, 255)).max() <= 1


def test_the_srgb_curve_is_taken_off_unless_the_picture_has_it() -> None:
    data = np.broadcast_to(np.array([0, 10, 128, 188, 255], np.uint8), (2, 5))
    linear = draw_one(data, (5, 2), type="color", image_format="r8_srgb")[0, :, 0]
    assert linear.tolist() == [0, 1, 55, 128, 255]
    same = draw_one(data, (5, 2), type="color", image_format="r8_srgb", framebuffer_srgb=True)[0, :, 0]
    assert same.tolist() == [0, 10, 128, 188, 255]
    brighter = draw_one(data, (5, 2), type="color", framebuffer_srgb=True)[0, :, 0]
    assert brighter.tolist() == [0, 56, 188, 223, 255]


def test_every_format_but_those_of_depth_is_drawn() -> None:
    from headrace.viewer.pixels import PIXEL_FORMATS

    depth = {ImageFormat.D16_UNORM, ImageFormat.X8_D24_UNORM, ImageFormat.D32_SFLOAT, ImageFormat.AUTO_DETECT}
    assert set(ImageFormat) - set(PIXEL_FORMATS) == depth


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
        (
            np.zeros((4, 4, 3), np.uint8),
            {"image_format": "r8g8b8a8_unorm"},
            r"needs \(rows, columns, 4\) of uint8",
        ),
        (np.zeros((4, 4, 4), np.uint16), {"image_format": "r8g8b8a8_unorm"}, "of uint8"),
        (np.zeros((4, 4), np.float32), {"image_format": "d32_sfloat"}, "is one of depth maps"),
        (
            np.zeros((5, 4), np.uint8),
            {"image_format": "y8_u8v8_2plane_420_unorm"},
            r"needs \(rows \* 3 / 2, columns\)",
        ),
        (
            np.zeros((5, 4), np.uint8),
            {"image_format": "y8_u8_v8_3plane_422_unorm"},
            r"needs \(rows \* 2, columns\)",
        ),
        (np.zeros((4, 5, 2), np.uint8), {"image_format": "y8u8y8v8_422_unorm"}, "even number of columns"),
        (np.zeros((4, 4), np.uint16), {"image_format": "a2b10g10r10_unorm_pack32"}, "of uint32"),
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
