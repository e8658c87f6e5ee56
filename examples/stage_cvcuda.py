"""A CV-CUDA stage that resizes frames on the operator's stream. Needs a GPU and CV-CUDA."""

from __future__ import annotations

from typing import Any

from headrace import CountCondition, Operator, OperatorSpec, as_tensor, declared
from shared.example import Example
from shared.frames import Transmit
from shared.needs import needs

needs("cvcuda", a_gpu=True)
import cvcuda


@declared
class Resize(Operator):
    """Enlarges frames by a factor."""

    factor: int = 2

    def setup(self, spec: OperatorSpec) -> None:
        spec.input("in")
        spec.output("out")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        frame = op_input.receive("in")["frame"]
        stream = op_input.receive_cuda_stream("in")  # ordered after the work that made the frame
        height, width, channels = frame.shape
        # CV-CUDA waits for the default stream if an array names no stream, so this tensor names the operator's
        # stream, which is already ordered after the frame.
        small = cvcuda.as_tensor(as_tensor(frame, stream=stream), "HWC")
        shape = (self.factor * height, self.factor * width, channels)
        large = cvcuda.resize(small, shape, cvcuda.Interp.LINEAR, stream=stream.cvcuda())
        op_output.emit({"frame": large.cuda()}, "out")


class Resizing(Example):
    def compose(self):
        transmitted = Transmit(self, CountCondition(self, self.options.frames), on_gpu=True)
        resized = Resize(self, factor=2, name="resize")
        self.add_flow(transmitted, resized)
        self.end_with(resized)


if __name__ == "__main__":
    Resizing().run()
