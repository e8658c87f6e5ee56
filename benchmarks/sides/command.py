"""What `headrace bench` does with its options."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import time
from datetime import date
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks.common import ROOT, machine
from benchmarks.report import RESULTS
from benchmarks.sides import report
from benchmarks.sides.measuring import Places, measure
from benchmarks.sides.scenario import HOLOSCAN, Scenario
from benchmarks.sides.scenarios import SCENARIOS

NO_GPU = "no GPU"
PEERS = (
    "headrace",
    "holoscan",
    "ezmsg",
    "cupy-cuda13x",
    "cupy-cuda12x",
    "torch",
    "cuda-core",
    "opencv-python-headless",
)


def main(options: argparse.Namespace) -> int:
    """Run the command; return its exit status."""
    names = [scenario.name for scenario in SCENARIOS]
    unknown = set(options.scenarios) - set(names)
    if unknown:
        options.error(f"no scenario {', '.join(sorted(unknown))}: there are {', '.join(names)}")
    if options.list:
        for scenario in SCENARIOS:
            print(f"{scenario.name:<14} {scenario.title}{' (GPU)' if scenario.needs_gpu else ''}")
        return 0
    chosen = [
        scenario
        for scenario in SCENARIOS
        if (scenario.name in options.scenarios if options.scenarios else scenario.needs_gpu == options.gpu)
    ]
    if options.take is not None:
        try:
            results = json.loads(options.take.read_text())
        except (OSError, ValueError) as error:
            options.error(f"cannot read {options.take}: {error}")
    else:
        results = _measure(chosen, options)
    failed = [way for each in results["scenarios"] for way in each["ways"] if "failed" in way["skipped"]]
    if options.page:
        _join(results, RESULTS / "bench.json")
    files = report.write(
        results, RESULTS if options.page else options.output, ROOT / "docs" if options.page else None
    )
    print("\nin", ", ".join(map(str, files)))
    return 1 if any(way["name"].startswith("headrace") for way in failed) else 0


def _measure(chosen: list[Scenario], options: argparse.Namespace) -> dict[str, Any]:
    """Measure scenarios one after the other; what is known is in the folder after each."""
    try:
        sdks = {_sdk_of(python): python for python in options.holoscan_python}
    except OSError as error:
        options.error(f"cannot run the interpreter with the Holoscan SDK: {error}")
    results = _about(list(sdks))
    places = Places(sdks, options.compiled, results["about"]["device"] != NO_GPU)
    share, rounds = (0.05, 1) if options.quick else (1.0, options.rounds and int(options.rounds))
    for scenario in chosen:
        print(f"\n## {scenario.title}\n", flush=True)
        began = time.monotonic()
        found = report.as_json(scenario, measure(scenario, places, share, rounds))
        results["scenarios"].append(found)
        print(f"{report.as_text(found)}\n\n{time.monotonic() - began:.0f} s", flush=True)
        report.keep(results, options.output)
    return results


def _sdk_of(python: str) -> str:
    """Return the version of the Holoscan SDK that an interpreter has."""
    code = "from benchmarks.sides.scenario import sdk_version; print(sdk_version())"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, cwd=ROOT)
    return done.stdout.strip() or "of unknown version"


def _about(sdks: list[str]) -> dict[str, Any]:
    """Return the date, the machine, the versions and the commit."""
    versions = [f"Python {platform.python_version()}"]
    for name in PEERS:
        try:
            versions.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    versions += [f"{HOLOSCAN} {version}" for version in sdks]
    found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    about = {
        "date": str(date.today()),
        "machine": machine(),
        "device": _device(),
        "commit": os.environ.get("HEADRACE_COMMIT") or found.stdout.strip() or "unknown",
        "versions": ", ".join(versions),
    }
    return {"about": about, "scenarios": []}


def _device() -> str:
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        return NO_GPU
    return done.stdout.strip().splitlines()[0] if done.returncode == 0 else NO_GPU


def _join(results: dict[str, Any], path: Path) -> None:
    """Keep the scenarios of earlier runs that were not measured now, with what was said about them."""
    if not path.exists():
        return
    earlier = json.loads(path.read_text())
    measured = {
        scenario["name"]: scenario
        for scenario in results["scenarios"]
        if any(way["figures"] for way in scenario["ways"])
    }
    for scenario in earlier["scenarios"]:
        if scenario["name"] not in measured:
            measured[scenario["name"]] = {**scenario, "about": scenario.get("about", earlier["about"])}
    order = [scenario.name for scenario in SCENARIOS]
    results["scenarios"] = sorted(measured.values(), key=lambda scenario: order.index(scenario["name"]))
