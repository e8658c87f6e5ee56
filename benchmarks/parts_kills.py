"""How soon a program in parts ends when one of its processes is killed or frozen.

    python -m benchmarks.parts_kills [--runs N] [--save]

Three parts pass numbers on, 10 ms apart. The process of one of them is killed (SIGKILL) or stopped (SIGSTOP). Times
are from the signal until the processes of the others have ended, and until the command has. Needs no GPU.
"""

from __future__ import annotations

import argparse
import os
import select
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.parts_chain import start
from benchmarks.report import circumstances, publish, table

PARTS = 3
LIMIT = 30.0


def measure(place: int, number: signal.Signals) -> tuple[float, float]:
    """Return the seconds until the other parts have ended, and until the command has."""
    with tempfile.TemporaryDirectory() as to:
        program = start(PARTS, 100_000, to)
        pids = _wait_for(Path(to), program.pid)
        others = {os.pidfd_open(pid) for each, pid in enumerate(pids) if each != place}
        command = os.pidfd_open(program.pid)
        time.sleep(0.2)
        began = time.monotonic()
        os.kill(pids[place], number)
        watched, gone = {*others, command}, {}
        while watched:
            ready, _, _ = select.select(list(watched), [], [], LIMIT)
            if not ready:
                sys.exit("the program did not end")
            for each in ready:
                gone[each] = time.monotonic() - began
                watched.discard(each)
        program.communicate()
        for each in gone:
            os.close(each)
        if program.returncode == 0:
            sys.exit("the program ended as if nothing had happened")
        return max(gone[each] for each in others), gone[command]


def _wait_for(folder: Path, command: int) -> list[int]:
    """Return the numbers of the processes, once all have computed."""
    until = time.monotonic() + LIMIT
    files = [folder / f"part{place}" for place in range(PARTS)]
    while not all(file.exists() for file in files):
        if time.monotonic() > until:
            os.kill(command, signal.SIGKILL)
            sys.exit("the program did not start")
        time.sleep(0.01)
    return [int(file.read_text()) for file in files]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--save", action="store_true")
    arguments = parser.parse_args()
    rows = []
    for number in (signal.SIGKILL, signal.SIGSTOP):
        for place, name in enumerate(("the first", "the middle", "the last")):
            times = [measure(place, number) for _ in range(arguments.runs)]
            others, command = ([1000 * each for each in column] for column in zip(*times, strict=True))
            figures = [
                f"{statistics.median(each):.0f} ({min(each):.0f} to {max(each):.0f})"
                for each in (others, command)
            ]
            rows.append([number.name, name, *figures])
            print(*rows[-1], file=sys.stderr)
    publish(
        "parts_kills",
        f"""# A process of a part is killed or frozen

{circumstances("no GPU")}; load {os.getloadavg()[0]:.1f}

Three parts pass numbers on, 10 ms apart; one of them gets a signal. Milliseconds until the others have ended, and
the command: the median of {arguments.runs} runs (the least and the most). `python -m benchmarks.parts_kills`.
Allowed: 100 for the others and 250 for the command after SIGKILL, 3,000 after SIGSTOP.

{table(["signal", "to", "ms, the other parts", "ms, the command"], rows)}""",
    )


if __name__ == "__main__":
    main()
