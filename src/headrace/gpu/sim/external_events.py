"""Records and waits that are nodes of a graph: each launch performs them on events outside the graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headrace.gpu.sim.capture import Capture, captured_event
from headrace.gpu.sim.errors import CUDAError
from headrace.gpu.sim.event import Event
from headrace.gpu.sim.fences import Fence
from headrace.gpu.sim.graph import Graph, GraphCompleteOptions
from headrace.gpu.sim.graph_definition import GraphDefinition
from headrace.gpu.sim.graph_nodes import EventRecordNode, EventWaitNode
from headrace.gpu.sim.operations import DoNothing, Operation, SignalFence, WaitForFence
from headrace.gpu.sim.recorded_node import RecordedNode
from headrace.gpu.sim.stream import Stream, check_device, stream_of
from headrace.gpu.sim.stream_queues import StreamQueue
from headrace.gpu.stream_handle import SupportsStream


def is_capturing(stream: Stream | SupportsStream) -> bool:
    """Return whether a stream captures, even if an error has invalidated the capture."""
    queue = stream_of(stream)._queue
    with queue.timeline.lock:
        return queue.capture is not None


def captured_nodes(stream: Stream | SupportsStream) -> int:
    """Return the number of nodes that the capture of a stream has recorded so far."""
    queue = stream_of(stream)._queue
    with queue.timeline.lock:
        capture = _capture(queue)
        capture.check()
        return len(capture.nodes)


def captured_frontier(stream: Stream | SupportsStream) -> dict[int, RecordedNode]:
    """Return the nodes that the next work of a stream will depend on, by their handles."""
    queue = stream_of(stream)._queue
    with queue.timeline.lock:
        capture = _capture(queue)
        capture.check()
        return {node.handle: node for node in capture.frontiers[queue]}


def instantiate_with_records(
    definition: GraphDefinition,
    records: Iterable[tuple[Mapping[int, RecordedNode], Event]],
    options: GraphCompleteOptions | None = None,
) -> Graph:
    """Return an executable graph of recorded nodes that also records events."""
    nodes = list(definition._records)
    for before, event in records:
        event._check()
        missing = [node for node in before.values() if node not in nodes]
        if missing:
            raise CUDAError(f"CUDA_ERROR_INVALID_VALUE: {missing[0]} is not a node of {definition!r}")
        nodes.append(
            RecordedNode(
                event._context,
                0,
                EventRecordNode,
                RecordEvent(event),
                frozenset(before.values()),
                (),
                {"event": event},
            )
        )
    return GraphDefinition._create(definition._machine, nodes).instantiate(options)


def record_external(stream: Stream | SupportsStream, event: Event) -> None:
    """Record an event in a capture, so that every launch of the graph records it."""
    queue = stream_of(stream)._queue
    event._check()
    check_device(event._context, queue)
    with queue.timeline.lock:
        _capture(queue).add(queue, EventRecordNode, RecordEvent(event), event=event)


def wait_external(stream: Stream | SupportsStream, event: Event) -> None:
    """Wait for an event in a capture, so that every launch of the graph waits for its latest record."""
    queue = stream_of(stream)._queue
    event._check()
    with queue.timeline.lock:
        capture = _capture(queue)
        if event._captured is not None:
            raise capture.invalidate(captured_event("waited for from outside its capture"))
        capture.add(queue, EventWaitNode, WaitForEvent(event), event=event)


def _capture(queue: StreamQueue) -> Capture:
    if queue.capture is None:
        raise CUDAError(
            "CUDA_ERROR_INVALID_VALUE: an external record or wait is a node of a graph, but the stream does not "
            "capture"
        )
    return queue.capture


class RecordEvent(DoNothing):
    """Records an event; it is recorded, though not reached, from the launch of the graph on."""

    __slots__ = ("event",)

    def __init__(self, event: Event) -> None:
        self.event = event

    def for_replay(self) -> Operation:
        """Return the record of one launch."""
        self.event._check()
        fence = Fence(self.event._context.device.machine.timeline)
        self.event._set_fence(fence)
        return SignalFence(fence)


class WaitForEvent(DoNothing):
    """Waits for the latest record of an event before the launch of the graph."""

    __slots__ = ("event",)

    def __init__(self, event: Event) -> None:
        self.event = event

    def for_replay(self) -> Operation:
        """Return the wait of one launch."""
        self.event._check()
        fence = self.event._fence
        return DoNothing() if fence is None else WaitForFence(fence)
