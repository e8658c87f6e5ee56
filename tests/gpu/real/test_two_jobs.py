"""The example of two CuPy jobs on two partitions."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def run(device: str) -> subprocess.CompletedProcess:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PENSTOCK_DEVICE": device}
    return subprocess.run(
        [sys.executable, str(ROOT / "examples" / "two_jobs.py")],
        env=environment,
        capture_output=True,
        text=True,
    )


def test_the_small_job_does_not_wait_for_the_big_one(bench):
    if bench.is_simulated:
        told = run("sim")
        assert told.returncode == 1
        assert "needs a GPU" in told.stderr
        return
    pytest.importorskip("cupy")
    told = run("cuda")
    assert told.returncode == 0, told.stderr
    assert "bulk job done by then: False" in told.stdout
