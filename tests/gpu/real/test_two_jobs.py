"""The example of two CuPy jobs on two partitions."""

from __future__ import annotations

import pytest

from tests.gpu.bench import Bench
from tests.harness.processes import EXAMPLES, output_of, run_python

EXAMPLE = EXAMPLES / "two_jobs.py"


def test_the_small_job_does_not_wait_for_the_big_one(bench: Bench) -> None:
    if bench.is_simulated:
        told = run_python(EXAMPLE)
        assert told.returncode == 2
        assert "needs a GPU" in told.stderr
        return
    pytest.importorskip("cupy")
    assert "bulk job done by then: False" in output_of(EXAMPLE, HEADRACE_DEVICE="cuda")
