"""The gain pipeline with NumPy: transmit, apply a gain, receive, probe and view. Needs no GPU.

gain_cupy.py, gain_torch.py and gain_cuda_python.py hold the same pipeline with other libraries; only the steps
differ. A step emits a dict of arrays. The next step receives it as it is, and takes an array of another library
without a copy.
"""

from __future__ import annotations

from headrace import op
from shared.example import Example
from shared.frames import picture


@op
def transmit(*, frames: int):
    for number in range(frames):
        yield {"frame": picture(number)}


@op
def apply_gain(message, *, gain: int):
    return {"frame": message["frame"] * gain}


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
