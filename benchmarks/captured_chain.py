"""Compare a chain of CuPy operators as a captured segment with the same chain in other forms.

    python -m benchmarks.captured_chain [--save] [--holoscan PYTHON]        needs a GPU and CuPy

Each stage is one kernel that adds one to 4,096 floats, into a buffer allocated once. So the time is the cost of the
system around it. In all forms a frame comes with an event to wait for, and ends with one that is recorded.
"""

from __future__ import annotations

import argparse
import itertools
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import cupy
import numpy as np

from benchmarks.gpu_chain import SIZE, Stage
from benchmarks.report import circumstances, publish, table
from headrace import Application, CountCondition, Operator, gpu
from headrace.capture import segment
from headrace.capture.replay import Replay
from headrace.resources import CudaStreamPool

FRAMES, ROUNDS, WARM_UP, BUFFERS = 5_000, 5, 300, 4
LIMITS = {5: 4.0, 20: 1.5}  # µs per stage
OF_CUPY, OF_HAND, OF_P50 = 0.35, 1.5, 2.0
HOST = "10, and 6 compiled"  # µs of the host for a frame of five stages

times: list[float] = []
answers: list[float] = []  # an element of the last frame of each run
replays: list[int] = []


def measured(step: Any) -> float:
    """Return the microseconds of a step."""
    for count in (WARM_UP, FRAMES):
        cupy.cuda.Device().synchronize()
        start = time.perf_counter()
        for _ in range(count):
            step()
        cupy.cuda.Device().synchronize()
    return (time.perf_counter() - start) * 1e6 / FRAMES


def by_hand_cupy(length: int) -> float:
    """A stream for each stage, an event after each kernel, and a wait for it before the next."""
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(length)]
    events = [cupy.cuda.Event(disable_timing=True) for _ in range(length)]
    buffers = [cupy.zeros(SIZE, cupy.float32) for _ in range(length + 1)]

    def step() -> None:
        for k in range(length):
            stream = streams[k]
            if k:
                stream.wait_event(events[k - 1])
            with stream:
                cupy.add(buffers[k], 1, out=buffers[k + 1])
            events[k].record(stream)

    return measured(step)


def by_hand_graph(length: int) -> float:
    """Wait, copy in, launch, record: the least that a replayed frame needs, with cuda.core."""
    step, frame = step_by_hand(length)
    cost = measured(step)
    answers.append(float(frame[0]))
    return cost


def step_by_hand(length: int) -> tuple[Callable[[], None], Any]:
    """Return a function that does that for one frame, and where the frame ends."""
    device = gpu.Device(0)
    device.set_current()
    stream = device.create_stream(options=gpu.StreamOptions(nonblocking=True))
    handle = gpu.StreamHandle(stream)
    buffers = [cupy.zeros(SIZE, cupy.float32) for _ in range(length + 1)]
    frames = [cupy.zeros(SIZE, cupy.float32) for _ in range(BUFFERS)]
    with handle.cupy():
        cupy.add(buffers[0], 1, out=buffers[1])
    stream.sync()
    builder = stream.create_graph_builder()
    builder.begin_building("relaxed")
    with handle.cupy():
        for k in range(length):
            cupy.add(buffers[k], 1, out=buffers[k + 1])
    graph = builder.end_building().complete()
    event = device.create_event()
    stream.record(event)
    named: Any = gpu.Buffer
    inside = named.from_handle(buffers[0].data.ptr, 4 * SIZE, owner=buffers[0])
    outside = itertools.cycle([named.from_handle(f.data.ptr, 4 * SIZE, owner=f) for f in frames])

    def step() -> None:
        stream.wait(event)
        inside.copy_from(next(outside), stream=stream)
        graph.launch(stream)
        stream.record(event)

    return step, buffers[-1]


class Source(Operator):
    """Sends buffers in turn, which nobody changes, each with an event, and launches nothing."""

    def setup(self, spec: Any) -> None:
        spec.output("out")

    def start(self) -> None:
        self.buffers = itertools.cycle([cupy.zeros(SIZE, cupy.float32) for _ in range(BUFFERS)])
        self.sent = 0

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        if self.sent == WARM_UP:
            times.append(time.perf_counter())
        self.sent += 1
        op_output.set_cuda_stream(context.allocate_cuda_stream("own"), "out")
        op_output.emit(next(self.buffers), "out", constant=True)


