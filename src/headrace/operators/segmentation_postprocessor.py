"""SegmentationPostprocessorOp: the class of each pixel from the output of a segmentation network."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.operators._routines.segmentation import CLASSIFY
from headrace.operators.arrays import check_contiguous, find_tensor, workplace
from headrace.operators.tensor_operator import TensorOperator

if TYPE_CHECKING:
    from headrace.core.contexts import ExecutionContext, InputContext, OutputContext
    from headrace.core.spec import OperatorSpec
    from headrace.tensor import Tensor

__all__ = ["SegmentationPostprocessorOp"]

_log = logging.getLogger(__name__)

_MOST_CHANNELS = 255  # the class is a byte


class SegmentationPostprocessorOp(TensorOperator):
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

    allocator: Any
    in_tensor_name: str
    network_output_type: str
    data_format: str

    def setup(self, spec: OperatorSpec) -> None:
        """Declare ports and parameters."""
        spec.input("in_tensor")
        spec.output("out_tensor")
        spec.param("allocator", None)
        spec.param("in_tensor_name", "")
        spec.param("network_output_type", "softmax")
        spec.param("data_format", "hwc")

    def initialize(self) -> None:
        """Check the parameters."""
        super().initialize()
        self.check_choice("network_output_type", ("softmax", "sigmoid"))
        self.check_choice("data_format", ("hwc", "nchw", "nhwc"))

    def start(self) -> None:
        """Begin a run."""
        self._has_warned = False

    def compute(self, op_input: InputContext, op_output: OutputContext, context: ExecutionContext) -> None:
        """Classify the pixels of one frame."""
        tensor = find_tensor(op_input.receive("in_tensor"), self.in_tensor_name, self, "in_tensor")
        rows, columns, channels = self._layout(tensor)
        is_sigmoid = self.network_output_type == "sigmoid"
        if is_sigmoid and channels > 1 and not self._has_warned:
            self._has_warned = True
            _log.warning(
                "operator %r: the sigmoid of channel 0 decides; the other %d of %d channels are ignored",
                self.name,
                channels - 1,
                channels,
            )
        place = workplace(self, op_input, "in_tensor", tensor, pool=self.allocator)
        scores = place.bring(tensor)
        classes = place.empty((rows, columns, 1), np.uint8)
        place.run(
            CLASSIFY,
            rows * columns,
            classes,
            scores,
            np.int64(rows * columns),
            np.int32(channels),
            np.int32(self.data_format == "nchw"),
            np.int32(is_sigmoid),
        )
        op_output.emit({"out_tensor": classes}, "out_tensor")

    def _layout(self, tensor: Tensor) -> tuple[int, int, int]:
        """Return rows, columns and channels of the scores, or raise if they cannot be classified."""
        where = f"operator {self.name!r}, input 'in_tensor'"
        if tensor.dl_dtype.name != "float32":
            raise ValueError(f"{where}: the scores must be float32, not {tensor.dl_dtype.name}")
        if tensor.ndim != len(self.data_format):
            raise ValueError(
                f"{where}: data_format={self.data_format!r} means {len(self.data_format)} dimensions, and the "
                f"tensor has the shape {tensor.shape}"
            )
        sizes = dict(zip(self.data_format, tensor.shape, strict=True))
        if sizes.get("n", 1) != 1:
            raise ValueError(f"{where}: the batch must hold one image, and the shape is {tensor.shape}")
        if not 1 <= sizes["c"] <= _MOST_CHANNELS:
            raise ValueError(
                f"{where}: from 1 to {_MOST_CHANNELS} channels can be classified; the shape {tensor.shape} as "
                f"{self.data_format!r} has {sizes['c']}"
            )
        if sizes["h"] == 0 or sizes["w"] == 0:
            raise ValueError(f"{where}: the shape {tensor.shape} has no pixels")
        check_contiguous(tensor, where)
        return sizes["h"], sizes["w"], sizes["c"]
