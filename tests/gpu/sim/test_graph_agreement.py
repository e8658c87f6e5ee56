"""The simulated H200 still agrees with what graphs cost on a real one (benchmarks/results/graph_costs.md)."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.graph_costs import CALIBRATION, COMPARED, TOLERANCE, fit, simulated_time
from headrace.gpu import sim

REPORT = Path(__file__).parents[3] / "benchmarks" / "results" / "graph_costs.md"
ROW = re.compile(r"^\| (.+?) \| ([\d.]+) \| [\d.]+ \| .+% \| .+% \|$", re.MULTILINE)
MEASURED = (
    {name: float(p50) for name, p50 in ROW.findall(REPORT.read_text())}
    if REPORT.exists()
    else dict[str, float]()
)


@pytest.mark.skipif(not REPORT.exists(), reason="graphs have not been measured on a GPU")
def test_every_graph_was_measured() -> None:
    assert MEASURED.keys() == {*COMPARED, *(f"{name} (calibrated beside)" for name in CALIBRATION)}


@pytest.mark.parametrize("name", sorted(COMPARED.keys() & MEASURED.keys()))
def test_the_simulation_of_a_graph_is_within_its_tolerance_of_what_was_measured(name: str) -> None:
    simulated = simulated_time(COMPARED[name], sim.PROFILES["h200"])
    assert simulated == pytest.approx(MEASURED[name], rel=TOLERANCE)


def test_two_chains_are_enough_to_find_both_figures_of_a_profile() -> None:
    profile = replace(sim.PROFILES["h200"], graph_launch_overhead=7.3e-6, graph_node_overhead=0.9e-6)
    times = {name: simulated_time(shape, profile) for name, shape in CALIBRATION.items()}
    assert fit(times) == pytest.approx((7.3e-6, 0.9e-6))
