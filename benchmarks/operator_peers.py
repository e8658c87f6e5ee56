"""Measure demosaic, conversion and view at 1080p and 4K beside OpenCV, CV-CUDA and the Holoscan SDK.

    python -m benchmarks.operator_peers [--holoscan PYTHON] [--frames 600] [--save]

Each peer is optional. PYTHON is an interpreter that has the Holoscan SDK, which may be this one. CV-CUDA has codes
for Bayer mosaics and implements none (0.19). NPP, which the operator of the SDK uses, stands in its column there.

The first table is one operation, into memory that is allocated once. On the GPU its time is that between two events
around many launches that were queued behind a kernel that waits, so that it is the GPU's alone; beside it, in
parentheses, what a call takes on the host. On the host it is the least of several rounds.

The second table is a whole pipeline, since the SDK's operators run only inside its applications. A source emits one
frame in device memory again and again, and a sink takes the results, on the greedy scheduler. Outputs come from a
pool of 16 blocks, and an operator waits for a block. Each system runs in a process of its own.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import ROOT, result
from benchmarks.operators import Recorder, Row, host_ms, record
from benchmarks.report import circumstances, publish, table

SIZES = {"1080p": (1080, 1920), "4K": (2160, 3840)}
LAUNCHES = 200
WARM_UP = 50
SMALL = (540, 960)
BOX = (0.2, 0.3, 0.7, 0.8)

SPIN = r"""
extern "C" __global__ void spin(long long nanoseconds) {
    long long begin, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    do { asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); } while (now - begin < nanoseconds);
}
"""


# One operation.


@dataclass
class Operation:
    """An operation on a frame: our operator, and what the peers have for it."""

    row: Row
    opencv: Callable[[Any, np.ndarray, np.ndarray], Any]  # cv2, frame, output
    cvcuda: Callable[[Any, Any, Any, Any], Any] | None  # cvcuda, output, frame, stream; None: NPP
    output: Callable[[int, int], tuple[tuple[int, ...], Any]]  # shape and dtype, by rows and columns


def operations(rows: int, columns: int) -> list[Operation]:
    """Return the operations on a frame of a size."""
    from headrace.operators import BayerDemosaicOp, FormatConverterOp

    source = np.random.default_rng(0)
    mosaic = source.integers(0, 256, (rows, columns), np.uint8)
    rgb = source.integers(0, 256, (rows, columns, 3), np.uint8)
    small = {"resize_height": SMALL[0], "resize_width": SMALL[1], "resize_mode": 2}
    return [
        Operation(
            Row("Bayer → RGB", BayerDemosaicOp, mosaic, {}),
            lambda cv2, frame, out: cv2.cvtColor(frame, cv2.COLOR_BayerGBRG2RGB, dst=out),
            None,
            lambda rows, columns: ((rows, columns, 3), np.uint8),
        ),
        Operation(
            Row("RGB → float32", FormatConverterOp, rgb, {"out_dtype": "float32"}),
            lambda cv2, frame, out: cv2.multiply(frame, 1 / 255, dst=out, dtype=cv2.CV_32F),
            lambda cvcuda, out, frame, stream: cvcuda.convertto_into(out, frame, 1 / 255, 0, stream=stream),
            lambda rows, columns: ((rows, columns, 3), np.float32),
        ),
        Operation(
            Row(
                f"RGB to {SMALL[1]}×{SMALL[0]}, linear",
                FormatConverterOp,
                rgb,
                {"out_dtype": "rgb888", **small},
            ),
            lambda cv2, frame, out: cv2.resize(frame, SMALL[::-1], dst=out, interpolation=cv2.INTER_LINEAR),
            lambda cvcuda, out, frame, stream: cvcuda.resize_into(
                out, frame, cvcuda.Interp.LINEAR, stream=stream
            ),
            lambda rows, columns: ((*SMALL, 3), np.uint8),
        ),
    ]


def module(name: str) -> Any:
    """Return a module, or None where it is not installed."""
    return importlib.import_module(name) if importlib.util.find_spec(name) else None


class Gpu:
    """The GPU, a stream on it, and the time of work on that stream."""

    def __init__(self) -> None:
        from headrace import gpu

        self.gpu = gpu
        self.device = gpu.Device(0)
        self.device.set_current()
        self.stream = gpu.StreamHandle(self.device.create_stream())
        self.spin: gpu.kernel[Any] = gpu.kernel("spin", source=SPIN, seconds=1e-3)

    def measure(self, call: Callable[[], Any]) -> str:
        """Return the milliseconds of a call on the GPU, and in parentheses on the host."""
        gpu, stream = self.gpu, self.stream.stream
        begin, end = (self.device.create_event(gpu.EventOptions(timing_enabled=True)) for _ in range(2))
        for _ in range(10):
            call()
        stream.sync()
        began = time.perf_counter()
        for _ in range(LAUNCHES):
            call()
        on_host = (time.perf_counter() - began) / LAUNCHES * 1e3
        stream.sync()
        # Long enough for the host to queue everything behind it.
        wait = np.int64(min(max(on_host * LAUNCHES * 2, 5), 500) * 1_000_000)
        gpu.launch(stream, gpu.LaunchConfig(grid=1, block=32), self.spin.on(self.device), wait)
        stream.record(begin)
        for _ in range(LAUNCHES):
            call()
        stream.record(end)
        stream.sync()
        return f"{float(end - begin) / LAUNCHES:.4f} ({on_host:.4f})"

    def ours(self, row: Row) -> str:
        """Measure our operator."""
        from headrace.operators.arrays import Workplace
        from headrace.resources import UnboundedAllocator

        recorder = record(row, on_host=False)
        place = Workplace("benchmark", UnboundedAllocator(), self.stream)
        again = Recorder()
        again._original = Workplace.run
        again.calls = [(place, *call[1:]) for call in recorder.calls]
        return self.measure(again.again)

    def cvcuda(self, cvcuda: Any, operation: Operation) -> str:
        """Measure the same in CV-CUDA, into a tensor that is there."""
        import cupy

        if operation.cvcuda is None:
            return self.npp_demosaic(operation.row.frame)
        run = operation.cvcuda
        frame = operation.row.frame
        if frame.ndim == 2:
            frame = frame[..., None]
        shape, dtype = operation.output(*frame.shape[:2])
        arrays = [cupy.empty(shape, dtype), cupy.asarray(frame)]
        cupy.cuda.runtime.deviceSynchronize()
        out, taken = (cvcuda.as_tensor(array, "HWC") for array in arrays)
        stream = self.stream.cvcuda()
        return self.measure(lambda: run(cvcuda, out, taken, stream))

    def npp_demosaic(self, frame: np.ndarray) -> str:
        """Measure the demosaicking of NPP."""
        import cupy

        rows, columns = frame.shape
        out, taken = cupy.empty((rows, columns, 3), np.uint8), cupy.asarray(frame)
        cupy.cuda.runtime.deviceSynchronize()
        convert = load_npp("nppicc").nppiCFAToRGB_8u_C1C3R_Ctx
        convert.argtypes = [
            *(ctypes.c_void_p, ctypes.c_int, NppSize, NppRect),
            *(ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_int, NppStreamContext),
        ]
        # Pointers and lengths of rows; then the grid GBRG, as our operator's, and the only interpolation.
        arguments = (
            *(taken.data.ptr, columns, NppSize(columns, rows), NppRect(0, 0, columns, rows)),
            *(out.data.ptr, 3 * columns, 2, 0, self.npp_context()),
        )
        status = convert(*arguments)
        if status:
            raise RuntimeError(f"NPP reports the status {status}")
        return self.measure(lambda: convert(*arguments)) + ", NPP"

    def npp_context(self) -> NppStreamContext:
        """Return NPP's description of the stream and its device."""
        properties = self.device.properties
        capability = self.device.compute_capability
        return NppStreamContext(
            int(self.stream),
            self.device.device_id,
            properties.multiprocessor_count,
            properties.max_threads_per_multiprocessor,
            properties.max_threads_per_block,
            properties.max_shared_memory_per_block,
            capability.major,
            capability.minor,
            int(self.stream.stream.is_nonblocking),
            0,
        )

    def cvcuda_view(self, cvcuda: Any, frame: np.ndarray) -> str:
        """Measure a rectangle over a picture in CV-CUDA."""
        import cupy

        rows, columns = frame.shape[:2]
        out, taken = cupy.empty_like(cupy.asarray(frame)), cupy.asarray(frame)
        cupy.cuda.runtime.deviceSynchronize()
        left, top, right, bottom = pixels(rows, columns)
        box = cvcuda.BndBoxI((left, top, right - left, bottom - top), 3, (0, 255, 0, 255), (0, 0, 0, 0))
        boxes = cvcuda.BndBoxesI([[box]])
        tensors = [cvcuda.as_tensor(array[None], "NHWC") for array in (out, taken)]
        stream = self.stream.cvcuda()
        return self.measure(lambda: cvcuda.bndbox_into(*tensors, boxes, stream=stream))


