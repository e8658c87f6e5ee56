"""The examples run, and importing the package stays cheap in what it pulls in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PENSTOCK_DEVICE": "sim"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_first_pipeline_shows_twenty_samples() -> None:
    assert len(run(str(EXAMPLES / "first_pipeline.py")).splitlines()) == 20


def test_the_operators_example_loses_nothing() -> None:
    out = run(str(EXAMPLES / "operators.py"))
    assert out.splitlines()[-1].startswith("dropped: {}")
    assert out.count("preview") == 8


def test_the_operators_example_can_be_drawn() -> None:
    assert run(str(EXAMPLES / "operators.py"), "--draw").startswith("flowchart LR")


@pytest.mark.parametrize("heavy", ["cuda", "cupy", "torch", "yaml", "asyncio", "rich", "matplotlib"])
def test_importing_penstock_imports_nothing_heavy(heavy: str) -> None:
    assert run("-c", f"import sys, penstock; print({heavy!r} in sys.modules)").strip() == "False"
