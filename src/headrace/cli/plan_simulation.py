"""A measured program on the simulated device: operators with kernels of the measured times, in virtual time.

A kernel there is a number of blocks that run for so long. `blocks_of` finds those whose waves over the SMs come
closest to a measured curve. Nothing is fitted beyond that: what flows do to each other on shared SMs is the
simulated device's to say.
"""

from __future__ import annotations

import dataclasses
import math
import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from headrace import gpu
from headrace.application import Application
from headrace.conditions import CountCondition, PeriodicCondition
from headrace.core.operator import Operator
from headrace.core.spec import OperatorSpec
from headrace.gpu import sim
from headrace.gpu.backend import active
from headrace.gpu.sim.profiles import find_profile
from headrace.planner.measured import Curve, Measured, OperatorTimes
from headrace.planner.observing import Observed
from headrace.planner.plan import Plan
from headrace.planner.targets import Target
from headrace.resources import MachineClock
from headrace.schedulers import GreedyScheduler

_THREADS = 1024
_BANDWIDTH = 1e6


def simulate(
    measured: Measured, plan: Plan, targets: Sequence[Target], frames: int, profile: sim.Profile | str
) -> list[float | None]:
    """Return the figure of each target in a simulated run with a plan; None if too few frames reached its end."""
    found = find_profile(profile)
    measured = measured.with_segments(tuple(map(tuple, plan.segments)))
    left = measured.operators
    plan = dataclasses.replace(
        plan,
        device=found.device_name,
        sm_count=found.sm_count,
        operators={name: measured.behind(name) for name in left},
        slices={
            name: (sms, [each for each in names if each in left])
            for name, (sms, names) in plan.slices.items()
        },
        segments=[],
        goals={},
        expected={},
    )
    # Copies take as long as was measured, and hardly any memory.
    with sim.Machine(dataclasses.replace(found, copy_bandwidth=_BANDWIDTH)):
        observed = Observed(targets)
        app = Simulated(measured, frames, found.threads_per_sm // _THREADS)
        app._headrace.watchers.append(observed)
        app.use_plan(plan)
        app.run()
    return [observed.figure(target) for target in targets]


class Simulated(Application):
    """The operators of a measured program; sources send as often as was measured, others for each frame."""

    def __init__(self, measured: Measured, frames: int, blocks_per_sm: int) -> None:
        super().__init__(name="simulated")
        self.measured, self.frames, self.blocks_per_sm = measured, frames, blocks_per_sm

    def compose(self) -> None:
        """Make an operator for each that was measured, and connect them as they were."""
        self.scheduler(GreedyScheduler(self, clock=MachineClock(self)))
        made: dict[str, Operator] = {}
        for name, one in self.measured.operators.items():
            work = None
            if one.curve is not None:
                points = {sms: one.kernels(sms) for sms, _ in one.curve}
                work = blocks_of(Curve(points), self.blocks_per_sm)
            conditions: list[Any] = []
            if not self.measured.before(name):
                period = one.period or (1e9 / one.rate if one.rate else 1e6)
                conditions = [PeriodicCondition(self, round(period)), CountCondition(self, self.frames)]
            inputs = len(self.measured.before(name))
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
        self.copied = np.zeros(round(one.copies / 1e9 * _BANDWIDTH), np.uint8)
        super().__init__(fragment, *conditions, name=name)

    def setup(self, spec: OperatorSpec) -> None:
        """Declare an input for each flow, and an output."""
        for number in range(self.inputs):
            spec.input(f"in{number}")
        spec.output("out")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        """Take a message of each input, work, and send one."""
        frames = [op_input.receive(f"in{number}") for number in range(self.inputs)]
        sim.current_machine().sleep(self.host_time / 1e9)
        if self.work is None:
            op_output.emit(frames[0] if frames else 0, "out")
            return
        stream: Any = gpu.current_stream()
        blocks, nanoseconds = self.work
        kernel = sim.Kernel(self.name, nanoseconds / 1e9)
        config = gpu.LaunchConfig(grid=blocks, block=_THREADS)
        frame = sim.Device(0).allocate(max(8, self.copied.nbytes), stream=stream.stream)
        if self.copied.nbytes:
            active().copy(stream.stream, int(frame.handle), self.copied, self.copied.nbytes)
        gpu.launch(stream.stream, config, kernel)
        op_output.emit(frame, "out")


def blocks_of(curve: Curve, blocks_per_sm: int) -> tuple[int, int]:
    """Return the blocks, and the nanoseconds of each, whose waves come closest to a curve."""
    points = [(sms, times.p50) for sms, times in curve]
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


def profile_like(measured: Measured) -> sim.Profile:
    """Return the profile of the device that was measured, or one with as many SMs in groups of the same size."""
    for profile in sim.PROFILES.values():
        if profile.device_name.removesuffix(" (simulated)") == measured.device.removesuffix(" (simulated)"):
            return profile
    step = measured.sizes[0] if measured.sizes else measured.sm_count
    return dataclasses.replace(
        sim.PROFILES["h200"],
        name="measured",
        device_name=measured.device,
        clusters=(measured.sm_count,),
        min_partition_size=step,
        coscheduled_alignment=step,
    )


# A process uses one kind of device, so another one simulates.


def simulate_apart(
    measured: Measured, plans: Sequence[Plan], targets: Sequence[Target], frames: int
) -> list[list[float | None]]:
    """Return the figures of each target with each plan, from a process that has the simulated device."""
    task = pickle.dumps((measured, list(plans), list(targets), frames, profile_like(measured)))
    ran = subprocess.run(
        [sys.executable, "-m", __name__],
        input=task,
        stdout=subprocess.PIPE,
        env={**os.environ, "HEADRACE_DEVICE": "sim"},
        check=True,
    )
    found: list[list[float | None]] = pickle.loads(ran.stdout)
    return found


def main() -> None:
    """Simulate what stands on stdin, and write the figures to stdout."""
    measured, plans, targets, frames, profile = pickle.load(sys.stdin.buffer)
    found = [simulate(measured, plan, targets, frames, profile) for plan in plans]
    sys.stdout.buffer.write(pickle.dumps(found))


if __name__ == "__main__":
    main()
