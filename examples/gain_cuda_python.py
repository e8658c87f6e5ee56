"""The gain pipeline with CUDA Python: its own kernel and buffers, through cuda.core. Needs a GPU and CuPy.

--hand-over chooses how the receiver passes frames on. The two ways with NumPy wait for a copy to the host.
"""

from __future__ import annotations

import numpy as np

from headrace import CountCondition, TensorMap, gpu, op
from shared.example import Example
from shared.frames import Transmit, to_host
from shared.needs import needs

needs("cupy", a_gpu=True)
import cupy
from cuda.core.utils import StridedMemoryView

SOURCE = r"""
extern "C" __global__ void apply_gain(const unsigned char* in, unsigned char* out, int size, int gain) {
    int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < size) out[i] = in[i] * gain;
}
"""
gpu.Device(0).set_current()
OPTIONS = gpu.ProgramOptions(std="c++17", arch=f"sm_{gpu.Device(0).arch}")
KERNEL = gpu.Program(SOURCE, "c++", OPTIONS).compile("cubin").get_kernel("apply_gain")


@op
def apply_gain(message, *, gain: int):
    """Runs with the device current and on its own stream; the buffer is allocated and freed in stream order."""
    frame, stream = message["frame"], gpu.current_stream().stream  # type: ignore[union-attr]
    louder = gpu.Device(0).allocate(frame.nbytes, stream=stream)
    config = gpu.LaunchConfig(grid=-(-frame.size // 256), block=256)
    gpu.launch(stream, config, KERNEL, frame.data, louder, np.int32(frame.size), np.int32(gain))
    return TensorMap(frame=StridedMemoryView.from_buffer(louder, frame.shape, dtype=frame.dtype))


@op
def receive(message, *, hand_over: str):
    return {"frame": HAND_OVER[hand_over](message["frame"], gpu.current_stream())}


class CudaArray:
    """Memory with the interface that libraries read: its address, its layout and the stream that writes it."""

    def __init__(self, frame, stream):
        self.frame = frame  # keeps the memory alive
        self.__cuda_array_interface__ = {
            "version": 3,
            "shape": frame.shape,
            "typestr": frame.dtype.str,
            "data": (frame.data, False),  # address, read-only
            "stream": int(stream),  # the CUDA handle, not the address of a Python object
        }


def cupy_from_cuda(frame, stream):
    memory = cupy.cuda.UnownedMemory(frame.data, frame.nbytes, owner=frame)
    return cupy.ndarray(frame.shape, frame.dtype, cupy.cuda.MemoryPointer(memory, 0))


HAND_OVER = {
    "numpy-from-cuda": to_host,
    "cupy-from-numpy": lambda frame, stream: cupy.asarray(to_host(frame, stream)),
    "cuda-array-interface": CudaArray,
    "cupy-from-cuda": cupy_from_cuda,
}


class Gain(Example):
    def compose(self):
        transmitted = Transmit(self, CountCondition(self, self.options.frames), on_gpu=True)
        louder, received = apply_gain(self, gain=2), receive(self, hand_over=self.options.hand_over)
        self.add_flow(transmitted, louder)
        self.add_flow(louder, received)
        self.end_with(received)


if __name__ == "__main__":
    Gain(hand_over=list(HAND_OVER)).run()