class Sink(Operator):
    def setup(self, spec: Any) -> None:
        spec.input("in")

    def start(self) -> None:
        self.left = WARM_UP + FRAMES

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        frame = op_input.receive("in")
        op_input.receive_cuda_stream("in")
        self.left -= 1
        if not self.left:
            self.frame = frame

    def stop(self) -> None:
        times.append(time.perf_counter())  # the device is done by now
        answers.append(float(self.frame[0]))


class Chain(Application):
    def __init__(self, length: int, is_captured: bool) -> None:
        super().__init__()
        self.length, self.is_captured = length, is_captured

    def compose(self) -> None:
        pool = CudaStreamPool(self, stream_flags=1)  # non-blocking, as by hand
        source = Source(self, CountCondition(self, WARM_UP + FRAMES), pool, name="source")
        stages = [Stage(self, pool, name=f"stage{k}") for k in range(self.length)]
        sink = Sink(self, pool, name="sink")
        for one, other in itertools.pairwise([source, *stages, sink]):
            self.add_flow(one, other)
        if self.is_captured:
            self.segment = self.capture(*stages)


def with_headrace(length: int, is_captured: bool = True) -> float:
    times.clear()
    app = Chain(length, is_captured)
    app.run()
    if is_captured and app.segment.replayed < FRAMES:
        raise RuntimeError(app.segment.report())
    return (times[1] - times[0]) * 1e6 / FRAMES


class Timed:
    """Adds up the time of calls."""

    def __init__(self) -> None:
        self.total = 0

    def around(self, call: Callable[..., None]) -> Callable[..., None]:
        def timed(*args: Any) -> None:
            began = time.perf_counter_ns()
            call(*args)
            self.total += time.perf_counter_ns() - began

        return timed


class TimedGraph:
    """An executable graph whose launches are timed."""

    def __init__(self, graph: Any, driver: Timed) -> None:
        self.launch, self.close = driver.around(graph.launch), graph.close


@contextmanager
def noted_replays(driver: Timed | None) -> Iterator[None]:
    """Keep the host's time of every replayed frame; with `driver`, also that of its wait, launch and record.

    It is that of the segment's compute, with what it takes from its queue.
    """
    replay, compute = Replay.replay, segment.CapturedSegment.compute
    known: set[int] = set()

    def time_driver(self: Any, graph: Any) -> None:
        known.add(id(graph))
        executables = graph._executables
        executables._executable = TimedGraph(executables._executable, driver)
        if id(self) not in known:
            known.add(id(self))
            self.own.wait, self.own.record = driver.around(self.own.wait), driver.around(self.own.record)
            self._streams.fences_on(self.own).record = self.own.record

    def replay_timed(self: Any, graph: Any, *frame: Any) -> None:
        if driver is not None and id(graph) not in known:
            time_driver(self, graph)
        replay(self, graph, *frame)

    def compute_timed(self: Any, *args: Any) -> None:
        replayed, began = self.replayed, time.perf_counter_ns()
        compute(self, *args)
        if self.replayed > replayed:
            replays.append(time.perf_counter_ns() - began)

    Replay.replay, segment.CapturedSegment.compute = replay_timed, compute_timed  # type: ignore[method-assign]
    try:
        yield
    finally:
        Replay.replay, segment.CapturedSegment.compute = replay, compute  # type: ignore[method-assign]


def spread(nanoseconds: list[int]) -> tuple[float, float]:
    """Return the median and the 99th percentile of times, in µs."""
    p50, p99 = np.percentile(np.array(nanoseconds[WARM_UP:]) / 1e3, [50, 99])
    return float(p50), float(p99)


def host_times() -> tuple[float, float]:
    """Return the spread of the host's time for a replayed frame."""
    replays.clear()
    with noted_replays(None):
        with_headrace(5)
    return spread(replays)


