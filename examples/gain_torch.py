"""The gain pipeline with PyTorch: transmit, apply a gain, receive, probe and view.

On a GPU each step runs with its own stream as PyTorch's current stream. Without a GPU the same steps run on the
CPU, without streams.
"""

from __future__ import annotations

from headrace import gpu, op
from shared.example import Example
from shared.frames import picture
from shared.needs import needs

needs("torch")
import torch

DEVICE = "cuda" if torch.cuda.is_available() and gpu.backend() == "cuda" else "cpu"


@op
def transmit(*, frames: int):
    for number in range(frames):
        yield {"frame": torch.from_numpy(picture(number)).to(DEVICE)}


@op
def apply_gain(message, *, gain: int):
    return {"frame": torch.from_dlpack(message["frame"]) * gain}


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
