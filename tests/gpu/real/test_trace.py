"""What CUPTI sees of a pipeline of CuPy and PyTorch stages; in a process of its own, since tracing takes time."""

import subprocess
import sys
from typing import Any

import pytest


def test_tensors_stop_the_host_nowhere_and_leave_the_default_stream_alone(real: Any) -> None:
    for library in ("cupti", "cupy", "torch"):
        pytest.importorskip(library)
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu_trace"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
