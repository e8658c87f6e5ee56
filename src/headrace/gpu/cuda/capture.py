"""What cuda.core lacks for graphs, called through cuda.bindings.

**Captures that end with an error.** When a capture that was invalidated is ended, the driver destroys its graph,
whether it was made for the capture or given to it (driver 580). cuda.core's objects do not know that. They destroy
the graph once more when they are collected: its builder, which owns the graph from the beginning, and a definition
that the capture was given. If another graph has been made at the same address meanwhile, it is that one which is
gone, and its owner destroys it again: now and then the process ended with ``free(): invalid size``. So a capture
is given a definition of ours, and if it was invalidated, the definition is never collected. That costs a small
object for each frame that cannot be recorded.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from headrace.gpu.backend import Backend, RecordedAddresses
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

    def record_external(self, stream: SupportsStream, event: sim.Event) -> None:
        """Record an event in a capture, so that every launch of the graph records it."""
        from cuda.bindings import driver

        external = int(driver.CUevent_record_flags.CU_EVENT_RECORD_EXTERNAL)
        (status,) = driver.cuEventRecordWithFlags(event.handle, driver.CUstream(handle_of(stream)), external)
        check_status(status, "an event cannot be recorded by a graph")

    def wait_external(self, stream: SupportsStream, event: sim.Event) -> None:
        """Wait for an event in a capture, so that every launch of the graph waits for its latest record."""
        from cuda.bindings import driver

        external = int(driver.CUevent_wait_flags.CU_EVENT_WAIT_EXTERNAL)
        (status,) = driver.cuStreamWaitEvent(driver.CUstream(handle_of(stream)), event.handle, external)
        check_status(status, "an event cannot be waited for by a graph")

    def record_copy(self, stream: SupportsStream, target: int, source: int, size: int) -> None:
        """Record a copy in a capture."""
        from headrace.gpu.cuda.recorded_copy import launch_copy

        launch_copy(stream, target, source, size)

    def record_addresses(self, stream: SupportsStream) -> RecordedAddresses:
        """Return what records copies whose addresses are other ones in each launch."""
        from headrace.gpu.cuda.recorded_copy import CudaAddresses

        return CudaAddresses(stream)

    def prepare_copies(self, device: sim.Device) -> None:
        """Compile the kernels of recorded copies."""
        from headrace.gpu.cuda.recorded_copy import copy_kernel, take_kernel

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
