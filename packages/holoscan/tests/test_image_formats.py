"""The formats of images that the SDK names: each is drawn, or refused with what would fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headrace.viewer import LayerError, Renderer
from headrace_holoscan.holoviz import InputSpec
from headrace_holoscan.image_formats import ImageFormat
from tests.limits import pairs

RNG = np.random.default_rng(11)


def draw_one(data: Any, size: tuple[int, int] = (20, 10), is_srgb: bool = False, **spec: Any) -> np.ndarray:
    """Return the colours of a picture of one tensor, of `size` columns and rows."""
    specs = [InputSpec.from_mapping({"name": "it", "type": "color", **spec})]
    return Renderer(*size, specs, framebuffer_srgb=is_srgb).render({"it": data})[..., :3]


def image(*shape: int, dtype: Any = np.uint8) -> np.ndarray:
    information = np.iinfo(dtype)
    return RNG.integers(information.min, information.max, shape, dtype=dtype, endpoint=True)


def as_8_bit(fraction: np.ndarray) -> np.ndarray:
    return np.rint(np.clip(fraction, 0, 1) * 255).astype(np.uint8)


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
def test_formats_of_integers_are_drawn(name: str, dtype: str, channels: int) -> None:
    data = image(10, 20, channels, dtype=dtype)
    data[..., 3:] = np.iinfo(dtype).max
    expected = as_8_bit(data[..., :3].astype(np.float64) / np.iinfo(dtype).max)
    assert (draw_one(data, image_format=name) == expected).all()


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
def test_formats_of_floats_are_drawn(name: str, dtype: str, channels: int) -> None:
    data = RNG.uniform(-0.5, 1.5, (10, 20, channels)).astype(dtype)
    data[..., 3:] = 1
    expected = as_8_bit(data[..., :3].astype(np.float32))
    assert (draw_one(data, image_format=name) == expected).all()


def test_blue_first_is_put_in_order() -> None:
    data = image(10, 20, 4)
    data[..., 3] = 255
    assert (draw_one(data, image_format="b8g8r8a8_unorm") == data[..., 2::-1]).all()


@pytest.mark.parametrize(("name", "shifts"), [("a2b10g10r10", (0, 10, 20)), ("a2r10g10b10", (20, 10, 0))])
def test_words_of_ten_bits_are_unpacked(name: str, shifts: tuple[int, ...]) -> None:
    channels = RNG.integers(0, 1024, (10, 20, 3), dtype=np.uint32)
    words = sum(channels[..., place] << shift for place, shift in enumerate(shifts)) | np.uint32(3 << 30)
    picture = draw_one(words.astype(np.uint32), image_format=f"{name}_unorm_pack32")
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
    picture = draw_one(data, image_format=f"{full}_unorm", yuv_model_conversion=model, yuv_range=yuv_range)
    assert np.abs(picture.astype(int) - as_8_bit(rgb)).max() <= 2


def test_chroma_lies_where_its_location_says() -> None:
    y = np.full((2, 8), 128, np.uint8)
    u = np.full((2, 4), 128, np.uint8)
    v = np.tile(np.array([128, 128, 228, 228], np.uint8), (2, 1))
    data = np.concatenate([y.reshape(-1), u.reshape(-1), v.reshape(-1)]).reshape(4, 8)
    red = [
        draw_one(data, (8, 2), image_format="y8_u8_v8_3plane_422_unorm", x_chroma_location=location)[
            0, :, 0
        ].astype(int)
        for location in ("cosited_even", "midpoint")
    ]
    change = 1.402 * 100
    expected = [np.array([0, 0, 0, 0.5, 1, 1, 1, 1]), np.array([0, 0, 0, 0.25, 0.75, 1, 1, 1])]
    for found, share in zip(red, expected, strict=True):
        assert np.abs(found - np.minimum(128 + change * share, 255)).max() <= 1


def test_the_srgb_curve_is_taken_off_unless_the_picture_has_it() -> None:
    data = np.broadcast_to(np.array([0, 10, 128, 188, 255], np.uint8), (2, 5))
    linear = draw_one(data, (5, 2), image_format="r8_srgb")[0, :, 0]
    assert linear.tolist() == [0, 1, 55, 128, 255]
    same = draw_one(data, (5, 2), True, image_format="r8_srgb")[0, :, 0]
    assert same.tolist() == [0, 10, 128, 188, 255]


def test_bytes_may_come_as_words() -> None:
    data = image(10, 20, 4)
    data[..., 3] = 255
    words = data.view(np.uint32)[..., 0]
    assert (draw_one(words, image_format="a8b8g8r8_unorm_pack32") == data[..., :3]).all()


def test_every_format_but_those_of_depth_is_drawn() -> None:
    depth = {ImageFormat.D16_UNORM, ImageFormat.X8_D24_UNORM, ImageFormat.D32_SFLOAT}
    for one in set(ImageFormat) - depth - {ImageFormat.AUTO_DETECT}:
        with pytest.raises(LayerError, match=f"image_format {one} needs"):
            draw_one(np.zeros((5, 7, 5), np.int64), image_format=one)


@pytest.mark.parametrize(
    ("data", "name", "what"),
    [
        (np.zeros((4, 4, 3), np.uint8), "r8g8b8a8_unorm", r"needs \(rows, columns, 4\) of uint8"),
        (np.zeros((4, 4, 4), np.uint16), "r8g8b8a8_unorm", "of uint8"),
        (np.zeros((4, 4), np.float32), "d32_sfloat", "is one of depth maps"),
        (np.zeros((5, 4), np.uint8), "y8_u8v8_2plane_420_unorm", r"needs \(rows \* 3 / 2, columns\)"),
        (np.zeros((5, 4), np.uint8), "y8_u8_v8_3plane_422_unorm", r"needs \(rows \* 2, columns\)"),
        (np.zeros((4, 5, 2), np.uint8), "y8u8y8v8_422_unorm", "even number of columns"),
        (np.zeros((4, 4), np.uint16), "a2b10g10r10_unorm_pack32", "of uint32"),
    ],
)
def test_an_image_that_does_not_fit_is_refused_by_name(data: Any, name: str, what: str) -> None:
    with pytest.raises(LayerError, match=what):
        draw_one(data, image_format=name)


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"image_format": "rgb"}, "image_format of tensor 'it' must be one of auto_detect, r8_uint"),
        ({"yuv_range": "wide"}, "yuv_range of tensor 'it' must be one of itu_full, itu_narrow"),
    ],
)
def test_a_word_that_means_nothing_is_refused_by_name(given: dict[str, Any], what: str) -> None:
    with pytest.raises(ValueError, match=what):
        InputSpec.from_mapping({"name": "it", "type": "color", **given})
