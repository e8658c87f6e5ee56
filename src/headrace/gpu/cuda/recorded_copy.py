"""Copies in recorded graphs, also between addresses that are other ones in each launch.

A program records a graph once and launches it for frame after frame, each at its own address. The driver's own copy
nodes do not suit that. A node that is changed to another address refers to the driver's description of the memory
there, even after that memory was freed, and so does a later launch with new memory at the same address:
compute-sanitizer, which reads the description, crashes (driver 580). And the driver refuses to change a copy node
from memory of one allocator to that of another. So a kernel copies: its arguments are numbers. They stay the same
as well, since to change them costs the host as much as a launch: the kernel reads an address from memory of the
device, where the first kernel of the graph has put those of the launch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.gpu.kernels import kernel

if TYPE_CHECKING:
    from headrace.gpu.stream_handle import SupportsStream

_SOURCE = r"""
typedef unsigned long long Address;

template <typename Word>
__device__ Address copy_words(Address target, Address source, Address size, Address first, Address step)
{
    Word *to = reinterpret_cast<Word *>(target);
    const Word *from = reinterpret_cast<const Word *>(source);
    const Address count = size / sizeof(Word);
    for (Address i = first; i < count; i += step)
        to[i] = from[i];
    return count * sizeof(Word);
}

// With `found` 1 the source is at the address that is found there, with 2 the target.
extern "C" __global__ void headrace_copy(Address target, Address source, Address size, Address found)
{
    if (found == 1)
        source = *reinterpret_cast<const Address *>(source);
    if (found == 2)
        target = *reinterpret_cast<const Address *>(target);
    const Address first = blockIdx.x * (Address) blockDim.x + threadIdx.x;
    const Address step = (Address) gridDim.x * blockDim.x;
    const Address both = target | source;
    Address done = 0;
    if (both % sizeof(uint4) == 0)
        done = copy_words<uint4>(target, source, size, first, step);
    else if (both % sizeof(unsigned int) == 0)
        done = copy_words<unsigned int>(target, source, size, first, step);
    copy_words<unsigned char>(target + done, source + done, size - done, first, step);
}

// Takes the next row of a table: a launch's number, the table, its rows, their length, and then the row itself.
extern "C" __global__ void headrace_take_addresses(Address at)
{
    Address *words = reinterpret_cast<Address *>(at);
    const Address number = words[0], rows = words[2], count = words[3];
    const volatile Address *row = reinterpret_cast<const volatile Address *>(words[1]) + number % rows * count;
    for (Address i = threadIdx.x; i < count; i += blockDim.x)
        words[4 + i] = row[i];
    __syncthreads();
    if (threadIdx.x == 0)
        words[0] = number + 1;
}
"""
copy_kernel = kernel("headrace_copy", source=_SOURCE, seconds=0.0)
take_kernel = kernel("headrace_take_addresses", source=_SOURCE, seconds=0.0)
_THREADS, _BYTES_PER_THREAD, _MOST_BLOCKS = 256, 16, 1024
_HEAD, _MOST, _WORD = 4, 1020, 8
_SOURCE_FOUND, _TARGET_FOUND = 1, 2


def launch_copy(stream: SupportsStream, target: int, source: int, size: int, found: int = 0) -> None:
    """Launch the kernel that copies."""
    from headrace.gpu.cuda import LaunchConfig, launch

    owner: Any = getattr(stream, "stream", stream)
    blocks = min(-(-size // (_THREADS * _BYTES_PER_THREAD)), _MOST_BLOCKS)
    config = LaunchConfig(grid=blocks, block=_THREADS)
    launch(owner, config, copy_kernel.on(owner.device), target, source, size, found)


class CudaAddresses:
    """The table of addresses in pinned memory, and the row that a launch has taken in memory of the device."""

    def __init__(self, stream: SupportsStream) -> None:
        self.number = 0
        owner: Any = getattr(stream, "stream", stream)
        self._stream = owner
        self._words = owner.device.allocate((_HEAD + _MOST) * _WORD, stream=owner)
        self._table: Any = None

    def begin(self, stream: SupportsStream) -> None:
        """Record the kernel that takes a row."""
        from headrace.gpu.cuda import LaunchConfig, launch

        owner: Any = getattr(stream, "stream", stream)
        launch(owner, LaunchConfig(grid=1, block=32), take_kernel.on(owner.device), int(self._words.handle))

    def copy(self, stream: SupportsStream, place: int, inside: int, size: int, enters: bool) -> None:
        """Record a copy between a fixed address and the one at a place of the row."""
        if place >= _MOST:
            raise ValueError(f"more than {_MOST} arrays enter and leave the graph")
        outside = int(self._words.handle) + (_HEAD + place) * _WORD
        if enters:
            launch_copy(stream, inside, outside, size, _SOURCE_FOUND)
        else:
            launch_copy(stream, outside, inside, size, _TARGET_FOUND)

    def open(self, count: int, rows: int, stream: SupportsStream) -> Any:
        """Return the table, and tell the device where it is."""
        import numpy as np

        from headrace.gpu.backend import backend_of
        from headrace.gpu.cuda import LegacyPinnedMemoryResource

        self._table = LegacyPinnedMemoryResource().allocate(max(count, 1) * rows * _WORD)
        head = np.array([0, int(self._table.handle), rows, count], np.uint64)
        backend_of(stream).copy(stream, int(self._words.handle), head, head.nbytes)
        table: Any = np.from_dlpack(self._table)
        return memoryview(table).cast("B")

    def close(self) -> None:
        """Free the memory; the device has finished."""
        self._words.close(self._stream)
        if self._table is not None:
            self._table.close()