class NppSize(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int) for name in ("width", "height")]


class NppRect(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int) for name in ("x", "y", "width", "height")]


class NppStreamContext(ctypes.Structure):
    _fields_ = [
        ("stream", ctypes.c_void_p),
        ("device_id", ctypes.c_int),
        ("multiprocessors", ctypes.c_int),
        ("threads_per_multiprocessor", ctypes.c_int),
        ("threads_per_block", ctypes.c_int),
        ("shared_memory_per_block", ctypes.c_size_t),
        ("compute_major", ctypes.c_int),
        ("compute_minor", ctypes.c_int),
        ("flags", ctypes.c_uint),
        ("reserved", ctypes.c_int),
    ]


def load_npp(name: str) -> Any:
    """Return a library of NPP: of a wheel of NVIDIA's, or of the CUDA toolkit."""
    folders = [Path(entry, package) for entry in sys.path for package in ("nvidia", "holoscan")]
    folders.append(Path("/usr/local/cuda"))
    found: dict[str, Any] = {}
    for part in ("nppc", name):  # each needs the first
        paths = [path for folder in folders for path in sorted(folder.glob(f"**/lib{part}.so.*"))]
        if not paths:
            raise RuntimeError(f"lib{part} of NPP is not installed")
        found[part] = ctypes.CDLL(str(paths[0]), mode=ctypes.RTLD_GLOBAL)
    return found[name]


