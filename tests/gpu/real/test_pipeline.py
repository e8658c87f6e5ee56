"""Pipelines on a real GPU with CuPy and PyTorch: right frames, right streams, right SMs.

What is shared with the simulated device is tested in tests/_runtime/streams; here are the libraries themselves.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headrace import CountCondition, Operator, gpu, op
from headrace.conditions import CudaStreamCondition
from headrace.resources import CudaGreenContext, CudaGreenContextPool, CudaStreamPool
from tests.gpu.kernels import mark_sms, spin
from tests.harness import MakeScheduler, run

SIZE = 1 << 20


pytestmark = pytest.mark.usefixtures("real")


def arrays(library: str) -> Any:
    """Functions of a library: a full array, and a sum into a one-element result."""
    if library == "cupy":
        cupy = pytest.importorskip("cupy")
        return (lambda value: cupy.full(SIZE, value, dtype=cupy.int32)), (lambda a: (a.max(), a.min()))
    torch = pytest.importorskip("torch")
    return (
        lambda value: torch.full((SIZE,), value, dtype=torch.int32, device="cuda"),
        lambda a: (a.max(), a.min()),
    )


@pytest.mark.parametrize("library", ["cupy", "torch"])
def test_frames_are_right_on_explicit_streams(real: Any, scheduler: MakeScheduler, library: str) -> None:
    make, extremes = arrays(library)
    frames = 200

    def on(handle: Any) -> Any:
        if library == "cupy":
            return handle.cupy()
        import torch

        return torch.cuda.stream(handle.torch())

    class Producer(Operator):
        def setup(self, spec: Any) -> None:
            spec.output("out")

        def start(self) -> None:
            self.number = 0

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            stream = context.allocate_cuda_stream("own")
            op_output.set_cuda_stream(stream)
            gpu.launch(
                stream.stream, gpu.LaunchConfig(grid=1, block=32), spin.on(real.device), np.int64(50_000)
            )
            with on(stream):
                frame = make(self.number)
            op_output.emit(frame, "out")
            self.number += 1

    class Consumer(Operator):
        def setup(self, spec: Any) -> None:
            spec.input("in")

        def start(self) -> None:
            self.results: list[Any] = []

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            frame = op_input.receive("in")
            stream = op_input.receive_cuda_stream("in")
            gpu.launch(
                stream.stream, gpu.LaunchConfig(grid=1, block=32), spin.on(real.device), np.int64(300_000)
            )
            with on(stream):
                self.results.append(extremes(frame))

    def compose(app: Any) -> None:
        app.consumer = Consumer(app, name="consumer")
        app.add_flow(Producer(app, CountCondition(app, frames), name="producer"), app.consumer)

    results = run(compose, scheduler, clock=None).consumer.results
    assert [(int(high), int(low)) for high, low in results] == [(n, n) for n in range(frames)]


@pytest.mark.parametrize("library", ["cupy", "torch"])
def test_plain_functions_run_on_their_own_streams_and_slices(
    real: Any, scheduler: MakeScheduler, library: str
) -> None:
    make, extremes = arrays(library)
    frames = 100
    streams: dict[str, set[int]] = {"source": set(), "double": set(), "check": set()}
    results: list[Any] = []

    def current() -> int:
        if library == "cupy":
            import cupy

            return int(cupy.cuda.get_current_stream().ptr)
        import torch

        return int(torch.cuda.current_stream().cuda_stream)

    @op
    def source() -> Any:
        for n in range(frames):
            streams["source"].add(current())
            yield make(n)

    @op
    def double(frame: Any) -> Any:
        streams["double"].add(current())
        return frame * 2

    @op(outputs=())
    def check(frame: Any) -> None:
        streams["check"].add(current())
        results.append(extremes(frame))

    def compose(app: Any) -> None:
        slices = CudaGreenContextPool(app, sms_per_partition=[16, 40])
        pool = CudaStreamPool(app, cuda_green_context=CudaGreenContext(app, slices, 0))
        stages = source(app), double(app, pool), check(app)
        app.add_flow(stages[0], stages[1])
        app.add_flow(stages[1], stages[2])

    before = current()
    run(compose, scheduler, clock=None)
    assert current() == before
    assert [len(found) for found in streams.values()] == [1, 1, 1]
    assert len(set.union(*streams.values()) | {0}) == 4  # three streams, none of them the default one
    assert [(int(high), int(low)) for high, low in results] == [(2 * n, 2 * n) for n in range(frames)]


def test_operators_on_slices_use_their_own_sms(real: Any, scheduler: MakeScheduler) -> None:
    seen: dict[str, Any] = {}

    class Marker(Operator):
        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            stream = context.allocate_cuda_stream("s").stream
            if self.name not in seen:
                seen[self.name] = real.zeros(1024, stream)
            config = gpu.LaunchConfig(grid=264, block=1024)
            gpu.launch(stream, config, mark_sms.on(real.device), seen[self.name], np.int64(500_000))

    counts: list[int] = []

    def compose(app: Any) -> None:
        slices = CudaGreenContextPool(app, sms_per_partition=[16, 40])
        counts[:] = slices.sm_counts
        for k in range(3):
            pool = CudaStreamPool(app, cuda_green_context=CudaGreenContext(app, slices, k))
            app.add_operator(Marker(app, CountCondition(app, 5), pool, name=f"m{k}"))

    run(compose, scheduler, clock=None)
    stream = real.device.create_stream()
    sets = [set(np.nonzero(real.read(seen[name], stream))[0].tolist()) for name in sorted(seen)]
    assert [len(sms) for sms in sets] == counts == [16, 40, 76]
    assert len(set.union(*sets)) == 132


def test_a_stream_condition_holds_back_until_the_gpu_is_done(real: Any, scheduler: MakeScheduler) -> None:
    done: list[bool] = []

    class Slow(Operator):
        def setup(self, spec: Any) -> None:
            spec.output("out")

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            stream = context.allocate_cuda_stream("s")
            op_output.set_cuda_stream(stream)
            gpu.launch(
                stream.stream, gpu.LaunchConfig(grid=1, block=32), spin.on(real.device), np.int64(1_000_000)
            )
            op_output.emit(stream.stream.record(), "out")

    class Take(Operator):
        def setup(self, spec: Any) -> None:
            spec.input("in")

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            done.append(op_input.receive("in").is_done)

    def compose(app: Any) -> None:
        take = Take(app, CudaStreamCondition(app, receiver="in", name="sync"), name="take")
        app.add_flow(Slow(app, CountCondition(app, 30), name="slow"), take)

    run(compose, scheduler, clock=None)
    assert done == [True] * 30


def test_the_host_does_not_run_away_and_an_exception_waits_for_the_gpu(
    real: Any, scheduler: MakeScheduler
) -> None:
    events: list[Any] = []
    most = 0

    class Work(Operator):
        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            nonlocal most
            most = max(most, sum(not event.is_done for event in events))
            stream = context.allocate_cuda_stream("s").stream
            gpu.launch(stream, gpu.LaunchConfig(grid=1, block=32), spin.on(real.device), np.int64(2_000_000))
            events.append(stream.record())
            if len(events) == 40:
                raise ZeroDivisionError

    def compose(app: Any) -> None:
        app.max_in_flight = 4
        app.add_operator(Work(app, name="work"))

    with pytest.raises(ZeroDivisionError):
        run(compose, scheduler, clock=None)
    assert most <= 4
    assert all(event.is_done for event in events)
