"""Stream capture: the recording of a stream's work as the nodes of a graph.

While a stream captures, its work becomes nodes instead of running. A node depends on the *frontier* of its stream:
the nodes that the stream's next work comes after. Events carry a frontier to other streams. A stream that waits for
an event of the capture joins the capture; it has to be joined back to the stream that began it. Recording an event
and waiting for one create no nodes, only dependencies, as in CUDA.

An operation that cannot be captured raises an error and invalidates the capture. An invalid capture accepts nothing
but its end, which raises an error too.

A recorded node is the driver's state of a node of a graph. The objects that a program sees
(:class:`~headrace.gpu.sim.graph.GraphNode`) are views of it. It refers to the nodes before it and never
to later ones or to its graph, so a graph that nobody uses any more is freed at once, with everything that its
nodes refer to. A node runs in the context of the stream that it was recorded on, and so on the SMs of that
context, whichever stream the graph is launched on. It does not keep the allocations that it uses: it refers to
their bytes, as a kernel does that was launched. :meth:`RecordedNode.check_memory` finds those that were freed
since.

Every function runs with the timeline's lock held, unless it says otherwise.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import InitVar, dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from headrace.gpu.sim.memory_pool import Bytes, Span
from headrace.gpu.sim.objects import CUDAError, capture_error
from headrace.gpu.sim.operations import Operation, StreamQueue

if TYPE_CHECKING:
    from headrace.gpu.sim.graph import GraphNode
    from headrace.gpu.sim.machine import ContextState, DeviceState, Machine

MODES = ("global", "thread_local", "relaxed")
Nodes = frozenset["RecordedNode"]


@dataclass(slots=True, eq=False)
class RecordedNode:
    """One node of a graph.

    Attributes
    ----------
    kind : type
        The class of its views.
    operation : Operation
        What it does; each launch performs a copy of it.
    pred : frozenset of RecordedNode
        The nodes that it depends on.
    name : str
        The name of its kernel, if it is the launch of one.
    spans : list
        The allocations that it uses.
    """

    context: ContextState
    priority: int
    kind: type[GraphNode]
    operation: Operation
    pred: Nodes
    memory: InitVar[Iterable[Bytes | None]]
    name: str
    handle: int = field(init=False)
    spans: list[Span] = field(init=False)

    def __post_init__(self, memory: Iterable[Bytes | None]) -> None:
        machine, used = self.context.device.machine, [one for one in memory if one is not None]
        self.handle = machine.new_handle()
        pools = [pool for device in machine.devices for pool in device.pools]
        self.spans = [span for pool in pools for span in pool.spans(used)]

    def check_memory(self) -> None:
        """Raise an error if memory that the node uses was freed after it was recorded."""
        for span in self.spans:
            if not span.is_allocated():
                raise CUDAError(
                    f"CUDA_ERROR_ILLEGAL_ADDRESS: {self} uses {span.memory.size} bytes that were freed after it "
                    "was recorded; a graph does not keep buffers alive, so keep them for as long as it is launched"
                )

    def __str__(self) -> str:
        return f"a {self.kind.__name__}" + (f" of kernel {self.name!r}" if self.name else "")


class CapturePoint(NamedTuple):
    """The point of a capture at which an event was recorded.

    It has a number instead of the frontier, so that an event does not keep the nodes of a capture that is over.
    """

    capture: Capture
    number: int

    @property
    def frontier(self) -> Nodes:
        """The nodes that work after this point depends on, while the capture is in progress."""
        return self.capture.points[self.number]


class Capture:
    """A capture in progress.

    Attributes
    ----------
    frontiers : dict
        The frontier of each stream that takes part.
    nodes : list of RecordedNode
        The nodes recorded so far.
    is_valid : bool
        Whether no operation has invalidated it.
    is_over : bool
        Whether it has ended. A finalizer may set this at any time, without the lock.
    """

    def __init__(self, origin: StreamQueue, mode: str) -> None:
        self.origin = origin
        self.mode = mode
        self.thread = threading.get_ident()
        self.frontiers: dict[StreamQueue, Nodes] = {}
        self.nodes: list[RecordedNode] = []
        self.points: list[Nodes] = []  # the frontiers at which events were recorded
        self.is_valid = True
        self.is_over = False
        self.join(origin, frozenset())
        origin.context.device.machine.captures.add(self)

    def join(self, queue: StreamQueue, frontier: Nodes) -> None:
        """Make a stream capture, after these nodes."""
        self.frontiers[queue] = frontier
        queue.joined = self

    def add(
        self,
        queue: StreamQueue,
        kind: type[GraphNode],
        operation: Operation,
        memory: Iterable[Bytes | None] = (),
        name: str = "",
    ) -> None:
        """Record an operation of one of the streams, which uses that memory, as a node."""
        self.check()
        pred = self._frontier(queue)
        node = RecordedNode(queue.context, queue.priority, kind, operation, pred, memory, name)
        self.nodes.append(node)
        self.frontiers[queue] = frozenset([node])

    def point(self, queue: StreamQueue) -> CapturePoint:
        """Return the point that a stream has reached, for an event."""
        self.check()
        self.points.append(self._frontier(queue))
        return CapturePoint(self, len(self.points) - 1)

    def check(self) -> None:
        """Raise the driver's error if the capture has been invalidated."""
        if not self.is_valid:
            raise capture_error(
                "INVALIDATED", "an earlier error invalidated the capture of this stream; it must be ended"
            )

    def invalidate(self, error: CUDAError) -> CUDAError:
        """Invalidate the capture, and return the error of the operation that did so."""
        self.is_valid = False
        return error

    def end(self, queue: StreamQueue) -> list[RecordedNode]:
        """End the capture: its streams run their work again. Return the nodes."""
        if queue is not self.origin:
            self.is_valid = False
            raise capture_error("UNMATCHED", "the capture was not begun on this stream")
        if self.mode != "relaxed" and threading.get_ident() != self.thread:
            self.is_valid = False
            raise capture_error(
                "WRONG_THREAD", f"a capture in {self.mode!r} mode must be ended by the thread that began it"
            )
        nodes, last = self.nodes, self._frontier(queue)
        self.abandon()
        queue.context.device.machine.captures.discard(self)
        if not self.is_valid:
            raise capture_error("INVALIDATED", "an earlier error invalidated the capture")
        joined: set[RecordedNode] = set()
        unseen = list(last)
        while unseen:
            node = unseen.pop()
            if node not in joined:
                joined.add(node)
                unseen += node.pred
        unjoined = [node for node in nodes if node not in joined]
        if unjoined:
            raise capture_error(
                "UNJOINED",
                f"{len(unjoined)} nodes were recorded on streams that the capturing stream did not wait for "
                f"afterwards, such as {unjoined[-1]}",
            )
        return nodes

    def abandon(self) -> None:
        """End the capture without a result; a finalizer may call it at any time, without the lock."""
        self.is_over = True
        self.nodes, self.points, self.frontiers = [], [], {}

    def _frontier(self, queue: StreamQueue) -> Nodes:
        return self.frontiers.get(queue, frozenset())  # none if a finalizer has just ended the capture


