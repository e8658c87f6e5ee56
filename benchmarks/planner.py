"""Compare planned layouts with the declared default, equal slices and slices chosen by hand; check the predictions.

    python -m benchmarks.planner [endoscope] [ultrasound] [cameras] [--save] [--frames 100] [--turns 3]

It runs on a GPU, or on the simulated one. Three applications, whose kernels spin in blocks of 1,024 threads, so
their times are known: an endoscope beside a control loop, an ultrasound-like chain beside a control loop, and three
cameras with one network. Each layout runs in the same turns. The figure of a layout is the smallest margin of the
goals, as a share of their bounds; what was predicted of the plan stands beside what was measured.

Each run is printed when it is over. With `--save`, what is known of an application is written after each turn, to
`planner.json` in `benchmarks/results` or in the folder that `HEADRACE_RESULTS` names, with the page `planner.md` of
all that is in it. So applications can be measured one at a time, and a call that is cut short keeps what it has.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from benchmarks.isolation import SPIN
from benchmarks.report import RESULTS, circumstances, table
from headrace import Application, EventBasedScheduler, Operator, PeriodicCondition, gpu
from headrace.cli.plan_simulation import simulate_apart
from headrace.planner import Plan, Target, make_plan
from headrace.planner.deciding import describe
from headrace.planner.measuring import limits_of, observe

US = 1_000


class Work(Operator):
    """Launches a kernel of so many blocks that each spin for so long, and sends what it received."""

    def __init__(
        self, fragment: Any, *args: Any, blocks: int, us: int, inputs: int = 1, **kwargs: Any
    ) -> None:
        self.blocks, self.time, self.inputs = blocks, np.int64(us * US), inputs
        super().__init__(fragment, *args, **kwargs)

    def setup(self, spec: Any) -> None:
        """Declare an input for each flow, and an output."""
        for number in range(self.inputs):
            spec.input(f"in{number}")
        spec.output("out")

    def start(self) -> None:
        """Load the kernel."""
        self.kernel = SPIN.on(gpu.Device(0))

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        """Launch the kernel behind the work of all inputs."""
        frames = [op_input.receive(f"in{number}") for number in range(self.inputs)]
        stream: Any = gpu.current_stream()
        gpu.launch(stream.stream, gpu.LaunchConfig(grid=self.blocks, block=1024), self.kernel, self.time)
        op_output.emit(gpu.Device(0).allocate(64, stream=stream.stream) if frames else 0, "out")


class Sensor(Operator):
    """Sends a number at each tick; it does not use the device."""

    number = 0

    def setup(self, spec: Any) -> None:
        """Declare an output."""
        spec.output("out")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        """Send a number."""
        self.number += 1
        op_output.emit(self.number, "out")


class Chains(Application):
    """Sensors with chains of kernels behind them, on two workers."""

    chains: ClassVar[dict[str, tuple[float, list[tuple[str, int, int]]]]]

    def compose(self) -> None:
        """Make each chain."""
        self.scheduler(EventBasedScheduler(self, worker_thread_number=2))
        for source, (rate, steps) in self.chains.items():
            before: Any = Sensor(self, PeriodicCondition(self, round(1e9 / rate)), name=source)
            for name, blocks, us in steps:
                step = Work(self, blocks=blocks, us=us, name=name)
                self.add_flow(before, step, {("out", "in0")})
                before = step


class Endoscope(Chains):
    """A camera of 60 Hz, a network that fills the device for milliseconds, and a control loop of 400 Hz.

    The control loop has 64 blocks, of which two fill an SM: 8 SMs take four waves, 32 take one.
    """

    goals = ("control: p99 < 2ms", "overlay: p99 < 8500us")
    by_hand: ClassVar[dict[str, tuple[int, list[str]]]] = {"control": (16, ["control"])}
    chains: ClassVar[dict[str, tuple[float, list[tuple[str, int, int]]]]] = {
        "camera": (60.0, [("enhance", 264, 100), ("network", 2112, 400), ("overlay", 264, 100)]),
        "sense": (400.0, [("control", 64, 400)]),
    }


class Ultrasound(Chains):
    """A probe of 100 Hz with a chain of four kernels, and a control loop of 500 Hz with two."""

    goals = ("steer: p99 < 1500us", "show: p99 < 4ms")
    by_hand: ClassVar[dict[str, tuple[int, list[str]]]] = {"steer": (16, ["track", "steer"])}
    chains: ClassVar[dict[str, tuple[float, list[tuple[str, int, int]]]]] = {
        "probe": (
            100.0,
            [("form", 1056, 300), ("envelope", 528, 100), ("convert", 528, 150), ("show", 264, 50)],
        ),
        "tick": (500.0, [("track", 48, 100), ("steer", 48, 150)]),
    }


class Cameras(Application):
    """Three cameras of 30 Hz with one trigger and one network, and training beside them that fills the device.

    With a clock each, the cameras would wait at the network for the one that began last.
    """

    goals = ("detect: p99 < 12ms",)
    by_hand: ClassVar[dict[str, tuple[int, list[str]]]] = {
        "detect": (64, ["prepare0", "prepare1", "prepare2", "network", "detect"])
    }

    def compose(self) -> None:
        """Join the cameras at the network."""
        self.scheduler(EventBasedScheduler(self, worker_thread_number=2))
        network = Work(self, blocks=1056, us=200, inputs=3, name="network")
        trigger = Sensor(self, PeriodicCondition(self, "30Hz"), name="trigger")
        for number in range(3):
            prepare = Work(self, blocks=132, us=100, name=f"prepare{number}")
            self.add_flow(trigger, prepare, {("out", "in0")})
            self.add_flow(prepare, network, {("out", f"in{number}")})
        self.add_flow(network, Work(self, blocks=32, us=100, name="detect"), {("out", "in0")})
        batches = Sensor(self, PeriodicCondition(self, "25Hz"), name="batches")
        self.add_flow(batches, Work(self, blocks=2112, us=1000, name="train"), {("out", "in0")})


def compare(make: type[Any], frames: int, turns: int, keep: Callable[[dict[str, Any]], None]) -> None:
    """Plan an application, and run it with each layout in turns; `keep` is called with what is known so far."""
    app = make()
    targets = [Target.parse(goal) for goal in make.goals]
    began = time.perf_counter()

    def say(line: str) -> None:
        print(f"{time.perf_counter() - began:6.1f} s  {line}", flush=True)

    decision = make_plan(app, targets, simulate_apart, frames=frames, report=say)
    none = replace(decision.plan, slices={}, shared_streams=[], segments=[])
    layouts: dict[str, Plan | None] = {
        "declared": None,
        "equal slices": replace(none, slices=_equal(decision.plan, targets)),
        "by hand": replace(none, slices=make.by_hand),
        "planned": decision.plan,
    }
    limits = limits_of(app.graph, frames)
    figures: dict[str, list[list[float | None]]] = {name: [] for name in layouts}
    for turn in range(turns):
        for name, plan in layouts.items():
            observed = observe(app, plan, targets, limits)
            figures[name].append([observed.figure(target) for target in targets])
            shown = "; ".join(map(_shown, targets, figures[name][-1]))
            say(f"turn {turn + 1}, {name}: {shown}")
        keep(
            {
                "where": circumstances(gpu.Device(0).name),
                "turns": turn + 1,
                "frames": frames,
                "goals": list(map(str, targets)),
                "predicted": [figure.predicted for figure in decision.figures],
                "agrees": decision.agrees,
                "layouts": {
                    name: {"slices": describe(plan or none), "figures": figures[name]}
                    for name, plan in layouts.items()
                },
            }
        )


def page(found: dict[str, dict[str, Any]]) -> str:
    """Return the page of all applications that were measured."""
    layouts: list[list[object]] = []
    checks: list[list[object]] = []
    notes = []
    for application, known in found.items():
        targets = list(map(Target.parse, known["goals"]))
        for name, one in known["layouts"].items():
            values = [_median(list(turns)) for turns in zip(*one["figures"], strict=True)]
            margins = [
                -1.0 if value is None else target.margin(value)
                for target, value in zip(targets, values, strict=True)
            ]
            shown = "; ".join(map(_shown, targets, values))
            layouts.append([application, name, one["slices"], shown, f"{min(margins):.0%}"])
            if name == "planned":
                checks += [
                    [
                        application,
                        target,
                        target.shown(predicted),
                        _shown(target, value),
                        "none" if value is None else f"{predicted / value:.2f}",
                    ]
                    for target, predicted, value in zip(targets, known["predicted"], values, strict=True)
                ]
        agree = "agree" if known["agrees"] else "do not agree"
        notes.append(
            f"- {application}: {known['where']}; medians of {known['turns']} turns of {known['frames']} ticks of "
            f"the slowest clock; the planner said that its predictions {agree}."
        )
    return "\n\n".join(
        [
            "# Layouts that were planned, beside others",
            "`python -m benchmarks.planner`. The margin of a goal that too few frames reached is -100 %.",
            "\n".join(notes),
            table(["application", "layout", "slices", "figures", "smallest margin"], layouts),
            "## What was predicted of the plan",
            table(["application", "goal", "predicted", "measured", "predicted / measured"], checks),
        ]
    )


def _shown(target: Target, value: float | None) -> str:
    return "none" if value is None else target.shown(value)


def _equal(plan: Plan, targets: list[Target]) -> dict[str, tuple[int, list[str]]]:
    """Return slices of one size: one for each goal's operators, and as many SMs for the rest."""
    names = {name: list(names) for name, (_, names) in plan.slices.items()}
    names = names or {target.names[-1]: [target.names[-1]] for target in targets}
    size = plan.sm_count // (len(names) + 1) // 8 * 8
    return {name: (size, behind) for name, behind in names.items()}


def _median(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


APPLICATIONS: dict[str, type[Any]] = {"endoscope": Endoscope, "ultrasound": Ultrasound, "cameras": Cameras}


def main() -> None:
    """Measure, print and perhaps save."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("applications", nargs="*", choices=[*APPLICATIONS, []], metavar="APPLICATION")
    parser.add_argument("--frames", type=int, default=100)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    folder = Path(os.environ.get("HEADRACE_RESULTS", RESULTS))
    results = folder / "planner.json"
    found: dict[str, Any] = json.loads(results.read_text()) if options.save and results.exists() else {}
    failed = []
    for name in options.applications or APPLICATIONS:

        def keep(known: dict[str, Any], name: str = name) -> None:
            found[name] = known
            if options.save:
                folder.mkdir(parents=True, exist_ok=True)
                results.write_text(json.dumps(found, indent=1) + "\n")
                (folder / "planner.md").write_text(page(found) + "\n")

        print(name, flush=True)
        try:
            compare(APPLICATIONS[name], options.frames, options.turns, keep)
        except Exception:  # the others are measured all the same
            traceback.print_exc()
            failed.append(name)
    print(page(found))
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
