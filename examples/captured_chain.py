"""Five small operators as a captured segment: recorded as one CUDA graph, and replayed for every later frame.

    python examples/captured_chain.py --count 2000

The operators say `capturable = True`, and `compose` says `self.capture(...)`: that is all that is new. Frames are CuPy arrays on a GPU,
and tensors of a simulated device where there is none.
"""

from __future__ import annotations

import argparse
import itertools
from typing import Any

from headrace import Application, CountCondition, Operator, OperatorSpec, gpu
from shared.small_frames import SmallFrames, open_small_frames

STAGES = ("dark", "flat", "balance", "contrast", "tone")


class Camera(Operator):
    """Emits frames of 0, 1, 2, ..."""

    frames: SmallFrames

    def setup(self, spec: OperatorSpec) -> None:
        spec.output("out")
        spec.param("frames")

    def start(self) -> None:
        self.number = 0

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        stream = context.allocate_cuda_stream("camera")
        op_output.set_cuda_stream(stream, "out")
        op_output.emit(self.frames.full(self.number, stream), "out")
        self.number += 1


class Stage(Operator):
    """Emits ``times * frame + plus``; that depends on its messages and parameters alone, so it may be captured."""

    capturable = True

    frames: SmallFrames
    times: float
    plus: float

    def setup(self, spec: OperatorSpec) -> None:
        spec.input("in")
        spec.output("out")
        spec.param("frames")
        spec.param("times", 1.0)
        spec.param("plus", 1.0)

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        frame = op_input.receive("in")
        stream = op_input.receive_cuda_stream("in")
        op_output.emit(self.frames.scaled(frame, self.times, self.plus, stream), "out")


class Display(Operator):
    """Reads frames back and counts those with the right contents."""

    frames: SmallFrames

    def setup(self, spec: OperatorSpec) -> None:
        spec.input("in")
        spec.param("frames")

    def start(self) -> None:
        self.shown = self.right = 0

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        frame = op_input.receive("in")
        stream = op_input.receive_cuda_stream("in")
        self.right += bool((self.frames.read(frame, stream) == self.shown + len(STAGES)).all())
        self.shown += 1


class Enhance(Application):
    def __init__(self, frames: SmallFrames, count: int, is_captured: bool) -> None:
        super().__init__()
        self.frames, self.count, self.is_captured = frames, count, is_captured

    def compose(self) -> None:
        camera = Camera(self, CountCondition(self, self.count), frames=self.frames, name="camera")
        stages = [Stage(self, frames=self.frames, name=name) for name in STAGES]
        self.display = Display(self, frames=self.frames, name="display")
        for one, other in itertools.pairwise([camera, *stages, self.display]):
            self.add_flow(one, other)
        if self.is_captured:
            self.capture(*stages, name="enhance")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=200, metavar="N", help="frames of each run (200)")
    options = parser.parse_args()
    wrong = 0
    with open_small_frames() as frames:
        print(gpu.Device(0).name)
        for is_captured in (False, True):
            app = Enhance(frames, options.count, is_captured)
            outcome = app.run()
            wrong += options.count - app.display.right
            how = "captured" if is_captured else "without capture"
            print(f"{how}: {app.display.right} of {options.count} results right")
            for segment in outcome.segments:
                print(segment)
    return wrong > 0


if __name__ == "__main__":
    raise SystemExit(main())
