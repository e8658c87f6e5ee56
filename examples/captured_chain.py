"""Five small operators as a captured segment: recorded as one CUDA graph, and replayed for every later frame.

    python examples/captured_chain.py --count 2000

The operators say `capturable = True`, and `compose` says `self.capture(...)`: that is all that is new. Frames are
CuPy arrays on a GPU, and arrays of a simulated one where there is none.
"""

from __future__ import annotations

import argparse
import itertools
from typing import Any

from headrace import Application, CountCondition, Operator, OperatorSpec, declared, gpu
from shared.device import open_device

xp = gpu.arrays()
LENGTH = 1 << 12
STAGES = ("dark", "flat", "balance", "contrast", "tone")


class Camera(Operator):
    """Emits frames of 0, 1, 2, ..."""

    def setup(self, spec: OperatorSpec) -> None:
        spec.output("out")

    def start(self) -> None:
        self.number = 0

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        op_output.emit(xp.full(LENGTH, self.number, dtype=xp.float32), "out")
        self.number += 1


@declared
class Stage(Operator):
    """Emits ``times * frame + plus``; that depends on its messages and parameters alone, so it may be captured."""

    times: float = 1.0
    plus: float = 1.0

    capturable = True

    def setup(self, spec: OperatorSpec) -> None:
        spec.input("in")
        spec.output("out")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        op_output.emit(op_input.receive("in") * self.times + self.plus, "out")


class Display(Operator):
    """Reads frames back and counts those with the right contents."""

    def setup(self, spec: OperatorSpec) -> None:
        spec.input("in")

    def start(self) -> None:
        self.shown = self.right = 0

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        frame = xp.asnumpy(op_input.receive("in"))  # waits for the copy
        self.right += bool((frame == self.shown + len(STAGES)).all())
        self.shown += 1


class Enhance(Application):
    def __init__(self, count: int, is_captured: bool) -> None:
        super().__init__()
        self.count, self.is_captured = count, is_captured

    def compose(self) -> None:
        camera = Camera(self, CountCondition(self, self.count), name="camera")
        stages = [Stage(self, name=name) for name in STAGES]
        self.display = Display(self, name="display")
        for one, other in itertools.pairwise([camera, *stages, self.display]):
            self.add_flow(one, other)
        if self.is_captured:
            self.capture(*stages, name="enhance")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=200, metavar="N", help="frames of each run (200)")
    options = parser.parse_args()
    wrong = 0
    with open_device():
        print(gpu.Device(0).name)
        for is_captured in (False, True):
            app = Enhance(options.count, is_captured)
            outcome = app.run()
            wrong += options.count - app.display.right
            how = "captured" if is_captured else "without capture"
            print(f"{how}: {app.display.right} of {options.count} results right")
            for segment in outcome.segments:
                print(segment)
    return wrong > 0


if __name__ == "__main__":
    raise SystemExit(main())
