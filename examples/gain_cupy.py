"""The gain pipeline with CuPy: transmit, apply a gain, receive, probe and view. Needs a GPU.

No step mentions a stream. Since CuPy has been imported, each of these functions runs with a stream of its own as
CuPy's current one, ordered after the step before it; nothing waits on the host until the probe reads a frame.
"""

from example import Example
from frames import picture
from needs import needs
from penstock import op

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
