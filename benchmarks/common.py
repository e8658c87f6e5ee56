"""Shared by the benchmarks: a description of the machine, tables, and runs on another interpreter."""

from __future__ import annotations

import importlib
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from benchmarks import report

ROOT = Path(__file__).parents[1]


def machine() -> str:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    python = f"CPython {platform.python_version()}{report.build()}"
    return f"{cores} cores, {platform.machine()}, {platform.system()}, {python}"


def resident() -> float:
    """Return the resident memory in MiB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("no VmRSS in /proc/self/status")


def table(title: str, columns: list[str], rows: list[list[Any]]) -> None:
    """Print a table under a title, floats with two digits."""
    short = [[f"{cell:.2f}" if isinstance(cell, float) else cell for cell in row] for row in rows]
    print(f"\n## {title}\n\n{report.table(columns, short)}")


def load(package: str) -> SimpleNamespace:
    """Return the public names of `headrace` or `holoscan` in one namespace."""
    names: dict[str, Any] = {}
    # headrace has the application in the package itself.
    for part in ("", ".core", ".conditions", ".schedulers", ".resources"):
        module = importlib.import_module(f"{package}{part}")
        names.update({name: getattr(module, name) for name in dir(module) if not name.startswith("_")})
    return SimpleNamespace(**names)


def elsewhere(interpreter: str, benchmark: str, arguments: list[str]) -> Any:
    """Run a benchmark on another interpreter; return the JSON of the last line that begins with RESULT."""
    command = [interpreter, "-m", f"benchmarks.{benchmark}", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    for line in reversed(done.stdout.splitlines()):
        if line.startswith("RESULT "):
            return json.loads(line[7:])
    sys.exit(f"{' '.join(command)} gave no result:\n{done.stderr[-2000:]}")


def result(value: Any) -> None:
    print("RESULT " + json.dumps(value), flush=True)
