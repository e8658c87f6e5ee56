"""Two sources, a combiner whose stream is ordered after both, and a receiver.

    python examples/combine_streams.py                      every operator on its own stream
    python examples/combine_streams.py --green-context      the streams on two slices of the GPU
    python examples/combine_streams.py --default-stream     every operator on the default stream

Frames are CuPy arrays on a GPU, and arrays of a simulated one where there is none.
"""

from __future__ import annotations

import argparse
from typing import Any

from headrace import (
    Application,
    CountCondition,
    CudaGreenContext,
    CudaGreenContextPool,
    CudaStreamCondition,
    CudaStreamPool,
    EventBasedScheduler,
    Operator,
    OperatorSpec,
    declared,
    gpu,
)
from shared.device import open_device, sms_of

xp = gpu.arrays()
LENGTH = 1 << 16


@declared
class Source(Operator):
    """Emits frames filled with 0, 1, 2, ... times a factor."""

    factor: int = 1

    def setup(self, spec: OperatorSpec) -> None:
        spec.output("out")

    def start(self) -> None:
        self.number = self.sms = 0

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        self.sms = sms_of(gpu.current_stream())
        op_output.emit(xp.full(LENGTH, self.factor * self.number, dtype=xp.int32), "out")
        self.number += 1


class Combiner(Operator):
    """Adds two frames on its own stream, which is ordered after both."""

    def setup(self, spec: OperatorSpec) -> None:
        spec.input("in1")
        spec.input("in2")
        spec.output("out")

    def start(self) -> None:
        self.sms = 0

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        one = op_input.receive("in1")
        other = op_input.receive("in2")  # the current stream comes after the work behind both frames
        self.sms = sms_of(gpu.current_stream())
        op_output.emit(one + other, "out")  # the message carries the stream


@declared
class Receiver(Operator):
    """Reads frames back and counts those with the right contents."""

    factor: int = 1

    def setup(self, spec: OperatorSpec) -> None:
        spec.input("in")

    def start(self) -> None:
        self.received = self.right = self.sms = 0

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        frame = op_input.receive("in")
        self.sms = sms_of(gpu.current_stream())
        values = xp.asnumpy(frame)  # waits for the copy
        self.right += bool((values == self.factor * self.received).all())
        self.received += 1


class Combine(Application):
    def __init__(self, count: int, sms: list[int], *, own_stream: bool, green_context: bool) -> None:
        super().__init__()
        self.count, self.sms = count, sms
        self.own_stream, self.green_context = own_stream, green_context

    def compose(self) -> None:
        self.scheduler(EventBasedScheduler(self, worker_thread_number=2))
        if self.green_context:
            slices = CudaGreenContextPool(self, dev_id=0, sms_per_partition=self.sms)
            making, using = (
                CudaStreamPool(self, max_size=5, cuda_green_context=CudaGreenContext(self, slices, n))
                for n in range(2)
            )
        else:
            making = using = CudaStreamPool(self, max_size=5)
        one, other = (
            Source(self, making, CountCondition(self, self.count), factor=factor, name=name)
            for name, factor in (("source1", 1), ("source2", 10))
        )
        combiner = Combiner(self, using, name="combiner")
        # The receiver waits for its copy to the host. With this condition it runs only when the frame is finished.
        ready = CudaStreamCondition(self, receiver="in")
        receiver = Receiver(self, using, ready, factor=11, name="receiver")
        self.add_flow(one, combiner, {("out", "in1")})
        self.add_flow(other, combiner, {("out", "in2")})
        self.add_flow(combiner, receiver)
        self.steps = one, other, combiner, receiver
        if not self.own_stream:
            for step in self.steps:
                step.spec.default_stream()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=10, metavar="N", help="frames of each source (10)")
    parser.add_argument("--sms", type=int, nargs=2, default=[16, 40], help="SMs of the two slices (16 40)")
    parser.add_argument("--default-stream", action="store_true", help="use the default stream everywhere")
    parser.add_argument("--green-context", action="store_true", help="put the stream pools on two slices")
    options = parser.parse_args()
    with open_device():
        app = Combine(
            options.count,
            options.sms,
            own_stream=not options.default_stream,
            green_context=options.green_context,
        )
        app.run()
        print(f"{gpu.Device(0).name}: {sms_of(None)} SMs")
    kind = "the default stream" if options.default_stream else "a stream of its own"
    for step in app.steps:
        print(f"{step.name}: {kind}, {step.sms} SMs")
    right = app.steps[-1].right
    print(f"{right} of {options.count} results right")
    return right != options.count


if __name__ == "__main__":
    raise SystemExit(main())
