"""Frames that a reader reads 1 ms late and lets go at once, by headrace, by the Holoscan SDK and by hand.

Each frame is a new array of CuPy, filled with its number. A kernel on the reader's stream waits, then compares.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import cupy

SIZE, LATE = 1 << 20, 1_000_000
# Waits, then marks the frame if an element has a wrong value.
LATE_CHECK = r"""
extern "C" __global__ void late_check(
    const int* data, int size, int expected, int* wrong, int slot, long long nanoseconds
) {
    long long begin, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    do { asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); } while (now - begin < nanoseconds);
    int bad = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < size; i += gridDim.x * blockDim.x)
        bad |= data[i] != expected;
    if (bad) wrong[slot] = 1;
}
"""


def wrong(which: str, frames: int) -> int:
    """Return how many frames were wrong."""
    kernel, errors = cupy.RawKernel(LATE_CHECK, "late_check"), cupy.zeros(frames, cupy.int32)
    cupy.cuda.Device().synchronize()

    def read(data: Any, number: int) -> None:
        """Launch the comparison on CuPy's current stream."""
        numbers = cupy.int32(data.size), cupy.int32(number), errors, cupy.int32(number), cupy.int64(LATE)
        kernel((64,), (256,), (data.data.ptr, *numbers))

    if which == "by hand":
        _by_hand(read, frames)
    else:
        _as_program(which, read, frames)
    cupy.cuda.Device().synchronize()
    return int(errors.sum())


def _as_program(package: str, read: Any, frames: int) -> None:
    from benchmarks.common import load

    sdk: SimpleNamespace = load(package)

    class Source(sdk.Operator):  # type: ignore[name-defined]
        def setup(self, spec: Any) -> None:
            spec.output("out")

        def start(self) -> None:
            self.number = 0

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            stream = context.allocate_cuda_stream("own")
            op_output.set_cuda_stream(stream, "out")
            with cupy.cuda.ExternalStream(int(stream)):
                data = cupy.full(SIZE, self.number, dtype=cupy.int32)
            op_output.emit({"": data}, "out")
            self.number += 1

    class Reader(sdk.Operator):  # type: ignore[name-defined]
        def setup(self, spec: Any) -> None:
            spec.input("in")

        def start(self) -> None:
            self.number = 0

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            data = cupy.asarray(op_input.receive("in")[""])
            with cupy.cuda.ExternalStream(int(op_input.receive_cuda_stream("in"))):
                read(data, self.number)
            self.number += 1

    class Frames(sdk.Application):  # type: ignore[name-defined]
        def compose(self) -> None:
            pools = [sdk.CudaStreamPool(self, 0, 1, 0, 1, 5) for _ in range(2)]
            source = Source(self, sdk.CountCondition(self, frames), pools[0], name="source")
            self.add_flow(source, Reader(self, pools[1], name="reader"))

    Frames().run()


def _by_hand(read: Any, frames: int, ring: int = 8) -> None:
    produce, consume = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(non_blocking=True)
    buffers = [cupy.zeros(SIZE, cupy.int32) for _ in range(ring)]
    written = [cupy.cuda.Event(disable_timing=True) for _ in range(ring)]
    done = [cupy.cuda.Event(disable_timing=True) for _ in range(ring)]
    for number in range(frames):
        place = number % ring
        if number >= ring:
            done[place].synchronize()  # the host must not run ahead without bound either
        with produce:
            buffers[place].fill(number)
        written[place].record(produce)
        consume.wait_event(written[place])
        with consume:
            read(buffers[place], number)
        done[place].record(consume)
    consume.synchronize()
