"""Pipelines around captured segments, whose frames show every mistake.

A frame is an array of `COUNT` numbers that begins at a number of its own. Stages multiply and add, so a frame that
was left out, repeated, replaced or read too early has the wrong numbers. Simulated kernels take long and have their
effect when they end. `both` runs a program with and without
capture and compares all that its sinks saw: numbers, order, metadata and timestamps.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from itertools import pairwise
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

from headrace import Application, CountCondition, Operator, gpu
from headrace.capture import Segment
from headrace.resources import UnboundedAllocator
from headrace.tensor import Tensor
from headrace.tensor.copies import read_on_host
from tests.harness import App, MakeScheduler, greedy

COUNT = 16
FRAMES = 14


def _numbers(memory: np.ndarray, count: int) -> np.ndarray:
    return memory.view(np.int32)[:count]


def _affine(out: np.ndarray, source: np.ndarray, count: int, times: int, plus: int) -> None:
    _numbers(out, count)[:] = _numbers(source, count) * times + plus


affine = gpu.kernel(
    "affine",
    source=r"""
extern "C" __global__ void affine(int* out, const int* source, int count, int times, int plus) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) out[i] = source[i] * times + plus;
}
""",
    seconds=2e-4,
    effect=_affine,
)


def _count_up(out: np.ndarray, count: int, first: int) -> None:
    _numbers(out, count)[:] = np.arange(first, first + count, dtype=np.int32)


count_up = gpu.kernel(
    "count_up",
    source=r"""
extern "C" __global__ void count_up(int* out, int count, int first) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) out[i] = first + i;
}
""",
    seconds=1e-3,
    effect=_count_up,
)


def _blend(out: np.ndarray, one: np.ndarray, two: np.ndarray, count: int) -> None:
    _numbers(out, count)[:] = 3 * _numbers(one, count) + _numbers(two, count)


blend = gpu.kernel(
    "blend",
    source=r"""
extern "C" __global__ void blend(int* out, const int* one, const int* two, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) out[i] = 3 * one[i] + two[i];
}
""",
    seconds=2e-4,
    effect=_blend,
)


def _gather(total: np.ndarray, source: np.ndarray, count: int) -> None:
    _numbers(total, count)[:] += _numbers(source, count)


gather = gpu.kernel(
    "gather",
    source=r"""
extern "C" __global__ void gather(int* total, const int* source, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) total[i] += source[i];
}
""",
    seconds=2e-4,
    effect=_gather,
)


def _slowly(out: np.ndarray, source: np.ndarray, count: int) -> None:
    _numbers(out, count)[:] = _numbers(source, count)


slowly = gpu.kernel(
    "slowly",
    source=r"""
