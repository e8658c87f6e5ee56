"""The gain pipeline with CuPy: transmit, apply a gain, receive, probe and view. Needs a GPU.

No step mentions a stream. Because CuPy is imported, each function runs with its own stream as CuPy's current
stream, ordered after the step before it. The host waits for nothing until the probe reads a frame.
"""

from __future__ import annotations

from headrace import op
from shared.example import Example
from shared.frames import picture
from shared.needs import needs

needs("cupy", a_gpu=True)
import cupy


@op
def transmit(*, frames: int):
    for number in range(frames):
        yield {"frame": cupy.asarray(picture(number))}


@op
def apply_gain(message, *, gain: int):
    return {"frame": cupy.asarray(message["frame"]) * gain}


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