def pixels(rows: int, columns: int) -> tuple[int, int, int, int]:
    """Return the box in pixels."""
    return tuple(int(part * size) for part, size in zip(BOX, (columns, rows, columns, rows), strict=True))  # type: ignore[return-value]


def attempt(measure: Callable[[], str], notes: list[str], who: str) -> str:
    """Return a cell of the table; why a peer cannot do it becomes a note."""
    try:
        return measure()
    except Exception as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        note = f"{who}: {lines[0][:160]}"
        if note not in notes:
            notes.append(note)
        return f"fails [{notes.index(note) + 1}]"


def one_operation(notes: list[str]) -> str:
    """Return the table of single operations."""
    from headrace import gpu
    from headrace.viewer import Renderer

    device = Gpu() if gpu.backend() == "cuda" else None
    cv2 = module("cv2")
    cvcuda = module("cvcuda") if device else None
    missing = "not installed" if device else "no GPU"
    lines = []
    for size, (rows, columns) in SIZES.items():
        for operation in operations(rows, columns):
            row = operation.row
            shape, dtype = operation.output(rows, columns)
            out = np.empty(shape, dtype)
            lines.append([
                f"{row.what}, {size}",
                attempt(partial(device.ours, row), notes, f"headrace, {row.what}") if device else "no GPU",
                attempt(partial(device.cvcuda, cvcuda, operation), notes, f"CV-CUDA, {row.what}")
                if device and cvcuda
                else missing,
                f"{host_ms(record(row, on_host=True).again)[0]:.2f}",
                f"{host_ms(partial(operation.opencv, cv2, row.frame, out))[0]:.2f}" if cv2 else "not installed",
            ])  # fmt: skip
        rgb = operations(rows, columns)[1].row.frame
        specs = [
            {"name": "frame", "type": "color"},
            {"name": "box", "type": "rectangles", "line_width": 3, "color": [0, 1, 0, 1], "priority": 1},
        ]
        tensors = {"frame": rgb, "box": np.array([BOX[:2], BOX[2:]], np.float32)}
        renderer = Renderer(columns, rows, specs)
        what = f"a rectangle over RGB, as RGBA, {size}"

        def opencv_view(rgb: np.ndarray = rgb) -> Any:
            left, top, right, bottom = pixels(*rgb.shape[:2])
            drawn = cv2.cvtColor(rgb, cv2.COLOR_RGB2RGBA)
            return cv2.rectangle(drawn, (left, top), (right, bottom), (0, 255, 0, 255), 3)

        lines.append([
            what,
            "drawn on the host",
            attempt(partial(device.cvcuda_view, cvcuda, rgb), notes, "CV-CUDA, rectangle")
            if device and cvcuda
            else missing,
            f"{host_ms(partial(renderer.render, tensors))[0]:.2f}",
            f"{host_ms(opencv_view)[0]:.2f}" if cv2 else "not installed",
        ])  # fmt: skip
    header = ["", "headrace, GPU", "CV-CUDA", "headrace, host", "OpenCV, host"]
    return f"Milliseconds per call; on the GPU with the host's time in parentheses.\n\n{table(header, lines)}"


