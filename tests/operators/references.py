"""What other libraries make of random frames, beside the operators.

Each entry names the library, and the largest difference with its reason. Differences are those of rounding: an
operator computes in integers or in single precision and rounds once, half up; a library may round in between, half
to even, or with weights of fewer digits.

`tests/operators/test_references.py` runs them on the host and on the simulated device, and
`tests/gpu/real/test_references.py` on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from headrace.operators import BayerDemosaicOp, FormatConverterOp, SegmentationPostprocessorOp
from headrace_holoscan.ready import InferenceProcessorOp
from tests.operators.cases import Array, Case, random

__all__ = ["REFERENCES", "Reference"]


@dataclass(frozen=True)
class Reference:
    """A computation of an operator and the same by a library.

    Attributes
    ----------
    what
        A name for the test.
    library
        The module that must be there.
    case
        A case with a random frame of random size, by seed.
    expected
        What the library makes of the frame, from the library and the case; NaN is not compared.
    tolerance
        The largest difference of a value.
    """

    what: str
    library: str
    case: Callable[[np.random.Generator], Case]
    expected: Callable[[Any, Case], Array]
    tolerance: float = 0

    def __str__(self) -> str:
        return f"{self.what}-{self.library}"

    def made(self, seed: int) -> tuple[Case, Array]:
        """Return a case and what the library makes of it, or skip where there is no such library."""
        library = pytest.importorskip(self.library)
        case = self.case(np.random.default_rng(seed))
        return case, self.expected(library, case)

    def compare(self, result: Array, expected: Array) -> None:
        """Compare the result of the operator with that of the library."""
        result = result.reshape(expected.shape) if result.size == expected.size else result
        assert result.shape == expected.shape
        difference = np.abs(result.astype(np.float64) - expected.astype(np.float64))
        assert np.isfinite(difference).any()
        assert np.nanmax(difference) <= self.tolerance


REFERENCES: list[Reference] = []


def sizes(
    source: np.random.Generator, *, even: bool = False, least: int = 2, most: int = 70
) -> tuple[int, int]:
    """Return random rows and columns."""
    rows, columns = (int(size) for size in source.integers(least, most, 2))
    return (rows + rows % 2, columns + columns % 2) if even else (rows, columns)


def frame(source: np.random.Generator, dtype: Any, *shape: int) -> Array:
    """Return a random frame."""
    return random(dtype, *shape, seed=int(source.integers(1 << 30)))


# Mosaics.

PATTERNS = {0: "BGGR", 1: "RGGB", 2: "GBRG", 3: "GRBG"}


def convolved(ndimage: Any, case: Case) -> Array:
    """Interpolate each colour by itself: its samples among zeros, convolved with the bilinear kernel."""
    mosaic = case.frame.astype(np.float64)
    pattern = PATTERNS[case.params["bayer_grid_pos"]]
    rows, columns = np.indices(mosaic.shape)
    colour = np.array(list(pattern))[rows % 2 * 2 + columns % 2]
    cross = np.array([[0, 1, 0], [1, 4, 1], [0, 1, 0]]) / 4
    square = np.array([[1, 2, 1], [2, 4, 2], [1, 2, 1]]) / 4
    planes = [
        ndimage.convolve(np.where(colour == name, mosaic, 0), kernel, mode="mirror")
        for name, kernel in (("R", square), ("G", cross), ("B", square))
    ]
    return np.floor(np.stack(planes, axis=-1) + 0.5)


# Exact: the sums of integers and their quarters are exact in double precision.
REFERENCES += [
    Reference(
        f"demosaic-{PATTERNS[grid]}-{dtype.__name__}",
        "scipy.ndimage",
        lambda source, dtype=dtype, grid=grid: Case(
            BayerDemosaicOp, frame(source, dtype, *sizes(source, even=True)), {"bayer_grid_pos": grid}
        ),
        convolved,
    )
    for dtype in (np.uint8, np.uint16)
    for grid in PATTERNS
]


# Elements and channels.


def add(
    what: str,
    library: str,
    shape: Callable[[np.random.Generator], tuple[int, ...]],
    params: dict[str, Any],
    expected: Callable[[Any, Array], Array],
    tolerance: float = 0,
    dtype: Any = np.uint8,
    prepare: Callable[[Array], Array] = lambda array: array,
) -> None:
    """Add a conversion."""
    REFERENCES.append(
        Reference(
            what,
            library,
            lambda source: Case(FormatConverterOp, prepare(frame(source, dtype, *shape(source))), params),
            lambda module, case: expected(module, case.frame),
            tolerance,
        )
    )


def rgb(source: np.random.Generator) -> tuple[int, ...]:
    return (*sizes(source), 3)


def rgba(source: np.random.Generator) -> tuple[int, ...]:
    return (*sizes(source), 4)


# A float32 below 1 is 6e-8 away from the next one. Two roundings are twice that, and the second range is 3.5 wide.
add(
    "to-float",
    "cv2",
    rgb,
    {"out_dtype": "float32"},
    lambda cv2, f: cv2.multiply(f, 1 / 255, dtype=cv2.CV_32F),
    2e-7,
)
add(
    "to-float-scaled", "cv2", rgb, {"out_dtype": "float32", "scale_min": -1.0, "scale_max": 2.5},
    lambda cv2, f: cv2.add(cv2.multiply(f, (3.5 / 255,) * 4, dtype=cv2.CV_64F), (-1.0,) * 4), 1e-6,
)  # fmt: skip
# Half a level falls to either side.
add("from-float", "cv2", rgb, {"out_dtype": "rgb888"},
    lambda cv2, f: cv2.multiply(f, (255,) * 4, dtype=cv2.CV_8U), 1, np.float32)  # fmt: skip
add("from-16-bits", "cv2", rgb, {"out_dtype": "rgb888"},
    lambda cv2, f: cv2.convertScaleAbs(f, alpha=255 / 65535), 1, np.uint16)  # fmt: skip
add("add-alpha", "cv2", rgb, {"out_dtype": "rgba8888"}, lambda cv2, f: cv2.cvtColor(f, cv2.COLOR_RGB2RGBA))
add("drop-alpha", "cv2", rgba, {"out_dtype": "rgb888"}, lambda cv2, f: cv2.cvtColor(f, cv2.COLOR_RGBA2RGB))
add("blue-first", "cv2", rgb, {"out_dtype": "rgb888", "out_channel_order": [2, 1, 0]},
    lambda cv2, f: cv2.cvtColor(f, cv2.COLOR_RGB2BGR))  # fmt: skip
add("any-order", "PIL.Image", rgba, {"out_dtype": "rgba8888", "out_channel_order": [3, 0, 2, 1]},
    lambda pil, f: np.asarray(pil.merge("RGBA", [pil.fromarray(f[..., n]) for n in (3, 0, 2, 1)])))  # fmt: skip


# Luma and chroma.


def at_least_black(array: Array) -> Array:
    """Return a packed frame whose luma is not below 16, which OpenCV would take for 16."""
    return np.maximum(array, 16)


def with_even_chroma(array: Array) -> Array:
    """Return the frame with one colour difference in all of its pixels: swscale interpolates between them."""
    luma = len(array) // 3 * 2
    array[luma:, ::2], array[luma:, 1::2] = array[luma, 0], array[luma, 1]
    array[:luma] = np.clip(array[:luma], 16, 235)
    return array


def planar(source: np.random.Generator) -> tuple[int, ...]:
    rows, columns = sizes(source, even=True)
    return (rows // 2 * 3, columns)


def by_pillow(interleaved: bool) -> Callable[[Any, Array], Array]:
    """Return a conversion by Pillow's YCbCr, which is BT.601 in full range."""

    def convert(pil: Any, array: Array) -> Array:
        rows, columns = len(array) // 3 * 2, array.shape[1]
        chroma = array[rows:].reshape(rows // 2, columns // 2, 2) if interleaved else None
        u, v = (
            np.moveaxis(chroma, -1, 0)
            if chroma is not None
            else array[rows:].reshape(2, rows // 2, columns // 2)
        )
        planes = [array[:rows], *(plane.repeat(2, axis=0).repeat(2, axis=1) for plane in (u, v))]
        return np.asarray(pil.merge("YCbCr", [pil.fromarray(plane) for plane in planes]).convert("RGB"))

    return convert


def by_swscale(full: bool) -> Callable[[Any, Array], Array]:
    """Return a conversion by FFmpeg's swscale, by BT.709."""

    def convert(av: Any, array: Array) -> Array:
        made = av.VideoFrame.from_ndarray(array, format="nv12")
        names = {"src_colorspace": "ITU709", "dst_colorspace": "ITU709"}
        ranges = {"src_color_range": 2 if full else 1, "dst_color_range": 2}
        return made.reformat(format="rgb24", interpolation="BICUBIC", **names, **ranges).to_ndarray()

    return convert


def packed(source: np.random.Generator) -> tuple[int, ...]:
    return (*sizes(source, even=True), 2)


for name, code in (("yuyv", "YUY2"), ("uyvy", "UYVY")):
    # OpenCV's coefficients are integers over 2^20.
    add(name, "cv2", packed, {"in_dtype": name, "out_dtype": "rgb888"},
        lambda cv2, f, code=code: cv2.cvtColor(f, getattr(cv2, f"COLOR_YUV2RGB_{code}")), 1,
        prepare=at_least_black)  # fmt: skip
# Pillow's tables have 6 binary digits.
add("yuv420", "PIL.Image", planar, {"in_dtype": "yuv420", "out_dtype": "rgb888"}, by_pillow(False), 1)
add(
    "nv12-601",
    "PIL.Image",
    planar,
    {"in_dtype": "nv12_bt601_full", "out_dtype": "rgb888"},
    by_pillow(True),
    1,
)
# swscale converts to 15 bits and back, with coefficients of 13 bits.
add("nv12-709", "av", planar, {"in_dtype": "nv12", "out_dtype": "rgb888"}, by_swscale(True), 3,
    prepare=with_even_chroma)  # fmt: skip
add("nv12-709-limited", "av", planar, {"in_dtype": "nv12_bt709_csc", "out_dtype": "rgb888"}, by_swscale(False), 3,
    prepare=with_even_chroma)  # fmt: skip


def to_yuv420(pil: Any, array: Array) -> Array:
    planes = np.asarray(pil.fromarray(array).convert("YCbCr"))
    return np.concatenate([planes[..., 0].ravel(), planes[::2, ::2, 1].ravel(), planes[::2, ::2, 2].ravel()])


# Four pixels that share chroma have one colour; averages of others are tested by their formula.
add("to-yuv420", "PIL.Image", rgb, {"out_dtype": "yuv420"}, to_yuv420, 1,
    prepare=lambda array: array.repeat(2, axis=0).repeat(2, axis=1))  # fmt: skip


# Sizes.

LARGER, SMALLER = (71, 83), (9, 13)


def resized(
    name: str, library: str, mode: int, to: tuple[int, int], expected: Any, tolerance: float, **more: Any
) -> None:
    """Add a resize of an RGB frame."""
    params = {"out_dtype": "rgb888", "resize_height": to[0], "resize_width": to[1], "resize_mode": mode}
    add(f"{name}-to-{to[0]}", library, more.pop("shape", rgb), params, expected, tolerance, **more)


def by_opencv(name: str, to: tuple[int, int]) -> Callable[[Any, Array], Array]:
    return lambda cv2, f: cv2.resize(f, to[::-1], interpolation=getattr(cv2, f"INTER_{name}"))


def without_middles(to: tuple[int, int]) -> Callable[[Any, Array], Array]:
    """Return the nearest pixels of OpenCV, without those that lie between two: there either is the nearest."""

    def resize(cv2: Any, array: Array) -> Array:
        found = by_opencv("NEAREST_EXACT", to)(cv2, array).astype(float)
        for axis in (0, 1):
            middles = (2 * np.arange(to[axis]) + 1) * array.shape[axis] % (2 * to[axis]) == 0
            np.moveaxis(found, axis, 0)[middles] = np.nan
        return found

    return resize


def inside(filter_name: str, to: tuple[int, int], support: int) -> Callable[[Any, Array], Array]:
    """Return a resize by Pillow, without the border: beyond it, ours repeats the outermost pixel."""

    def resize(pil: Any, array: Array) -> Array:
        found = pil.fromarray(array).resize(to[::-1], getattr(pil.Resampling, filter_name))
        found = np.asarray(found).astype(float)
        for axis in (0, 1):
            border = int(np.ceil(support * max(1.0, to[axis] / array.shape[axis])))
            rows = np.moveaxis(found, axis, 0)
            rows[:border] = rows[len(rows) - border :] = np.nan
        return found

    return resize


def flat(array: Array) -> Array:
    """Return a frame whose values are in the middle: Pillow cuts off what rings over between the two directions."""
    return 90 + array // 4


for to in (LARGER, SMALLER):
    # OpenCV's weights for bytes have 11 binary digits, and ours 24; those of Lanczos are the largest.
    resized("linear", "cv2", 2, to, by_opencv("LINEAR", to), 1)
    resized("cubic", "cv2", 4, to, by_opencv("CUBIC", to), 1)
    resized("lanczos4", "cv2", 16, to, by_opencv("LANCZOS4", to), 2)
    resized("nearest", "cv2", 1, to, without_middles(to), 0)
resized(
    "area",
    "cv2",
    8,
    SMALLER,
    by_opencv("AREA", SMALLER),
    1,
    shape=lambda source: (*sizes(source, least=14), 3),
)
# Pillow rounds to bytes between the two directions. Catmull and Rom's cubic is its own when pictures grow.
large = {"shape": lambda source: (*sizes(source, least=30), 3), "prepare": flat}
resized("lanczos3", "PIL.Image", 17, LARGER, inside("LANCZOS", LARGER, 3), 1, **large)
resized("lanczos3", "PIL.Image", 17, SMALLER, inside("LANCZOS", SMALLER, 3), 1, **large)
resized("catmull-rom", "PIL.Image", 6, LARGER, inside("BICUBIC", LARGER, 2), 1, **large)


def b_spline(ndimage: Any, array: Array) -> Array:
    """Evaluate the cubic B-spline whose coefficients are the pixels."""
    places = np.meshgrid(
        *((np.arange(size) + 0.5) * had / size - 0.5 for size, had in zip(LARGER, array.shape, strict=False)),
        indexing="ij",
    )
    channels = [
        ndimage.map_coordinates(channel.astype(float), places, order=3, prefilter=False, mode="nearest")
        for channel in np.moveaxis(array, -1, 0)
    ]
    return np.stack(channels, axis=-1)


# SciPy does not round.
resized("b-spline", "scipy.ndimage", 5, LARGER, b_spline, 0.501)


# Results of networks.


def by_onnx(reference: Any, case: Case) -> Array:
    """Find classes with the ArgMax, or the comparison with a half, of ONNX's own evaluator."""
    from onnx import TensorProto, helper

    form = case.params["data_format"]
    is_sigmoid = case.params.get("network_output_type") == "sigmoid"
    axis = form.index("c")
    if is_sigmoid:
        half = helper.make_tensor("half", TensorProto.FLOAT, [], [0.5])
        nodes = [helper.make_node("GreaterOrEqual", ["x", "half"], ["y"])]
        outputs, values = helper.make_tensor_value_info("y", TensorProto.BOOL, None), [half]
    else:
        nodes = [helper.make_node("ArgMax", ["x"], ["y"], axis=axis, keepdims=0)]
        outputs, values = helper.make_tensor_value_info("y", TensorProto.INT64, None), []
    inputs = helper.make_tensor_value_info("x", TensorProto.FLOAT, case.frame.shape)
    graph = helper.make_graph(nodes, "classes", [inputs], [outputs], values)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (found,) = reference.ReferenceEvaluator(model).run(None, {"x": case.frame})
    return np.asarray(found if not is_sigmoid else np.take(found, 0, axis))


def scores(source: np.random.Generator, form: str, kind: str) -> Case:
    channels = 1 if kind == "sigmoid" else int(source.integers(1, 9))
    rows, columns = sizes(source, least=1, most=40)
    extents = {"n": 1, "h": rows, "w": columns, "c": channels}
    array = frame(source, np.float32, *(extents[letter] for letter in form))
    return Case(SegmentationPostprocessorOp, array, {"data_format": form, "network_output_type": kind})


REFERENCES += [
    Reference(
        f"classes-{form}-{kind}",
        "onnx.reference",
        lambda source, form=form, kind=kind: scores(source, form, kind),
        by_onnx,
    )
    for form in ("hwc", "nchw", "nhwc")
    for kind in ("softmax", "sigmoid")
]


def maxima(cv2: Any, case: Case) -> Array:
    """Find the maximum of each channel with OpenCV."""
    _, rows, columns, channels = case.frame.shape
    found = []
    for channel in range(channels):
        *_, (column, row) = cv2.minMaxLoc(np.ascontiguousarray(case.frame[0, ..., channel]))
        found += [row / rows, column / columns]
    return np.array(found)


REFERENCES.append(
    # Quotients in single precision.
    Reference(
        "maxima",
        "cv2",
        lambda source: Case(
            InferenceProcessorOp,
            frame(source, np.float32, 1, *sizes(source), int(source.integers(1, 5))),
            {
                "process_operations": {"maps": ["max_per_channel_scaled"]},
                "processed_map": {"maps": ["maxima"]},
                "input_on_cuda": True,
                "output_on_cuda": True,
            },
        ),
        maxima,
        1e-7,
    )
)
