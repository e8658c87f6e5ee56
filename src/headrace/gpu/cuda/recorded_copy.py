"""Copies in recorded graphs, whose addresses each executable graph can change.

A program records a graph once and launches it for frame after frame, each at its own address. The driver's own copy
nodes do not suit that. A node that is changed to another address refers to the driver's description of the memory
there, even after that memory was freed, and so does a later launch with new memory at the same address:
compute-sanitizer, which reads the description, crashes (driver 580). And the driver refuses to change a copy node
from memory of one allocator to that of another. So a kernel copies: its arguments are numbers.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from headrace.gpu.cuda.capture import check_status
from headrace.gpu.kernels import kernel

if TYPE_CHECKING:
    from headrace.gpu import sim
    from headrace.gpu.stream_handle import SupportsStream

_SOURCE = r"""
template <typename Word>
__device__ unsigned long long copy_words(
    unsigned long long target, unsigned long long source, unsigned long long size,
    unsigned long long first, unsigned long long step)
{
    Word *to = reinterpret_cast<Word *>(target);
    const Word *from = reinterpret_cast<const Word *>(source);
    const unsigned long long count = size / sizeof(Word);
    for (unsigned long long i = first; i < count; i += step)
        to[i] = from[i];
    return count * sizeof(Word);
}

extern "C" __global__ void headrace_copy(
    unsigned long long target, unsigned long long source, unsigned long long size)
{
    const unsigned long long first = blockIdx.x * (unsigned long long) blockDim.x + threadIdx.x;
    const unsigned long long step = (unsigned long long) gridDim.x * blockDim.x;
    const unsigned long long both = target | source;
    unsigned long long done = 0;
    if (both % sizeof(uint4) == 0)
        done = copy_words<uint4>(target, source, size, first, step);
    else if (both % sizeof(unsigned int) == 0)
        done = copy_words<unsigned int>(target, source, size, first, step);
    copy_words<unsigned char>(target + done, source + done, size - done, first, step);
}
"""
copy_kernel = kernel("headrace_copy", source=_SOURCE, seconds=0.0)
_THREADS, _BYTES_PER_THREAD, _MOST_BLOCKS = 256, 16, 1024


def launch_copy(stream: SupportsStream, target: int, source: int, size: int) -> None:
    """Launch the kernel that copies."""
    from headrace.gpu.cuda import LaunchConfig, launch

    owner: Any = getattr(stream, "stream", stream)
    blocks = min(-(-size // (_THREADS * _BYTES_PER_THREAD)), _MOST_BLOCKS)
    config = LaunchConfig(grid=blocks, block=_THREADS)
    launch(owner, config, copy_kernel.on(owner.device), target, source, size)


class CopyKernelNode:
    """A node that `launch_copy` recorded. A change gives the driver what was read here, with other arguments."""

    def __init__(self, node: Any, size: int) -> None:
        from cuda.bindings import driver

        self._node = node
        status, self._parameters = driver.cuGraphKernelNodeGetParams(node)
        check_status(status, "a recorded copy cannot be read")
        # The kernel is read in two forms. One of them is loaded in the context that is current, and the driver
        # refuses that where the node is in another one: on a slice of the SMs.
        self._parameters.func = driver.CUfunction(0)
        self._arguments = (ctypes.c_uint64 * 3)(0, 0, size)
        first = ctypes.addressof(self._arguments)
        self._pointers = (ctypes.c_void_p * 3)(first, first + 8, first + 16)
        self._parameters.kernelParams = ctypes.addressof(self._pointers)
        self._set = driver.cuGraphExecKernelNodeSetParams

    def change(self, graph: sim.Graph, target: int, source: int) -> None:
        """Copy between other addresses in later launches of an executable graph."""
        self._arguments[0] = target
        self._arguments[1] = source
        (status,) = self._set(graph.handle, self._node, self._parameters)
        check_status(status, "the addresses of a recorded copy cannot be changed")
