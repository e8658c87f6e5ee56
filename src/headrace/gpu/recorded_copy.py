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

from headrace.gpu.capture import captured_frontier, check_status, is_capturing
from headrace.gpu.kernels import kernel
from headrace.gpu.simulated import is_simulated

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
_copy = kernel("headrace_copy", source=_SOURCE, seconds=0.0)  # simulated devices copy by their copy engines
_THREADS, _BYTES_PER_THREAD, _MOST_BLOCKS = 256, 16, 1024


class RecordedCopy:
    """A copy in a recorded graph, which can be changed in each executable graph that is made of it.

    Parameters
    ----------
    stream : Stream or StreamHandle
        A stream that captures; the copy is recorded on it.
    target, source : int
        The addresses to copy to and from, in memory that the stream's device can use; they may be the same.
    size : int
        The number of bytes.
    """

    def __init__(self, stream: SupportsStream, target: int, source: int, size: int) -> None:
        if size < 1:
            raise ValueError(f"a recorded copy has at least one byte, got {size}")
        owner: Any = getattr(stream, "stream", stream)  # the stream of a StreamHandle
        if not is_capturing(owner):
            raise RuntimeError("the stream does not capture, so there is no graph to record a copy in")
        self._size = size
        self._is_simulated = is_simulated(owner)
        if self._is_simulated:
            from headrace.gpu.sim.memory import copy_between

            copy_between(owner, target, source, size)
        else:
            from headrace.gpu.cuda import LaunchConfig, launch

            blocks = min(-(-size // (_THREADS * _BYTES_PER_THREAD)), _MOST_BLOCKS)
            launch(
                owner, LaunchConfig(grid=blocks, block=_THREADS), _copy.on(owner.device), target, source, size
            )
        (self._node,) = captured_frontier(owner).values()
        if not self._is_simulated:
            self._describe()

    @staticmethod
    def prepare(device: sim.Device) -> None:
        """Compile what recorded copies need, which would otherwise delay the first of them."""
        _copy.on(device)

    def _describe(self) -> None:
        """Read the recorded node. A change gives the driver what was read, with other arguments."""
        from cuda.bindings import driver

        status, self._parameters = driver.cuGraphKernelNodeGetParams(self._node)
        check_status(status, "a recorded copy cannot be read")
        # The kernel is read in two forms. One of them is loaded in the context that is current, and the driver
        # refuses that where the node is in another one: on a slice of the SMs.
        self._parameters.func = driver.CUfunction(0)
        self._arguments = (ctypes.c_uint64 * 3)(0, 0, self._size)
        first = ctypes.addressof(self._arguments)
        self._pointers = (ctypes.c_void_p * 3)(first, first + 8, first + 16)
        self._parameters.kernelParams = ctypes.addressof(self._pointers)
        self._set = driver.cuGraphExecKernelNodeSetParams

    def change(self, graph: sim.Graph, target: int, source: int) -> None:
        """Copy between other addresses in later launches of an executable graph."""
        if self._is_simulated:
            from headrace.gpu.sim.graph import change_copy

            change_copy(graph, self._node, target, source, self._size)
            return
        self._arguments[0] = target
        self._arguments[1] = source
        (status,) = self._set(graph.handle, self._node, self._parameters)
        check_status(status, "the addresses of a recorded copy cannot be changed")
