"""What `headrace bench` does with its options."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import time
from datetime import date
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks.common import ROOT, machine
from benchmarks.report import RESULTS, commit
from benchmarks.sides import report
from benchmarks.sides.measuring import Places, measure
from benchmarks.sides.scenario import HOLOSCAN, SDKS, Scenario
from benchmarks.sides.scenarios import SCENARIOS
from headrace.installation import in_checkout

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
    folder, docs = options.output, options.output if options.page else None
    if options.page and in_checkout():
        folder, docs = RESULTS, ROOT / "docs"
        _join(results, RESULTS / "bench.json")
    files = report.write(results, folder, docs)
    print("\nin", ", ".join(map(str, files)))
    return 1 if any(way["name"].startswith("headrace") for way in failed) else 0


def _measure(chosen: list[Scenario], options: argparse.Namespace) -> dict[str, Any]:
    """Measure scenarios one after the other; what is known is in the folder after each."""
    try:
        sdks = dict(map(_sdk_of, options.holoscan_python))
    except ValueError as error:
        options.error(f"--holoscan-python: {error}")
    results = _about(list(sdks))
    compiled = options.compiled and str(Path(options.compiled).resolve())
    places = Places(sdks, compiled, results["about"]["device"] != NO_GPU)
    share, rounds = (0.05, 1) if options.quick else (1.0, options.rounds and int(options.rounds))
    for scenario in chosen:
        print(f"\n## {scenario.title}\n", flush=True)
        began = time.monotonic()
        found = report.as_json(scenario, measure(scenario, places, share, rounds))
        results["scenarios"].append(found)
        print(f"{report.as_text(found)}\n\n{time.monotonic() - began:.0f} s", flush=True)
        report.keep(results, options.output)
    return results


def _sdk_of(python: str) -> tuple[str, str]:
    """Return the version of the Holoscan SDK that an interpreter has, and the path of the interpreter."""
    path = shutil.which(python)
    if path is None:
        raise ValueError(f"there is no program {python}")
    # Ways run in another folder. A link stays one: it tells an interpreter which environment is its own.
    path = os.path.abspath(path)
    code = "from benchmarks.sides.scenario import sdk_version; print(sdk_version())"
    done = subprocess.run([path, "-c", code], capture_output=True, text=True, cwd=ROOT)
    version = done.stdout.strip()
    if not version:
        why = "".join(done.stderr.strip().splitlines()[-1:])
        raise ValueError(f"{python} has none of {', '.join(SDKS)}{why and f' ({why})'}")
    return version, path


def _about(sdks: list[str]) -> dict[str, Any]:
    """Return the date, the machine, the versions and the commit."""
    versions = [f"Python {platform.python_version()}"]
    for name in PEERS:
        try:
            versions.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    versions += [f"{HOLOSCAN} {version}" for version in sdks]
    about = {
        "date": str(date.today()),
        "machine": machine(),
        "device": _device(),
        "commit": commit(),
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
