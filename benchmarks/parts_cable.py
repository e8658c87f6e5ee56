"""Pull the cable between two hosts of a running program: when each command notices it, and when it ends.

    sudo python -m benchmarks.parts_cable [--rounds N] [--save] [SCENARIO ...]

Needs root, `ip` and `nft`. Two network namespaces are the hosts, and a pair of veth devices is their cable. A
driver that is a worker, too, runs the fragments `first` and `third` on one of them, and a worker runs `second` on
the other. Frames of 64 KiB pass from `first` to `second` and on to `third` without a pause ("streaming"), or ten of
them and then none ("idle"). Times are from the fault to the first line of the log that tells of it, and to the exit
of the command: the shortest and the longest of all rounds, with the fault at different moments between two beats.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks import report
from benchmarks.common import machine
from benchmarks.link_faults import SENDER, down, drop, network
from headrace.parts.agent import DEFAULT_PORT

ROOT = Path(__file__).parents[1]
LIMIT = 3.0  # seconds
PROGRAM = """
import os, sys
import numpy as np
from headrace import Application, Fragment, Operator
from headrace.conditions import AsynchronousCondition, AsynchronousEventState

class Source(Operator):
    def setup(self, spec):
        spec.output("out")
    def compute(self, op_input, op_output, context):
        self.count = getattr(self, "count", 0) + 1
        op_output.emit(np.full(65536, self.count % 251, np.uint8), "out")
        if self.count == 10 and os.environ["MODE"] == "idle":
            self.conditions["again"].event_state = AsynchronousEventState.EVENT_WAITING

class Relay(Operator):
    def setup(self, spec):
        spec.input("in")
        spec.output("out")
    def compute(self, op_input, op_output, context):
        op_output.emit(op_input.receive("in"), "out")

class Sink(Operator):
    def setup(self, spec):
        spec.input("in")
    def compute(self, op_input, op_output, context):
        op_input.receive("in")
        self.count = getattr(self, "count", 0) + 1
        if self.count == 10:
            print("ten frames", flush=True)

class First(Fragment):
    def compose(self):
        self.add_operator(Source(self, AsynchronousCondition(self, name="again"), name="source"))

class Second(Fragment):
    def compose(self):
        self.add_operator(Relay(self, name="relay"))

class Third(Fragment):
    def compose(self):
        self.add_operator(Sink(self, name="sink"))

class Chain(Application):
    def compose(self):
        first, second, third = First(self, "first"), Second(self, "second"), Third(self, "third")
        self.add_flow(first, second, {("source.out", "relay.in")}, size=4)
        self.add_flow(second, third, {("relay.out", "sink.in")}, size=4)

Chain().run()
"""
FAULTS: dict[str, Callable[[], None]] = {
    "cable pulled (veth down)": down,
    "packets to the worker dropped": drop("input", "drop"),
    "packets from the worker dropped": drop("output", "drop"),
    "links: packets to the worker dropped": drop("input", f"tcp sport != {DEFAULT_PORT} drop"),
    "links: packets from the worker dropped": drop("output", f"tcp dport != {DEFAULT_PORT} drop"),
}
NOTICED = "cut off", "is gone", "said nothing", "Connection reset", "timed out", "No route"


class Command:
    """A command in a namespace, and when it wrote each line."""

    def __init__(self, namespace: str, program: str, mode: str, *options: str) -> None:
        environment = os.environ | {
            "PYTHONPATH": str(ROOT / "src"),
            "HEADRACE_TOKEN": "0" * 64,
            "HEADRACE_LOG_LEVEL": "info",
            "HEADRACE_PROGRESS": "0",
            "OPENBLAS_NUM_THREADS": "1",
            "MODE": mode,
        }
        self.process = subprocess.Popen(
            [
                "ip",
                "netns",
                "exec",
                namespace,
                sys.executable,
                "-m",
                "headrace",
                "run",
                program,
                *options,
            ],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.lines: list[tuple[float, str]] = []
        self.ended_at = float("inf")
        self.is_ready = threading.Event()
        self.thread = threading.Thread(target=self._listen, daemon=True)
        self.thread.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append((time.monotonic(), line))
            if "ten frames" in line:
                self.is_ready.set()
        self.process.wait()
        self.ended_at = time.monotonic()
        self.is_ready.set()

    def noticed_at(self, since: float) -> float:
        """Return when the first line was written that tells of the fault."""
        told = (at for at, line in self.lines if at >= since and any(word in line for word in NOTICED))
        return next(told, self.ended_at)


def measure(fault: Callable[[], None], mode: str, phase: float, shows: bool) -> dict[str, float]:
    """Return the seconds from a fault to what follows from it."""
    with network(), tempfile.TemporaryDirectory() as folder:
        for name in "hr-sender", "hr-receiver":
            subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True)
        program = Path(folder, "chain.py")
        program.write_text(PROGRAM)
        address = ("--address", SENDER)
        driver = Command(
            "hr-sender", str(program), mode, "--driver", "--worker", "--fragments", "first,third", *address
        )
        worker = Command("hr-receiver", str(program), mode, "--worker", "--fragments", "second", *address)
        try:
            driver.is_ready.wait(30.0)
            time.sleep(1.5 + phase)
            begin = time.monotonic()
            fault()
            begin = (begin + time.monotonic()) / 2  # `ip` and `nft` take some milliseconds
            for command in driver, worker:
                command.thread.join(15.0)
        finally:
            for command in driver, worker:
                command.process.kill()
                command.process.wait()
        if shows:
            for what, command in ("driver", driver), ("worker", worker):
                for at, line in command.lines:
                    print(f"{what} {at - begin:6.3f} {line.rstrip()}")
                print(f"{what} {command.ended_at - begin:6.3f} exit")
        return {
            "driver noticed": driver.noticed_at(begin) - begin,
            "driver ended": driver.ended_at - begin,
            "worker noticed": worker.noticed_at(begin) - begin,
            "worker ended": worker.ended_at - begin,
        }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("scenario", nargs="*", help="a part of a fault's name; all by default")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--show", action="store_true", help="print the lines of the commands")
    options = parser.parse_args()
    if os.geteuid():
        sys.exit("network namespaces need root")
    rows = []
    for name, fault in FAULTS.items():
        if options.scenario and not any(each in name for each in options.scenario):
            continue
        for mode in "idle", "streaming":
            seen = [
                measure(fault, mode, 0.5 * number / options.rounds, options.show)
                for number in range(options.rounds)
            ]
            row = [name, mode]
            for what in seen[0]:
                seconds = [each[what] for each in seen]
                row.append(f"{min(seconds):.2f} to {max(seconds):.2f}")
            rows.append(row)
            print(row, flush=True)
    columns = ["fault", "frames are", *(f"{what}, s" for what in seen[0])]
    report.publish(
        "parts_cable",
        "# A cable pulled between two hosts of a program\n\n"
        f"{report.circumstances(machine())}; load {os.getloadavg()[0]:.1f}\n\n"
        f"`sudo python -m benchmarks.parts_cable --rounds {options.rounds}`\n\n"
        f"{(__doc__ or '').split(chr(10) * 2)[2].rstrip()}\n"
        f"Allowed: {LIMIT:g} s to the end of both commands.\n\n" + report.table(columns, rows),
    )


if __name__ == "__main__":
    main()
