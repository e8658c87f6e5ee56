"""A Numba stage that inverts frames with a kernel written in Python, on the operator's stream.

Needs a GPU and Numba, or Numba alone with NUMBA_ENABLE_CUDASIM=1, which runs kernels in Python.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from headrace import CountCondition, Operator, OperatorSpec, as_tensor
from shared.example import Example
from shared.frames import Transmit, device_frame
from shared.needs import needs

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
    """Inverts the brightness of frames."""

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
            # Memory from Numba is not freed in stream order: freeing it stops the whole GPU.
            inverted = as_tensor(device_frame(frame.shape, frame.dtype, stream), stream=stream)
            # Both arrays are already ordered on this stream; with `sync` the host would wait for it.
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
