"""The frames of the array examples: a picture, and its way to the GPU and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace import Operator, OperatorSpec, Tensor, as_tensor, gpu


def picture(number: int) -> np.ndarray:
    """Return a small colour picture, dim enough for a gain of 2; `number` brightens its red channel."""
    rows, columns = np.indices((64, 64))
    return np.stack([rows + number, columns, rows ^ columns], axis=-1).astype(np.uint8)


class Transmit(Operator):
    """Emits pictures; with `on_gpu`, copies each one to the GPU on the operator's own stream."""

    on_gpu: bool

    def setup(self, spec: OperatorSpec) -> None:
        spec.output("out")
        spec.param("on_gpu", False)

    def start(self) -> None:
        self.number = 0

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        frame: Any = picture(self.number)
        stream = None
        if self.on_gpu:
            stream = context.allocate_cuda_stream("transmit")  # the same stream in every compute
            op_output.set_cuda_stream(stream, "out")
            frame = to_device(frame, stream)
        op_output.emit({"frame": as_tensor(frame, stream=stream)}, "out")
        self.number += 1


def device_frame(shape: tuple[int, ...], dtype: np.dtype, stream: gpu.StreamHandle) -> Any:
    """Allocate a frame on the GPU in stream order: a cuda.core buffer with a shape and a dtype."""
    from cuda.core.utils import StridedMemoryView  # installed only where there is a GPU

    size = int(np.prod(shape)) * dtype.itemsize
    buffer = gpu.Device(0).allocate(size, stream=stream.stream)
    return StridedMemoryView.from_buffer(buffer, shape, dtype=dtype)


def to_device(frame: np.ndarray, stream: gpu.StreamHandle) -> Any:
    """Copy a frame to the GPU on a stream."""
    copied = device_frame(frame.shape, frame.dtype, stream)
    # A copy from pageable memory has read its source when the call returns, so `frame` may go.
    source = gpu.Buffer.from_handle(frame.ctypes.data, frame.nbytes, owner=frame)  # type: ignore[attr-defined]
    copied.exporting_obj.copy_from(source, stream=stream.stream)
    return copied


def to_host(tensor: Tensor, stream: gpu.StreamHandle) -> np.ndarray:
    """Copy a tensor from the GPU on a stream, and wait for the copy."""
    tensor = as_tensor(tensor, stream=stream)  # the stream waits for the work that still writes the tensor
    steps = zip(tensor.shape, tensor.strides, strict=True)
    span = tensor.itemsize + sum((extent - 1) * stride for extent, stride in steps)
    host = gpu.LegacyPinnedMemoryResource().allocate(span)
    read = gpu.Buffer.from_handle(tensor.data, span, owner=tensor)  # type: ignore[attr-defined]
    read.copy_to(host, stream=stream.stream)
    stream.stream.sync()
    return np.ndarray(tensor.shape, tensor.dtype, np.from_dlpack(host), strides=tensor.strides).copy()
