"""Run a command several times beside busy processes: ``python -m tests.loaded --busy 8 --times 3 -- make test``."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time

BUSY = "while True: pass"


def main() -> int:
    """Return 0 if the command succeeded every time, and else the status of the first failure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--busy", type=int, default=8, help="how many processes compute beside it")
    parser.add_argument("--times", type=int, default=3, help="how often the command runs")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    busy = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(options.busy)]
    try:
        for number in range(1, options.times + 1):
            begin = time.monotonic()
            status = subprocess.call(options.command)
            load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
            print(
                f"run {number} of {options.times} beside {options.busy} busy processes: status {status}, "
                f"{time.monotonic() - begin:.0f} s, load {load}",
                flush=True,
            )
            if status:
                return status
    finally:
        for process in busy:
            process.kill()
        for process in busy:
            process.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
