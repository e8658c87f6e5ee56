"""Measured programs for tests of the planner: kernels of known blocks, in flows that need each other's SMs."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from itertools import pairwise

from headrace.planner.measured import Curve, Measured, OperatorTimes, Times
from headrace.planner.plan import Plan
from headrace.planner.targets import Target

SIZES = tuple(range(8, 129, 8))
ALL = 132
HOST = Times(20e3, 30e3)


def fits(counts: Sequence[int]) -> int | None:
    """Return what slices of a device with 132 SMs in groups of 8 leave."""
    left = ALL - sum(counts)
    return left if left >= 0 and all(count % 8 == 0 for count in counts) else None


def waves(blocks: int, microseconds: float, sizes: Sequence[int] = (*SIZES, ALL)) -> Curve:
    """Return the curve of a kernel: two blocks on each SM at a time, each of so long."""
    found = {size: math.ceil(blocks / (2 * size)) * microseconds * 1e3 for size in sizes}
    return Curve({size: Times(time, 1.05 * time) for size, time in found.items()})


def neighbours() -> Measured:
    """Return a control loop of 400 Hz beside a network of 60 Hz whose kernels fill the device for 2 ms."""
    return Measured(
        "NVIDIA H200 (simulated)",
        ALL,
        SIZES,
        {
            "sense": OperatorTimes(Times(10e3, 12e3), None, 400, 2.5e6),
            "control": OperatorTimes(HOST, waves(16, 100), 400),
            "camera": OperatorTimes(HOST, None, 60, 1e9 / 60),
            "net": OperatorTimes(HOST, waves(2320, 200), 60),
            "vision": OperatorTimes(HOST, waves(200, 50), 60),
        },
        [("sense", "control"), ("camera", "net"), ("net", "vision")],
    )


def random_program(seed: int) -> tuple[Measured, list[Target]]:
    """Return a program of two to four chains, with a target for each of one to three of them."""
    made = random.Random(seed)
    operators: dict[str, OperatorTimes] = {}
    flows: list[tuple[str, str]] = []
    targets: list[Target] = []
    for chain in range(made.randint(2, 4)):
        names = [f"c{chain}_{number}" for number in range(made.randint(2, 4))]
        rate = made.choice((30, 100, 400))
        for number, name in enumerate(names):
            curve = waves(made.choice((8, 40, 200, 900)), made.choice((10, 40, 120))) if number else None
            host = Times(made.choice((5e3, 20e3, 60e3)), 70e3)
            operators[name] = OperatorTimes(
                host, curve, rate, 1e9 / rate if number == 0 else None, made.random()
            )
        flows += pairwise(names)
        if chain < 3 and (not targets or made.random() < 0.7):
            figure = made.choice(("p50", "p99", "rate"))
            bound = rate * made.uniform(0.5, 1.1) if figure == "rate" else made.uniform(0.2e6, 5e6)
            targets.append(Target(names[-1], figure, bound))
    return Measured("device", ALL, SIZES, operators, flows), targets


def not_simulated(
    measured: Measured, plans: Sequence[Plan], targets: Sequence[Target], frames: int
) -> list[list[float | None]]:
    """Know no figure: the model decides alone."""
    return [[None] * len(targets) for _ in plans]
