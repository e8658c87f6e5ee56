"""Count the bytecodes of a step: a regression check that is no stopwatch.

    python -m benchmarks.step [--save]

The same chain runs with two numbers of messages while the interpreter counts, so that start and end cancel out.
What is left depends on the version of Python and on the code, not on the machine or on what else it does. A test
compares it with what was saved for this version; a step that takes more than `MARGIN` more fails it.
"""

from __future__ import annotations

import json
import platform
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.report import RESULTS
from headrace.installation import environment

MARGIN = 0.03
SAVED = RESULTS / "step.json"
FEW, MANY, LENGTH = 100, 300, 5
# In a process of its own, on public names alone. Each thread is counted.
PROGRAM = """
import sys
import threading
from itertools import pairwise
from headrace import Application, CountCondition, EventBasedScheduler, GreedyScheduler, Operator

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
        self.scheduler({scheduler})
        stages = [Stage(self, CountCondition(self, int(sys.argv[1])), name="stage0")]
        stages += [Stage(self, name=f"stage{{number}}") for number in range(1, {length})]
        for one, other in pairwise(stages):
            self.add_flow(one, other)

counted = 0

def count(frame, event, argument):
    global counted
    frame.f_trace_opcodes = True
    counted += event == "opcode"
    return count

app = Chain([])
sys._getframe().f_trace_opcodes = True  # before the first trace function is set, or Python 3.12 reports none
threading.settrace(count)
sys.settrace(count)
app.run()
sys.settrace(None)
threading.settrace(None)
print("COUNTED", counted)
"""
PROGRAMS = {
    "greedy": "GreedyScheduler(self)",
    "event-based, 1 worker": "EventBasedScheduler(self, worker_thread_number=1)",
}


def per_step(scheduler: str) -> float:
    """Return the bytecodes of a step."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "program.py"
        program.write_text(PROGRAM.format(last=LENGTH - 1, length=LENGTH, scheduler=PROGRAMS[scheduler]))
        few, many = (_count(program, messages) for messages in (FEW, MANY))
    return (many - few) / ((MANY - FEW) * LENGTH)


def _count(program: Path, messages: int) -> int:
    variables = {name: value for name, value in environment().items() if not name.startswith("HEADRACE")}
    done = subprocess.run(
        [sys.executable, str(program), str(messages)],
        env={**variables, "HEADRACE_DEVICE": "none"},
        capture_output=True,
        text=True,
        check=True,
    )
    return int(re.findall(r"COUNTED (\d+)", done.stdout)[-1])


def version() -> str:
    """Return the version of Python that bytecodes depend on."""
    return ".".join(platform.python_version_tuple()[:2])


def is_dearer(now: float, saved: float) -> bool:
    """Return whether a step takes more than it may."""
    return now > saved * (1 + MARGIN)


def main() -> int:
    """Print the counts beside the saved ones, or save them; return the exit status."""
    saved = json.loads(SAVED.read_text()) if SAVED.exists() else {}
    now = {name: per_step(name) for name in PROGRAMS}
    failed = False
    for name, count in now.items():
        before = saved.get(version(), {}).get(name)
        failed |= before is not None and is_dearer(count, before)
        beside = (
            f"{count / before:.3f} of {before:.1f} (allowed: {1 + MARGIN:.2f})" if before else "nothing saved"
        )
        print(f"{name}: {count:.1f} bytecodes a step, Python {version()}; {beside}")
    if "--save" in sys.argv:
        SAVED.write_text(json.dumps({**saved, version(): now}, indent=1, sort_keys=True) + "\n")
        return 0
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
