"""Programs that run in a process of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.harness.threads import PATIENCE

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


def run_python(
    *arguments: object, cwd: Path | None = None, timeout: float = 300, **environment: str | None
) -> subprocess.CompletedProcess[str]:
    """Run Python with the modules of this process, on the simulated device unless the environment says otherwise.

    Parameters
    ----------
    environment
        Variables to set, or with None to unset.
    """
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        env=environment_of_programs(**environment),
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def output_of(*arguments: object, cwd: Path | None = None, **environment: str | None) -> str:
    """Return what a program prints that must succeed."""
    done = run_python(*arguments, cwd=cwd, **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def signal_python(number: signal.Signals, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run Python, and send it a signal once it has printed a first line."""
    process = subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        env=environment_of_programs(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def environment_of_programs(**changes: str | None) -> dict[str, str]:
    """Return the environment of a program that uses the modules of this process, with changes."""
    path = os.pathsep.join(filter(None, sys.path))
    changed = {**os.environ, "HEADRACE_DEVICE": "sim", "PYTHONPATH": path, **changes}
    return {name: value for name, value in changed.items() if value is not None}
