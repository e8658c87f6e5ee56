"""Records and waits that are nodes of a graph: each launch performs them on events outside the graph."""

from __future__ import annotations

from penstock.gpu.sim.capture import captured_event
from penstock.gpu.sim.errors import CUDAError
from penstock.gpu.sim.event import Event
from penstock.gpu.sim.graph_nodes import EventRecordNode, EventWaitNode
from penstock.gpu.sim.operations import DoNothing
from penstock.gpu.sim.stream import Stream, check_device, stream_of
from penstock.gpu.stream_handle import SupportsStream


def record_external(stream: Stream | SupportsStream, event: Event) -> None:
    """Record an event in a capture, so that every launch of the graph records it."""
    _add(EventRecordNode, stream, event, same_device=True)


def wait_external(stream: Stream | SupportsStream, event: Event) -> None:
    """Wait for an event in a capture, so that every launch of the graph waits for its latest record."""
    _add(EventWaitNode, stream, event, same_device=False)


def is_capturing(stream: Stream | SupportsStream) -> bool:
    """Return whether a stream captures, even if an error has invalidated the capture."""
    queue = stream_of(stream)._queue
    with queue.timeline.lock:
        return queue.capture is not None


def _add(
    kind: type[EventRecordNode] | type[EventWaitNode],
    stream: Stream | SupportsStream,
    event: Event,
    *,
    same_device: bool,
) -> None:
    queue = stream_of(stream)._queue
    event._check()
    if same_device:
        check_device(event._context, queue)
    with queue.timeline.lock:
        capture = queue.capture
        if capture is None:
            raise CUDAError(
                "CUDA_ERROR_INVALID_VALUE: external records and waits of events are nodes of a graph; the stream "
                "does not capture"
            )
        if kind is EventWaitNode and event._captured is not None:
            raise capture.invalidate(captured_event("waited for from outside its capture"))
        node = kind._create(queue, DoNothing())
        node._event = event
        capture.add(queue, node)
