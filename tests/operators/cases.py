"""Operators with parameters and a frame for each, for tests that run them all somewhere."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import numpy as np

from headrace.operators import BayerDemosaicOp, FormatConverterOp, SegmentationPostprocessorOp
from headrace.operators._routines import with_opencv
from headrace.testing import run_operator
from headrace_holoscan.ready import InferenceProcessorOp

Array = np.ndarray[Any, Any]


@dataclass
class Case:
    """An operator, its parameters, and a frame that it takes."""

    kind: Any
    frame: Array
    params: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        given = ",".join(
            f"{name}={value}" for name, value in self.params.items() if not isinstance(value, dict)
        )
        return f"{self.kind.__name__}-{self.frame.dtype}{self.frame.shape}-{given}".replace(" ", "")

    @property
    def inputs(self) -> Any:
        """What `run_operator` takes to give the frame to the operator."""
        message = {"maps": self.frame} if self.kind is InferenceProcessorOp else self.frame
        return [[message]] if self.kind is InferenceProcessorOp else [message]

    def on_host(self) -> Array:
        """Return what the operator makes of the frame on the host, by NumPy: what a GPU gives, bit by bit."""
        with without_opencv():
            return self.by_any_library()

    def by_any_library(self) -> Array:
        """Return what the operator makes of the frame on the host, by OpenCV where it is installed."""
        with patch("headrace.operators.arrays.has_gpu", lambda: False):
            outcome = run_operator(self.kind, inputs={self.port: self.inputs}, **self.params)
        ((message,),) = outcome.values()
        (tensor,) = message.values()
        return np.asarray(tensor)

    @property
    def port(self) -> str:
        """The operator's input."""
        return {
            BayerDemosaicOp: "receiver",
            FormatConverterOp: "source_video",
            SegmentationPostprocessorOp: "in_tensor",
            InferenceProcessorOp: "receivers",
        }[self.kind]


def without_opencv() -> Any:
    """Return a context in which the operators find no OpenCV."""
    return patch.object(with_opencv, "opencv", lambda: None)


def random(dtype: Any, *shape: int, seed: int = 0) -> Array:
    """Return an array of random numbers: all values of an integer type, floats around [0, 1]."""
    source = np.random.default_rng((seed, *shape))
    if np.dtype(dtype).kind == "u":
        return source.integers(0, np.iinfo(dtype).max, shape, dtype, endpoint=True)
    return source.normal(0.5, 0.5, shape).astype(dtype)


