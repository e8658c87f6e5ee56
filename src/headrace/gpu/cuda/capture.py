"""What cuda.core lacks for graphs, called through cuda.bindings.

**Captures that end with an error.** When a capture that was invalidated is ended, the driver destroys its graph,
whether it was made for the capture or given to it (driver 580). cuda.core's objects do not know that. They destroy
the graph once more when they are collected: its builder, which owns the graph from the beginning, and a definition
that the capture was given. If another graph has been made at the same address meanwhile, it is that one which is
gone, and its owner destroys it again: now and then the process ended with ``free(): invalid size``. So a capture
is given a definition of ours, and if it was invalidated, the definition is never collected. That costs a small
object for each frame that cannot be recorded.

Copies in recorded graphs, also between addresses that are other ones in each launch.

A program records a graph once and launches it for frame after frame, each at its own address. The driver's own copy
nodes do not suit that. A node that is changed to another address refers to the driver's description of the memory
there, even after that memory was freed, and so does a later launch with new memory at the same address:
compute-sanitizer, which reads the description, crashes (driver 580). And the driver refuses to change a copy node
from memory of one allocator to that of another. So a kernel copies: its arguments are numbers. They stay the same
as well, since to change them costs the host as much as a launch: the kernel reads an address from memory of the
device, where the first kernel of the graph has put those of the launch.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from headrace.gpu.backend import Backend, RecordedAddresses
from headrace.gpu.kernels import kernel
from headrace.gpu.stream_handle import SupportsStream, handle_of

if TYPE_CHECKING:
    from headrace.gpu import sim


class CudaCapture(Backend):
    """The part of the backend that looks into captures and adds nodes to them."""

    def is_capturing(self, stream: SupportsStream) -> bool:
        """Return whether a stream captures, even if an error has invalidated the capture."""
        from cuda.bindings import driver

        status, state = driver.cuStreamIsCapturing(driver.CUstream(handle_of(stream)))
        check_status(status, "whether a stream captures cannot be determined")
        return bool(state != driver.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_NONE)

    def graph_builder(self, stream: Any) -> Any:
        """Return what captures the work of a stream."""

        return CudaGraphBuilder(stream)

    def captured_nodes(self, stream: SupportsStream) -> int:
        """Return the number of nodes that a capture has recorded so far."""
        from cuda.bindings import driver

        graph = next(part for part in _capture_info(stream) if isinstance(part, driver.CUgraph))
        status, *found = driver.cuGraphGetNodes(graph)
        check_status(status, "the nodes of a capture cannot be counted")
        return int(found[-1])

    def captured_frontier(self, stream: SupportsStream) -> dict[int, Any]:
        """Return the nodes that the next work of a capturing stream will depend on, by their handles."""
        from cuda.bindings import driver

        found = _capture_info(stream)
        if not any(isinstance(part, driver.CUgraph) and int(part) for part in found):
            from headrace.gpu.cuda import CUDAError

            raise CUDAError("CUDA_ERROR_INVALID_VALUE: the stream does not capture")
        # Lists of the nodes and, since CUDA 13, of what is known about the edges.
        nodes = next(part for part in found if isinstance(part, (list, tuple)))
        return {int(node): node for node in nodes}

    def instantiate_with_records(
        self, definition: Any, records: Iterable[tuple[Mapping[int, Any], sim.Event]], options: Any
    ) -> sim.Graph:
        """Return an executable graph that also records events, each after the nodes given with it."""
        from cuda.bindings import driver

        status, *found = driver.cuGraphGetRootNodes(definition.handle)
        check_status(status, "the first nodes of a graph cannot be determined")
        roots = list(found[0])[: int(found[-1])]
        added: list[Any] = []
        try:
            for nodes, event in records:
                status, *found = driver.cuGraphAddEventRecordNode(
                    definition.handle, list(nodes.values()), len(nodes), event.handle
                )
                check_status(status, "the record of an event cannot be added to a graph")
                added.append(found[0])
                if not nodes:  # or it might come after they have begun
                    _add_dependencies(definition.handle, found[0], roots)
            graph: sim.Graph = definition.instantiate(options)
            return graph
        finally:
            # With them goes what depends on them, so the others are as they were.
            for node in added:
                (status,) = driver.cuGraphDestroyNode(node)
                check_status(status, "the record of an event cannot be removed from a graph")

    def record_copy(self, stream: SupportsStream, target: int, source: int, size: int) -> None:
        """Record a copy in a capture."""

        launch_copy(stream, target, source, size)

    def record_addresses(self, stream: SupportsStream) -> RecordedAddresses:
        """Return what records copies whose addresses are other ones in each launch."""

        return CudaAddresses(stream)

    def prepare_copies(self, device: sim.Device) -> None:
        """Compile the kernels of recorded copies."""

        copy_kernel.on(device)
        take_kernel.on(device)


def _capture_info(stream: SupportsStream) -> list[Any]:
    """Return what the driver tells about the capture of a stream; how much that is depends on its version."""
    from cuda.bindings import driver

    found: list[Any]
    status, *found = driver.cuStreamGetCaptureInfo(driver.CUstream(handle_of(stream)))
    check_status(status, "what a stream captures cannot be determined")
    return found


def _add_dependencies(graph: Any, first: Any, others: list[Any]) -> None:
    """Make nodes depend on another."""
    from cuda.bindings import driver

    if not others:
        return
    before = [first] * len(others)
    try:  # since CUDA 13 with what is known about the edges
        (status,) = driver.cuGraphAddDependencies(graph, before, others, None, len(others))
    except TypeError:
        (status,) = driver.cuGraphAddDependencies(graph, before, others, len(others))
    check_status(status, "nodes of a graph cannot be ordered")


def check_status(status: Any, what: str) -> None:
    """Raise an error that says what failed, if a call of the driver did."""
    from cuda.bindings import driver

    if status != driver.CUresult.CUDA_SUCCESS:
        from headrace.gpu.cuda import CUDAError

        raise CUDAError(f"{status.name}: {what}")


class CudaGraphBuilder:
    """The part of cuda.core's GraphBuilder that recording a segment needs."""

    def __init__(self, stream: Any) -> None:
        from headrace.gpu.cuda import GraphDefinition

        self._stream = stream
        self._is_capturing = False
        self.graph_definition = GraphDefinition()

    def begin_building(self, mode: str) -> None:
        """Begin to capture."""
        from cuda.bindings import driver

        modes = driver.CUstreamCaptureMode
        (status,) = driver.cuStreamBeginCaptureToGraph(
            self._stream.handle,
            self.graph_definition.handle,
            None,
            None,
            0,
            getattr(modes, f"CU_STREAM_CAPTURE_MODE_{mode.upper()}"),
        )
        check_status(status, "a stream cannot be captured")
        self._is_capturing = True

    def end_building(self) -> None:
        """End the capture."""
        from cuda.bindings import driver

        self._is_capturing = False
        status, _ = driver.cuStreamEndCapture(self._stream.handle)
        if status != driver.CUresult.CUDA_SUCCESS:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.graph_definition))
        check_status(status, "the capture of a stream cannot be ended")

    def close(self) -> None:
        """End the capture, if it has begun and not ended."""
        if self._is_capturing:
            self.end_building()


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
