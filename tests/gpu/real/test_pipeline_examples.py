"""The examples of pipelines with streams, on a real GPU; tests/examples/test_examples.py has them simulated."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.harness.processes import EXAMPLES, output_of


@pytest.fixture(autouse=True)
def real(bench: Any) -> Any:
    if bench.is_simulated:
        pytest.skip("tests/examples/test_examples.py has it")
    return bench


def run(example: str, *arguments: str) -> str:
    return output_of(EXAMPLES / example, *arguments, HEADRACE_DEVICE="cuda")


def test_two_flows_run_on_two_slices() -> None:
    pytest.importorskip("cupy")
    lines = run("parallel_slices.py", "--count", "200").splitlines()
    assert lines[1:] == [
        "flow 0: 16 SMs (16 asked for), 200 of 200 results right",
        "flow 1: 40 SMs (40 asked for), 200 of 200 results right",
    ]


@pytest.mark.parametrize("flags", [[], ["--green-context"], ["--default-stream"]], ids=" ".join)
def test_two_sources_are_combined(flags: list[str]) -> None:
    pytest.importorskip("cupy")
    lines = run("combine_streams.py", "--count", "200", *flags).splitlines()
    assert lines[-1] == "200 of 200 results right"
    assert ("source1: a stream of its own, 16 SMs" in lines) == (flags == ["--green-context"])


def test_a_chain_is_captured() -> None:
    pytest.importorskip("cupy")
    lines = run("captured_chain.py", "--count", "500").splitlines()
    assert lines[1:3] == [
        "without capture: 500 of 500 results right",
        "captured: 500 of 500 results right",
    ]
    found = re.search(r"captured; (\d+) of 500 frames replayed", lines[3])
    assert found is not None, lines
    assert int(found[1]) > 400


def test_the_noisy_neighbour_is_measured_and_makes_its_point(tmp_path: Path) -> None:
    pytest.importorskip("rich")
    pytest.importorskip("matplotlib")
    out = run("noisy_neighbour.py", "--out", str(tmp_path / "demo.png"))
    found = re.search(r"p99 is ([\d.]+) times .* SMs it is ([\d.]+) times. Wrong frames: (\d+)", out)
    assert found is not None, out
    assert float(found[2]) < float(found[1]) / 2  # how much depends on the machine; that it helps does not
    assert found[3] == "0"
    assert "These figures are measured, in real time." in out


def test_the_endoscope_is_measured_and_scores_every_frame(tmp_path: Path) -> None:
    for needed in ("rich", "matplotlib", "PIL", "onnx", "onnxruntime"):
        pytest.importorskip(needed)
    out = run("endoscope.py", "--seconds", "3", "--out", str(tmp_path / "endoscope.png"))
    assert "Wrong frames: 0 of 360." in out
    assert re.search(r"frames lost / late at camera +│ +0 / \d+ │ +0 / \d+ │", out), out
    assert "These figures are measured, in real time." in out
    # How many depends on the machine; a deadline that the host missed says nothing about the SMs.
    found = re.search(r"missed by the GPU / the host +│ +(\d+) / \d+ │ +(\d+) / \d+ │", out)
    assert found is not None, out
    assert int(found[1]) > 0
    assert int(found[2]) == 0
    assert re.search(r"loop: \d+ of 277 .*on shared SMs, \d+ of 277 .*on its own 8 SMs", out), out
