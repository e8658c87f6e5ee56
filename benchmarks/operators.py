"""Measure the milliseconds that the image operators need for a 1080p frame, on the host and on a GPU.

python -m benchmarks.operators [--save]        on a GPU too if there is one; beside OpenCV where it is installed

On the host, a row is the routine alone, into memory that is allocated once, and so is OpenCV's: the least of many
rounds, in turns. OpenCV computes the same result, or one within what the documentation states; YUV in full range,
which it has no conversion of, by the functions that a program would use. NumPy is the routine without OpenCV. On a
machine that does other work, OPENCV_FOR_THREADS_NUM=1 makes the times comparable. On the GPU it is the time between
two events around many launches, divided by their number.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from benchmarks.report import circumstances, publish, table
from headrace import gpu
from headrace.gpu import StreamHandle
from headrace.operators import BayerDemosaicOp, FormatConverterOp, SegmentationPostprocessorOp
from headrace.operators._routines import with_opencv
from headrace.operators.arrays import Workplace
from headrace.resources import UnboundedAllocator
from headrace.testing import run_operator

ROWS, COLUMNS = 1080, 1920
ROUNDS, SECONDS, LAUNCHES = 7, 1.5, 200


@dataclass
class Row:
    """An operator with its parameters, a frame, and the same in OpenCV."""

    what: str
    kind: Any
    frame: np.ndarray
    params: dict[str, Any]
    opencv: Callable[[Any, np.ndarray, np.ndarray], Any] | None = None


def frames() -> list[Row]:
    source = np.random.default_rng(0)

    def byte(*shape: int) -> np.ndarray:
        return source.integers(0, 256, shape, np.uint8)

    rgb, rgba = byte(ROWS, COLUMNS, 3), byte(ROWS, COLUMNS, 4)
    size = {"out_dtype": "rgb888", "resize_height": 512, "resize_width": 512}
    linear = with_opencv.INTERPOLATION["linear"]
    modes = {"NEAREST_EXACT": 1, linear: 2, "CUBIC": 4, "AREA": 8, "LANCZOS4": 16}

    def color(code: str) -> Callable[..., Any]:
        return lambda cv2, frame, out: cv2.cvtColor(frame, getattr(cv2, f"COLOR_{code}"), dst=out)

    return [
        Row("Bayer → rgb888", BayerDemosaicOp, byte(ROWS, COLUMNS), {}, color("BayerGBRG2RGB")),
        Row(
            "Bayer 16 bit → rgb161616",
            BayerDemosaicOp,
            byte(ROWS, COLUMNS).astype(np.uint16),
            {},
            color("BayerGBRG2RGB"),
        ),
        Row(
            "rgb888 → float32",
            FormatConverterOp,
            rgb,
            {"out_dtype": "float32"},
            lambda cv2, frame, out: cv2.multiply(frame, 1 / 255, dst=out, dtype=cv2.CV_32F),
        ),
        Row("rgba8888 → float32", FormatConverterOp, rgba, {"out_dtype": "float32"}),
        Row("float32 → rgb888", FormatConverterOp, rgb.astype(np.float32) / 255, {"out_dtype": "rgb888"}),
        Row("rgba8888 → rgb888", FormatConverterOp, rgba, {"out_dtype": "rgb888"}, color("RGBA2RGB")),
        Row(
            "rgb888 → bgr888",
            FormatConverterOp,
            rgb,
            {"out_dtype": "rgb888", "out_channel_order": [2, 1, 0]},
            color("RGB2BGR"),
        ),
        Row(
            "nv12 → rgb888",
            FormatConverterOp,
            byte(ROWS * 3 // 2, COLUMNS),
            {"in_dtype": "nv12", "out_dtype": "rgb888"},
            full_range_nv12,
        ),
        *(
            Row(
                f"{name} → rgb888",
                FormatConverterOp,
                byte(ROWS, COLUMNS, 2),
                {"in_dtype": name, "out_dtype": "rgb888"},
                color(f"YUV2RGB_{name.upper()}"),
            )
            for name in ("yuyv", "uyvy")
        ),
        Row("rgb888 → yuv420", FormatConverterOp, rgb, {"out_dtype": "yuv420"}, full_range_yuv420),
        *(
            Row(
                f"to 512×512, {name.lower()}",
                FormatConverterOp,
                rgb,
                {**size, "resize_mode": mode},
                lambda cv2, frame, out, name=name: cv2.resize(
                    frame, (512, 512), dst=out, interpolation=getattr(cv2, f"INTER_{name}")
                ),
            )
            for name, mode in modes.items()
        ),
        Row("scores of 3 classes → class", SegmentationPostprocessorOp, rgb.astype(np.float32), {}),
    ]


def full_range_nv12(cv2: Any, frame: np.ndarray, out: np.ndarray) -> None:
    """Convert by BT.709 in full range."""
    u, v = cv2.split(frame[ROWS:].reshape(ROWS // 2, COLUMNS // 2, 2))
    wide = [cv2.resize(part, (COLUMNS, ROWS), interpolation=cv2.INTER_NEAREST) for part in (v, u)]
    factors = np.array([[1, 1.5748, 0], [1, -0.4681, -0.1873], [1, 0, 1.8556]])
    matrix = np.concatenate([factors, -factors @ [[0], [128], [128]]], axis=1)
    cv2.transform(cv2.merge([frame[:ROWS], *wide]), matrix, dst=out)


def full_range_yuv420(cv2: Any, frame: np.ndarray, out: np.ndarray) -> None:
    """Convert by BT.601 in full range."""
    luma = cv2.extractChannel(cv2.cvtColor(frame, cv2.COLOR_RGB2YCrCb), 0)
    half = cv2.resize(frame, (COLUMNS // 2, ROWS // 2), interpolation=cv2.INTER_AREA)
    _, v, u = cv2.split(cv2.cvtColor(half, cv2.COLOR_RGB2YCrCb))
    out[:ROWS] = luma
    out[ROWS:].reshape(2, ROWS // 2, COLUMNS // 2)[...] = u, v


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


def host_ms(*calls: Callable[[], Any]) -> list[float]:
    """Return the least milliseconds of each, measured in turns."""
    best = [float("inf")] * len(calls)
    for call in calls:
        call()
    end = time.perf_counter() + SECONDS
    number = 0
    while number < ROUNDS or time.perf_counter() < end:
        number += 1
        for place, call in enumerate(calls):
            begin = time.perf_counter()
            call()
            best[place] = min(best[place], 1000 * (time.perf_counter() - begin))
    return best


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


def on_host(row: Row, cv2: Any) -> list[str]:
    """Return the cells of a row: ours, OpenCV's, their ratio, NumPy's."""
    ours = record(row, on_host=True)
    numpy = copy.copy(ours)
    numpy.calls = [
        (place, SimpleNamespace(host=routine.numpy), *rest) for place, routine, *rest in ours.calls
    ]
    if cv2 is None or row.opencv is None:
        mine, by_numpy = host_ms(ours.again, numpy.again)
        return [row.what, f"{mine:.2f}", "", "", f"{by_numpy:.2f}"]
    out = np.asarray(ours.calls[-1][3])
    out = np.empty(out.shape, out.dtype)
    mine, theirs, by_numpy = host_ms(ours.again, partial(row.opencv, cv2, row.frame, out), numpy.again)
    return [row.what, f"{mine:.2f}", f"{theirs:.2f}", f"{mine / theirs:.2f}", f"{by_numpy:.2f}"]


def main() -> None:
    has_gpu = gpu.backend() == "cuda"
    cv2 = with_opencv.opencv()
    rows = frames()
    header = ["1080p frame", "host, ms", "OpenCV, ms", "ratio", "NumPy, ms"]
    lines = table(header, [on_host(row, cv2) for row in rows])
    device = gpu.Device(0).name if has_gpu else "no GPU"
    version = "no OpenCV" if cv2 is None else f"cv2 {cv2.__version__}, {cv2.getNumThreads()} threads"
    text = f"# Image operators\n\n## On the host\n\n{circumstances(device)}; {version}\n\n{lines}"
    if has_gpu:
        on_gpu = [[row.what, f"{gpu_ms(row):.3f}"] for row in rows]
        text += f"\n\n## On a GPU\n\n{circumstances(device)}\n\n{table(['1080p frame', 'GPU, ms'], on_gpu)}"
    publish("operators", text)


if __name__ == "__main__":
    main()
