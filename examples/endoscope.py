"""An endoscope, with a control loop beside it that has a deadline, on shared and on separate SMs: `make demo`.

The camera is simulated: discs that move over a still background, as a Bayer mosaic with noise. Each frame is
demosaicked, freed of noise, resized and segmented by a small network that this program builds; the mask is drawn
over the picture, and scored on the GPU against the truth, which the camera knows. Beside it a control loop computes
a step every 9 ms, which must be done before the next one begins. The program runs twice: with all work on the same
SMs, and with the control loop on 8 SMs of its own. Deadlines that were missed because of the GPU and because of the
host are counted separately.

It runs on a GPU, or on a simulated H200 where there is none, and says which. Simulated figures are in virtual time.
The simulated GPU reduces noise for as long as frames of the full size take, and computes the pixels of smaller
frames, at most 480 wide: every one of them is computed and scored.

    python examples/endoscope.py --size 1920 1080 --rate 120 --seconds 10
    python examples/endoscope.py --view                    shows the pictures in the browser, too
    python examples/endoscope.py --save samples.json       also writes every latency and the last picture
    python examples/endoscope.py --load samples.json       reports on such a file again, without running anything
"""

from __future__ import annotations

import argparse
import gc
import logging
import math
import os
import secrets
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from headrace import (
    Application,
    CountCondition,
    CudaGreenContext,
    CudaGreenContextPool,
    CudaStreamPool,
    EventBasedScheduler,
    FormatConverterOp,
    GreedyScheduler,
    HolovizOp,
    InferenceOp,
    MetadataPolicy,
    Operator,
    OperatorSpec,
    PeriodicCondition,
    UnboundedAllocator,
    as_tensor,
    gpu,
)
from headrace.gpu import sim
from headrace.operators import BayerDemosaicOp, CameraSimOp, SegmentationPostprocessorOp
from shared import segmentation_model
from shared.endoscope_kernels import CANDIDATES, DENOISE, MOST_RADIUS, SCORE, STEER, STEP, TILE
from shared.endoscope_report import Case, Report, draw, load, save, show
from shared.needs import needs
from shared.progress import Progress, Task

ROWS, COLUMNS = 256, 256  # of the network's input
VIEW = 640, 360  # the size of the picture
LAYERS = [
    {"name": "picture", "type": "color", "priority": 0},
    {"name": "out_tensor", "type": "color_lut", "opacity": 0.7, "priority": 1},
]
COLORS = [[0.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.6, 1.0]]  # nothing over the background, green over a disc
DISCS = 3
ENOUGH = 0.8  # the part that mask and truth must have in common, of what either covers
CONTROL_SMS = 8
PERIOD = round(STEP * 1e9)  # ns between two steps of the control loop; each must be done when the next is due
WIDEST = 480  # of the frames that a simulated GPU computes
WARM_UP = 0.5  # seconds of a measured run that are not counted; a simulated one counts from the first frame
CASES = {"shared SMs": False, "own SMs": True}


@dataclass(frozen=True)
class Settings:
    """What is run: the size of the frames, their rate, and for how long."""

    width: int
    height: int
    rate: float
    seconds: float
    view: bool = False

    @property
    def frames(self) -> int:
        return max(round(self.seconds * self.rate), 1)

    @property
    def ticks(self) -> int:
        return max(round(self.seconds / STEP), 1)

    @property
    def radius(self) -> int:
        """The radius of the noise reduction: what is one speck at 4K is less than a pixel of a small frame."""
        return min(max(round(self.height / 108), 1), MOST_RADIUS)


@dataclass(frozen=True)
class Network:
    """The file of the network, and what is to run it."""

    backend: str
    path: Path
    on_cpu: bool


