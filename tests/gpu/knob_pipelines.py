"""Pipelines whose kernels read knobs late, so that a value that is written too early shows as a wrong number."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from headrace import Application, CountCondition, Operator, gpu
from headrace.capture import Segment
from headrace.resources import UnboundedAllocator
from headrace.tensor.copies import read_on_host
from tests.harness import MakeScheduler, greedy

COUNT = 64  # elements of a frame
LATE = 200_000  # nanoseconds after which a kernel reads its knobs


def _scale(out: Any, frame: Any, gain: Any, offset: Any, count: int, nanoseconds: int) -> None:
    by, plus = float(gain.view(np.float32)[0]), int(offset.view(np.int64)[0])
    out.view(np.int32)[:count] = (frame.view(np.int32)[:count] * by).astype(np.int32) + plus


scale = gpu.kernel(
    "scale",
    source=r"""
extern "C" __global__ void scale(int* out, const int* in, const float* gain, const long long* offset, int count,
                                 long long nanoseconds) {
    long long begin, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    do { asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); } while (now - begin < nanoseconds);
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float by = *(const volatile float*)gain;
    long long plus = *(const volatile long long*)offset;
    if (i < count) out[i] = (int)(in[i] * by) + (int)plus;
}
""",
    seconds=lambda out, frame, gain, offset, count, nanoseconds: nanoseconds * 1e-9,
    effect=_scale,
)


def _copy(out: Any, knob: Any, size: int) -> None:
    out[:size] = knob[:size]


copy_bytes = gpu.kernel(
    "copy_bytes",
    source=r"""
extern "C" __global__ void copy_bytes(unsigned char* out, const unsigned char* knob, int size) {
    if (threadIdx.x < size) out[threadIdx.x] = knob[threadIdx.x];
}
""",
    seconds=1e-6,
    effect=_copy,
)


def _repeat(out: Any, knob: Any, nanoseconds: int) -> None:
    out.view(np.int32)[:] = knob.view(np.int32)[0]


repeat = gpu.kernel(
    "repeat",
    source=r"""
extern "C" __global__ void repeat(int* out, const int* knob, long long nanoseconds) {
    long long begin, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    do { asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); } while (now - begin < nanoseconds);
    out[threadIdx.x] = *(const volatile int*)knob;
}
""",
    seconds=lambda out, knob, nanoseconds: nanoseconds * 1e-9,
    effect=_repeat,
)


def memory_of(tensor: Any) -> Any:
    """Return what `gpu.launch` takes for a tensor, on either kind of device."""
    owner = tensor.owner
    return owner if isinstance(owner, gpu.Buffer) else owner.buffer


def launch(stream: Any, kernel: gpu.kernel, *arguments: Any) -> None:
    config = gpu.LaunchConfig(grid=1, block=COUNT)
    gpu.launch(stream.stream, config, kernel.on(stream.device), *arguments)


def sent(number: int) -> int:
    """Return what is in each element of a frame that a source sends."""
    return number % 7 + 1


class Source(Operator):
    """Sends frames; calls a function with the number of the frame first."""

    def __init__(self, fragment: Any, *args: Any, before: Callable[[Any, int], Any], **kwargs: Any) -> None:
        self.before = before
        super().__init__(fragment, *args, **kwargs)

    def setup(self, spec: Any) -> None:
        spec.output("out")
        spec.param("allocator")
        spec.param("sizes", [COUNT])

    def start(self) -> None:
        self.number = 0

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        self.before(context, self.number)
        stream = context.allocate_cuda_stream("mine")
        op_output.set_cuda_stream(stream, "out")
        size = self.sizes[self.number % len(self.sizes)]
        frame = self.allocator.allocate_tensor((size,), np.int32, stream=stream)
        memory_of(frame).fill(np.int32(sent(self.number)).tobytes(), stream=stream.stream)
        self.number += 1
        op_output.emit(frame, "out")


class Scale(Operator):
    """Multiplies by its knob ``gain`` and adds its knob ``offset``, both read late."""

    capturable = True

    def setup(self, spec: Any) -> None:
        spec.input("in")
        spec.output("out")
        spec.param("allocator")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        frame = op_input.receive("in")
        stream = op_input.receive_cuda_stream("in")
        gain = context.knob("gain", np.float32, 1)
        offset = context.knob("offset", np.int64)
        out = self.allocator.allocate_tensor(frame.shape, np.int32, stream=stream)
        count = np.int32(frame.shape[0])
        inputs = (memory_of(out), memory_of(frame), memory_of(gain), memory_of(offset))
        launch(stream, scale, *inputs, count, np.int64(LATE))
        op_output.emit(out, "out")


class Sink(Operator):
    """Keeps what it receives, read on the host long after it was sent."""

    waits_for_device = False
    """Whether messages come without a stream to wait for."""

    def setup(self, spec: Any) -> None:
        spec.input("in")

    def start(self) -> None:
        self.waiting: list[Any] = []
        self.seen: list[int] = []

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        self.waiting.append(op_input.receive("in"))
        self.stream = op_input.receive_cuda_stream("in")
        if len(self.waiting) > 8:
            self.read(1)

    def stop(self) -> None:
        self.read(len(self.waiting))

    def read(self, count: int) -> None:
        if self.waits_for_device:
            gpu.Device().sync()
        for frame in self.waiting[:count]:
            (data,) = read_on_host([frame], self.stream)
            self.stream.stream.sync()
            values = set(np.asarray(data).tolist())
            assert len(values) == 1, "all elements see one value"
            self.seen.append(values.pop())
        del self.waiting[:count]


class Knobs(Application):
    """A source, operators with knobs, and a sink.

    Parameters
    ----------
    before
        Called in the compute of the source, with its context and the number of the frame.
    kinds
        The operators with knobs, one behind the other.
    frames
        The number of frames.
    capture
        Options of the segment; None for no segment.
    """

    segment: Segment
    has_slices = False
    waits_for_device = False

    def __init__(
        self,
        before: Callable[[Any, int], Any],
        *kinds: type[Operator],
        frames: int = 20,
        scheduler: MakeScheduler = greedy,
        sizes: list[int] | None = None,
        capture: dict[str, Any] | None = None,
        **parameters: Any,
    ) -> None:
        super().__init__([])
        self.before, self.kinds, self.frames = before, kinds or (Scale,), frames
        self.make_scheduler, self.sizes, self.options = scheduler, sizes or [COUNT], capture
        self.parameters = parameters

    def compose(self) -> None:
        self.scheduler(self.make_scheduler(self))
        if self.has_slices:  # their streams are not ordered with the default stream
            self.add_default_green_context_pool(0, [64])
        allocator = UnboundedAllocator(self)
        self.source = Source(
            self,
            CountCondition(self, self.frames),
            before=self.before,
            allocator=allocator,
            sizes=self.sizes,
            name="source",
        )
        self.stages = [
            kind(self, allocator=allocator, name=f"stage{number}", **self.parameters)
            for number, kind in enumerate(self.kinds)
        ]
        self.sink = Sink(self, name="sink")
        self.sink.waits_for_device = self.waits_for_device
        chain = [self.source, *self.stages, self.sink]
        for one, other in pairwise(chain):
            self.add_flow(one, other)
        if self.options is not None:
            self.segment = self.capture(*self.stages, **self.options)
