"""A cuCIM stage: adaptive histogram equalisation on the operator's stream. Needs a GPU, CuPy and cuCIM."""

from __future__ import annotations

from headrace import CountCondition, op
from shared.example import Example
from shared.frames import Transmit
from shared.needs import needs

needs("cupy", "cucim.skimage.exposure", a_gpu=True)
import cupy
from cucim.skimage.exposure import equalize_adapthist
from cucim.skimage.util import img_as_float, img_as_ubyte


@op
def equalize(message):
    """Enhances local contrast. cuCIM uses CuPy, whose current stream is the operator's own here."""
    frame = img_as_float(cupy.asarray(message["frame"]))
    # equalize_adapthist reads its histograms back to the host and waits; most functions of cuCIM do not.
    return {"frame": img_as_ubyte(equalize_adapthist(frame))}


class Equalizing(Example):
    def compose(self):
        transmitted = Transmit(self, CountCondition(self, self.options.frames), on_gpu=True)
        equalized = equalize(self)
        self.add_flow(transmitted, equalized)
        self.end_with(equalized)


if __name__ == "__main__":
    Equalizing().run()
