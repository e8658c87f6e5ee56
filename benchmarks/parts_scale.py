"""How the cost of a program grows with the number of its parts: a chain with one operator in each process.

    python -m benchmarks.parts_scale [--parts 2,4,8,16,32,64] [--save]

Fifty numbers go through the chain, 10 ms apart. Needs no GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.parts_chain import start
from benchmarks.report import circumstances, publish, table

FRAMES = 50


def measure(parts: int) -> list[str]:
    """Return a row of the table."""
    with tempfile.TemporaryDirectory() as to:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        began = time.monotonic()
        program = start(parts, FRAMES, to)
        errors = program.communicate(timeout=300)[1]
        wall = time.monotonic() - began
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if program.returncode:
            sys.exit(errors[-3000:])
        running = [(Path(to) / f"part{place}").stat().st_mtime for place in range(parts)]
        latencies = json.loads((Path(to) / "latencies").read_text())
        if len(latencies) != FRAMES:
            sys.exit(f"{len(latencies)} of {FRAMES} numbers arrived")
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        computing = max(running) - (time.time() - (time.monotonic() - began))
        later = statistics.median(latencies[FRAMES // 2 :]) / 1e6
    figures = [f"{os.getloadavg()[0]:.0f}", f"{computing:.2f}", f"{wall:.2f}", f"{used:.2f}"]
    return [
        str(parts),
        *figures,
        f"{after.ru_maxrss / 1024:.0f}",
        f"{later:.2f}",
        f"{later / (parts - 1):.3f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", default="2,4,8,16,32,64")
    parser.add_argument("--save", action="store_true")
    arguments = parser.parse_args()
    measure(2)  # compiles the modules
    rows = []
    for parts in map(int, arguments.parts.split(",")):
        rows.append(measure(parts))
        print(*rows[-1], file=sys.stderr)
    columns = ["parts", "load", "s until all compute", "s in all", "processor s of all processes"]
    columns += ["largest process, MB", "latency of the chain, ms", "of a hop, ms"]
    publish(
        "parts_scale",
        f"""# How the cost grows with the number of parts

{circumstances("no GPU")}

{FRAMES} numbers go through a chain of parts with one operator each, 10 ms apart.
`python -m benchmarks.parts_scale`. Latencies are the median of the last {FRAMES // 2}.

{table(columns, rows)}""",
    )


if __name__ == "__main__":
    main()
