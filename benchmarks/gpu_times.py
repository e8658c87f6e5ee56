"""Compare the GPU times that tracking shows with the truth, for kernels of known length.

    python -m benchmarks.gpu_times [--frames 300] [--save]        needs a GPU and CuPy; uses PyTorch if it is there
    python -m benchmarks.gpu_times --dry                          on the simulated device, in a moment

Three operators work every 2 ms: `a` launches a kernel of 200 µs, `b` five of 10 µs, `c` one of 400 µs. They have a
stream each, or share one. The kernels spin on the GPU's clock (%globaltimer), and write down when they began and
ended: this is the truth. The columns, medians in µs:

- *span*: shown by the tracker / true, from where the first kernel begins to where the last one ends. A figure with
  ≤ is a bound. It is right if it is not less than the truth.
- *kernels*: shown / true, without the time between them; shown only if CUPTI times each kernel. A kernel also takes
  time before its first instruction and after its last one, which CUPTI counts. How much is found with kernels that
  spin for no time, and is part of the truth.
- *latency*: of the path, from the moment at which `a` was due to the end of the last kernel of `c`.

The last column says whether every exact figure is within 5 % of the truth, or 5 µs, and every bound above it. The
events before and after the kernels of a span take that long.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import statistics
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np

from benchmarks.report import circumstances, publish, table
from headrace import Application, CountCondition, EventBasedScheduler, GreedyScheduler, Operator, gpu, op
from headrace.conditions import PeriodicCondition
from headrace.gpu import sim

US = 1_000
LENGTHS = {"a": [200 * US], "b": [10 * US] * 5, "c": [400 * US]}
MOST = 1 << 16  # kernels that are written down

due: list[int] = []  # when each frame began
errors: list[int] = []  # of the host's clock beside the GPU's


class Clocks:
    """What launches kernels and knows when they ran, on a real device."""

    def __init__(self) -> None:
        import cupy

        self.cupy = cupy
        self.kernel = cupy.RawKernel(
            r"""