def wait_for_point(queue: StreamQueue, point: CapturePoint | None) -> None:
    """Order a stream after an event, where the stream captures or the event was recorded in a capture.

    ``point`` is None for an event that was recorded outside of captures.
    """
    capture = queue.capture
    if capture is None:
        assert point is not None
        if point.capture.is_over:
            raise captured_event("waited for")
        point.capture.check()
        if queue.is_default:
            raise point.capture.invalidate(
                capture_error("IMPLICIT", "the default stream cannot wait for an event of a capture")
            )
        point.capture.join(queue, point.frontier)
        return
    capture.check()
    if point is None or point.capture.is_over:
        raise capture.invalidate(
            capture_error(
                "ISOLATION", "a capturing stream cannot wait for an event recorded outside the capture"
            )
        )
    if point.capture is not capture:
        point.capture.is_valid = False
        raise capture.invalidate(capture_error("MERGE", "the event belongs to another capture"))
    capture.frontiers[queue] = capture.frontiers[queue] | point.frontier


def captured_event(use: str) -> CUDAError:
    """Return the driver's error for an event that was last recorded in a capture."""
    return CUDAError(
        f"CUDA_ERROR_CAPTURED_EVENT: an event that was last recorded in a capture cannot be {use}; it stands for "
        "nodes of a graph, not for work of a stream"
    )


def refuse_sync(queue: StreamQueue) -> None:
    """Raise the driver's error if a stream that the host waits for captures."""
    capture = queue.capture
    if capture is not None:
        capture.check()
        raise capture.invalidate(
            capture_error("UNSUPPORTED", "a stream cannot be synchronized while it captures")
        )


def refuse_device_sync(device: DeviceState) -> None:
    """Raise the driver's error if a stream of a device that the host waits for captures."""
    found = [
        capture
        for capture in active_captures(device.machine)
        if any(queue.context.device is device for queue in capture.frontiers)
    ]
    for capture in found:
        capture.is_valid = False
    if found:
        raise capture_error(
            "UNSUPPORTED", "a device cannot be synchronized while one of its streams captures"
        )


def refuse_unsafe(machine: Machine, what: str) -> None:
    """Raise the driver's error for a call that a capture on this thread, or on any, does not permit.

    Such calls are permitted in ``relaxed`` mode. In ``thread_local`` mode only the thread that captures must not
    make them, in ``global`` mode no thread must.
    """
    for capture in active_captures(machine):
        if capture.mode == "global" or (
            capture.mode == "thread_local" and capture.thread == threading.get_ident()
        ):
            raise capture.invalidate(
                capture_error(
                    "UNSUPPORTED", f"{what} is not permitted during a capture in {capture.mode!r} mode"
                )
            )


def active_captures(machine: Machine) -> list[Capture]:
    """Return the captures in progress."""
    if not machine.captures:
        return []
    machine.captures = {capture for capture in machine.captures if not capture.is_over}
    return list(machine.captures)
