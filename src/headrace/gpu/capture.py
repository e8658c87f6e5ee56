"""Stream capture: what cuda.core lacks for graphs.

cuda.core records graphs by capture (``Stream.create_graph_builder``). An event that is recorded while its stream
captures orders the nodes of the graph and is nothing else: it can be neither queried nor timed. An *external*
record is a node of the graph, so every launch of the graph records the event, and its time can be read. Likewise an
external wait is a node that waits for work outside the graph. cuda.core has neither, so a real device is called
through cuda.bindings.

Records of events can also be added to a graph that was recorded without them (:func:`instantiate_with_records`), at
the points that its streams had reached (:func:`captured_frontier`). So one recording gives both a graph that takes
times and one that does not pay for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from headrace.gpu.simulated import is_simulated
from headrace.gpu.stream_handle import SupportsStream, handle_of

if TYPE_CHECKING:
    from headrace.gpu import sim


def is_capturing(stream: SupportsStream) -> bool:
    """Return whether a stream captures its work for a graph, even if an error has invalidated the capture.

    Parameters
    ----------
    stream : Stream, StreamHandle, or another library's stream
        A stream of a real or a simulated device.
    """
    owner: Any = getattr(stream, "stream", stream)  # the stream of a StreamHandle
    if is_simulated(owner):
        from headrace.gpu.sim.external_events import is_capturing as is_capturing_simulated

        return is_capturing_simulated(owner)
    from cuda.bindings import driver

    status, state = driver.cuStreamIsCapturing(driver.CUstream(handle_of(owner)))
    check_status(status, "whether a stream captures cannot be determined")
    return bool(state != driver.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_NONE)


def captured_nodes(stream: SupportsStream) -> int:
    """Return the number of nodes that the capture of a stream has recorded so far, on all its streams.

    Parameters
    ----------
    stream : Stream, StreamHandle, or another library's stream
        A stream that captures; for other streams, an error.
    """
    owner: Any = getattr(stream, "stream", stream)
    if is_simulated(owner):
        from headrace.gpu.sim.external_events import captured_nodes as captured_simulated

        return captured_simulated(owner)
    from cuda.bindings import driver

    graph = next(part for part in _capture_info(owner) if isinstance(part, driver.CUgraph))
    status, *found = driver.cuGraphGetNodes(graph)
    check_status(status, "the nodes of a capture cannot be counted")
    return int(found[-1])


def captured_frontier(stream: SupportsStream) -> dict[int, Any]:
    """Return the nodes that the next work of a stream will depend on, by their handles; empty at the beginning.

    Parameters
    ----------
    stream : Stream, StreamHandle, or another library's stream
        A stream that captures; for other streams, an error.
    """
    owner: Any = getattr(stream, "stream", stream)
    if is_simulated(owner):
        from headrace.gpu.sim.external_events import captured_frontier as frontier_of_simulated

        return frontier_of_simulated(owner)
    from cuda.bindings import driver

    found = _capture_info(owner)
    if not any(isinstance(part, driver.CUgraph) and int(part) for part in found):
        from headrace.gpu.cuda import CUDAError

        raise CUDAError("CUDA_ERROR_INVALID_VALUE: the stream does not capture")
    # Lists of the nodes and, since CUDA 13, of what is known about the edges.
    nodes = next(part for part in found if isinstance(part, (list, tuple)))
    return {int(node): node for node in nodes}


def instantiate_with_records(
    definition: Any, records: Iterable[tuple[Mapping[int, Any], sim.Event]], options: Any = None
) -> sim.Graph:
    """Return an executable graph of recorded nodes that also records events; the definition stays as it is.

    The graph does not keep the events alive.

    Parameters
    ----------
    definition : GraphDefinition
        The recorded nodes.
    records
        For each event, the nodes after which every launch records it, as :func:`captured_frontier` returned them
        during the capture.
    options : GraphCompleteOptions, optional
        The options of the executable graph.
    """
    if is_simulated(definition):
        from headrace.gpu.sim.external_events import instantiate_with_records as instantiate_simulated

        return instantiate_simulated(definition, records, options)
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
            if not nodes:
                _add_dependencies(
                    definition.handle, found[0], roots
                )  # or it might come after they have begun
        graph: sim.Graph = definition.instantiate(options)
        return graph
    finally:
        # With them goes what depends on them, so the others are as they were.
        for node in added:
            (status,) = driver.cuGraphDestroyNode(node)
            check_status(status, "the record of an event cannot be removed from a graph")


def _capture_info(stream: Any) -> list[Any]:
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


def record_external(stream: SupportsStream, event: sim.Event) -> None:
    """Record an event in a capture, so that every launch of the graph records it.

    The graph does not keep the event alive.

    Parameters
    ----------
    stream : Stream, StreamHandle, or another library's stream
        A stream that captures; for other streams, an error.
    event : Event
        An event of the stream's device.
    """
    owner: Any = getattr(stream, "stream", stream)
    if is_simulated(owner):
        from headrace.gpu.sim.external_events import record_external as record_simulated

        record_simulated(owner, event)
        return
    from cuda.bindings import driver

    external = int(driver.CUevent_record_flags.CU_EVENT_RECORD_EXTERNAL)
    (status,) = driver.cuEventRecordWithFlags(event.handle, driver.CUstream(handle_of(owner)), external)
    check_status(status, "an event cannot be recorded by a graph")


def wait_external(stream: SupportsStream, event: sim.Event) -> None:
    """Wait for an event in a capture, so that every launch of the graph waits for its latest record.

    The graph does not keep the event alive.

    Parameters
    ----------
    stream : Stream, StreamHandle, or another library's stream
        A stream that captures; for other streams, an error.
    event : Event
        An event; not one that was last recorded in a capture.
    """
    owner: Any = getattr(stream, "stream", stream)
    if is_simulated(owner):
        from headrace.gpu.sim.external_events import wait_external as wait_simulated

        wait_simulated(owner, event)
        return
    from cuda.bindings import driver

    external = int(driver.CUevent_wait_flags.CU_EVENT_WAIT_EXTERNAL)
    (status,) = driver.cuStreamWaitEvent(driver.CUstream(handle_of(owner)), event.handle, external)
    check_status(status, "an event cannot be waited for by a graph")


def check_status(status: Any, what: str) -> None:
    """Raise an error that says what failed, if a call of the driver did."""
    from cuda.bindings import driver

    if status != driver.CUresult.CUDA_SUCCESS:
        from headrace.gpu.cuda import CUDAError

        raise CUDAError(f"{status.name}: {what}")