extern "C" __global__ void slowly(int* out, const int* source, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (long long end = clock64() + 10000000; clock64() < end;) {}
    if (i < count) out[i] = source[i];
}
""",
    seconds=1e-2,
    effect=_slowly,
)


def launch(stream: Any, kernel: Any, *arguments: Any) -> None:
    """Launch a kernel for frames: arrays are passed as they are, and numbers as int32."""
    given = [_argument(stream, argument) for argument in arguments]
    gpu.launch(stream.stream, gpu.LaunchConfig(grid=2, block=256), kernel.on(stream.device), *given)


def _argument(stream: Any, argument: Any) -> Any:
    if isinstance(argument, (int, np.integer)):
        return np.int32(argument)
    return argument.data if isinstance(argument, Tensor) and stream.backend.runs_cuda else argument


class Seen(NamedTuple):
    """What a sink saw of one message."""

    numbers: Any
    metadata: dict[str, Any]
    timestamp: int | None


class Source(Operator):
    """Emits frames that begin at 0, 100, 200, ..., each in new memory of an allocator.

    Parameters
    ----------
    frames
        The number of frames.
    counts
        The number of elements of each frame; the last one is used for all that follow.
    details
        Whether each frame has metadata and a timestamp; ``"timestamps"`` for a timestamp alone.
    make
        Makes what is emitted, from the frame and its number.
    """

    def __init__(
        self,
        fragment: Any,
        *args: Any,
        frames: int = FRAMES,
        counts: Sequence[int] = (COUNT,),
        details: bool | str = False,
        make: Callable[[Any, int], Any] = lambda frame, number: frame,
        **kwargs: Any,
    ) -> None:
        self.counts, self.details, self.make = counts, details, make
        self.pool = UnboundedAllocator(fragment, name=f"{kwargs['name']} pool")
        super().__init__(fragment, CountCondition(fragment, frames), *args, **kwargs)

    def setup(self, spec: Any) -> None:
        spec.output("out")

    def start(self) -> None:
        self.number = 0

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        stream = context.allocate_cuda_stream("mine")
        op_output.set_cuda_stream(stream, "out")
        count = self.counts[min(self.number, len(self.counts) - 1)]
        frame = self.pool.allocate_tensor((count,), np.int32, "device", stream=stream)
        launch(stream, count_up, frame, count, 100 * self.number)
        if self.details is True:
            self.metadata[f"from {self.name}"] = self.number
        timestamp = first_timestamp(self.name) + self.number if self.details else -1
        op_output.emit(self.make(frame, self.number), "out", acq_timestamp=timestamp)
        self.number += 1


def first_timestamp(name: str) -> int:
    """Return the timestamp of the first frame of a source; each source has another."""
    return 1_000 + 100 * (sum(map(ord, name)) % 97)


class Work(Operator):
    """An operator whose compute is a function of the test: ``body(self, op_input, op_output, context)``.

    It says that it may be captured; `state` are the attributes that it declares as such.
    """

    capturable = True

    def __init__(
        self,
        fragment: Any,
        *args: Any,
        body: Callable[..., None],
        inputs: Sequence[Any] = ("in",),
        outputs: Sequence[Any] = ("out",),
        begin: Callable[[Any], None] = lambda self: None,
        state: Sequence[str] = (),
        **kwargs: Any,
    ) -> None:
        self._body, self._begin, self._ports, self._state = body, begin, (inputs, outputs), state
        self.pool = UnboundedAllocator(fragment, name=f"{kwargs['name']} pool")
        super().__init__(fragment, *args, **kwargs)

    def setup(self, spec: Any) -> None:
        inputs, outputs = self._ports
        for port in inputs:
            spec.input(port) if isinstance(port, str) else spec.input(port[0], **port[1])
        for port in outputs:
            spec.output(port) if isinstance(port, str) else spec.output(port[0], **port[1])
        spec.state(*self._state)

    def start(self) -> None:
        self._begin(self)

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        self._body(self, op_input, op_output, context)

    def new(self, stream: Any, like: Any = None) -> Any:
        """Return a new frame of the operator's allocator."""
        shape = (COUNT,) if like is None else like.shape
        return self.pool.allocate_tensor(shape, np.int32, "device", stream=stream)