class Endoscope(Application):
    """From the camera to the picture, with the control loop beside; if `partitioned`, each on its own slice."""

    def __init__(
        self,
        settings: Settings,
        network: Network,
        *,
        partitioned: bool,
        advance: Callable[[], None] = lambda: None,
        profile: dict[str, list[float]] | None = None,
    ) -> None:
        super().__init__()
        self.settings, self.model, self.partitioned = settings, network, partitioned
        self.advance, self.profile = advance, profile

    def compose(self) -> None:
        settings, measured = self.settings, gpu.backend() == "cuda"
        # One thread makes a simulated run the same every time. On a GPU the control loop has its own thread, so
        # that no operator delays it. One thread is enough for the others, which only submit work; with more, the
        # interpreter's lock would delay the control loop.
        if measured:
            self.scheduler(EventBasedScheduler(self, worker_thread_number=1))
        else:
            self.scheduler(GreedyScheduler(self))
        self.enable_metadata(True)  # the number of a frame travels with it
        slices = None
        if self.partitioned:
            slices = CudaGreenContextPool(self, 0, sms_per_partition={"control": CONTROL_SMS})
        streams = self._streams("vision", slices, "leftover")
        zoom = 1 if measured else max(math.ceil(settings.width / WIDEST), 1)
        width, height = (size // zoom // 2 * 2 for size in (settings.width, settings.height))

        self.camera = CameraSimOp(
            self,
            streams,
            width=width,
            height=height,
            frame_rate=settings.rate,
            count=settings.frames,
            objects=DISCS,
            storage_type="device",
            name="camera",
        )
        demosaic = BayerDemosaicOp(self, streams, bayer_grid_pos=2, name="demosaic")
        self.denoise = Denoise(self, streams, UnboundedAllocator(self), settings=settings, name="denoise")
        convert = FormatConverterOp(
            self,
            streams,
            in_dtype="rgb888",
            out_dtype="float32",
            resize_width=COLUMNS,
            resize_height=ROWS,
            resize_mode=8,  # the mean of the pixels behind each
            out_tensor_name="frame",
            name="convert",
        )
        shrink = FormatConverterOp(
            self,
            streams,
            in_dtype="rgb888",
            out_dtype="rgb888",
            resize_width=VIEW[0],
            resize_height=VIEW[1],
            resize_mode=2,
            out_tensor_name="picture",
            name="shrink",
        )
        self.network = InferenceOp(
            self,
            streams,
            backend=self.model.backend,
            model_path_map={"discs": str(self.model.path)},
            pre_processor_map={"discs": ["frame"]},
            inference_map={"discs": ["scores"]},
            infer_on_cpu=self.model.on_cpu,
            name="network",
        )
        classify = SegmentationPostprocessorOp(
            self, streams, in_tensor_name="scores", data_format="nhwc", name="classify"
        )
        self.score = Score(self, streams, camera=self.camera, name="score")
        self.viewer = HolovizOp(
            self,
            streams,
            tensors=LAYERS,
            color_lut=COLORS,
            width=VIEW[0],
            height=VIEW[1],
            headless=True,
            outlets="page" if self.settings.view else "",
            window_title="endoscope",
            name="viewer",
        )
        self.last = Last(self, streams, name="last")
        for joins in (self.viewer, self.last):  # both of their inputs carry the number of the frame
            joins.metadata_policy = MetadataPolicy.UPDATE
        self.add_flow(self.camera, demosaic, {("output", "receiver")})
        self.add_flow(demosaic, self.denoise, {("transmitter", "in")})
        self.add_flow(self.denoise, convert, {("out", "source_video")})
        self.add_flow(convert, self.network, {("tensor", "receivers")})
        self.add_flow(self.network, classify, {("transmitter", "in_tensor")})
        self.add_flow(classify, self.score, {("out_tensor", "in")})
        self.add_flow(self.denoise, shrink, {("out", "source_video")})
        self.add_flow(shrink, self.viewer, {("tensor", "receivers")})
        self.add_flow(classify, self.viewer, {("out_tensor", "receivers")})
        self.add_flow(shrink, self.last, {("tensor", "picture")})
        self.add_flow(classify, self.last, {("out_tensor", "mask")})

        self.control = Control(
            self,
            self._streams("control", slices, "control"),
            PeriodicCondition(self, PERIOD),
            CountCondition(self, settings.ticks),
            name="control",
        )
        self.add_operator(self.control)
        if measured:
            self.make_thread_pool("control_thread", 1).add(self.control)
        if self.profile is not None:
            for operator in self.graph:
                _measure_host_time(operator, self.profile.setdefault(operator.name, []))

    def _streams(self, name: str, slices: CudaGreenContextPool | None, part: str) -> CudaStreamPool:
        context = None if slices is None else CudaGreenContext(self, slices, part, name=f"{name}_slice")
        return CudaStreamPool(self, 0, 1, cuda_green_context=context, name=f"{name}_streams")


class Denoise(Operator):
    """Reduces the noise of each frame, and records how long the GPU takes for it: the longest kernel by far."""

    settings: Settings

    def setup(self, spec: OperatorSpec) -> None:
        spec.input("in")
        spec.output("out")
        spec.param("settings")

    def start(self) -> None:
        self.device = gpu.Device(0)
        self.device.set_current()
        self.kernel = DENOISE.on(self.device)
        self.timed = gpu.EventOptions(timing_enabled=True)
        self.events: list[tuple[Any, Any]] = []
        (self.allocator,) = (part for part in self.resources.values() if isinstance(part, UnboundedAllocator))
        self.sms = 0

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        (image,) = op_input.receive("in").values()
        handle = op_input.receive_cuda_stream("in")
        stream = handle.stream
        self.sms = self.sms or stream.resources.sm.sm_count
        rows, columns = image.shape[:2]
        out = self.allocator.allocate_tensor(
            image.shape, image.dtype, "device", stream=handle, operator=self.name
        )
        radius = max(self.settings.radius * rows // self.settings.height, 1)
        width, height = (
            (columns, rows) if handle.backend.runs_cuda else (self.settings.width, self.settings.height)
        )
        config = gpu.LaunchConfig(grid=-(-width // TILE) * -(-height // TILE), block=TILE * TILE)
        begin, end = stream.device.create_event(self.timed), stream.device.create_event(self.timed)
        sizes: list[Any] = [np.int32(value) for value in (rows, columns, radius, self.settings.radius)]
        stream.record(begin)
        gpu.launch(stream, config, self.kernel, pointer(out), pointer(image), *sizes)
        stream.record(end)
        self.events.append((begin, end))
        op_output.emit({"": out}, "out")

    def stop(self) -> None:
        self.device.set_current()
        self.device.sync()
        self.milliseconds = [end - begin for begin, end in self.events]
        self.events = []


class Score(Operator):
    """Compares each mask with the truth of its frame, on the GPU, and records when that is done."""

    camera: CameraSimOp

    def setup(self, spec: OperatorSpec) -> None:
        spec.input("in")
        spec.param("camera")

    def start(self) -> None:
        device = gpu.Device(0)
        device.set_current()
        self.kernel = SCORE.on(device)
        self.config = gpu.LaunchConfig(grid=-(-ROWS * COLUMNS // 256), block=256)
        xp = gpu.arrays()
        self.discs = xp.asarray(self._truths(), dtype=xp.int32)
        self.counts = xp.zeros((self.camera.count, 2), dtype=xp.int32)
        assert isinstance(self.fragment, Endoscope)
        self.done = Completions(self.fragment, self.fragment.advance)
        self.scored: set[int] = set()

    def _truths(self) -> np.ndarray:
        """Return the discs of every frame: x, y and radius in sixteenths of a pixel."""
        truths = (self.camera.truth(number).objects for number in range(self.camera.count))
        return np.array([[(one.x, one.y, one.radius) for one in truth] for truth in truths]) * 16

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        mask = op_input.receive("in")["out_tensor"]
        stream = op_input.receive_cuda_stream("in").stream
        number, (rows, columns) = self.metadata[self.camera.frame_number_key], mask.shape[:2]
        gpu.launch(
            stream,
            self.config,
            self.kernel,
            pointer(self.counts),
            pointer(mask),
            np.int32(rows),
            np.int32(columns),
            pointer(self.discs),
            np.int32(DISCS),
            np.int32(number),
            np.int32(self.camera.width),
            np.int32(self.camera.height),
        )
        self.done.expect(stream, number, context.acq_timestamp)
        self.scored.add(number)

    def stop(self) -> None:
        counts = gpu.arrays().asnumpy(self.counts)
        self.common = {number: counts[number, 0] / max(counts[number, 1], 1) for number in self.scored}
        self.wrong = sum(part < ENOUGH for part in self.common.values())
        del self.discs, self.counts


class Control(Operator):
    """Computes a step of the control loop on its own stream, and records when each step is done."""

    def setup(self, spec: OperatorSpec) -> None:
        pass

    def start(self) -> None:
        device = gpu.Device(0)
        device.set_current()
        assert isinstance(self.fragment, Endoscope)
        ticks = self.fragment.settings.ticks
        self.kernel = STEER.on(device)
        self.config = gpu.LaunchConfig(grid=CANDIDATES // 128, block=128)
        xp = gpu.arrays()
        self.states = xp.zeros((ticks, 2), dtype=xp.float32)
        self.best = xp.full(ticks, -1, dtype=xp.int64)
        self.kept = pointer(self.states), pointer(self.best)
        self.done = Completions(self.fragment)
        self.timed = gpu.EventOptions(timing_enabled=True)
        self.events: list[tuple[Any, Any]] = []
        self.begun: list[int] = []
        self.tick = self.origin = self.sms = 0

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        stream = context.allocate_cuda_stream("own").stream
        self.sms = self.sms or stream.resources.sm.sm_count
        now, tick = context.timestamp, self.tick
        if tick == 0:
            self.origin = now
        due = self.origin + tick * PERIOD
        self.begun.append(now - due)
        target = np.float32(math.sin(2 * math.pi * tick * STEP))  # back and forth once a second
        begin, end = stream.device.create_event(self.timed), stream.device.create_event(self.timed)
        stream.record(begin)
        gpu.launch(stream, self.config, self.kernel, *self.kept, np.int32(tick), target)
        stream.record(end)
        self.events.append((begin, end))
        self.done.expect(stream, tick, due)
        self.tick += 1

    def stop(self) -> None:
        self.path = gpu.arrays().asnumpy(self.states)[: self.tick, 0]
        self.on_gpu = self._times_on_gpu()
        self.events = []
        del self.states, self.best, self.kept

    def _times_on_gpu(self) -> list[float]:
        """Return how many ms the GPU took for each step from its launch on.

        The events around a step enclose its wait for SMs. A step that is launched before the one before it is done
        waits for that, too.
        """
        times, free = [], 0.0
        for tick, (late, (begin, end)) in enumerate(zip(self.begun, self.events, strict=True)):
            launched = (tick * PERIOD + late) / 1e6
            free = max(launched, free) + (end - begin)
            times.append(round(free - launched, 4))
        return times


class Last(Operator):
    """Keeps the last picture and its mask on the GPU, and reads them when the run ends."""

    def setup(self, spec: OperatorSpec) -> None:
        spec.input("picture")
        spec.input("mask")

    def start(self) -> None:
        self.newest: tuple[Any, Any] | None = None
        self.layers: dict[str, np.ndarray] = {}

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        self.newest = op_input.receive("picture")["picture"], op_input.receive("mask")["out_tensor"]

    def stop(self) -> None:
        newest, self.newest = self.newest, None
        if newest is not None:
            xp = gpu.arrays()
            picture, mask = (xp.asnumpy(xp.asarray(tensor)) for tensor in newest)
            self.layers = {"picture": picture, "out_tensor": mask}

    def overlay(self) -> np.ndarray:
        """Return the picture with the mask over it, as the viewer draws it."""
        from headrace.viewer import Renderer

        return Renderer(*VIEW, LAYERS, color_lut=COLORS).render(self.layers)[..., :3]


class Completions:
    """The times at which the GPU was done with numbered pieces of work, and how long after they were due."""

    def __init__(self, fragment: Application, advance: Callable[[], None] = lambda: None) -> None:
        self._clock = fragment.scheduler().clock
        self._advance = advance
        self._changed = threading.Condition()
        self._expected = 0
        self.times: dict[int, int] = {}
        self.latencies: dict[int, int] = {}

    def expect(self, stream: Any, number: int, due: int) -> None:
        """Record when the work that a stream has by now is done."""
        self._expected += 1

        def on_done(error: Exception | None) -> None:
            now = self._clock.timestamp()
            with self._changed:
                self.times[number], self.latencies[number] = now, now - due
                self._changed.notify_all()
            self._advance()

        gpu.when_done(stream, on_done)

    def wait(self) -> None:
        """Wait for the calls that a run's end has left behind."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self.times) == self._expected, timeout=10):
                raise RuntimeError(f"{self._expected - len(self.times)} pieces of work were never reported")

    def after(self, first: int) -> list[float]:
        """Return the latencies from a number on, in ms."""
        return [in_ms(self.latencies[number]) for number in sorted(self.latencies) if number >= first]


def in_ms(nanoseconds: int) -> float:
    """Return a time in ms, to a tenth of a microsecond."""
    return round(nanoseconds / 1e6, 4)


def pointer(array: Any) -> Any:
    """Return an array or a tensor as the argument of a kernel: the simulated GPU takes it as it is."""
    return as_tensor(array).data if gpu.backend() == "cuda" else array


def choose_network(folder: Path, which: str = "auto") -> Network:
    """Build the network for a runtime: by default, for ONNX Runtime or PyTorch on the GPU, or else on the CPU."""
    on_gpu = gpu.backend() == "cuda"
    if which == "auto":
        which = "torch" if on_gpu and not _onnx_has_cuda() and _torch_has_cuda() else "onnxrt"
    if which == "torch":
        program = segmentation_model.build_torch(folder / "discs.pt2", ROWS, COLUMNS)
        return Network("torch", program, on_cpu=not on_gpu)
    model = segmentation_model.build(folder / "discs.onnx", ROWS, COLUMNS)
    return Network("onnxrt", model, on_cpu=not (on_gpu and _onnx_has_cuda()))


def _onnx_has_cuda() -> bool:
    try:
        import onnxruntime  # type: ignore[import-untyped]
    except ImportError:
        return False
    return "CUDAExecutionProvider" in onnxruntime.get_available_providers()


def _torch_has_cuda() -> bool:
    try:
        import torch
    except ImportError:
        return False
    return bool(torch.cuda.is_available())


def run_case(
    name: str, settings: Settings, network: Network, task: Task | None = None, profile: Any = None
) -> tuple[Case, np.ndarray]:
    """Run the program once; return its figures and the last picture."""
    app = Endoscope(
        settings,
        network,
        partitioned=CASES[name],
        advance=(lambda: None) if task is None else task.advance,
        profile=profile,
    )
    app.run()
    app.score.done.wait()
    app.control.done.wait()
    skipped = WARM_UP if gpu.backend() == "cuda" else 0.0
    first = min(round(skipped * settings.rate), settings.frames // 2)
    first_step = round(first / settings.rate / STEP)
    counted = sorted(app.score.done.times.values())[first:]
    case = Case(
        name=name,
        vision_sms=app.denoise.sms,
        control_sms=app.control.sms,
        network=app.network.runtimes["discs"],
        sent=app.camera.frames_emitted,
        late=app.camera.frames_late,
        scored=len(app.score.scored),
        wrong=int(app.score.wrong),
        common=float(min(app.score.common.values())),
        rate=(len(counted) - 1) / max((counted[-1] - counted[0]) / 1e9, 1e-9),
        latencies=app.score.done.after(first),
        denoise=[round(float(value), 4) for value in app.denoise.milliseconds[first:]],
        control=app.control.done.after(first_step),
        begun=[in_ms(late) for late in app.control.begun[first_step:]],
        on_gpu=app.control.on_gpu[first_step:],
    )
    return case, app.last.overlay()


def measure(
    settings: Settings, which: str = "auto", profile: dict[str, dict[str, list[float]]] | None = None
) -> tuple[Report, Any]:
    """Run both cases, with a progress bar, on the GPU or on a simulated H200."""
    measured = gpu.backend() == "cuda"
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stack.enter_context(nullcontext() if measured else sim.Machine("h200"))
        network = choose_network(folder, which)
        if measured:
            stack.enter_context(steady())
            warm_up(settings, network)
        progress = stack.enter_context(Progress())
        cases, picture = [], None
        for name in CASES:
            task = progress.task(name, settings.frames)
            times = None if profile is None else profile.setdefault(name, {})
            case, picture = run_case(name, settings, network, task, times)
            cases.append(case)
        device = gpu.Device(0).name
    report = Report(
        device,
        measured,
        settings.width,
        settings.height,
        settings.rate,
        settings.seconds,
        PERIOD / 1e6,
        cases,
    )
    return report, picture


def warm_up(settings: Settings, network: Network) -> None:
    """Compile the kernels and load the libraries."""
    logging.disable(logging.WARNING)  # the camera of this run is late
    try:
        for name in CASES:
            run_case(name, replace(settings, seconds=0.5, view=False), network)
    finally:
        logging.disable(logging.NOTSET)
    gc.collect()


@contextmanager
def steady() -> Iterator[None]:
    """Let no thread and no garbage collection keep the others waiting, as programs with deadlines do."""
    before, collecting = sys.getswitchinterval(), gc.isenabled()
    sys.setswitchinterval(1e-4)
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
        sys.setswitchinterval(before)


def keep_address() -> None:
    """Give the viewers of both runs the same address, so that the page in the browser stays connected."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        os.environ.setdefault("HEADRACE_VIEW_PORT", str(free.getsockname()[1]))
    os.environ.setdefault("HEADRACE_VIEW_TOKEN", secrets.token_urlsafe(16))


def _measure_host_time(operator: Operator, times: list[float]) -> None:
    """Record how long each compute of an operator takes on the host."""
    compute = operator.compute

    def timed(op_input: Any, op_output: Any, context: Any) -> None:
        began = time.perf_counter()
        compute(op_input, op_output, context)
        times.append(1e3 * (time.perf_counter() - began))

    operator.compute = timed  # type: ignore[method-assign]


def print_profile(profile: dict[str, dict[str, list[float]]]) -> None:
    """Print where the host's time goes, for each operator."""
    for name, operators in profile.items():
        print(f"\n{name}: ms of the host in each compute (median, 99%, most; all of them together in s)")
        for operator, times in operators.items():
            counted = times[len(times) // 10 :] or [0.0]
            middle, high = np.percentile(counted, (50, 99))
            print(f"  {operator:10} {middle:8.3f} {high:8.3f} {max(counted):8.3f} {sum(counted) / 1e3:8.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--size", type=int, nargs=2, default=(3840, 2160), metavar=("WIDTH", "HEIGHT"))
    parser.add_argument("--rate", type=float, default=60.0, help="frames per second")
    parser.add_argument("--seconds", type=float, default=0.0, help="of each run (5 on a GPU, 1 simulated)")
    parser.add_argument(
        "--network", choices=("auto", "onnxrt", "torch"), default="auto", help="what runs the network"
    )
    parser.add_argument("--view", action="store_true", help="show the pictures in the browser")
    parser.add_argument("--out", type=Path, default=Path("out/endoscope.png"), help="file for the picture")
    parser.add_argument("--save", type=Path, metavar="JSON", help="also write every latency to this file")
    parser.add_argument("--load", type=Path, metavar="JSON", help="report on such a file and run nothing")
    parser.add_argument("--profile", action="store_true", help="also print the host's time in each operator")
    options = parser.parse_args()
    needs("rich", "matplotlib", "PIL")
    profile: dict[str, dict[str, list[float]]] | None = {} if options.profile else None
    os.environ["HEADRACE_SIM_TIME"] = "virtual"  # which a simulated GPU runs in here, and is said to run in
    if options.view:
        keep_address()
    if options.load:
        report, picture = load(options.load)
    else:
        needs("onnx", "onnxruntime")
        if gpu.backend() == "cuda":
            needs("cupy")
        width, height = options.size
        seconds = options.seconds or (5.0 if gpu.backend() == "cuda" else 1.0)
        if min(width, height) < 32 or options.rate <= 0 or seconds < 4 / options.rate:
            parser.error("the frames must be at least 32 by 32 pixels, and at least four of them")
        settings = Settings(width, height, options.rate, seconds, options.view)
        report, picture = measure(settings, options.network, profile)
    if options.save:
        save(report, picture, options.save)
    show(report)
    draw(report, picture, options.out)
    if profile:
        print_profile(profile)
    print(report.conclusion())
    print(f"These figures are {report.kind}, in {report.clock} time. The picture is in {options.out}.")


if __name__ == "__main__":
    main()
