"""What CUPTI sees of a pipeline of CuPy and PyTorch stages; in a process of its own, since tracing takes time."""

from __future__ import annotations

from typing import Any

import pytest

from tests.harness.processes import output_of


def test_tensors_stop_the_host_nowhere_and_leave_the_default_stream_alone(real: Any) -> None:
    for library in ("cupti", "cupy", "torch"):
        pytest.importorskip(library)
    output_of("-m", "benchmarks.gpu_trace", HEADRACE_DEVICE="cuda")
