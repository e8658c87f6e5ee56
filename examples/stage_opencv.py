"""An OpenCV stage that mirrors frames, on the GPU if OpenCV was built with CUDA, otherwise on the CPU.

OpenCV's packages on PyPI are built without CUDA.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace import CountCondition, Operator, OperatorSpec, Tensor, gpu
from headrace.tensor import gpumat_to_tensor, tensor_to_gpumat
from shared.example import Example
from shared.frames import Transmit
from shared.needs import needs

needs("cv2")
import cv2

ON_GPU = cv2.cuda.getCudaEnabledDeviceCount() > 0 and gpu.backend() == "cuda"
LEFT_TO_RIGHT = 1


class Mirror(Operator):
    """Swaps left and right."""

    def setup(self, spec: OperatorSpec) -> None:
        spec.input("in")
        spec.output("out")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        frame = op_input.receive("in")["frame"]
        if frame.device.is_cuda:
            mirrored: Any = mirror_on_gpu(frame, op_input.receive_cuda_stream("in"))
        else:
            mirrored = cv2.flip(np.asarray(frame), LEFT_TO_RIGHT)  # reads the frame in place
        op_output.emit({"frame": mirrored}, "out")


def mirror_on_gpu(frame: Tensor, stream: gpu.StreamHandle) -> Tensor:
    """Mirror a frame on a stream. GpuMat supports no array protocol, so headrace has a function each way."""
    wrapped = cv2.cuda.wrapStream(int(stream))
    mirrored = cv2.cuda.flip(tensor_to_gpumat(frame), LEFT_TO_RIGHT, stream=wrapped)
    return gpumat_to_tensor(mirrored, stream=stream)


class Mirroring(Example):
    def compose(self):
        transmitted = Transmit(self, CountCondition(self, self.options.frames), on_gpu=ON_GPU)
        mirrored = Mirror(self, name="mirror")
        self.add_flow(transmitted, mirrored)
        self.end_with(mirrored)


if __name__ == "__main__":
    Mirroring().run()
