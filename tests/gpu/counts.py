"""A plugin that writes the counts of a run of the tests on a GPU to a file, with date, machine and commit.

``make gpu-test`` loads it. Code for the GPU counts as working at the commit that stands there.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks.report import RESULTS, circumstances, table
from headrace import gpu

KINDS = ("passed", "failed", "error", "skipped")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    counts = [len(terminalreporter.stats.get(kind, [])) for kind in KINDS]
    failed = [
        report.nodeid for kind in ("failed", "error") for report in terminalreporter.stats.get(kind, [])
    ]
    lines = [
        "# The tests on a GPU",
        f"`make gpu-test`, {circumstances(gpu.Device(0).name)}.",
        table(KINDS, [counts]),
        *([f"Failed: {', '.join(failed)}."] if failed else []),
    ]
    folder = Path(os.environ.get("HEADRACE_RESULTS", RESULTS))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "gpu_tests.md").write_text("\n\n".join(lines) + "\n")