extern "C" __global__ void spin(unsigned long long* log, unsigned int* count, unsigned long long nanoseconds) {
    unsigned long long begin, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    unsigned int at = atomicAdd(count, 1u) % 65536u;  // it takes a microsecond, within the known length
    log[2 * at] = begin;
    do { asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); } while (now - begin < nanoseconds);
    log[2 * at + 1] = now;
}
""",
            "spin",
        )
        self.device = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
        self.clear()

    def clear(self) -> None:
        zeros = self.cupy.zeros
        self.logs = {name: zeros(2 * MOST, np.uint64) for name in (*LENGTHS, "clock")}
        self.counts = {name: zeros(1, np.uint32) for name in (*LENGTHS, "clock")}
        self.cupy.cuda.Device().synchronize()

    def launch(self, name: str, stream: Any = None) -> None:
        """Launch the kernels of an operator on a stream, or else on CuPy's current stream."""
        log, count = self.logs[name], self.counts[name]
        with nullcontext() if stream is None else stream.cupy():
            for length in LENGTHS[name]:
                self.kernel((1,), (1,), (log, count, np.uint64(length)))

    def now(self) -> int:
        return time.perf_counter_ns()

    def read(self, name: str) -> list[tuple[int, int]]:
        """Return when each kernel of an operator began and ended."""
        self.cupy.cuda.Device().synchronize()
        count = min(int(self.counts[name].get()[0]), MOST)
        rows = self.logs[name].get()[: 2 * count].astype(np.int64).reshape(-1, 2)
        return [(int(began), int(ended)) for began, ended in rows[rows[:, 0].argsort()]]

    def compare(self) -> tuple[int, int]:
        """Return the host's clock less the device's, and the largest possible error."""
        log, count = self.logs["clock"], self.counts["clock"]
        count.fill(0)
        tries = []
        for _ in range(50):
            self.cupy.cuda.Device().synchronize()
            before = time.perf_counter_ns()
            self.kernel((1,), (1,), (log, count, np.uint64(0)))
            self.cupy.cuda.Device().synchronize()
            tries.append((before, time.perf_counter_ns()))
        found = [
            (after - before, (before + after) // 2 - began)
            for (before, after), (began, _) in zip(tries, self.read("clock"), strict=True)
        ]
        width, offset = min(found)
        return offset, width // 2


class SimulatedClocks:
    """The same on the simulated device, whose kernels are Python functions."""

    device = "a simulated H200"

    def __init__(self, machine: Any) -> None:
        self._machine = machine
        self._names: dict[int, str] = dict(enumerate(LENGTHS))
        seconds: Any = lambda length, name: length * 1e-9  # noqa: E731
        self._spin = gpu.kernel("spin", source="", seconds=seconds, effect=self._ran)
        self.clear()

    def clear(self) -> None:
        self._times: dict[str, list[tuple[int, int]]] = {name: [] for name in LENGTHS}

    def launch(self, name: str, stream: Any = None) -> None:
        gpu.Device(0).set_current()
        stream = stream or gpu.current_stream()
        target = gpu.LEGACY_DEFAULT_STREAM if stream is None else stream.stream
        for length in LENGTHS[name]:
            config = gpu.LaunchConfig(grid=1, block=32)
            gpu.launch(target, config, self._spin.on(gpu.Device(0)), length, list(LENGTHS).index(name))

    def _ran(self, length: int, name: int) -> None:
        launch = sim.launched()
        self._times[self._names[name]].append((round(launch.start * 1e9), round(launch.end * 1e9)))

    def now(self) -> int:
        return int(self._machine.timeline.now)

    def read(self, name: str) -> list[tuple[int, int]]:
        return sorted(self._times[name])

    def compare(self) -> tuple[int, int]:
        return 0, 0


clocks: Any = None


def due_of(context: Any) -> int:
    """Return when a compute was due; the first one is due at once."""
    at = context.timestamp if context.due is None else context.due
    return int(clocks.now()) - (context.timestamp - at)


class Work(Operator):
    """Launches its kernels on the stream that is current, or that it asked for."""

    capturable = True

    def __init__(
        self,
        *args: Any,
        place: str,
        make: Callable[[], Any],
        is_first: bool = False,
        **kwargs: Any,
    ) -> None:
        self.place, self.make, self.is_first = place, make, is_first
        super().__init__(*args, **kwargs)

    def setup(self, spec: Any) -> None:
        if not self.is_first:
            spec.input("in")
        if self.name != "c":
            spec.output("out")
        if self.place == "default":
            spec.default_stream()

    def start(self) -> None:
        self.frame = self.make()

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        frame = self.frame if self.is_first else op_input.receive("in")
        stream = None
        if self.place == "asked for" and not self.is_first:
            stream = op_input.receive_cuda_stream("in")
        elif self.place == "asked for":
            stream = context.allocate_cuda_stream("own")
            op_output.set_cuda_stream(stream, "out")
        if self.name != "tick":
            clocks.launch(self.name, stream)
        if self.is_first:
            due.append(due_of(context))
        if self.name != "c":
            op_output.emit(self.frame if self.place == "asked for" else frame, "out")


class TorchWork(Work):
    """Launches its kernels on PyTorch's current stream, which CuPy is told."""

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        import cupy
        import torch

        frame = self.frame if self.is_first else op_input.receive("in")
        with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
            clocks.launch(self.name)
        if self.is_first:
            due.append(due_of(context))
        if self.name != "c":
            op_output.emit(frame, "out")


@op
def first(*, frames: int, make: Any, context: Any) -> Any:
    """Work as `a`."""
    frame = make()
    for _ in range(frames):
        clocks.launch("a")
        due.append(due_of(context))
        yield frame


@op
def second(frame: Any) -> Any:
    """Work as `b`."""
    clocks.launch("b")
    return frame


@op
def third(frame: Any) -> None:
    """Work as `c`."""
    clocks.launch("c")


class Pipeline(Application):
    """The three operators."""

    def __init__(self, way: str, workers: int, frames: int, make: Callable[[], Any]) -> None:
        super().__init__([])
        self.way, self.workers, self.frames, self.make = way, workers, frames, make
        self.segment: Any = None

    def compose(self) -> None:
        if self.workers:
            self.scheduler(EventBasedScheduler(self, worker_thread_number=self.workers))
        else:
            self.scheduler(GreedyScheduler(self))
        # CUPTI begins with a stall. Frames that make up for it come so often that not all of them are timed.
        often = PeriodicCondition(self, 2_000 * US, policy="NoCatchUpMissedTicks")
        if self.way.endswith("one stream"):
            self.stream_per = "branch"
        stages: list[Any]
        if self.way.startswith("functions"):
            stages = [first(self, often, frames=self.frames, make=self.make, name="a")]
            stages += [second(self, name="b"), third(self, name="c")]
        else:
            kind = TorchWork if "PyTorch" in self.way else Work
            is_captured = self.way == "captured"
            names = ["tick", *LENGTHS] if is_captured else list(LENGTHS)
            place = "asked for" if is_captured else self.way.removeprefix("classes, ").removesuffix(" stream")
            place = "own" if kind is TorchWork else place
            count = CountCondition(self, self.frames)
            stages = [kind(self, count, often, name=names[0], place=place, make=self.make, is_first=True)]
            stages += [kind(self, name=name, place=place, make=self.make) for name in names[1:]]
            if is_captured:
                self.segment = self.capture(*stages[1:], check_every=None)  # no kernel runs twice
        for one, other in itertools.pairwise(stages):
            self.add_flow(one, other)


def median(values: Any) -> float:
    return float(statistics.median(values))


def truth(name: str) -> tuple[float, float]:
    """Return the span and the time of the kernels of an operator, as medians over frames."""
    count = len(LENGTHS[name])
    times = clocks.read(name)
    frames = [times[at : at + count] for at in range(0, len(times) - count + 1, count)]
    return (
        median(frame[-1][1] - frame[0][0] for frame in frames),
        median(sum(ended - began for began, ended in frame) for frame in frames),
    )


def edges(frames: int, make: Callable[[], Any]) -> float:
    """Return what CUPTI shows for a kernel beyond the time from its first instruction to its last one."""
    lengths = dict(LENGTHS)
    LENGTHS.update({name: [0] * len(each) for name, each in lengths.items()})
    try:
        clocks.clear()
        app = Pipeline("classes, own stream", 0, frames, make)
        with app.track(kernels=True) as tracker:
            app.run()
        return (tracker.statistics.operator("b").kernels.p50 - truth("b")[1]) / len(LENGTHS["b"])
    finally:
        LENGTHS.update(lengths)


def measure(
    way: str, workers: int, frames: int, kernels: bool, make: Callable[[], Any], edge: float
) -> list[str]:
    """Return the row of a way; `edge` is what a kernel takes beyond its instructions."""
    due.clear()
    clocks.clear()
    app = Pipeline(way, workers, frames, make)
    before, error = clocks.compare()
    with app.track(kernels=kernels) as tracker:
        app.run()
    after, later_error = clocks.compare()
    offset = (before + after) // 2  # the clocks drift apart, by 20 µs a second on an H200
    errors.append(max(error, later_error) + abs(after - before) // 2)
    shown = tracker.statistics
    print(shown, file=sys.stderr)
    row = [
        way,
        f"{workers} workers" if workers else "greedy",
        f"CUPTI: {shown.kernels}" if kernels else "events",
    ]
    is_right = True

    def pair(value: float, true: float, is_bound: bool = False) -> str:
        nonlocal is_right
        is_right &= value >= true - 5 * US if is_bound else abs(value - true) <= max(0.05 * true, 5 * US)
        return f"{'≤ ' if is_bound else ''}{value / US:.1f} / {true / US:.1f}"

    for name in LENGTHS:
        span, alone = truth(name)
        alone += edge * len(LENGTHS[name])
        operator = shown.operator(name)
        if operator.gpu.count:
            row.append(pair(operator.gpu.p50, span, operator.gpu.is_bound))
        else:
            row.append(f"none / {span / US:.1f}")
            is_right = False
        row.append(pair(operator.kernels.p50, alone) if operator.kernels.count else f"– / {alone / US:.1f}")
    ends = [ended + offset for _, ended in clocks.read("c")]
    true = median(end - at for end, at in zip(ends, due, strict=True))
    latency = shown.paths[0].latency
    row.append(pair(latency.p50, true))
    is_right &= latency.count == frames  # of other frames, the truth would be another one
    if app.segment is not None:
        is_right &= app.segment.replayed >= 0.9 * frames
    row.append("yes" if is_right else "NO")
    return row


def cupti() -> str:
    """Return whether CUPTI can be imported."""
    try:
        module = importlib.import_module("cupti.cupti")
        version = getattr(module, "get_version", lambda: "unknown")()
        return f"cupti-python can be imported; CUPTI's version is {version}"
    except Exception as error:
        return f"cupti-python cannot be imported: {type(error).__name__}: {error}"


def main() -> int:
    global clocks
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--frames", type=int, default=300)
    parser.add_argument("--dry", action="store_true", help="on the simulated device")
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    state = cupti()
    ways: list[tuple[str, int, bool]] = []
    if options.dry:
        machine = sim.Machine("h200")
        machine.__enter__()
        clocks = SimulatedClocks(machine)
        make: Callable[[], Any] = int
        ways = [
            (f"classes, {place} stream", workers, False)
            for place in ("asked for", "default", "one")
            for workers in (0, 2)
        ]
        ways.append(("captured", 0, False))
    else:
        clocks = Clocks()
        make = lambda: clocks.cupy.zeros(16, np.float32)  # noqa: E731
        names = ["classes, own stream", "classes, one stream", "classes, default stream"]
        names += ["functions", "functions, one stream", "captured"]
        try:
            import torch

            if torch.cuda.is_available():
                names.append("classes, PyTorch")
        except ImportError:
            pass
        modes = [False, True] if state.startswith("cupti-python can be") else [False]
        ways = [(name, workers, kernels) for kernels in modes for name in names for workers in (0, 2)]
    rows = []
    edge = edges(options.frames // 3, make) if any(kernels for _, _, kernels in ways) else 0.0
    for way, workers, kernels in ways:
        try:
            rows.append(measure(way, workers, options.frames, kernels, make, edge if kernels else 0.0))
        except Exception as error:
            traceback.print_exc()
            rows.append([way, str(workers), "", *[""] * 7, f"{type(error).__name__}: {error}"[:120]])
        print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
    header = [
        "",
        "scheduler",
        "times by",
        *(f"{name} {what}" for name in LENGTHS for what in ("span", "kernels")),
    ]
    text = [
        "# GPU times that are shown, and the truth",
        "",
        circumstances(clocks.device),
        "",
        f"Shown / true, in µs. {options.frames} frames each. {state}.",
        f"The host's clock and the GPU's agree within {max(errors, default=0) / US:.1f} µs.",
        "What the columns are: see `benchmarks/gpu_times.py`.",
        *([f"A kernel takes {edge / US:.2f} µs beyond its instructions, by CUPTI."] if edge else []),
        "",
        table([*header, "latency", "right"], rows),
    ]
    publish("gpu_times", "\n".join(text))
    return any(row[-1] != "yes" for row in rows)


if __name__ == "__main__":
    sys.exit(main())
