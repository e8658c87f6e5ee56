"""What comes before the first message: imports and starts, each in a new interpreter."""

from __future__ import annotations

import subprocess
import sys
import time

IMPORT = """
import time, numpy
began = time.perf_counter()
import {module}
print((time.perf_counter() - began) * 1e3)
"""

# What both packages have by the same names, and the same for ezmsg. The last operator says when it has the message.
START = """
import os, time
from {package}.core import Application, Operator
from {package}.conditions import CountCondition

class Stage(Operator):
    def setup(self, spec):
        if self.name != "stage0":
            spec.input("in")
        if self.name != "stage4":
            spec.output("out")

    def compute(self, op_input, op_output, context):
        message = 1 if self.name == "stage0" else op_input.receive("in")
        if self.name == "stage4":
            print("FIRST", time.monotonic_ns(), message, flush=True)
        else:
            op_output.emit(message, "out")

class Chain(Application):
    def compose(self):
        last = Stage(self, CountCondition(self, 1), name="stage0")
        for number in range(1, 5):
            stage = Stage(self, name=f"stage{{number}}")
            self.add_flow(last, stage)
            last = stage

Chain().run()
"""
START_EZMSG = """
import time
import ezmsg.core as ez

class Source(ez.Unit):
    OUTPUT = ez.OutputStream(int)

    @ez.publisher(OUTPUT)
    async def send(self):
        yield self.OUTPUT, 1

class Through(ez.Unit):
    INPUT = ez.InputStream(int)
    OUTPUT = ez.OutputStream(int)

    @ez.subscriber(INPUT)
    @ez.publisher(OUTPUT)
    async def on_message(self, message):
        yield self.OUTPUT, message

class Sink(ez.Unit):
    INPUT = ez.InputStream(int)

    @ez.subscriber(INPUT)
    async def on_message(self, message):
        print("FIRST", time.monotonic_ns(), message, flush=True)
        raise ez.NormalTermination

if __name__ == "__main__":
    stages = [Source(), Through(), Through(), Through(), Sink()]
    edges = [(one.OUTPUT, other.INPUT) for one, other in zip(stages, stages[1:])]
    ez.run(components={f"STAGE{n}": stage for n, stage in enumerate(stages)}, connections=edges)
"""


def importing(module: str, *, share: float) -> tuple[float, None]:
    """Return the milliseconds of an import, with the bytecode written."""
    code = IMPORT.format(module=module)
    times = [
        float(
            subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout.split()[-1]
        )
        for _ in range(4)
    ]
    return min(times[1:]), None


def first_message(package: str, *, share: float) -> tuple[float, int]:
    """Return the milliseconds from the start of a process to the message, and the message."""
    code = START_EZMSG if package == "ezmsg" else START.format(package=package)
    found: list[tuple[float, int]] = []
    for _ in range(3):  # the first writes the bytecode
        began = time.monotonic_ns()
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        line = next(line for line in done.stdout.splitlines() if line.startswith("FIRST "))
        _, arrived, message = line.split()
        found.append(((int(arrived) - began) / 1e6, int(message)))
    return min(found)
