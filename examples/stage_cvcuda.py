"""A stage with CV-CUDA: frames are resized on the operator's stream. Needs a GPU and CV-CUDA."""

from typing import Any

from example import Example
from frames import Transmit
from needs import needs
from penstock import CountCondition, Operator, OperatorSpec, as_tensor

needs("cvcuda", a_gpu=True)
import cvcuda


class Resize(Operator):
    """Makes frames larger."""

    factor: int

    def setup(self, spec: OperatorSpec) -> None:
        spec.input("in")
        spec.output("out")
        spec.param("factor", 2)

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        frame = op_input.receive("in")["frame"]
        stream = op_input.receive_cuda_stream("in")  # ordered after whatever made the frame
        height, width, channels = frame.shape
        # CV-CUDA takes an array that names no stream for work of the default stream, and waits for that; so ours
        # names the stream it has just been ordered on.
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