# A pipeline.

PIPELINES = {
    "demosaic": "Bayer → RGB",
    "convert": "RGB → float32",
    "resize": f"RGB to {SMALL[1]}×{SMALL[0]}, linear",
    "chain": "Bayer → RGB → float32",
    "view": "a rectangle over RGB, headless, to an array",
}


def pipeline(package: str, what: str, size: str, frames: int) -> float:
    """Run a pipeline and return the milliseconds per frame."""
    names: dict[str, Any] = {}
    for part in ("core", "conditions", "schedulers", "resources"):
        found = importlib.import_module(f"{package}.{part}")
        known = {*dir(found), *getattr(found, "__all__", ())}
        names |= {name: getattr(found, name) for name in known if not name.startswith("_")}
    operators = importlib.import_module(f"{package}.operators")
    rows, columns = SIZES[size]
    cupy = module("cupy")
    has_gpu = cupy is not None and _has_gpu(cupy)
    source = np.random.default_rng(0)
    shape = (rows, columns) if what in ("demosaic", "chain") else (rows, columns, 3)
    frame = source.integers(0, 256, shape, np.uint8)
    box = np.array([BOX[:2], BOX[2:]], np.float32)
    message = {"": cupy.asarray(frame) if has_gpu else frame}
    if what == "view":
        message["box"] = cupy.asarray(box) if has_gpu else box
    times: list[float] = []

    def synchronized() -> float:
        if has_gpu:
            cupy.cuda.runtime.deviceSynchronize()
        return time.perf_counter()

    class Source(names["Operator"]):  # type: ignore[misc]
        def setup(self, spec: Any) -> None:
            spec.output("out")
            self.sent = 0

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            if self.sent == WARM_UP:
                times.append(synchronized())
            self.sent += 1
            op_output.emit(message, "out")

    class Sink(names["Operator"]):  # type: ignore[misc]
        def setup(self, spec: Any) -> None:
            spec.input("in")
            self.taken = 0

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            op_input.receive("in")
            self.taken += 1
            if self.taken == frames + WARM_UP:
                times.append(synchronized())

    class Pipeline(names["Application"]):  # type: ignore[misc]
        def compose(self) -> None:
            self.scheduler(names["GreedyScheduler"](self, name="scheduler"))

            def served(kind: Any, name: str, bytes_: int, blocks: int = 1, **params: Any) -> Any:
                pool = names["BlockMemoryPool"](
                    self,
                    name=f"{name}_pool",
                    storage_type=1 if has_gpu else 2,
                    block_size=bytes_,
                    num_blocks=16,
                )
                enough = names["MemoryAvailableCondition"](
                    self, allocator=pool, min_blocks=blocks, name=f"{name}_memory"
                )
                return kind(self, enough, pool=pool, name=name, **params)

            pixels = rows * columns
            make: dict[str, Callable[[], Any]] = {
                "demosaic": lambda: served(operators.BayerDemosaicOp, "demosaic", 3 * pixels),
                "convert": lambda: served(
                    operators.FormatConverterOp, "convert", 12 * pixels, in_dtype="rgb888", out_dtype="float32"
                ),
                "resize": lambda: served(
                    operators.FormatConverterOp, "resize", 3 * SMALL[0] * SMALL[1], 2, in_dtype="rgb888",
                    out_dtype="rgb888", resize_height=SMALL[0], resize_width=SMALL[1], resize_mode=2,
                ),
                "view": lambda: operators.HolovizOp(
                    self, headless=True, enable_render_buffer_output=True, width=columns, height=rows,
                    tensors=[
                        {"name": "", "type": "color"},
                        {"name": "box", "type": "rectangles", "line_width": 3.0, "color": [0.0, 1.0, 0.0, 1.0],
                         "priority": 1},
                    ],
                    name="view",
                ),
            }  # fmt: skip
            ports = {
                "demosaic": "receiver",
                "convert": "source_video",
                "resize": "source_video",
                "view": "receivers",
            }
            outputs = {"demosaic": "transmitter", "convert": "tensor", "resize": "tensor"}
            outputs["view"] = "render_buffer_output"
            last, port = Source(self, names["CountCondition"](self, frames + WARM_UP), name="source"), "out"
            for stage in ("demosaic", "convert") if what == "chain" else (what,):
                operator = make[stage]()
                self.add_flow(last, operator, {(port, ports[stage])})
                last, port = operator, outputs[stage]
            self.add_flow(last, Sink(self, name="sink"), {(port, "in")})

    Pipeline().run()
    return (times[1] - times[0]) * 1e3 / frames


