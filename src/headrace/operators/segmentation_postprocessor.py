"""SegmentationPostprocessorOp: the class of each pixel from the output of a segmentation network."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.core.parameters import declared, parameter
from headrace.operators.arrays import Routine, check_contiguous
from headrace.operators.tensor_operator import FrameOperator, Plan, place_of
from headrace.tensor import Tensor

if TYPE_CHECKING:
    from headrace.resources import Allocator

_log = logging.getLogger(__name__)

_MOST_CHANNELS = 255  # the class is a byte
_CHUNK = 1 << 15  # pixels at a time, so that they stay in the processor's cache


def _classify(
    out: np.ndarray[Any, Any],
    scores: np.ndarray[Any, Any],
    pixels: int,
    channels: int,
    is_planar: int,
    is_sigmoid: int,
) -> None:
    planes = scores.reshape(channels, pixels) if is_planar else scores.reshape(pixels, channels).T
    labels = out.reshape(-1)
    if is_sigmoid:
        np.greater_equal(planes[0], np.float32(0.5), out=labels.view(np.bool_))
        return
    labels[:] = 0
    for begin in range(0, int(pixels), _CHUNK):
        chosen = labels[begin : begin + _CHUNK]
        best = np.full(len(chosen), -np.inf, np.float32)
        for channel, plane in enumerate(planes[:, begin : begin + _CHUNK]):
            is_better = plane > best  # false for NaN
            np.fmax(best, plane, out=best)
            # Later channels have larger numbers, so the last one that is better is the largest.
            np.maximum(chosen, is_better.view(np.uint8) * np.uint8(channel), out=chosen)


CLASSIFY = Routine("classify", _classify)
"""The channel with the largest score, the first of equal ones; or, of a sigmoid, whether channel 0 is at least 0.5.

NaN is never the largest.
"""


@declared
class SegmentationPostprocessorOp(FrameOperator):
    """Computes the class of each pixel from the scores of a network.

    It receives a message at ``in_tensor`` and emits a TensorMap at ``out_tensor`` with one tensor of that name:
    uint8, (rows, columns, 1). The input is float32, C-contiguous, with at most 255 channels. With a GPU the
    output is in device memory, and scores in host memory are copied there first; without one they are
    classified on the host. GPU and host give the same result.

    A frame needs one block of ``rows * columns`` bytes, and where scores in host memory are copied to a GPU,
    one more of their size.

    Parameters
    ----------
    allocator
        The allocator of the output; an UnboundedAllocator unless given.
    in_tensor_name
        The tensor to take; ``""`` takes the one with that name, or else the only one. Several are an error.
    network_output_type
        ``"softmax"``: the class is the channel with the largest score, the first of equal ones. ``"sigmoid"``:
        it is 1 where channel 0 is at least 0.5, else 0; further channels are ignored, with a warning.
    data_format
        ``"hwc"``, ``"nchw"`` or ``"nhwc"``, with one image in the batch.
    """

    capturable = True

    allocator: Allocator = parameter(default=None)
    in_tensor_name: str = ""
    network_output_type: str = parameter(default="softmax", choices=("softmax", "sigmoid"))
    data_format: str = parameter(default="hwc", choices=("hwc", "nchw", "nhwc"))

    ports = ("in_tensor", "out_tensor")
    out_tensor_name = "out_tensor"  # no parameter

    @property
    def pool(self) -> Any:
        """The allocator of the output."""
        return self.allocator

    def start(self) -> None:
        """Begin a run."""
        super().start()
        self._has_warned = False

    def plan(self, tensor: Tensor) -> list[Plan]:
        """Return how scores such as these are classified; raise if they cannot be."""
        if tensor.dl_dtype.name != "float32":
            raise self.refusal(f"the scores must be float32, not {tensor.dl_dtype.name}")
        if tensor.ndim != len(self.data_format):
            raise self.refusal(
                f"data_format={self.data_format!r} means {len(self.data_format)} dimensions, and the tensor has "
                f"the shape {tensor.shape}"
            )
        sizes = dict(zip(self.data_format, tensor.shape, strict=True))
        rows, columns, channels = (sizes[axis] for axis in "hwc")
        if sizes.get("n", 1) != 1:
            raise self.refusal(f"the batch must hold one image, and the shape is {tensor.shape}")
        if not 1 <= channels <= _MOST_CHANNELS:
            raise self.refusal(
                f"from 1 to {_MOST_CHANNELS} channels can be classified; the shape {tensor.shape} as "
                f"{self.data_format!r} has {channels}"
            )
        if rows == 0 or columns == 0:
            raise self.refusal(f"the shape {tensor.shape} has no pixels")
        check_contiguous(tensor, place_of(self, "in_tensor"))
        is_sigmoid = self.network_output_type == "sigmoid"
        if is_sigmoid and channels > 1 and not self._has_warned:
            self._has_warned = True
            _log.warning(
                "operator %r: the sigmoid of channel 0 decides; the other %d of %d channels are ignored",
                self.name,
                channels - 1,
                channels,
            )
        numbers = map(np.int32, (channels, self.data_format == "nchw", is_sigmoid))
        pixels = rows * columns
        return [Plan(CLASSIFY, pixels, (rows, columns, 1), np.dtype(np.uint8), (np.int64(pixels), *numbers))]