def host_parts() -> tuple[float, float]:
    """Return the mean µs of the host for a replayed frame, and how many of them are the driver's.

    The slowest hundredth does not count: another program ran meanwhile.
    """
    replays.clear()
    driver = Timed()
    with noted_replays(driver):
        with_headrace(5)
    times = sorted(replays[WARM_UP:])
    usual = times[: len(times) * 99 // 100]
    return sum(usual) / len(usual) / 1e3, driver.total / len(replays) / 1e3


def host_times_by_hand() -> tuple[float, float]:
    """Return the same for a frame by hand; as far ahead of the device as the replays are."""
    step, _ = step_by_hand(5)
    found: list[int] = []
    for number in range(WARM_UP + FRAMES):
        began = time.perf_counter_ns()
        step()
        found.append(time.perf_counter_ns() - began)
        while time.perf_counter_ns() - began < 20_000:  # what else a pipeline does between two frames
            pass
        if number % 64 == 63:
            cupy.cuda.Device().synchronize()
    return spread(found)


def with_holoscan(python: str, length: int) -> str:
    command = [python, "-m", "benchmarks.captured_chain_sdk", str(length), str(FRAMES), str(SIZE)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if found.returncode:
        lines = (found.stderr or found.stdout).strip().splitlines()
        return f"fails: {lines[-1] if lines else found.returncode}"
    return found.stdout.strip().splitlines()[-1]


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Measure a captured chain beside the same chain in other forms."
    )
    parser.add_argument("--holoscan", metavar="PYTHON", help="an interpreter that has the Holoscan SDK")
    parser.add_argument("--save", action="store_true", help="write the report to benchmarks/results")
    arguments = parser.parse_args()
    forms: dict[str, Any] = {
        "by hand, CuPy": by_hand_cupy,
        "by hand: wait, copy in, launch, record": by_hand_graph,
        "headrace": lambda length: with_headrace(length, is_captured=False),
        "headrace, captured": with_headrace,
    }
    failed = False
    rows = []
    for length in LIMITS:
        best = dict.fromkeys(forms, 1e9)
        for _ in range(ROUNDS):  # in turn, because the speed of the machine varies
            for name, form in forms.items():
                best[name] = min(best[name], form(length))
        hand, graph = best["by hand, CuPy"], best["by hand: wait, copy in, launch, record"]
        for name, cost in best.items():
            limit = f"{LIMITS[length]:.1f}" if "captured" in name else ""
            rows.append(
                [
                    f"{length}",
                    name,
                    f"{cost:.1f}",
                    f"{cost / length:.2f}",
                    limit,
                    f"{cost / hand:.2f}",
                    f"{cost / graph:.2f}",
                ]
            )
        captured = best["headrace, captured"]
        failed |= captured > LIMITS[length] * length
        if length == 5:
            failed |= captured > OF_CUPY * hand or captured > OF_HAND * graph
            if arguments.holoscan:
                rows.append(["5", "Holoscan SDK", with_holoscan(arguments.holoscan, 5), "", "", "", ""])
    tries = [host_times() for _ in range(3)]
    p50, p99 = sorted(tries, key=lambda times: times[1] / times[0])[1]
    by_hand = host_times_by_hand()
    (_, driver), whole = min(host_parts() for _ in range(3)), min(host_times()[0] for _ in range(2))
    failed |= p99 > OF_P50 * p50
    device = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    text = [
        "# A chain of CuPy operators as a captured segment",
        "",
        circumstances(device),
        "",
        (
            f"µs per frame over {FRAMES} frames, best of {ROUNDS} rounds in turn. `python -m "
            "benchmarks.captured_chain`."
        ),
        "",
        table(
            ["stages", "", "µs a frame", "µs a stage", "allowed", "of CuPy by hand", "of the graph by hand"],
            rows,
        ),
        "",
        f"Allowed besides, for five stages: {OF_CUPY} of CuPy by hand, {OF_HAND} of the graph by hand.",
        "",
        (
            f"The host's time for a replayed frame of five stages, the middle one of three runs: p50 {p50:.1f} µs, "
            f"p99 {p99:.1f} µs ({p99 / p50:.2f} times; {OF_P50:.0f} allowed). By hand: p50 {by_hand[0]:.1f} µs, "
            f"p99 {by_hand[1]:.1f} µs ({by_hand[1] / by_hand[0]:.2f} times)."
        ),
        "",
        (
            "The host's time for such a frame, p50, the best of two runs. The driver's part is a wait, a launch "
            "and a record: their mean in the best of three other runs. The rest is headrace's own, and the "
            f"allocation of the result. Allowed: {HOST} µs."
        ),
        "",
        table(
            ["µs of the host", "the driver's", "the rest"],
            [[f"{whole:.1f}", f"{driver:.1f}", f"{whole - driver:.1f}"]],
        ),
    ]
    publish("captured_chain", "\n".join(text))
    return failed


if __name__ == "__main__":
    sys.exit(main())
