"""Measure the time to import headrace beyond NumPy, which every program with arrays imports anyway.

python -m benchmarks.import_cost [--save]
"""

from __future__ import annotations

import statistics
import subprocess
import sys

from benchmarks.report import circumstances, publish, table

MODULES = ["headrace", "headrace.gpu", "headrace.gpu.sim"]
RUNS = 15
CODE = """
import time, numpy
start = time.perf_counter()
import {module}
print((time.perf_counter() - start) * 1e3)
"""


def cost(module: str) -> float:
    """Return the milliseconds of the import in a new interpreter that has imported NumPy."""
    code = CODE.format(module=module)
    return float(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)


def main() -> int:
    rows = []
    for module in MODULES:
        cost(module)  # writes the bytecode
        times = [cost(module) for _ in range(RUNS)]
        rows.append([f"`import {module}`", f"{statistics.median(times):.1f}", f"{min(times):.1f}"])
    text = [
        "# The cost of importing, beyond NumPy",
        "",
        circumstances("no GPU"),
        "",
        f"Median and minimum of {RUNS} new interpreters. `python -m benchmarks.import_cost`.",
        "",
        table(["", "ms", "least"], rows),
    ]
    publish("import_cost", "\n".join(text))
    return 0


if __name__ == "__main__":
    sys.exit(main())
