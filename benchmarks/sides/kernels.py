"""Work on a GPU: kernels on streams, captured chains, slices beside a load, frames that must stay right."""

from __future__ import annotations

import time
from typing import Any


def of_headrace(*, share: float) -> tuple[float, float]:
    """Return the microseconds per step of plain CuPy operators, and an element of the last frame."""
    from benchmarks import gpu_chain

    gpu_chain.FRAMES = _frames(share)
    return gpu_chain.with_headrace(), gpu_chain.answers[-1]


def of_cupy(*, share: float) -> tuple[float, float]:
    """Return the same by hand."""
    from benchmarks import gpu_chain

    gpu_chain.FRAMES = _frames(share)
    return gpu_chain.by_hand(), gpu_chain.answers[-1]


def of_torch(*, share: float) -> tuple[float, float]:
    """Return the same by hand with PyTorch, whose frames are kept until their last reader is done."""
    import torch

    from benchmarks.gpu_chain import KEPT, LENGTH, SIZE, WARM_UP

    streams = [torch.cuda.Stream() for _ in range(LENGTH)]
    events = [torch.cuda.Event() for _ in range(LENGTH)]
    done = [torch.cuda.Event() for _ in range(KEPT)]
    kept: list[list[Any]] = [[] for _ in range(KEPT)]
    zeros = torch.zeros(SIZE, device="cuda")
    data = zeros
    for count in (WARM_UP, _frames(share)):
        torch.cuda.synchronize()
        began = time.perf_counter()
        for frame in range(count):
            turn = frame % KEPT
            if kept[turn]:
                done[turn].synchronize()
                kept[turn].clear()
            data = zeros
            for number, stream in enumerate(streams):
                if number:
                    stream.wait_event(events[number - 1])
                    kept[turn].append(data)
                with torch.cuda.stream(stream):
                    data = data + 1
                events[number].record(stream)
            done[turn].record(streams[-1])
        torch.cuda.synchronize()
    return (time.perf_counter() - began) * 1e6 / (_frames(share) * LENGTH), float(data[0])


def of_holoscan(*, share: float) -> tuple[float, float]:
    """Return the same as users of the SDK write it: a pool of streams, and CuPy's current stream set to theirs."""
    import itertools

    import cupy
    from holoscan.conditions import CountCondition
    from holoscan.core import Application, Operator
    from holoscan.resources import CudaStreamPool

    length, size, warm_up, frames = 5, 4_096, 200, _frames(share)
    times: list[float] = []
    last: list[float] = []

    class Stage(Operator):  # type: ignore[misc]
        def setup(self, spec: Any) -> None:
            if self.name != "stage0":
                spec.input("in")
            if self.name != f"stage{length - 1}":
                spec.output("out")

        def start(self) -> None:
            self.zeros, self.sent, self.result = cupy.zeros(size, cupy.float32), 0, None

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            if self.name == "stage0":
                if self.sent == warm_up:
                    times.append(time.perf_counter())
                self.sent += 1
                data, stream = self.zeros, context.allocate_cuda_stream("own")
                op_output.set_cuda_stream(stream, "out")
            else:
                data = cupy.asarray(op_input.receive("in")[""])
                stream = op_input.receive_cuda_stream("in")
            with cupy.cuda.ExternalStream(stream):
                result = data + 1
            if self.name == f"stage{length - 1}":
                self.result = result
            else:
                op_output.emit({"": result}, "out")

        def stop(self) -> None:
            if self.result is not None:
                cupy.cuda.Device().synchronize()
                times.append(time.perf_counter())
                last.append(float(self.result[0]))

    class Chain(Application):  # type: ignore[misc]
        def compose(self) -> None:
            stages = []
            for number in range(length):
                count = [CountCondition(self, warm_up + frames)] if not number else []
                stages.append(Stage(self, *count, CudaStreamPool(self, 0, 1, 0, 1, 5), name=f"stage{number}"))
            for one, other in itertools.pairwise(stages):
                self.add_flow(one, other)

    Chain().run()
    return (times[1] - times[0]) * 1e6 / (frames * length), last[-1]


def captured(*, share: float) -> tuple[float, float]:
    """Return the microseconds of a frame that is replayed, and an element of the last one."""
    from benchmarks import captured_chain

    captured_chain.FRAMES = _frames(share)
    return captured_chain.with_headrace(5), captured_chain.answers[-1]


def graph_by_hand(*, share: float) -> tuple[float, float]:
    """Return the same for the least that a replayed frame needs, with cuda.core."""
    from benchmarks import captured_chain

    captured_chain.FRAMES = _frames(share)
    return captured_chain.by_hand_graph(5), captured_chain.answers[-1]


def beside_a_load(which: str, *, share: float) -> tuple[float, None]:
    """Return the 99th percentile of a critical kernel's microseconds on the GPU."""
    import numpy as np

    from benchmarks.isolation import ISOLATION, Bench, measure
    from headrace import gpu

    bench, times = Bench.real(), max(int(400 * share), 40)
    device = bench.device
    device.set_current()
    if which == "partitioned":
        with gpu.partition(device, [ISOLATION.critical_sms]) as (small, rest):
            found = measure(bench, ISOLATION, small.create_stream(), rest.create_stream(), times)
    else:
        options = gpu.StreamOptions(priority=-5) if which == "urgent" else None
        load = None if which == "alone" else device.create_stream()
        found = measure(bench, ISOLATION, device.create_stream(options=options), load, times)
    return float(np.percentile(found.gpu, 99)), None


def wrong_frames(which: str, *, share: float) -> tuple[float, None]:
    """Return how many of 400 frames were read wrong; the figure is the comparison."""
    from benchmarks import late_reader

    return float(late_reader.wrong(which, 400)), None


def camera_to_screen(*, share: float) -> tuple[float, None]:
    """Return the 99th percentile of the demo's latency from the camera to the picture, in ms, on SMs of its own."""
    import sys

    import numpy as np

    from benchmarks.common import ROOT

    sys.path.insert(0, str(ROOT / "examples"))  # an example imports examples/shared as `shared`
    import endoscope

    report, _ = endoscope.measure(endoscope.Settings(3840, 2160, 60.0, max(10 * share, 3.0)))
    return float(np.percentile(report.cases[-1].latencies, 99)), None


def _frames(share: float) -> int:
    return max(int(3_000 * share), 300)