def all_cases() -> list[Case]:
    """Return a case for every conversion, mode and layout."""
    found = [
        Case(BayerDemosaicOp, random(dtype, 10, 14), {"bayer_grid_pos": grid, "generate_alpha": alpha})
        for dtype in (np.uint8, np.uint16)
        for grid in range(4)
        for alpha in (False, True)
    ]
    rgb, rgba = random(np.uint8, 12, 10, 3), random(np.uint8, 12, 10, 4)
    reals = random(np.float32, 12, 10, 3)
    reals[0, 0] = np.nan, np.inf, -np.inf

    def convert(frame: Array, **params: Any) -> None:
        found.append(Case(FormatConverterOp, frame, params))

    convert(rgb, out_dtype="rgb888")
    convert(rgb, out_dtype="rgb888", out_channel_order=[2, 1, 0])
    convert(rgb, out_dtype="float32")
    convert(rgb, out_dtype="float32", scale_min=-1.0, scale_max=2.5, out_channel_order=[1, 2, 0])
    convert(rgb, out_dtype="rgba8888", alpha_value=9)
    convert(rgb, out_dtype="rgba8888", alpha_value=9, out_channel_order=[3, 2, 1, 0])
    convert(rgb, out_dtype="yuv420")
    convert(rgba, out_dtype="rgb888", out_channel_order=[2, 3, 0])
    convert(rgba, out_dtype="rgba8888", out_channel_order=[2, 1, 0, 3])
    convert(rgba, out_dtype="float32", scale_max=255.0)
    convert(reals, out_dtype="rgb888")
    convert(reals, out_dtype="uint8", scale_min=-0.5, scale_max=1.5, out_channel_order=[2, 0, 1])
    convert(reals, out_dtype="float32", out_channel_order=[2, 0, 1])
    convert(random(np.uint16, 12, 10, 3), out_dtype="rgb888")
    convert(random(np.uint16, 12, 10, 4), out_dtype="rgb888", out_channel_order=[3, 1, 0])
    convert(random(np.uint8, 7, 5), out_dtype="float32")
    convert(
        random(np.uint8, 8, 5, 3)[1:], out_dtype="float32"
    )  # not aligned, and no multiple of four elements
    convert(random(np.uint8, 7, 5, 3), out_dtype="rgb888")
    convert(random(np.float32, 9, 5, 3)[1:], out_dtype="rgb888")
    for name in ("nv12", "nv12_bt709_csc", "nv12_bt601_full", "yuv420"):
        convert(random(np.uint8, 18, 10), in_dtype=name, out_dtype="rgb888")
    convert(random(np.uint8, 18, 10), in_dtype="yuv420", out_dtype="yuv420")
    convert(random(np.uint8, 18, 10), in_dtype="yuv420", out_dtype="rgba8888", out_channel_order=[3, 2, 1, 0])
    planes = np.ascontiguousarray(np.moveaxis(rgba, -1, 0))
    convert(planes, out_dtype="rgba8888", in_layout="chw", out_layout="chw")
    for layouts in (("chw", "hwc"), ("hwc", "nchw"), ("chw", "nchw")):
        given = planes if layouts[0] == "chw" else rgba
        both = {"in_layout": layouts[0], "out_layout": layouts[1]}
        convert(given, out_dtype="float32", out_channel_order=[3, 0, 1], **both)
        convert(given, out_dtype="float32", resize_height=7, resize_width=9, **both)
    convert(random(np.uint8, 18, 10), in_dtype="nv12", out_dtype="rgb888", out_layout="chw")
    for name in ("yuyv", "uyvy"):
        convert(random(np.uint8, 12, 10, 2), in_dtype=name, out_dtype="rgb888", out_channel_order=[2, 1, 0])
    for mode in (0, 1, 2, 4, 5, 6, 7, 8, 16, 17, 0x8000000, 0x8000002):
        sizes = {"resize_height": 5, "resize_width": 7, "resize_mode": mode}
        convert(random(np.uint8, 19, 23, 3), out_dtype="rgb888", **sizes)
        if mode != 8:
            convert(random(np.uint8, 3, 4, 4), out_dtype="rgba8888", **sizes)
    convert(random(np.uint8, 19, 23), out_dtype="uint8", resize_height=5, resize_width=7)
    for mode in (2, 4, 16):  # resized and converted at once, with few taps and with many
        sizes = {"resize_height": 6, "resize_width": 8, "resize_mode": mode}
        convert(random(np.uint8, 19, 23), out_dtype="float32", **sizes)
        convert(random(np.uint8, 19, 23, 2), out_dtype="uint8", out_channel_order=[1, 0], **sizes)
        convert(random(np.uint8, 19, 23, 3), out_dtype="rgba8888", alpha_value=9, **sizes)
        convert(random(np.uint8, 19, 23, 3), out_dtype="yuv420", **sizes)
        convert(
            random(np.uint8, 19, 23, 4),
            out_dtype="float32",
            scale_min=-1.0,
            scale_max=2.5,
            out_channel_order=[1, 3, 0],
            **sizes,
        )
    found += [
        Case(SegmentationPostprocessorOp, random(np.float32, *shape), {"data_format": form, **params})
        for form, shape in (("hwc", (6, 7, 5)), ("nhwc", (1, 6, 7, 5)), ("nchw", (1, 5, 6, 7)))
        for params in ({}, {"network_output_type": "sigmoid"})
    ]
    processor = {
        "process_operations": {"maps": ["max_per_channel_scaled"]},
        "processed_map": {"maps": ["maxima"]},
        "input_on_cuda": True,
        "output_on_cuda": True,
    }
    maps = random(np.float32, 1, 30, 40, 3)
    maps[0, 20, 11, 1] = maps[0, 25, 3, 1] = 9.0  # the first of equal ones
    maps[0, 3, 4, 2] = np.nan
    found.append(Case(InferenceProcessorOp, maps, processor))
    return found


CASES = all_cases()
