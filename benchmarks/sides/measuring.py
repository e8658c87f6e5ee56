"""Run the ways of a scenario in turn, each in a process of its own, and compare their answers."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.common import ROOT
from benchmarks.sides.scenario import HOLOSCAN, Scenario, Way


@dataclass(frozen=True)
class Places:
    """Where else ways run: interpreters with the Holoscan SDK by version, a folder with a compiled build."""

    holoscan: dict[str, str] = field(default_factory=dict)
    compiled: str | None = None
    has_gpu: bool = False


@dataclass
class Measured:
    """What is known of one way."""

    name: str
    figures: list[float] = field(default_factory=list)
    skipped: str = ""
    answer: Any = None
    note: str = ""

    @property
    def figure(self) -> float:
        """Return the median of the rounds."""
        return statistics.median(self.figures)


def measure(scenario: Scenario, places: Places, share: float, rounds: int | None) -> list[Measured]:
    """Return what is known of each way; those that are missing, fail or do other work say so."""
    runs = [run for place, way in enumerate(scenario.ways) for run in _runs(place, way, places)]
    found = [Measured(name) for name, _, _, _ in runs]
    if scenario.needs_gpu and not places.has_gpu:
        for measured in found:
            measured.skipped = "there is no GPU"
    for _ in range(rounds or scenario.rounds):  # in turn, so that all see the same load of the machine
        for (_, place, interpreter, path), measured in zip(runs, found, strict=True):
            if not measured.skipped:
                _run(scenario, place, interpreter, path, share, measured)
    _compare(found)
    return found


def _runs(place: int, way: Way, places: Places) -> list[tuple[str, int, str, str | None]]:
    """Return how a way is run: its name, place, interpreter, and the folder of its package."""
    if way.name.startswith(HOLOSCAN):
        versions = places.holoscan or {"": sys.executable}
        names = [way.name.replace(HOLOSCAN, f"{HOLOSCAN} {version}".strip()) for version in versions]
        return [(name, place, python, "") for name, python in zip(names, versions.values(), strict=True)]
    runs: list[tuple[str, int, str, str | None]] = [(way.name, place, sys.executable, None)]
    if way.is_headrace and places.compiled:
        runs.append((f"{way.name}, compiled", place, sys.executable, places.compiled))
    return runs


def _run(
    scenario: Scenario, place: int, interpreter: str, path: str | None, share: float, measured: Measured
) -> None:
    inherited = os.environ.get("PYTHONPATH", "")
    folders = [str(ROOT)] if path == "" else [path or "", str(ROOT), inherited]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, folders))}
    environment.setdefault("HEADRACE_DEVICE", "cuda" if scenario.needs_gpu else "none")
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [interpreter, "-m", "benchmarks.sides.one", scenario.name, str(place), str(share)]
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=scenario.timeout
        )
    except subprocess.TimeoutExpired:
        measured.skipped = f"failed: took more than {scenario.timeout:.0f} s"
        return
    except OSError as error:
        measured.skipped = f"failed: {error}"
        return
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if not lines:
        said = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        measured.skipped = f"failed: {said[:200]}"
        return
    try:
        told = json.loads(lines[-1].removeprefix("RESULT "))
    except ValueError:
        measured.skipped = f"failed: it said {lines[-1][:200]!r}"
        return
    if told.get("missing"):
        measured.skipped = f"{told['missing']} is not installed"
        return
    if path and told["compiled"] != str(Path(path).resolve()):
        measured.skipped = f"failed: {path} has no compiled build for this Python"
        return
    measured.figures.append(told["figure"])
    measured.answer, measured.note = told["answer"], told["note"]


def _compare(found: list[Measured]) -> None:
    """Strike out the ways whose answer is not that of the first one."""
    answers = [measured.answer for measured in found if measured.figures]
    for measured in found:
        if measured.figures and measured.answer != answers[0]:
            measured.skipped = f"did other work: {measured.answer}, not {answers[0]}"
