"""Measure a hop between fragments in two processes, beside the bare carrier and the link alone.

    python -m benchmarks.parts [--rounds 3] [--save]        (chrt -f 10 in front of it, on a busy machine)

A camera in one process emits arrays at a fixed rate, and a consumer in another one receives them: the latency is
from before the camera's `emit` to after the consumer's `receive`. The bare carrier (`benchmarks.link`) is a ring
in a memfd whose slot numbers travel over a Unix socket with blocking calls. All are measured in turns, so that
they see the same load of the machine. Throughput is measured with a queue of 4 places, as fast as the camera can.
Frames "in place" are made in memory of a `RingAllocator`, at the rate and in the number of the small ones, which
they are compared with: a median of the first hundred is higher than that of a thousand. The CPU time is of both
processes, with all their threads, and of all that the camera and the consumer do.

What their size costs is measured by itself (`--in-place` measures this alone): one camera emits frames of all sizes
in turns, the larger ones made in place. Two runs of the same program differ by more than what is asked about: on 16
cores one had a median of 76 µs, and another one, half a minute later, of 136. The frames of one run see the same.

Then the start of three fragments is measured: from the start of the program to the first compute of each, its
memory (Pss, in which pages that processes share count in part), and its CPU time and wake-ups while nothing
happens, from a second after the first frame, which itself costs as much as some idle seconds, to the next one; the
driver's, too. `--start` measures this alone. With `--frame "4 MiB"` or `--by event-based` the hops of these are
measured alone, beside the bare carrier. All modules are compiled, as those of an installed package are.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from threading import Timer
from typing import Any

import numpy as np

from benchmarks import report
from benchmarks.link import SIZES, SLOTS, cpu, now, run_bare, run_link
from headrace import Application, Fragment, Operator
from headrace.conditions import CountCondition, PeriodicCondition
from headrace.resources import RingAllocator
from headrace.schedulers import EventBasedScheduler, GreedyScheduler

SCHEDULERS = {"greedy": GreedyScheduler, "event-based": EventBasedScheduler}
IDLE = 16.0  # seconds between the two frames of the three fragments
SETTLING = 1.0  # seconds after the first of them until nothing happens any more
HOLOSCAN = 14_000  # µs for a hop of 4 MiB between fragments of the Holoscan SDK


def used_by(pid: int) -> tuple[float, int]:
    """Return the CPU seconds of a process, to a nanosecond, and how often its threads were run."""
    files = Path(f"/proc/{pid}/task").glob("*/schedstat")
    threads = [[int(word) for word in file.read_text().split()] for file in files]
    return sum(thread[0] for thread in threads) / 1e9, sum(thread[2] for thread in threads)


# The program that is run in processes.


class Camera(Operator):
    """Emits arrays of one size or, if that is 0, of all in turns; large ones are made in memory of an allocator."""

    def __init__(self, *args: Any, size: int, allocator: Any = None, log: Any = None, **kwargs: Any) -> None:
        self.sizes = (size,) if size else tuple(each for each, _, _ in SIZES.values())
        self.allocator, self.log = allocator, log
        super().__init__(*args, **kwargs)

    def setup(self, spec: Any) -> None:
        spec.output("out")

    def start(self) -> None:
        self.frames = cycle([np.ones(size, np.uint8) for size in self.sizes])
        self.begin = 0.0

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        self.begin = self.begin or cpu()
        if self.log is not None:
            self.log()
        frame: Any = next(self.frames)
        if self.allocator is not None and frame.nbytes >= 1 << 20:
            frame = self.allocator.allocate_tensor(frame.nbytes, np.uint8)
        op_output.emit(frame, "out", acq_timestamp=now())


class Consumer(Operator):
    """Receives arrays and notes how old they are; passes them on if it has an output."""

    def __init__(self, *args: Any, passes_on: bool = False, log: Any = None, **kwargs: Any) -> None:
        self.passes_on, self.log = passes_on, log
        super().__init__(*args, **kwargs)

    def setup(self, spec: Any) -> None:
        spec.input("in")
        if self.passes_on:
            spec.output("out")

    def start(self) -> None:
        self.latencies: list[int] = []
        self.times: list[int] = []
        self.begin = 0.0

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        self.begin = self.begin or cpu()
        frame = op_input.receive("in")
        arrived = now()
        self.times.append(arrived)
        self.latencies.append(arrived - op_input.get_acquisition_timestamp("in"))
        if self.log is not None:
            self.log()
        if self.passes_on:
            op_output.emit(frame, "out")


class Part(Fragment):
    """A fragment of one operator."""

    def __init__(self, application: Any, name: str, make: Any) -> None:
        super().__init__(application, name)
        self.make = make

    def compose(self) -> None:
        self.add_operator(self.make(self))


class Hop(Application):
    """A camera and a consumer in two fragments; writes what it measured to files in a folder."""

    def __init__(self, size: int, rate: float, count: int, in_place: bool, scheduler: str, to: Path) -> None:
        super().__init__([])
        self.given = size, rate, count, in_place, scheduler, to

    def compose(self) -> None:
        size, rate, count, in_place, scheduler, to = self.given

        class Saving(Camera):
            def stop(self) -> None:
                (to / "camera").write_text(json.dumps(cpu() - self.begin))

        class Ending(Consumer):
            def stop(self) -> None:
                (to / "consumer").write_text(json.dumps([self.latencies, self.times, cpu() - self.begin]))

        def camera(part: Any) -> Any:
            conditions: list[Any] = [CountCondition(part, count)]
            if rate:
                conditions.append(PeriodicCondition(part, round(1e9 / rate)))
            allocator = RingAllocator(part) if in_place else None
            return Saving(part, *conditions, size=size, allocator=allocator, name="camera")

        kind = SCHEDULERS[scheduler]
        self.scheduler(kind(self) if scheduler == "greedy" else kind(self, worker_thread_number=2))
        one, other = (
            Part(self, "one", camera),
            Part(self, "other", lambda part: Ending(part, name="consumer")),
        )
        self.add_flow(one, other, {("camera.out", "consumer.in")}, size=SLOTS)


class Three(Application):
    """Three fragments, through which two frames go."""

    def __init__(self, started: int, idle: float, to: Path) -> None:
        super().__init__([])
        self.started, self.idle, self.to = started, idle, to

    def compose(self) -> None:
        def logging(name: str) -> Any:
            def log(pss: float = 0.0) -> None:
                line = json.dumps(
                    [(now() - self.started) / 1e9, cpu(), pss, *map(used_by, (os.getpid(), os.getppid()))]
                )
                with (self.to / name).open("a") as file:
                    file.write(line + "\n")

            def log_frame() -> None:
                """Log the first frame, and later that nothing happens any more; or the second frame."""
                if (self.to / name).exists():
                    log()
                    return
                # Once: to look at the memory costs as much as many idle seconds.
                smaps = Path("/proc/self/smaps_rollup").read_text().split()
                log(int(smaps[smaps.index("Pss:") + 1]) / 1024)
                if self.idle > SETTLING:
                    Timer(SETTLING, log).start()

            return log_frame

        def camera(part: Any) -> Any:
            conditions = [CountCondition(part, 2), PeriodicCondition(part, round(self.idle * 1e9))]
            return Camera(part, *conditions, size=64, log=logging("camera"), name="camera")

        one = Part(self, "one", camera)
        two = Part(self, "two", lambda part: Consumer(part, passes_on=True, log=logging("two"), name="stage"))
        three = Part(self, "three", lambda part: Consumer(part, log=logging("three"), name="consumer"))
        self.add_flow(one, two, {("camera.out", "stage.in")})
        self.add_flow(two, three, {("stage.out", "consumer.in")})


# The measurement.


def start(what: str, *given: Any) -> dict[str, str]:
    """Run a program of this file in processes; return what it wrote, by the name of the file."""
    with tempfile.TemporaryDirectory(prefix="headrace-parts-") as to:
        run_program(what, *given, to)
        return {file.name: file.read_text() for file in Path(to).iterdir()}


def run_program(*given: Any) -> None:
    root = Path(__file__).parents[1]
    paths = os.pathsep.join([str(root), str(root / "src"), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"HEADRACE_PROCESSES": "1", "HEADRACE_DEVICE": "sim", "PYTHONPATH": paths}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-m", "benchmarks.parts", "program", *map(str, given)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, cwd=root)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout[-1000:]}{done.stderr[-3000:]}")


def run_hop(
    size: int, rate: float, count: int, in_place: bool = False, scheduler: str = "greedy"
) -> tuple[np.ndarray, float, float]:
    """Return the latencies in µs, the frames per second and the CPU time of a frame in µs."""
    wrote = start("hop", size, rate, count, int(in_place), scheduler)
    latencies, times, used = json.loads(wrote["consumer"])
    used += json.loads(wrote["camera"])
    per_second = (len(times) - 1) / (times[-1] - times[0]) * 1e9
    return np.array(latencies) / 1000, per_second, used / count * 1e6


def measure_hops(rounds: int, sizes: Sequence[str], by: str = "") -> list[list[Any]]:
    """Return the figures of frames of these sizes; of all that carry them, or those with this in their name."""
    kinds: list[tuple[str, Any, bool, dict[str, str]]] = [
        ("bare carrier", run_bare, False, {}),
        ("link alone", run_link, False, {}),
        ("link alone, in place", run_link, True, {}),
        ("hop, greedy", run_hop, False, {"scheduler": "greedy"}),
        ("hop, event-based", run_hop, False, {"scheduler": "event-based"}),
        ("hop, greedy, in place", run_hop, True, {"scheduler": "greedy"}),
    ]
    rows: list[list[Any]] = []
    kinds = [each for each in kinds if by in each[0] or each[0] == "bare carrier"]
    for name in sizes:
        size, rate, count = SIZES[name]
        measured: dict[str, list[Any]] = {}
        for _ in range(rounds):
            for kind, measure, in_place, given in kinds:
                if in_place and size < 1 << 20:
                    continue
                at, frames = SIZES["64 B"][1:] if in_place else (rate, count)
                latencies, _, used = measure(size, at, frames, in_place, **given)
                p50, p99 = np.percentile(latencies[frames // 10 :], (50, 99))
                _, per_second, _ = measure(size, 0.0, frames, in_place, **given)
                measured.setdefault(kind, []).append((p50, p99, per_second, used))
                print(name, kind, f"{p50:.0f} {p99:.0f} µs, {per_second:.0f}/s", file=sys.stderr)
        base = np.median(measured["bare carrier"], axis=0)
        least = {kind: min(each[0] for each in values) for kind, values in measured.items()}
        for kind, values in measured.items():
            p50, p99, per_second, used = np.median(values, axis=0)
            figures = [f"{p50:.0f}", f"{p50 / base[0]:.2f}", f"{p99:.0f}", f"{per_second:.0f}"]
            shortest = [f"{least[kind]:.0f}", f"{least[kind] / least['bare carrier']:.2f}"]
            rows.append([name, kind, *figures, f"{per_second / base[2]:.2f}", f"{used:.0f}", *shortest])
    return rows


def measure_in_place(rounds: int) -> list[list[Any]]:
    """Return how long frames made in place take, beside small ones of the same run."""
    _, rate, count = SIZES["64 B"]
    runs = []
    for _ in range(rounds):
        latencies, _, _ = run_hop(0, rate, count * len(SIZES), in_place=True)
        runs.append(np.median(latencies.reshape(-1, len(SIZES))[count // 10 :], axis=0))
        print("in turns:", *(f"{p50:.0f}" for p50 in runs[-1]), "µs", file=sys.stderr)
    p50 = np.array(runs)
    more = p50 - p50[:, :1]
    return [
        [
            name,
            f"{np.median(p50[:, at]):.0f}",
            *(f"{found(more[:, at]):+.0f}" for found in (np.median, min, max)),
        ]
        for at, name in enumerate(SIZES)
    ]


def measure_three() -> list[list[Any]]:
    start("three", now(), 0.01)  # compiles the modules
    wrote = start("three", now(), IDLE)
    rows = []
    for name, of in (("camera", 3), ("two", 3), ("three", 3), ("the driver", 4)):
        first, settled, second = map(json.loads, wrote["camera" if of == 4 else name].splitlines())
        used, woken = (after - before for before, after in zip(settled[of], second[of], strict=True))
        seconds = second[0] - settled[0]
        begun = ["", "", ""] if of == 4 else [f"{first[0]:.2f}", f"{first[1]:.2f}", f"{first[2]:.0f}"]
        rows.append([name, *begun, f"{used / seconds * 100:.3f}", f"{woken / seconds:.1f}"])
    return rows


def main() -> None:
    if sys.argv[1:2] == ["program"]:
        what, *given = sys.argv[2:]
        if what == "three":
            Three(int(given[0]), float(given[1]), Path(given[2])).run()
        else:
            size, rate, count, in_place, scheduler, to = given
            Hop(int(size), float(rate), int(count), in_place == "1", scheduler, Path(to)).run()
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--start", action="store_true", help="measure the start of three fragments alone")
    parser.add_argument("--in-place", action="store_true", help="measure frames made in place alone")
    parser.add_argument("--frame", choices=SIZES, action="append", help="measure frames of this size alone")
    parser.add_argument("--by", default="", help='measure these alone, such as "event-based"')
    parser.add_argument("--save", action="store_true")
    arguments = parser.parse_args()
    in_turns = ["frame", "p50 µs", "more than 64 B of the same run", "at least", "at most"]
    if arguments.in_place:
        print(report.table(in_turns, measure_in_place(arguments.rounds)))
        return
    started = ["fragment", "seconds to the first compute", "CPU seconds until then", "MiB (Pss)"]
    started += ["CPU while idle, % of a core", "wake-ups a second"]
    if arguments.start:
        print(report.table(started, measure_three()))
        return
    columns = ["frame", "by", "p50 µs", "x bare", "p99 µs", "frames per s", "x bare", "CPU µs a frame, both"]
    columns += ["least p50 µs", "x bare"]
    if arguments.frame or arguments.by:
        print(
            report.table(columns, measure_hops(arguments.rounds, arguments.frame or [*SIZES], arguments.by))
        )
        return
    load = os.getloadavg()[0]
    hops = measure_hops(arguments.rounds, [*SIZES])
    in_place = measure_in_place(3 * arguments.rounds)
    three = measure_three()
    after = os.getloadavg()[0]
    is_urgent = os.sched_getscheduler(0) in (os.SCHED_FIFO, os.SCHED_RR)
    hop = next(row for row in hops if row[:2] == ["4 MiB", "hop, greedy"])
    report.publish(
        "parts",
        f"""# A hop between two processes, beside the bare carrier

{report.circumstances("simulated device")}; load average {load:.1f} before and {after:.1f} after; \
{"real-time priority" if is_urgent else "usual priority"}; median of {arguments.rounds} rounds

{report.table(columns, hops)}

A frame of 4 MiB takes {HOLOSCAN} µs between fragments of Holoscan 4.6 over UCX (an earlier measurement, not \
of this run) and {hop[2]} µs here: {HOLOSCAN / float(hop[2]):.0f} times less.

## Frames made in place, in turns with small ones (median of {3 * arguments.rounds} runs)

{report.table(in_turns, in_place)}

## Three fragments, each in a process

{report.table(started, three)}""",
    )


if __name__ == "__main__":
    main()
