"""A chain of parts with one operator each, for `benchmarks.parts_scale` and `benchmarks.parts_kills`.

    parts_chain.py PARTS FRAMES FOLDER

Every 10 ms a number goes through the chain. Each process writes a file with its number when it has received the
first one, and the last process writes the latencies of all.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

from headrace import Application, CountCondition, Fragment, Operator, PeriodicCondition

ROOT = Path(__file__).parents[1]
PERIOD_NS = 10_000_000


class Stage(Operator):
    """Emits the time, or passes on what it receives."""

    def __init__(self, *args: Any, place: int, is_last: bool, to: Path, **kwargs: Any) -> None:
        self.place, self.is_last, self.to = place, is_last, to
        self.latencies: list[int] = []
        super().__init__(*args, **kwargs)

    def setup(self, spec: Any) -> None:
        if self.place:
            spec.input("in")
        if not self.is_last:
            spec.output("out")

    def start(self) -> None:
        self.is_first = True

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        sent = op_input.receive("in") if self.place else time.monotonic_ns()
        if self.is_last:
            self.latencies.append(time.monotonic_ns() - sent)
        else:
            op_output.emit(sent, "out")
        if self.is_first:
            self.is_first = False
            partial = self.to / f".{self.place}"
            partial.write_text(str(os.getpid()))
            partial.rename(self.to / f"part{self.place}")

    def stop(self) -> None:
        if self.is_last:
            (self.to / "latencies").write_text(json.dumps(self.latencies))


class Part(Fragment):
    """A fragment of one stage."""

    def __init__(self, application: Any, place: int, parts: int, frames: int, to: Path) -> None:
        super().__init__(application, f"part{place}")
        self.given = place, parts, frames, to

    def compose(self) -> None:
        place, parts, frames, to = self.given
        conditions = [] if place else [CountCondition(self, frames), PeriodicCondition(self, PERIOD_NS)]
        self.add_operator(
            Stage(self, *conditions, place=place, is_last=place == parts - 1, to=to, name="stage")
        )


class Chain(Application):
    """The parts, one after another."""

    def __init__(self, parts: int, frames: int, to: Path) -> None:
        super().__init__([])
        self.given = parts, frames, to

    def compose(self) -> None:
        parts, frames, to = self.given
        made = [Part(self, place, parts, frames, to) for place in range(parts)]
        for one, other in pairwise(made):
            self.add_flow(one, other, {("stage.out", "stage.in")}, size=4)


def start(parts: int, frames: int, to: str) -> subprocess.Popen[str]:
    """Start the program in processes."""
    environment = {
        **{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
        "HEADRACE_PROCESSES": "1",
        "HEADRACE_DEVICE": "sim",
        "HEADRACE_LOG_LEVEL": "error",
        "HEADRACE_PROGRESS": "0",
        "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
    }
    command = [sys.executable, __file__, str(parts), str(frames), to]
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)


if __name__ == "__main__":
    Chain(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])).run()
