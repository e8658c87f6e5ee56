"""Write a report of results: tables, and the circumstances of the measurement."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def circumstances(device: str) -> str:
    """Return a line with the date, the machine and the commit of the figures."""
    return (
        f"{date.today()}, {device}; {os.cpu_count()} {platform.machine()} cores, "
        f"Python {platform.python_version()}{build()}; commit {commit()}"
    )


def commit() -> str:
    """Return the commit of the checkout: an installation in a folder of another repository has none."""
    root = Path(__file__).parents[1]
    told = os.environ.get("HEADRACE_COMMIT", "")
    if not told and (root / ".git").exists():
        command = ["git", "-C", str(root), "rev-parse", "--short", "HEAD"]
        told = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return told or "unknown"


def build() -> str:
    """Return a suffix for the version of Python if headrace's hot path is compiled."""
    # Imported here because the Holoscan SDK is measured on an interpreter that may lack headrace.
    from headrace._runtime.scheduling.engine import is_compiled

    return ", compiled" if is_compiled() else ""


def publish(name: str, text: str) -> None:
    """Print a report, and write it to a file if ``--save`` was given."""
    print(text)
    if "--save" in sys.argv:
        folder = Path(os.environ.get("HEADRACE_RESULTS", RESULTS))
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.md").write_text(text + "\n")
