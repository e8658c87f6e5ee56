"""The chain of `captured_chain.py` on the Holoscan SDK: prints the microseconds of a frame.

    python -m benchmarks.captured_chain_sdk STAGES FRAMES SIZE        on an interpreter that has the SDK and CuPy

It does what the SDK's users write: each operator has a CUDA stream from a pool and makes it CuPy's current one.
"""

from __future__ import annotations

import itertools
import sys
import time
from typing import Any

import cupy
from holoscan.conditions import CountCondition
from holoscan.core import Application, Operator
from holoscan.resources import CudaStreamPool

WARM_UP, BUFFERS = 300, 4
STAGES, FRAMES, SIZE = map(int, sys.argv[1:4])
times: list[float] = []


class Source(Operator):  # type: ignore[misc]
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
        op_output.emit({"": next(self.buffers)}, "out")


class Stage(Operator):  # type: ignore[misc]
    def setup(self, spec: Any) -> None:
        spec.input("in")
        spec.output("out")

    def start(self) -> None:
        self.buffer = cupy.zeros(SIZE, cupy.float32)

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        data = op_input.receive("in")
        stream = op_input.receive_cuda_stream("in")
        with cupy.cuda.ExternalStream(stream):
            cupy.add(cupy.asarray(data[""]), 1, out=self.buffer)
        op_output.emit({"": self.buffer}, "out")


class Sink(Operator):  # type: ignore[misc]
    def setup(self, spec: Any) -> None:
        spec.input("in")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        op_input.receive("in")
        op_input.receive_cuda_stream("in")

    def stop(self) -> None:
        cupy.cuda.Device().synchronize()
        times.append(time.perf_counter())


class Chain(Application):  # type: ignore[misc]
    def compose(self) -> None:
        def pool() -> Any:
            return CudaStreamPool(self, 0, 1, 0, 1, 5)

        source = Source(self, CountCondition(self, WARM_UP + FRAMES), pool(), name="source")
        stages = [Stage(self, pool(), name=f"stage{k}") for k in range(STAGES)]
        sink = Sink(self, pool(), name="sink")
        for one, other in itertools.pairwise([source, *stages, sink]):
            self.add_flow(one, other)


if __name__ == "__main__":
    Chain().run()
    print(f"{(times[1] - times[0]) * 1e6 / FRAMES:.1f}")
