"""BayerDemosaicOp: colour images from the mosaic of a camera's sensor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.operators._routines.demosaic import DEMOSAIC, RED_AT
from headrace.operators.arrays import Plan, check_contiguous, find_tensor, workplace
from headrace.operators.tensor_operator import TensorOperator

if TYPE_CHECKING:
    from headrace.core.contexts import ExecutionContext, InputContext, OutputContext
    from headrace.core.spec import OperatorSpec
    from headrace.tensor import Tensor

__all__ = ["BayerDemosaicOp"]


class BayerDemosaicOp(TensorOperator):
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

    pool: Any
    in_tensor_name: str
    out_tensor_name: str
    interpolation_mode: int
    bayer_grid_pos: int
    generate_alpha: bool
    alpha_value: int

    def setup(self, spec: OperatorSpec) -> None:
        """Declare ports and parameters."""
        spec.input("receiver")
        spec.output("transmitter")
        spec.param("pool", None)
        spec.param("in_tensor_name", "")
        spec.param("out_tensor_name", "")
        spec.param("interpolation_mode", 0)
        spec.param("bayer_grid_pos", 2)
        spec.param("generate_alpha", False)
        spec.param("alpha_value", 255)

    def initialize(self) -> None:
        """Check the parameters."""
        super().initialize()
        self.check_choice("interpolation_mode", (0,))
        self.check_choice("bayer_grid_pos", tuple(RED_AT))
        self.check_range("alpha_value", 0, 65535)
        # The plan of the last kind of frame: frames of a camera are all of one kind.
        self._planned_for: tuple[Any, ...] = ()
        self._plan: Plan

    def compute(self, op_input: InputContext, op_output: OutputContext, context: ExecutionContext) -> None:
        """Demosaic one frame."""
        tensor = find_tensor(op_input.receive("receiver"), self.in_tensor_name, self, "receiver")
        kind = (
            tensor.shape,
            tensor.strides,
            tensor.dl_dtype,
            self.generate_alpha,
            self.alpha_value,
            self.bayer_grid_pos,
        )
        if kind != self._planned_for:
            self._plan = self._make_plan(tensor)
            self._planned_for = kind
        plan = self._plan
        place = workplace(self, op_input, "receiver", tensor, pool=self.pool)
        mosaic = place.bring(tensor)
        image = place.empty(plan.shape, plan.element)
        place.run(plan.routine, plan.threads, image, mosaic, *plan.arguments)
        op_output.emit({self.out_tensor_name: image}, "transmitter")

    def _make_plan(self, tensor: Tensor) -> Plan:
        """Return how frames such as this one are computed; raise if they cannot be."""
        where = f"operator {self.name!r}, input 'receiver'"
        if tensor.ndim not in (2, 3) or (tensor.ndim == 3 and tensor.shape[2] != 1):
            raise ValueError(
                f"{where}: a Bayer mosaic has the shape (rows, columns) or (rows, columns, 1), not {tensor.shape}"
            )
        if tensor.dl_dtype.name not in ("uint8", "uint16"):
            raise ValueError(f"{where}: the elements must be uint8 or uint16, not {tensor.dl_dtype.name}")
        dtype = tensor.dtype
        rows, columns = tensor.shape[:2]
        if rows < 2 or columns < 2 or rows % 2 or columns % 2:
            raise ValueError(
                f"{where}: rows and columns must be even and at least 2, not {rows} rows and {columns} columns"
            )
        if self.alpha_value > np.iinfo(dtype).max:
            raise ValueError(
                f"{where}: alpha_value={self.alpha_value} does not fit the type {dtype} of the frame"
            )
        check_contiguous(tensor, where)
        channels = 4 if self.generate_alpha else 3
        numbers = (rows, columns, channels, *RED_AT[self.bayer_grid_pos], self.alpha_value)
        arguments = tuple(map(np.int32, numbers))
        return Plan(DEMOSAIC[dtype], rows * columns // 4, (rows, columns, channels), dtype, arguments)