def _has_gpu(cupy: Any) -> bool:
    try:
        return int(cupy.cuda.runtime.getDeviceCount()) > 0
    except Exception:
        return False


def elsewhere(interpreter: str, package: str, what: str, size: str, frames: int) -> str:
    """Run a pipeline in a process of its own; return its milliseconds per frame and its rate."""
    command = [interpreter, "-m", "benchmarks.operator_peers", "--one", package, what, size]
    command += ["--frames", str(frames)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    for line in done.stdout.splitlines():
        if line.startswith("RESULT "):
            milliseconds = float(json.loads(line[7:]))
            return f"{milliseconds:.3f} ({1000 / milliseconds:.0f}/s)"
    said = [line for line in done.stderr.splitlines() if "Error: " in line]
    raise RuntimeError(said[-1] if said else f"exit status {done.returncode}")


def pipelines(holoscan: str | None, frames: int, notes: list[str]) -> str:
    """Return the table of pipelines."""
    lines = []
    for what, title in PIPELINES.items():
        for size in SIZES:
            count = frames if what != "view" else max(frames // 10, 20)
            ours = partial(elsewhere, sys.executable, "headrace", what, size, count)
            line = [f"{title}, {size}", attempt(ours, notes, f"headrace, {what}")]
            if holoscan:
                theirs = partial(elsewhere, holoscan, "holoscan", what, size, count)
                line.append(attempt(theirs, notes, f"Holoscan SDK, {what}"))
            else:
                line.append("not installed")
            lines.append(line)
    return f"Milliseconds per frame, and frames a second.\n\n{table(['', 'headrace', 'Holoscan SDK'], lines)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--holoscan", metavar="PYTHON", help="an interpreter that has the Holoscan SDK")
    parser.add_argument("--frames", type=int, default=600)
    parser.add_argument("--save", action="store_true", help="write the report to benchmarks/results")
    parser.add_argument("--one", nargs=3, metavar=("PACKAGE", "PIPELINE", "SIZE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        result(pipeline(*options.one, options.frames))
        return

    from headrace import gpu

    device = gpu.Device(0).name if gpu.backend() == "cuda" else "no GPU"
    notes: list[str] = []
    versions = [
        f"{name} {getattr(found, '__version__', '')}" for name in ("cv2", "cvcuda") if (found := module(name))
    ]
    parts = [
        "# Image operators beside their peers",
        circumstances(device) + (f"; {', '.join(versions)}" if versions else ""),
        "## One operation",
        one_operation(notes),
        "## A pipeline",
        pipelines(options.holoscan, options.frames, notes),
    ]
    parts += ["\n".join(f"[{number}] {note}  " for number, note in enumerate(notes, 1))] if notes else []
    publish("operator_peers", "\n\n".join(parts))


if __name__ == "__main__":
    main()
