"""Compare the image operators with those of the Holoscan SDK on a GPU, case by case.

    python -m tests.oracle.on_gpu --holoscan PYTHON

PYTHON is an interpreter that has the SDK and CuPy. Each case runs in the SDK on a frame in device memory, and here
on the host, which gives the same bits as our GPU (tests/gpu/real/test_operators.py). The table says how many values
are equal and how far apart the others are. NPP, on which the SDK is built, rounds and treats borders in its own
way, so that a difference is to be read, not to be asserted.

A case that kills the SDK's process is reported, and the next ones run in a new process.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]


def cases() -> list[Any]:
    """Return the cases that the SDK has an operator for: those of one tensor in and one out."""
    from headrace_holoscan.ready import InferenceProcessorOp
    from tests.operators.cases import CASES

    return [case for case in CASES if case.kind is not InferenceProcessorOp]


def run_in_sdk(number: int) -> np.ndarray:
    """Return what the SDK makes of a case."""
    import cupy
    from holoscan.conditions import CountCondition
    from holoscan.core import Application, Operator
    from holoscan.resources import UnboundedAllocator

    from holoscan import operators

    case = cases()[number]
    taken: list[np.ndarray] = []
    frame = cupy.asarray(case.frame)

    class Source(Operator):
        def setup(self, spec: Any) -> None:
            spec.output("out")

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            op_output.emit({"": frame}, "out")

    class Sink(Operator):
        def setup(self, spec: Any) -> None:
            spec.input("in")

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            (tensor,) = op_input.receive("in").values()
            cupy.cuda.runtime.deviceSynchronize()
            taken.append(cupy.asnumpy(cupy.asarray(tensor)))

    class App(Application):
        def compose(self) -> None:
            name = case.kind.__name__
            pool = "allocator" if name == "SegmentationPostprocessorOp" else "pool"
            params = {pool: UnboundedAllocator(self, name="pool"), **case.params}
            operator = getattr(operators, name)(self, name="operator", **params)
            self.add_flow(
                Source(self, CountCondition(self, 1), name="source"), operator, {("out", case.port)}
            )
            self.add_flow(operator, Sink(self, name="sink"))

    App().run()
    return taken[0]


def work(first: int, folder: Path) -> None:
    """Run the cases from a number on, and write each result to a file."""
    for number in range(first, len(cases())):
        (folder / f"{number}.begun").touch()
        try:
            np.save(folder / f"{number}.npy", run_in_sdk(number))
        except Exception as error:
            lines = str(error).strip().splitlines() or [type(error).__name__]
            (folder / f"{number}.txt").write_text(lines[0])


def compared(ours: np.ndarray, theirs: np.ndarray) -> str:
    """Return how two results differ."""
    if ours.size != theirs.size:
        return f"shapes {ours.shape} and {theirs.shape}"
    one, other = ours.reshape(-1).astype(float), theirs.reshape(-1).astype(float)
    same = (one == other) | (np.isnan(one) & np.isnan(other))
    if same.all():
        return "the same"
    difference = np.abs(one - other)[~same]
    return f"{same.mean():.0%} the same, others up to {difference.max():g} apart, on average {difference.mean():g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--holoscan", metavar="PYTHON", default=sys.executable)
    parser.add_argument("--work", nargs=2, metavar=("FIRST", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(int(options.work[0]), Path(options.work[1]))
        return
    known = cases()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        first = 0
        while first < len(known):
            command = [options.holoscan, "-m", "tests.oracle.on_gpu", "--work", str(first), temporary]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
            begun = max((int(path.stem) for path in folder.glob("*.begun")), default=-1)
            if begun < first:
                sys.exit(f"{' '.join(command)} did not begin:\n{done.stderr[-2000:]}")
            first = begun + 1
        print("| case | |\n| --- | --- |")
        for number, case in enumerate(known):
            array, text = folder / f"{number}.npy", folder / f"{number}.txt"
            if array.exists():
                said = compared(case.on_host(), np.load(array))
            else:
                said = f"refused there: {text.read_text()}" if text.exists() else "killed the SDK's process"
            print(f"| {case} | {said} |")


if __name__ == "__main__":
    main()
