"""The simulated H200 still agrees with what was measured on a real one (benchmarks/results/agreement.md)."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.agreement import SCENARIOS, TOLERANCE
from benchmarks.isolation import Bench, run
from headrace.gpu import sim

REPORT = Path(__file__).parents[3] / "benchmarks" / "results" / "agreement.md"
ROW = re.compile(r"^\| (.+?) \| (.+?) \| (\d+) \| \d+ \| .+% \|$", re.MULTILINE)
MEASURED = {(scenario, case): int(p50) for scenario, case, p50 in ROW.findall(REPORT.read_text())}


@cache
def simulated(scenario: str) -> dict[str, float]:
    with sim.Machine("h200") as machine:
        results = run(Bench.simulated(machine), SCENARIOS[scenario], 1)
    return {case: float(np.median(latencies.gpu)) for case, latencies in results.items()}


def test_every_scenario_was_measured() -> None:
    assert {scenario for scenario, _ in MEASURED} == SCENARIOS.keys()
    assert len(MEASURED) == 4 * len(SCENARIOS)


@pytest.mark.parametrize(("scenario", "case"), MEASURED, ids=str)
def test_the_simulation_is_within_its_tolerance_of_what_was_measured(scenario: Any, case: Any) -> None:
    assert simulated(scenario)[case] == pytest.approx(MEASURED[scenario, case], rel=TOLERANCE)


def test_an_idle_stream_takes_the_launch_overhead_and_the_blocks_time(machine: sim.Machine) -> None:
    device = sim.Device(0)
    stream = device.create_stream()
    timed = sim.EventOptions(timing_enabled=True)
    begin, middle, end = (device.create_event(timed) for _ in range(3))
    stream.record(begin)
    sim.launch(stream, sim.LaunchConfig(grid=1, block=32), sim.Kernel("k", 100e-6))
    stream.record(middle)
    sim.launch(stream, sim.LaunchConfig(grid=1, block=32), sim.Kernel("k", 100e-6))
    stream.record(end)
    stream.sync()
    overhead = sim.PROFILES["h200"].launch_overhead * 1e3
    assert middle - begin == pytest.approx(0.1 + overhead)
    assert end - middle == pytest.approx(0.1)  # the second launch was on its way while the first ran
