"""Two flows side by side, each on its own slice of the GPU.

    python examples/parallel_slices.py --sms 16 40

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
class Transmitter(Operator):
    """Emits frames filled with 0, 1, 2, ... times a factor, each made on the operator's own stream."""

    factor: int = 1

    def setup(self, spec: OperatorSpec) -> None:
        spec.output("out")

    def start(self) -> None:
        self.number = self.sms = 0

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        self.sms = sms_of(gpu.current_stream())
        op_output.emit(xp.full(LENGTH, self.factor * self.number, dtype=xp.int32), "out")
        self.number += 1


@declared
class Receiver(Operator):
    """Reads frames back and counts those with the right contents."""

    factor: int = 1

    def setup(self, spec: OperatorSpec) -> None:
        spec.input("in")

    def start(self) -> None:
        self.received = self.right = 0

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        frame = op_input.receive("in")  # the current stream is ordered after the transmitter's
        values = xp.asnumpy(frame)  # waits for the copy
        self.right += bool((values == self.factor * self.received).all())
        self.received += 1


class Parallel(Application):
    def __init__(self, count: int, sms: list[int]) -> None:
        super().__init__()
        self.count, self.sms = count, sms

    def compose(self) -> None:
        self.scheduler(EventBasedScheduler(self, worker_thread_number=2))
        slices = CudaGreenContextPool(self, dev_id=0, sms_per_partition=self.sms)
        self.flows = []
        for n in range(len(self.sms)):
            part = CudaGreenContext(self, slices, n)
            count = CountCondition(self, self.count)
            transmitter = Transmitter(self, part, count, factor=n + 1, name=f"transmitter{n}")
            receiver = Receiver(self, part, factor=n + 1, name=f"receiver{n}")
            self.add_flow(transmitter, receiver)
            self.flows.append((transmitter, receiver))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=10, metavar="N", help="frames of each flow (10)")
    parser.add_argument("--sms", type=int, nargs=2, default=[16, 40], help="SMs of the two slices (16 40)")
    options = parser.parse_args()
    with open_device():
        app = Parallel(options.count, options.sms)
        app.run()
        print(f"{gpu.Device(0).name}: {sms_of(None)} SMs")
    for n, (transmitter, receiver) in enumerate(app.flows):
        print(
            f"flow {n}: {transmitter.sms} SMs ({options.sms[n]} asked for), "
            f"{receiver.right} of {options.count} results right"
        )
    return any(receiver.right != options.count for _, receiver in app.flows)


if __name__ == "__main__":
    raise SystemExit(main())
