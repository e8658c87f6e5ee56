"""Measure the memory that libraries keep for the streams of a program.

    python -m benchmarks.stream_memory [--save]      needs a GPU, CuPy and PyTorch

CuPy and PyTorch give freed memory to later work on the stream on which it was allocated, so each keeps a pool for
each stream. The program has ten stages, each of which makes a new frame of 8 MiB. The table has what the pools hold
at the end, for each setting of `stream_per`, each in a process of its own.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
from typing import Any

from benchmarks.report import circumstances, publish, table

STAGES, SIZE, FRAMES = 10, 1 << 21, 300  # floats of a frame
SETTINGS = ("operator", "branch", "program")


def measure(library: str, setting: str) -> float:
    """Return the MiB that the pools of a library hold after a run."""
    import cupy

    from headrace import Application, CountCondition, op

    if library == "torch":
        import torch

        zeros = torch.zeros(SIZE, device="cuda")
    else:
        zeros = cupy.zeros(SIZE, cupy.float32)

    class Chain(Application):
        def compose(self) -> None:
            self.stream_per = setting
            source = op(outputs="out")(lambda: zeros + 1)(self, CountCondition(self, FRAMES), name="source")
            stages = [op(lambda x: x + 1)(self, name=f"stage{k}") for k in range(STAGES - 2)]
            sink = op(drop)(self, name="sink")
            for one, other in itertools.pairwise([source, *stages, sink]):
                self.add_flow(one, other)

    def drop(x: Any) -> None:
        x + 1

    Chain().run()
    if library == "torch":
        return float(torch.cuda.max_memory_reserved() / (1 << 20))
    return float(cupy.get_default_memory_pool().total_bytes() / (1 << 20))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--line", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.line:
        print(json.dumps(measure(*options.line)))
        return 0
    rows = []
    for library in ("cupy", "torch"):
        row = [library]
        for setting in SETTINGS:
            run = [sys.executable, "-m", "benchmarks.stream_memory", "--line", library, setting]
            text = subprocess.run(run, check=True, capture_output=True, text=True).stdout
            row.append(f"{json.loads(text.splitlines()[-1]):.0f}")
        rows.append(row)
    import cupy

    device = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    text = [
        "# Memory that libraries keep for streams",
        "",
        circumstances(device),
        "",
        f"MiB in the pools after {FRAMES} frames of 8 MiB through {STAGES} stages, each with a new frame.",
        "`python -m benchmarks.stream_memory`.",
        "",
        table(["library", *(f"stream_per {setting}" for setting in SETTINGS)], rows),
    ]
    publish("stream_memory", "\n".join(text))
    return 0


if __name__ == "__main__":
    sys.exit(main())
