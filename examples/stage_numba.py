"""A stage with Numba: frames are inverted by a kernel that is written in Python, on the operator's stream.

Needs a GPU and Numba, or Numba alone with NUMBA_ENABLE_CUDASIM=1, which runs kernels in Python.
"""

import os
from typing import Any

import numpy as np

from example import Example
from frames import Transmit, device_frame
from needs import needs
from penstock import CountCondition, Operator, OperatorSpec, as_tensor

SIMULATED = os.environ.get("NUMBA_ENABLE_CUDASIM") == "1"
needs("numba.cuda", a_gpu=not SIMULATED)
from numba import cuda


@cuda.jit
def invert(frame, inverted):
    column, row = cuda.grid(2)
    if row < frame.shape[0] and column < frame.shape[1]:
        for channel in range(frame.shape[2]):
            inverted[row, column, channel] = 255 - frame[row, column, channel]


class Invert(Operator):
    """Makes the bright dark and the dark bright."""

    def setup(self, spec: OperatorSpec) -> None:
        spec.input("in")
        spec.output("out")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        frame = op_input.receive("in")["frame"]
        blocks = (-(-frame.shape[1] // 16), -(-frame.shape[0] // 16))
        if SIMULATED:
            inverted: Any = np.empty(frame.shape, frame.dtype)
            invert[blocks, (16, 16)](np.asarray(frame), inverted)
        else:
            stream = op_input.receive_cuda_stream("in")
            # Not by Numba, which frees memory in no stream's order and halts the whole GPU for it.
            inverted = as_tensor(device_frame(frame.shape, frame.dtype, stream), stream=stream)
            # Both are in the order of this stream already: `sync` would have the host wait for it.
            arrays = (cuda.as_cuda_array(array, sync=False) for array in (frame, inverted))
            invert[blocks, (16, 16), stream.numba()](*arrays)
        op_output.emit({"frame": inverted}, "out")


class Inverting(Example):
    def compose(self):
        transmitted = Transmit(self, CountCondition(self, self.options.frames), on_gpu=not SIMULATED)
        inverted = Invert(self, name="invert")
        self.add_flow(transmitted, inverted)
        self.end_with(inverted)


if __name__ == "__main__":
    Inverting().run()
