"""Captured segments of operators written with CuPy, PyTorch, cuda.core, Numba, and all of them together."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from headrace import Application, CountCondition, Operator, gpu
from headrace.capture import CaptureRefused
from headrace.resources import CudaGreenContext, CudaGreenContextPool
from tests.gpu.kernels import mark_sms
from tests.harness.libraries import numba_works

cupy = pytest.importorskip("cupy")
pytestmark = pytest.mark.usefixtures("real")

FRAMES, SIZE = 60, 4_096


class Source(Operator):
    """Sends arrays of its library whose elements are the number of the frame."""

    def __init__(self, fragment: Any, *args: Any, make: Callable[[Any, int], Any], **kwargs: Any) -> None:
        self.make = make
        super().__init__(fragment, *args, **kwargs)

    def setup(self, spec: Any) -> None:
        spec.output("out")

    def start(self) -> None:
        self.sent = 0

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        stream = context.allocate_cuda_stream("own")
        op_output.set_cuda_stream(stream, "out")
        with gpu.use_stream(stream):
            op_output.emit(self.make(stream, self.sent), "out")
        self.sent += 1


class Stage(Operator):
    """Applies a function of arrays on its stream."""

    capturable = True

    def __init__(self, fragment: Any, *args: Any, apply: Callable[..., Any], **kwargs: Any) -> None:
        self.apply = apply
        super().__init__(fragment, *args, **kwargs)

    def setup(self, spec: Any) -> None:
        spec.input("in")
        spec.output("out")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        data = op_input.receive("in")
        stream = op_input.receive_cuda_stream("in")
        op_output.emit(self.apply(data, stream), "out")


class Sink(Operator):
    """Reads every message after a while, so that its memory must not have been used again."""

    def setup(self, spec: Any) -> None:
        spec.input("in")

    def start(self) -> None:
        self.found: list[Any] = []
        self.held: list[Any] = []

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        self.held.append(op_input.receive("in"))
        self.stream = op_input.receive_cuda_stream("in")
        if len(self.held) > 3:
            self.read()

    def stop(self) -> None:
        while self.held:
            self.read()

    def read(self) -> None:
        data = self.held.pop(0)
        if isinstance(data, dict):
            data = next(iter(data.values()))
        with self.stream.cupy():
            self.found.append(float(cupy.asarray(data).sum().get()))


class App(Application):
    def __init__(self, make: Any, stages: list[Any], parts: Any = None, **options: Any) -> None:
        super().__init__()
        self.make, self.stages, self.parts, self.options = make, stages, parts, options

    def compose(self) -> None:
        source = Source(self, CountCondition(self, FRAMES), make=self.make, name="source")
        parts = self.parts(self) if self.parts else [()] * len(self.stages)
        stages = [
            Stage(self, *part, apply=apply, name=f"stage{k}")
            for k, (apply, part) in enumerate(zip(self.stages, parts, strict=True))
        ]
        self.sink = Sink(self, name="sink")
        for one, other in itertools.pairwise([source, *stages, self.sink]):
            self.add_flow(one, other)
        self.segment = self.capture(*stages, **self.options)


def run(make: Any, stages: list[Any], parts: Any = None, **options: Any) -> App:
    app = App(make, stages, parts, strict=True, **options)
    app.run()
    assert app.segment.state == "captured", app.segment.reason
    assert app.segment.replayed >= FRAMES // 3
    return app


def cupy_frame(stream: Any, number: int) -> Any:
    return cupy.full(SIZE, number, cupy.float32)


def cupy_stage(data: Any, stream: Any) -> Any:
    with stream.cupy():
        return cupy.sqrt(cupy.asarray(data) ** 2) * 2 + 1  # several temporaries


def expected(function: Callable[[float], float]) -> list[float]:
    return [function(number) * SIZE for number in range(FRAMES)]


def test_cupy_with_temporaries() -> None:
    app = run(cupy_frame, [cupy_stage] * 3)
    assert app.sink.found == pytest.approx(expected(lambda x: 8 * x + 7))


def test_buffers_of_a_source_that_come_again() -> None:
    buffers = [cupy.zeros(SIZE, cupy.float32) for _ in range(2)]

    def make(stream: Any, number: int) -> Any:
        buffer = buffers[number % 2]
        stream.stream.sync()
        gpu.Device().sync()  # the program itself waits before it writes a buffer again
        buffer.fill(number)
        return buffer

    app = App(make, [cupy_stage, cupy_stage], strict=True, check_every=0)
    app.run()
    assert app.segment.state == "captured"
    assert app.segment.recordings == 1
    assert len(app.sink.found) == FRAMES


def test_pytorch() -> None:
    torch = pytest.importorskip("torch")
    layer = torch.nn.Linear(64, 64, bias=False).cuda().eval()
    with torch.no_grad():
        layer.weight.copy_(torch.eye(64) * 3)

    def make(stream: Any, number: int) -> Any:
        return torch.full((SIZE,), float(number), device="cuda")

    def stage(data: Any, stream: Any) -> Any:
        with torch.no_grad(), torch.cuda.stream(stream.torch()):
            return torch.relu(layer(data.view(-1, 64))).reshape(-1) + 1

    app = run(make, [stage, stage])
    assert app.sink.found == pytest.approx(expected(lambda x: 9 * x + 4), rel=1e-4)


def test_libraries_together() -> None:
    torch = pytest.importorskip("torch")

    def with_torch(data: Any, stream: Any) -> Any:
        with torch.no_grad(), gpu.use_stream(stream):
            return {"image": torch.as_tensor(data, device="cuda") * 2}

    def with_cupy(data: Any, stream: Any) -> Any:
        with gpu.use_stream(stream):
            return {"image": cupy.asarray(data["image"]) + 1}

    def from_torch(data: Any, stream: Any) -> Any:
        with gpu.use_stream(stream):
            return torch.from_dlpack(data["image"]) * 3

    app = run(cupy_frame, [with_torch, with_cupy, from_torch])
    assert app.sink.found == pytest.approx(expected(lambda x: 6 * x + 3))


@pytest.mark.filterwarnings("ignore:.*Grid size")
def test_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    if not numba_works():
        monkeypatch.setattr(np, "row_stack", np.vstack, raising=False)  # what it lacks
    cuda = pytest.importorskip("numba.cuda")

    @cuda.jit  # type: ignore[untyped-decorator]
    def triple(source: Any, target: Any) -> None:
        i = cuda.grid(1)
        if i < source.size:
            target[i] = source[i] * 3

    target = cupy.zeros(SIZE, cupy.float32)

    def stage(data: Any, stream: Any) -> Any:
        triple[16, 256, stream.numba()](
            cuda.as_cuda_array(data, sync=False), cuda.as_cuda_array(target, sync=False)
        )
        return target

    app = run(cupy_frame, [stage, cupy_stage])
    assert app.sink.found == pytest.approx(expected(lambda x: 6 * x + 1))


def test_slices_are_respected() -> None:
    total = gpu.Device().resources.sm.sm_count
    seen = [cupy.zeros(total, cupy.int32) for _ in range(2)]

    def marking(which: int) -> Any:
        def stage(data: Any, stream: Any) -> Any:
            named: Any = gpu.Buffer
            buffer = named.from_handle(seen[which].data.ptr, 4 * total, owner=seen[which])
            config = gpu.LaunchConfig(grid=4 * total, block=64)
            gpu.launch(stream.stream, config, mark_sms.on(gpu.Device()), buffer, np.int64(20_000))
            with stream.cupy():
                return data + 1

        return stage

    def parts(app: Any) -> Any:
        pool = CudaGreenContextPool(app, sms_per_partition={"one": 16, "two": 32})
        return [(CudaGreenContext(app, pool, name),) for name in ("one", "two")]

    run(cupy_frame, [marking(0), marking(1)], parts)
    one, two = (set(np.flatnonzero(cupy.asnumpy(each)).tolist()) for each in seen)
    assert (len(one), len(two)) == (16, 32)
    assert not one & two


@pytest.mark.parametrize(
    ("apply", "words"),
    [
        (lambda data, stream: data * float(data.sum().get()), "waits for the device"),
        (lambda data, stream: data + cupy.asarray(np.ones(SIZE, np.float32)), "copies from the host"),
        (lambda data, stream: data + cupy.random.rand(SIZE), "random"),
        (lambda data, stream: (stream.stream.sync(), data + 1)[1], "waits for the device"),
    ],
)
def test_what_cannot_be_recorded_runs_as_before(apply: Any, words: str) -> None:
    def stage(data: Any, stream: Any) -> Any:
        with stream.cupy():
            return apply(data, stream)

    app = App(cupy_frame, [cupy_stage, stage])
    with pytest.warns(CaptureRefused, match="stage1") as caught:
        app.run()
    assert len(caught) == 1
    assert words in str(caught[0].message)
    assert app.segment.state == "eager"
    assert len(app.sink.found) == FRAMES


def test_jax_is_refused() -> None:
    jax = pytest.importorskip("jax")

    def stage(data: Any, stream: Any) -> Any:
        return jax.numpy.asarray(cupy.asnumpy(data)) + 1

    app = App(cupy_frame, [stage])
    with pytest.warns(CaptureRefused):
        app.run()
    assert app.segment.state == "eager"


def test_shapes_have_recordings_of_their_own() -> None:
    def make(stream: Any, number: int) -> Any:
        return cupy.full(SIZE >> (number % 3), number << (number % 3), cupy.float32)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        app = App(make, [cupy_stage, cupy_stage], strict=True)
        app.run()
    assert app.segment.recordings == 3
    sizes = [SIZE >> (number % 3) for number in range(FRAMES)]
    values = [number << (number % 3) for number in range(FRAMES)]
    assert app.sink.found == pytest.approx(
        [(4 * value + 3) * size for value, size in zip(values, sizes, strict=True)]
    )
