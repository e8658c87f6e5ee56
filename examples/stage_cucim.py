"""A stage with cuCIM: adaptive histogram equalisation on the operator's stream. Needs a GPU, CuPy and cuCIM."""

from example import Example
from frames import Transmit
from needs import needs
from penstock import CountCondition, op

needs("cupy", "cucim.skimage.exposure", a_gpu=True)
import cupy
from cucim.skimage.exposure import equalize_adapthist
from cucim.skimage.util import img_as_float, img_as_ubyte


@op
def equalize(message):
    """Brings out local contrast. cuCIM works with CuPy, whose current stream is the operator's own in here."""
    frame = img_as_float(cupy.asarray(message["frame"]))
    # This one reads its histograms back to the host, so it waits; other functions of cuCIM do not.
    return {"frame": img_as_ubyte(equalize_adapthist(frame))}


class Equalizing(Example):
    def compose(self):
        transmitted = Transmit(self, CountCondition(self, self.options.frames), on_gpu=True)
        equalized = equalize(self)
        self.add_flow(transmitted, equalized)
        self.end_with(equalized)


if __name__ == "__main__":
    Equalizing().run()
