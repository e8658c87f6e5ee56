"""The gain pipeline with NumPy: transmit, apply a gain, receive, probe and view. Needs no GPU.

gain_cupy.py, gain_torch.py and gain_cuda_python.py hold the same pipeline with other libraries; only the steps
differ. A step emits a dict of arrays. It arrives as a TensorMap, whose tensors every array library takes without
a copy.
"""

from __future__ import annotations

import numpy as np

from headrace import op
from shared.example import Example
from shared.frames import picture


@op
def transmit(*, frames: int):
    for number in range(frames):
        yield {"frame": picture(number)}


@op
def apply_gain(message, *, gain: int):
    return {"frame": np.asarray(message["frame"]) * gain}


@op
def receive(message):
    return message


class Gain(Example):
    def compose(self):
        transmitted = transmit(self, frames=self.options.frames)
        louder = apply_gain(self, gain=2)
        received = receive(self)
        self.add_flow(transmitted, louder)
        self.add_flow(louder, received)
        self.end_with(received)


if __name__ == "__main__":
    Gain().run()
