"""A measured program as a program on the simulated device: kernels of the measured times, in virtual time.

A kernel there is a number of blocks that run for so long. `blocks_of` finds those whose waves over the SMs come
closest to a measured curve.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from headrace import Application, CountCondition, GreedyScheduler, Operator, PeriodicCondition, gpu
from headrace.core.spec import OperatorSpec
from headrace.gpu import sim
from headrace.planner.measured import Curve, Measured, OperatorTimes
from headrace.resources import MachineClock

_THREADS = 1024


class Simulated(Application):
    """The operators of a measured program; sources send as often as was measured, others for each frame."""

    def __init__(self, measured: Measured, frames: int, blocks_per_sm: int) -> None:
        super().__init__(name="simulated")
        self.measured, self.frames, self.blocks_per_sm = measured, frames, blocks_per_sm

    def compose(self) -> None:
        self.scheduler(GreedyScheduler(self, clock=MachineClock(self)))
        made: dict[str, Operator] = {}
        for name, one in self.measured.operators.items():
            work = None
            if one.curve is not None:
                work = blocks_of(Curve({sms: one.device(sms) for sms in one.curve.times}), self.blocks_per_sm)
            conditions: list[Any] = []
            if not self.measured.before(name):
                period = one.period or (1e9 / one.rate if one.rate else 1e6)
                conditions = [PeriodicCondition(self, round(period)), CountCondition(self, self.frames)]
            inputs = max(len(self.measured.before(name)), 0)
            made[name] = _Simulated(self, *conditions, name=name, inputs=inputs, work=work, one=one)
            self.add_operator(made[name])  # it may have no flows
        used: dict[str, int] = {}
        for source, target in self.measured.flows:
            number = used[target] = used.get(target, -1) + 1
            self.add_flow(made[source], made[target], {("out", f"in{number}")})


class _Simulated(Operator):
    """Launches a kernel of so many blocks, and takes so long on the host."""

    def __init__(
        self,
        fragment: Any,
        *conditions: Any,
        name: str,
        inputs: int,
        work: tuple[int, int] | None,
        one: OperatorTimes,
    ) -> None:
        self.inputs, self.work, self.host_time = inputs, work, one.host.p50
        super().__init__(fragment, *conditions, name=name)

    def setup(self, spec: OperatorSpec) -> None:
        for number in range(self.inputs):
            spec.input(f"in{number}")
        spec.output("out")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        frames = [op_input.receive(f"in{number}") for number in range(self.inputs)]
        sim.current_machine().sleep(self.host_time / 1e9)
        if self.work is None:
            op_output.emit(frames[0] if frames else 0, "out")
            return
        stream: Any = gpu.current_stream()
        blocks, nanoseconds = self.work
        kernel = sim.Kernel(self.name, nanoseconds / 1e9)
        config = gpu.LaunchConfig(grid=blocks, block=_THREADS)
        gpu.launch(stream.stream, config, kernel)
        op_output.emit(gpu.Device(0).allocate(8, stream=stream.stream), "out")


def blocks_of(curve: Curve, blocks_per_sm: int) -> tuple[int, int]:
    """Return the blocks, and the nanoseconds of each, whose waves come closest to a curve."""
    points = [(sms, times.p50) for sms, times in curve.times.items()]
    tried = sorted({waves * sms * blocks_per_sm for sms, _ in points for waves in (1, 2, 3, 4, 6, 8)} | {1})
    best = min(
        (_fitted(points, blocks, blocks_per_sm) for blocks in tried),
        key=lambda fit: (round(fit[0], 9), fit[1]),
    )
    return best[1], best[2]


def _fitted(points: Sequence[tuple[int, float]], blocks: int, blocks_per_sm: int) -> tuple[float, int, int]:
    """Return how far so many blocks are from a curve at best, the blocks, and how long each runs then."""
    shares = [(math.ceil(blocks / (sms * blocks_per_sm)), max(time, 1.0)) for sms, time in points]
    logs = [math.log(time / waves) for waves, time in shares]
    mean = sum(logs) / len(logs)
    return sum((each - mean) ** 2 for each in logs), blocks, max(1, round(math.exp(mean)))