class Stage(Work):
    """Emits ``times * frame + plus``; both are parameters that may be changed."""

    def __init__(self, fragment: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(fragment, *args, body=_compute_affine, **kwargs)

    def setup(self, spec: Any) -> None:
        super().setup(spec)
        spec.param("times", 2)
        spec.param("plus", 1)


def _compute_affine(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
    frame = op_input.receive("in")
    stream = op_input.receive_cuda_stream("in")
    result = self.new(stream, frame)
    launch(stream, affine, result, frame, frame.shape[0], self.times, self.plus)
    op_output.emit(result, "out")


class Blend(Work):
    """Emits ``3 * one + two``."""

    def __init__(self, fragment: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(fragment, *args, inputs=("one", "two"), body=_compute_blend, **kwargs)


def _compute_blend(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
    one, two = op_input.receive("one"), op_input.receive("two")
    op_input.receive_cuda_stream("one")
    stream = op_input.receive_cuda_stream("two")
    result = self.new(stream, one)
    launch(stream, blend, result, one, two, one.shape[0])
    op_output.emit(result, "out")


class Sink(Operator):
    """Keeps the numbers, metadata and timestamp of every message.

    Parameters
    ----------
    late
        The number of further frames after which a frame is read; the rest are read at the end.
    """

    capturable = "it reads what it receives on the host"

    def __init__(self, fragment: Any, *args: Any, late: int = 0, **kwargs: Any) -> None:
        self.late = late
        super().__init__(fragment, *args, **kwargs)

    def setup(self, spec: Any) -> None:
        spec.input("in")

    def start(self) -> None:
        self.seen: list[Seen] = []
        self._held: list[tuple[Any, Any, dict[str, Any], int | None]] = []

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        data = op_input.receive("in")
        stream = op_input.receive_cuda_stream("in")
        timestamp = op_input.get_acquisition_timestamp("in")
        self._held.append((data, stream, dict(self.metadata), timestamp))
        if len(self._held) > self.late:
            self._read()

    def stop(self) -> None:
        while self._held:
            self._read()

    def _read(self) -> None:
        data, stream, metadata, timestamp = self._held.pop(0)
        self.seen.append(Seen(plain(data, stream), metadata, timestamp))


def plain(data: Any, stream: Any) -> Any:
    """Return a message with lists of numbers in the place of its arrays; wait for the stream."""
    if isinstance(data, Tensor):
        return (str(data.dl_dtype), read_on_host([data], stream)[0].tolist())
    if isinstance(data, gpu.Buffer):
        host = gpu.LegacyPinnedMemoryResource().allocate(data.size)
        data.copy_to(host, stream=stream.stream)
        stream.stream.sync()
        return ("bytes", np.from_dlpack(host).tolist())
    if isinstance(data, dict):
        return {key: plain(item, stream) for key, item in data.items()}
    if isinstance(data, (list, tuple)):
        return (type(data).__name__, [plain(item, stream) for item in data])
    if is_dataclass(data):
        return {field.name: plain(getattr(data, field.name), stream) for field in fields(data)}
    return (type(data).__name__, repr(data))


class Ran(NamedTuple):
    """A program that has run."""

    app: Any
    seen: dict[str, list[Seen]]
    segments: list[Segment]

    @property
    def segment(self) -> Segment:
        """Its only segment."""
        (segment,) = self.segments
        return segment


def run_with(
    compose: Callable[[Any], None], mode: str = "", scheduler: MakeScheduler = greedy, **settings: Any
) -> Ran:
    """Run a program with a value of HEADRACE_CAPTURE, and return what its sinks saw."""
    app = App(compose, scheduler, **settings)
    with mock.patch.dict(os.environ, {"HEADRACE_CAPTURE": mode}):
        app.run()
    return Ran(app, seen_by(app), app.segments)


def seen_by(app: Application) -> dict[str, list[Seen]]:
    """Return what the sinks of a program saw."""
    return {operator.name: operator.seen for operator in app.graph if isinstance(operator, Sink)}


def both(
    compose: Callable[[Any], None], mode: str = "", scheduler: MakeScheduler = greedy, **settings: Any
) -> Ran:
    """Run a program without and with capture, assert that the sinks saw the same, and return the second run."""
    expected = run_with(compose, "off", scheduler, **settings).seen
    captured = run_with(compose, mode, scheduler, **settings)
    assert any(expected.values())
    assert captured.seen == expected
    return captured


def chain(app: Any, *operators: Any) -> None:
    """Connect operators one after the other."""
    for one, other in pairwise(operators):
        app.add_flow(one, other)


def is_captured(ran: Ran, frames: int = FRAMES, unreplayed: int = 5) -> bool:
    """Return whether all but a few frames of the only segment were replayed."""
    segment = ran.segment
    left = segment.frames - segment.replayed
    return (segment.state, segment.reason, segment.frames) == ("captured", "", frames) and left <= unreplayed


def stages(app: Any, count: int = 3, first: int = 1) -> list[Any]:
    """Return stages that multiply and add by different numbers."""
    return [Stage(app, times=k + 1, plus=k, name=f"stage {k}") for k in range(first, first + count)]


def three(app: Any, frames: int = FRAMES, **options: Any) -> list[Any]:
    """Compose a chain of three that is captured."""
    members = [Stage(app, times=k, plus=k, name=f"s{k}") for k in (2, 3, 4)]
    chain(app, Source(app, frames=frames, name="source"), *members, Sink(app, name="sink"))
    app.capture(*members, **options)
    return members
