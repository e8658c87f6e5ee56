"""BayerDemosaicOp: colour images from the mosaic of a camera's sensor, by bilinear interpolation.

A missing colour is the rounded mean of the two or four nearest samples of that colour. The mosaic is continued
beyond its border by mirroring it about the outermost row or column (row -1 is row 1), which keeps its pattern:
every mean is one of samples of the right colour.

In CUDA, a thread computes a cell of 2×2 pixels from the 4×4 samples around it.

On the host, OpenCV computes the frame where it is installed: the same means, in a fraction of NumPy's time.

NumPy is the reference, which the simulated device runs, and the host where there is no OpenCV. It computes each
mean for all pixels: computing it only where it is needed, on the four half-size planes of the mosaic, is no
faster, since most of the time goes into storing the interleaved channels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.core.parameters import declared, parameter
from headrace.operators._routines import with_opencv
from headrace.operators.arrays import Routine, check_contiguous
from headrace.operators.tensor_operator import FrameOperator, Plan, place_of
from headrace.tensor import Tensor
from headrace.video.scene import BAYER_PATTERNS

if TYPE_CHECKING:
    from headrace.resources import Allocator


RED_AT = {number: divmod(name.index("R"), 2) for number, name in BAYER_PATTERNS.items()}
"""The row and the column of red in a cell, by `bayer_grid_pos`."""

_PATTERNS = {RED_AT[number]: name for number, name in BAYER_PATTERNS.items()}

Array = np.ndarray[Any, Any]


def _demosaic(out: Array, mosaic: Array, *numbers: int) -> None:
    rows, columns, channels, red_row, red_column, alpha = map(int, numbers)
    wide = np.uint16 if mosaic.dtype == np.uint8 else np.uint32  # for the sum of four
    near = np.pad(mosaic.reshape(rows, columns).astype(wide), 1, "reflect")
    own = near[1:-1, 1:-1]
    beside = near[1:-1, :-2] + near[1:-1, 2:]
    pairs = near[:-2] + near[2:]
    above = pairs[:, 1:-1]
    cross = beside + above
    corners = pairs[:, :-2] + pairs[:, 2:]
    for mean, half, shift in ((cross, 2, 2), (corners, 2, 2), (beside, 1, 1), (pairs, 1, 1)):
        mean += half
        mean >>= shift
    # The three colours where a row and a column have red or not.
    colours = {
        (True, True): (own, cross, corners),
        (False, False): (corners, cross, own),
        (True, False): (beside, own, above),
        (False, True): (above, own, beside),
    }
    for row, column in ((0, 0), (0, 1), (1, 0), (1, 1)):
        place = (slice(row, None, 2), slice(column, None, 2))
        for channel, colour in enumerate(colours[row == red_row, column == red_column]):
            out[place][..., channel] = colour[place]
    if channels == 4:
        out[..., 3] = alpha


def _demosaic_with_opencv(out: Array, mosaic: Array, *numbers: int) -> bool:
    rows, columns, _, red_row, red_column, alpha = map(int, numbers)
    pattern = _PATTERNS[red_row, red_column]
    return with_opencv.demosaic(out, mosaic.reshape(rows, columns), pattern, alpha)


DEMOSAIC = {
    np.dtype(element): Routine("demosaic", _demosaic, _demosaic_with_opencv, {"SAMPLE": name})
    for element, name in ((np.uint8, "unsigned char"), (np.uint16, "unsigned short"))
}


@declared
class BayerDemosaicOp(FrameOperator):
    """Computes a colour image from a Bayer mosaic by bilinear interpolation.

    It receives a message at ``receiver`` and emits a TensorMap with one tensor at ``transmitter``. A missing
    colour is the rounded mean of its two or four nearest samples; at the border the mosaic is mirrored. There
    is no white balance and no rescaling.

    The input has the shape (rows, columns) or (rows, columns, 1), with rows and columns even, is C-contiguous
    and of uint8 or uint16. The output has the shape (rows, columns, 3), or 4 with alpha, and the same type.
    With a GPU it is in device memory, and a frame in host memory is copied there first; without one, a frame in
    host memory stays on the host. GPU and host give the same result, bit by bit.

    A frame needs one block of ``rows * columns * channels * itemsize`` bytes from the pool, and where a frame
    in host memory is copied to a GPU, one more of ``rows * columns * itemsize``.

    Parameters
    ----------
    pool
        The allocator of the output; an UnboundedAllocator unless given.
    in_tensor_name
        The tensor to take; ``""`` takes the one with that name, or else the only one. Several are an error.
    out_tensor_name
        The name of the tensor that is sent.
    interpolation_mode
        0, the only mode.
    bayer_grid_pos
        The colours of the first two pixels of the first two rows: 0 BGGR, 1 RGGB, 2 GBRG, 3 GRBG.
    generate_alpha
        Whether the output has a fourth channel.
    alpha_value
        The value of that channel.
    """

    capturable = True

    pool: Allocator = parameter(default=None)
    in_tensor_name: str = ""
    out_tensor_name: str = ""
    interpolation_mode: int = parameter(default=0, choices=(0,))
    bayer_grid_pos: int = parameter(default=2, choices=RED_AT)
    generate_alpha: bool = False
    alpha_value: int = parameter(default=255, minimum=0, maximum=65535)

    ports = ("receiver", "transmitter")

    def plan(self, tensor: Tensor) -> list[Plan]:
        """Return how frames such as this one are demosaicked; raise if they cannot be."""
        if tensor.ndim not in (2, 3) or (tensor.ndim == 3 and tensor.shape[2] != 1):
            raise self.refusal(
                f"a Bayer mosaic has the shape (rows, columns) or (rows, columns, 1), not {tensor.shape}"
            )
        if tensor.dl_dtype.name not in ("uint8", "uint16"):
            raise self.refusal(f"the elements must be uint8 or uint16, not {tensor.dl_dtype.name}")
        dtype = tensor.dtype
        rows, columns = tensor.shape[:2]
        if rows < 2 or columns < 2 or rows % 2 or columns % 2:
            raise self.refusal(
                f"rows and columns must be even and at least 2, not {rows} rows and {columns} columns"
            )
        if self.alpha_value > np.iinfo(dtype).max:
            raise self.refusal(f"alpha_value={self.alpha_value} does not fit the type {dtype} of the frame")
        check_contiguous(tensor, place_of(self, "receiver"))
        channels = 4 if self.generate_alpha else 3
        numbers = (rows, columns, channels, *RED_AT[self.bayer_grid_pos], self.alpha_value)
        arguments = tuple(map(np.int32, numbers))
        return [Plan(DEMOSAIC[dtype], rows * columns // 4, (rows, columns, channels), dtype, arguments)]
