"""BayerDemosaicOp: colour images from the mosaic of a camera's sensor."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from headrace.core.parameters import declared, parameter
from headrace.operators._routines.demosaic import DEMOSAIC, RED_AT
from headrace.operators.arrays import check_contiguous
from headrace.operators.tensor_operator import FrameOperator, Plan, place_of
from headrace.tensor import Tensor

if TYPE_CHECKING:
    from headrace.resources import Allocator


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
