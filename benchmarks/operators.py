"""Measure the milliseconds that the image operators need for a 1080p frame, on the host and on a GPU.

python -m benchmarks.operators [--save]        on a GPU too if there is one; beside OpenCV where it is installed

On the host, a row is the routine alone, into memory that is allocated once: the least of several rounds. On the
GPU it is the time between two events around many launches, divided by their number.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from benchmarks.report import circumstances, publish, table
from headrace import gpu
from headrace.gpu import StreamHandle
from headrace.operators import BayerDemosaicOp, FormatConverterOp, SegmentationPostprocessorOp
from headrace.operators.arrays import Workplace
from headrace.resources import UnboundedAllocator
from headrace.testing import run_operator

ROWS, COLUMNS = 1080, 1920
ROUNDS, LAUNCHES = 7, 200


@dataclass
class Row:
    """An operator with its parameters, a frame, and the same in OpenCV."""

    what: str
    kind: Any
    frame: np.ndarray
    params: dict[str, Any]
    opencv: Callable[[Any, np.ndarray], Any] | None = None


def frames() -> list[Row]:
    source = np.random.default_rng(0)

    def byte(*shape: int) -> np.ndarray:
        return source.integers(0, 256, shape, np.uint8)

    rgb, rgba = byte(ROWS, COLUMNS, 3), byte(ROWS, COLUMNS, 4)
    resize = {"out_dtype": "rgb888", "resize_height": 512, "resize_width": 512}
    modes = {"nearest": 1, "linear": 2, "cubic": 4, "area": 8, "lanczos4": 16}
    return [
        Row(
            "Bayer → rgb888",
            BayerDemosaicOp,
            byte(ROWS, COLUMNS),
            {},
            lambda cv2, frame: cv2.cvtColor(frame, cv2.COLOR_BayerGBRG2RGB),
        ),
        Row("Bayer 16 bit → rgb161616", BayerDemosaicOp, byte(ROWS, COLUMNS).astype(np.uint16), {}),
        Row(
            "rgb888 → float32",
            FormatConverterOp,
            rgb,
            {"out_dtype": "float32"},
            lambda cv2, frame: cv2.multiply(frame, 1 / 255, dtype=cv2.CV_32F),
        ),
        Row("rgba8888 → float32", FormatConverterOp, rgba, {"out_dtype": "float32"}),
        Row("float32 → rgb888", FormatConverterOp, rgb.astype(np.float32) / 255, {"out_dtype": "rgb888"}),
        Row(
            "rgba8888 → rgb888",
            FormatConverterOp,
            rgba,
            {"out_dtype": "rgb888"},
            lambda cv2, frame: cv2.cvtColor(frame, cv2.COLOR_RGBA2RGB),
        ),
        Row(
            "nv12 → rgb888",
            FormatConverterOp,
            byte(ROWS * 3 // 2, COLUMNS),
            {"in_dtype": "nv12", "out_dtype": "rgb888"},
            lambda cv2, frame: cv2.cvtColor(frame, cv2.COLOR_YUV2RGB_NV12),
        ),
        Row(
            "yuyv → rgb888",
            FormatConverterOp,
            byte(ROWS, COLUMNS, 2),
            {"in_dtype": "yuyv", "out_dtype": "rgb888"},
            lambda cv2, frame: cv2.cvtColor(frame, cv2.COLOR_YUV2RGB_YUY2),
        ),
        Row(
            "rgb888 → yuv420",
            FormatConverterOp,
            rgb,
            {"out_dtype": "yuv420"},
            lambda cv2, frame: cv2.cvtColor(frame, cv2.COLOR_RGB2YUV_I420),
        ),
        *(
            Row(
                f"to 512×512, {name}",
                FormatConverterOp,
                rgb,
                {**resize, "resize_mode": mode},
                lambda cv2, frame, name=name: cv2.resize(
                    frame, (512, 512), interpolation=getattr(cv2, f"INTER_{name.upper()}")
                ),
            )
            for name, mode in modes.items()
        ),
        Row("scores of 3 classes → class", SegmentationPostprocessorOp, rgb.astype(np.float32), {}),
    ]


class Recorder:
    """Notes the routines that an operator runs, so that they can be run again."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __enter__(self) -> Recorder:
        self._original = Workplace.run
        recorder = self

        def run(place: Workplace, *args: Any) -> None:
            recorder.calls.append((place, *args))
            recorder._original(place, *args)

        Workplace.run = run  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        Workplace.run = self._original  # type: ignore[method-assign]

    def again(self) -> None:
        for place, *args in self.calls:
            self._original(place, *args)


def record(row: Row, on_host: bool) -> Recorder:
    """Run an operator once on a frame in host memory, and return the routines that it ran."""
    from headrace.operators import arrays

    has_gpu = arrays.has_gpu
    arrays.has_gpu = lambda: not on_host and has_gpu()
    try:
        with Recorder() as recorder:
            run_operator(row.kind, inputs=[row.frame], **row.params)
    finally:
        arrays.has_gpu = has_gpu
    return recorder


def host_ms(call: Callable[[], Any]) -> float:
    call()
    best = float("inf")
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - begin)
    return best * 1000


def gpu_ms(row: Row) -> float:
    """Return the milliseconds on the GPU, on a stream of this benchmark's own."""
    recorder = record(row, on_host=False)
    device = gpu.Device(0)
    device.set_current()
    stream = StreamHandle(device.create_stream())
    place = Workplace("benchmark", UnboundedAllocator(), stream)
    recorder.calls = [(place, *call[1:]) for call in recorder.calls]
    begin, end = (device.create_event(gpu.EventOptions(timing_enabled=True)) for _ in range(2))
    recorder.again()
    stream.stream.sync()
    stream.stream.record(begin)
    for _ in range(LAUNCHES):
        recorder.again()
    stream.stream.record(end)
    stream.stream.sync()
    return float(end - begin) / LAUNCHES


def main() -> None:
    has_gpu = gpu.backend() == "cuda"
    cv2: Any = None
    if importlib.util.find_spec("cv2"):
        import cv2
    lines = []
    for row in frames():
        opencv = (
            "" if cv2 is None or row.opencv is None else f"{host_ms(partial(row.opencv, cv2, row.frame)):.1f}"
        )
        on_gpu = f"{gpu_ms(row):.3f}" if has_gpu else "-"
        lines.append([row.what, f"{host_ms(record(row, on_host=True).again):.1f}", opencv, on_gpu])
    device = gpu.Device(0).name if has_gpu else "no GPU"
    header = ["1080p frame", "host, ms", "OpenCV on the host, ms", "GPU, ms"]
    publish("operators", f"# Image operators\n\n{circumstances(device)}\n\n{table(header, lines)}")


if __name__ == "__main__":
    main()
