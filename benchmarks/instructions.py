"""Compare the instructions of a step with those of another commit: a regression check that is no stopwatch.

    python -m benchmarks.instructions [COMMIT]        needs valgrind; the default is main

The same chain runs under callgrind with two numbers of messages, so that start and end cancel out; what is left are
instructions per step. They depend on Python's build, so both commits are counted here, on this interpreter. They do
not depend on what else the machine does. A step that takes more than `MARGIN` more instructions fails the check.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.common import ROOT

MARGIN = 0.03
LENGTH, FEW, MANY = 5, 500, 2_500
# Each has public names alone, so that it runs on both commits.
PROGRAM = """
import sys
from itertools import pairwise
from headrace import Application, CountCondition, GreedyScheduler, Operator

class Stage(Operator):
    def setup(self, spec):
        if self.name != "stage0":
            spec.input("in")
        if self.name != "stage{last}":
            spec.output("out")

    def compute(self, op_input, op_output, context):
        message = 1 if self.name == "stage0" else op_input.receive("in")
        if self.name != "stage{last}":
            op_output.emit(message, "out")

class Chain(Application):
    def compose(self):
        self.scheduler(GreedyScheduler(self))
        stages = [Stage(self, CountCondition(self, int(sys.argv[1])), name="stage0")]
        stages += [Stage(self, name=f"stage{{number}}") for number in range(1, {length})]
        for one, other in pairwise(stages):
            self.add_flow(one, other)

app = Chain([])
if {tracked}:
    app.track()
app.run()
"""
PROGRAMS = {"a step": False, "a tracked step": True}


def per_step(source: Path, is_tracked: bool, folder: Path) -> float:
    """Return the instructions of a step of the package in a folder."""
    program = folder / "program.py"
    program.write_text(PROGRAM.format(last=LENGTH - 1, length=LENGTH, tracked=is_tracked))
    counted = [_count(source, program, messages, folder) for messages in (FEW, FEW, MANY)][1:]
    return (counted[1] - counted[0]) / ((MANY - FEW) * LENGTH)


def _count(source: Path, program: Path, messages: int, folder: Path) -> int:
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("HEADRACE")},
        "PYTHONPATH": str(source),
        "PYTHONHASHSEED": "0",
        "HEADRACE_DEVICE": "none",
        "PYTHONPYCACHEPREFIX": str(folder / "bytecode"),
    }
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/counts", sys.executable]
    done = subprocess.run([*command, program, str(messages)], env=environment, capture_output=True, text=True)
    found = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode or found is None:
        sys.exit(f"{program} does not run under callgrind:\n{done.stderr[-2000:]}")
    return int(found[1])


def compare(other: Path) -> bool:
    """Print both counts of each program; return whether a step is dearer than it may be."""
    is_dearer = False
    for name, is_tracked in PROGRAMS.items():
        with tempfile.TemporaryDirectory() as before, tempfile.TemporaryDirectory() as after:
            was = per_step(other / "src", is_tracked, Path(before))
            now = per_step(ROOT / "src", is_tracked, Path(after))
        ratio = now / was
        is_dearer |= ratio > 1 + MARGIN
        print(
            f"{name}: {now:,.0f} instructions, {ratio:.3f} of {was:,.0f} (allowed: {1 + MARGIN:.2f})",
            flush=True,
        )
    return is_dearer


def main() -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("commit", nargs="?", default="main")
    commit = parser.parse_args().commit
    if shutil.which("valgrind") is None:
        print("skipped: valgrind is not installed")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        other = Path(folder) / "other"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", other, commit], cwd=ROOT, check=True)
        try:
            return int(compare(other))
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", other], cwd=ROOT, check=True)


if __name__ == "__main__":
    sys.exit(main())
