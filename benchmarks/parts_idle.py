"""Measure what an idle program in processes costs: wake-ups and CPU time of each process, by thread.

    python -m benchmarks.parts_idle [--seconds 20] [--save] [-- OPTIONS OF headrace run]

Three fragments pass ten frames on and then wait for an event that never comes. Wake-ups are the voluntary context
switches of a thread; CPU time is that of the scheduler (``schedstat``, in nanoseconds). `top` shows CPU time in
tenths of a percent of a core, so less than 0.05 % is 0.0 there.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import report
from benchmarks.common import machine
from benchmarks.parts_cable import PROGRAM

ROOT = Path(__file__).parents[1]


def children(process: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{process}/task").iterdir():
        found += [int(each) for each in (task / "children").read_text().split()]
    return found


def family(process: int) -> list[int]:
    return [process, *(each for child in children(process) for each in family(child))]


def threads(process: int) -> dict[str, tuple[int, int]]:
    """Return the wake-ups and the nanoseconds of CPU time of each thread."""
    found = {}
    for task in Path(f"/proc/{process}/task").iterdir():
        status = dict(line.split(":\t", 1) for line in (task / "status").read_text().splitlines())
        cpu = int((task / "schedstat").read_text().split()[0])
        name = "main thread" if task.name == str(process) else f"thread {task.name}"
        found[name] = int(status["voluntary_ctxt_switches"]), cpu
    return found


def name_of(process: int) -> str:
    variables = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
    part = next((each for each in variables if each.startswith(b"HEADRACE_PART=")), b"=driver")
    return part.partition(b"=")[2].decode()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--save", action="store_true")
    parser.add_argument("options", nargs="*", help="of headrace run; --processes by default")
    options = parser.parse_args()
    given = options.options or ["--processes"]
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "chain.py")
        program.write_text(PROGRAM)
        environment = os.environ | {
            "PYTHONPATH": str(ROOT / "src"),
            "HEADRACE_PROGRESS": "0",
            "OPENBLAS_NUM_THREADS": "1",
            "MODE": "idle",
        }
        command = [sys.executable, "-m", "headrace", "run", str(program), *given]
        driver = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        try:
            assert driver.stdout is not None
            assert driver.stdout.readline() == "ten frames\n"
            time.sleep(3.0)  # until all is as it stays
            before = {process: threads(process) for process in family(driver.pid)}
            time.sleep(options.seconds)
            after = {process: threads(process) for process in before}
            names = {process: name_of(process) for process in before}
        finally:
            driver.send_signal(signal.SIGINT)
            driver.wait()
    rows = []
    for process, seen in after.items():
        total = [0.0, 0.0]
        for thread, counts in seen.items():
            first = before[process].get(thread, (0, 0))
            wakes, cpu = ((now - then) / options.seconds for now, then in zip(counts, first, strict=True))
            total = [total[0] + wakes, total[1] + cpu]
            if wakes:
                what = thread if thread == "main thread" else "another thread"
                rows.append([names[process], what, f"{wakes:.2f}", f"{cpu / 1e7:.4f}"])
        rows.append([names[process], "all", f"{total[0]:.2f}", f"{total[1] / 1e7:.4f}"])
    report.publish(
        "parts_idle",
        "# An idle program in processes\n\n"
        f"{report.circumstances(machine())}; load {os.getloadavg()[0]:.1f}\n\n"
        f"`python -m benchmarks.parts_idle --seconds {options.seconds:g} -- {' '.join(given)}`\n\n"
        f"{(__doc__ or '').split(chr(10) * 2)[2].rstrip()}\n\n"
        + report.table(["process", "thread", "wake-ups a second", "CPU, % of a core"], rows),
    )


if __name__ == "__main__":
    main()
