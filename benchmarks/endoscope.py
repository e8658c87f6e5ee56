"""The demo for a minute, and where the time of the host goes: 4K at 60 frames a second beside a control loop.

    python -m benchmarks.endoscope [--size 3840 2160] [--rate 60] [--seconds 60] [--networks auto] [--save]

The first network is measured for all of the time, further ones for up to 10 s each. With `--save`, the report, the
samples of the first (`endoscope.json`) and its picture (`endoscope-demo.png`) go to `benchmarks/results`, or to the
folder that `HEADRACE_RESULTS` names. `python examples/endoscope.py --load benchmarks/results/endoscope.json` shows
them again.
"""

from __future__ import annotations

import argparse
import gc
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import report
from headrace import gpu

sys.path.insert(
    0, str(Path(__file__).parents[1] / "examples")
)  # an example imports examples/shared as `shared`

import endoscope
from shared import endoscope_report

SHORT = 10.0  # seconds of each network but the first


class Collections:
    """The pauses of Python's garbage collector, in ms; those of a warm-up do not count."""

    def __enter__(self) -> Collections:
        self.pauses: list[float] = []
        self._began = 0.0
        gc.callbacks.append(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        gc.callbacks.remove(self._note)

    def _note(self, phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            self._began = time.perf_counter()
        elif not gc.isenabled() or gpu.backend() != "cuda":
            self.pauses.append(1e3 * (time.perf_counter() - self._began))


def tables(result: endoscope.Report, profile: dict[str, dict[str, list[float]]]) -> list[str]:
    """Return the figures of a run, and the time of the host in each operator."""
    figures = report.table(
        ["", *(case.name for case in result.cases)],
        [[name, *values] for name, values in endoscope_report.rows(result)],
    )
    rows = []
    for name in next(iter(profile.values())):
        row = [name]
        for times in profile.values():
            counted = times[name][len(times[name]) // 10 :] or [0.0]
            middle, high = np.percentile(counted, (50, 99))
            row.append(f"{middle:.3f} / {high:.3f} / {max(counted):.2f}")
        rows.append(row)
    hosts = report.table(["ms of the host: p50 / p99 / max", *(case.name for case in result.cases)], rows)
    longest = []
    for case in result.cases:
        worst = sorted(zip(case.control, case.begun, case.on_gpu, strict=True), reverse=True)[:5]
        shown = ", ".join(f"{latency:.2f} ({begun:.2f}, {on_gpu:.2f})" for latency, begun, on_gpu in worst)
        longest.append(
            f"{case.name}: the longest control steps in ms (launched late by, time on the GPU): {shown}"
        )
    return [result.cases[0].network, figures, hosts, *longest]


def measure(settings: endoscope.Settings, network: str) -> tuple[endoscope.Report, Any, list[str]]:
    profile: dict[str, dict[str, list[float]]] = {}
    began = time.perf_counter()
    before = resource.getrusage(resource.RUSAGE_SELF)
    with Collections() as collections:
        result, picture = endoscope.measure(settings, network, profile)
    spent, used = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF)
    processor = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
    costs = (
        f"With the warm-up: {spent:.1f} s, {processor:.1f} s of processor time. After it the garbage collector ran "
        f"{len(collections.pauses)} times, for at most {max(collections.pauses, default=0):.1f} ms."
    )
    return result, picture, [*tables(result, profile), costs, result.conclusion()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--size", type=int, nargs=2, default=(3840, 2160), metavar=("WIDTH", "HEIGHT"))
    parser.add_argument("--rate", type=float, default=60.0)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--networks", nargs="+", choices=("auto", "onnxrt", "torch"), default=["auto"])
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    folder = Path(os.environ.get("HEADRACE_RESULTS", report.RESULTS))
    text: list[str] = []
    for place, network in enumerate(options.networks):
        seconds = options.seconds if place == 0 else min(SHORT, options.seconds)
        settings = endoscope.Settings(*options.size, options.rate, seconds)
        result, picture, lines = measure(settings, network)
        if place == 0:
            device = result.device + ("" if result.measured else f" ({result.kind})")
            width, height = options.size
            what = (
                f"{width}x{height} at {options.rate:g} frames/s, {seconds:g} s on shared and {seconds:g} s on "
                f"separate SMs, in {result.clock} time."
            )
            text = ["# The demo: an endoscope beside a control loop", report.circumstances(device), what]
            if options.save:
                endoscope_report.save(result, picture, folder / "endoscope.json")
                endoscope_report.draw(result, picture, folder / "endoscope-demo.png")
        else:
            text.append(f"Another runtime for the network, for {seconds:g} s:")
        text += lines
        print("\n\n".join(lines), flush=True)  # what is known even if a later one fails
    report.publish("endoscope", "\n\n".join(text))


if __name__ == "__main__":
    os.environ["HEADRACE_SIM_TIME"] = "virtual"  # which a simulated GPU runs in here, and is said to run in
    if gpu.backend() != "cuda":
        print("There is no GPU: these figures are simulated.", file=sys.stderr)
    main()
