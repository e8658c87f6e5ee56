"""Builders of graphs by capture; executable graphs, and their launches on the timeline of the machine.

A launch waits for the stream's earlier work and for the graph's previous launch, on whichever stream that was.
After the graph's launch overhead the nodes begin that depend on nothing, and a node that depends on others begins a
fixed time after the last of them ended (both from the profile). The nodes contend for SMs and copy engines as other
work does. The stream continues when every node has ended.

The definition of a graph, as a program sees it: what was recorded, and in which order.

The classes have the names of cuda.core's. A simulated definition and its nodes cannot be changed, and a node tells
its kind and its place in the order, but not its parameters.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from headrace.gpu.sim.capture import MODES, Capture, RecordedNode
from headrace.gpu.sim.objects import CUDAError, MadeByDriver, capture_error, options_of
from headrace.gpu.sim.operations import Fence, Operation, StreamQueue, WaitForFence
from headrace.gpu.sim.stream import Stream

if TYPE_CHECKING:
    from headrace.gpu.sim.machine import DeviceState, Machine


@dataclass
class GraphCompleteOptions:
    """The options of an executable graph.

    Attributes
    ----------
    auto_free_on_launch : bool
        Whether a launch frees the memory that the previous one allocated and did not free.
    upload_stream : Stream, optional
        A stream to upload the graph on.
    device_launch : bool
        Whether kernels can launch the graph; not simulated.
    use_node_priority : bool
        Whether nodes have the priority of the stream that they were recorded on instead of the launching one's.
    """

    auto_free_on_launch: bool = False
    upload_stream: Stream | None = None
    device_launch: bool = False
    use_node_priority: bool = False


class GraphBuilder(metaclass=MadeByDriver):
    """The graph that a stream's work is recorded into.

    From :meth:`begin_building` to :meth:`end_building` the stream captures: its work becomes nodes and does not
    run. A stream that waits for an event of the capture joins it; the builder's stream has to wait for it before
    the end. An operation that cannot be captured raises an error and invalidates the capture. :meth:`close` then
    ends it, with an error, and the stream can be used again.

    The nodes do not keep the buffers alive that they use.
    """

    __slots__ = ("__weakref__", "_capture", "_definition", "stream")
    _made_by = "Stream.create_graph_builder"
    _refusal = NotImplementedError
    is_join_required = False  # simulated builders are not split

    def __init__(self, stream: Stream) -> None:
        self.stream: Stream | None = stream  # the stream that captures; None if closed
        self._capture: Capture | None = None  # from begin_building until it has been ended without an error
        self._definition: GraphDefinition | None = None

    @property
    def is_closed(self) -> bool:
        """Whether it has been closed."""
        return self.stream is None

    @property
    def is_building(self) -> bool:
        """Whether its stream captures; an error if the capture has been invalidated."""
        queue = self._queue
        with queue.timeline.lock:
            capture = queue.capture
            if capture is not None and not capture.is_valid:
                raise RuntimeError(
                    "an error has invalidated the capture of this builder's stream; end it with close()"
                )
            return capture is not None

    @property
    def graph_definition(self) -> GraphDefinition:
        """The recorded nodes; available after :meth:`end_building`, and valid after :meth:`close`."""
        self._open()
        if self._definition is None:
            raise RuntimeError(
                "graph_definition is not available before building has ended; call end_building() first"
            )
        return self._definition

    def begin_building(self, mode: str | None = "relaxed") -> GraphBuilder:
        """Begin to capture.

        Parameters
        ----------
        mode : {"relaxed", "thread_local", "global"}
            Who must not make calls meanwhile that might be unsafe, such as allocating pinned memory: nobody, this
            thread, or any thread.
        """
        queue = self._queue
        if self._definition is not None:
            raise RuntimeError("a builder cannot begin again after building has ended")
        if self._capture is not None:
            raise RuntimeError("this builder is already building")
        if mode not in MODES:
            raise ValueError(f"unsupported build mode {mode!r}: must be one of {', '.join(map(repr, MODES))}")
        queue.context.device.machine.check()
        with queue.timeline.lock:
            if queue.is_default:
                raise capture_error("UNSUPPORTED", "the default stream cannot be captured")
            if queue.capture is not None:
                raise CUDAError("CUDA_ERROR_ILLEGAL_STATE: the stream is already capturing")
            self._capture = Capture(queue, mode)
        return self

    def end_building(self) -> GraphBuilder:
        """End the capture; an error if streams that joined it were not joined back."""
        if not self.is_building:
            raise RuntimeError("this builder is not building")
        queue = self._queue
        with queue.timeline.lock:
            capture = queue.capture
            assert capture is not None
            nodes = capture.end(queue)
        self._capture = None
        self._definition = GraphDefinition._create(queue.context.device.machine, nodes)
        return self

    def complete(self, options: GraphCompleteOptions | None = None) -> Graph:
        """Return an executable graph of the recorded nodes."""
        self._open()
        if self._definition is None:
            raise RuntimeError("this builder has not finished building")
        return Graph._create(self._definition, options)

    def close(self) -> None:
        """Close the builder; an invalidated capture ends with an error."""
        if self.stream is None:
            return
        if self._capture is not None:
            queue = self.stream._own_queue
            with queue.timeline.lock:
                capture = queue.capture
                nodes = [] if capture is None else capture.end(queue)
            del nodes  # and what they refer to, without the lock
            self._capture = None
        self._definition = None
        self.stream = None

    def __cuda_stream__(self) -> tuple[int, int]:
        return self._open().__cuda_stream__()

    def __del__(self) -> None:
        # As cuda.core does it: whatever the stream captures now is ended, even for another builder. A program that
        # keeps a builder whose close() failed, and captures the stream again, loses that capture.
        if getattr(self, "_capture", None) is not None and self.stream is not None:
            capture = self.stream._own_queue.capture
            if capture is not None:
                capture.abandon()

    def __repr__(self) -> str:
        return f"<GraphBuilder of {self.stream!r}>" if self.stream else "<GraphBuilder closed>"

    @property
    def _queue(self) -> StreamQueue:
        return self._open()._queue

    def _open(self) -> Stream:
        if self.stream is None:
            raise RuntimeError("this graph builder has been closed")
        return self.stream


class Graph(metaclass=MadeByDriver):
    """An executable graph."""

    __slots__ = ("__weakref__", "_handle", "_last_launch", "_options", "_plan")
    _made_by = "GraphBuilder.complete"

    def __init__(self, definition: GraphDefinition, options: GraphCompleteOptions | None) -> None:
        self._options = options_of(GraphCompleteOptions, options, "Graph")
        if self._options.device_launch:
            raise CUDAError("CUDA_ERROR_NOT_SUPPORTED: launches of graphs by kernels are not simulated")
        self._handle = definition._machine.new_handle()
        self._plan: Plan | None = Plan(definition._records)
        self._last_launch: Fence | None = None

    @property
    def handle(self) -> int:
        """The driver's handle, or 0 if closed."""
        return 0 if self._plan is None else self._handle

    @property
    def is_closed(self) -> bool:
        """Whether it has been closed."""
        return self._plan is None

    def launch(self, stream: Stream | GraphBuilder) -> None:
        """Launch the graph on a stream: later work of the stream waits until every node has ended.

        Launches of the same graph run one after the other, even on different streams.
        """
        plan = self._open()
        queue = stream._queue
        device = queue.context.device
        device.machine.check()
        with queue.timeline.lock:
            if queue.capture is not None:
                queue.capture.check()
                raise queue.capture.invalidate(
                    CUDAError("CUDA_ERROR_NOT_SUPPORTED: a graph within a captured graph is not simulated")
                )
            operations = plan.prepare()
            if self._last_launch is not None:
                queue.submit(WaitForFence(self._last_launch))
            queue.submit(RunGraph(self, plan, operations, device))
            self._last_launch = queue.submit_fence()

    def upload(self, stream: Stream | GraphBuilder) -> None:
        """Upload the graph to the device, so that the first launch is not slower; simulated launches never are."""
        self._open()
        stream._queue.context.device.machine.check()

    def close(self) -> None:
        """Close the graph; a launch in progress still ends."""
        self._plan = None

    def __repr__(self) -> str:
        return "<Graph closed>" if self._plan is None else f"<Graph handle={self._handle:#x}>"

    def _open(self) -> Plan:
        if self._plan is None:
            raise RuntimeError("this graph has been closed")
        return self._plan


class Plan:
    """The nodes of an executable graph by number, and which of them depend on which."""

    __slots__ = ("nodes", "pred_counts", "succ")

    def __init__(self, nodes: list[RecordedNode]) -> None:
        self.nodes = list(nodes)
        self.pred_counts = [len(node.pred) for node in nodes]
        self.succ: list[list[int]] = [[] for _ in nodes]
        numbers = {node: number for number, node in enumerate(nodes)}
        for number, node in enumerate(nodes):
            for before in node.pred:
                self.succ[numbers[before]].append(number)

    def prepare(self) -> list[Operation]:
        """Return the operations of one launch; the lock is held."""
        for node in self.nodes:
            node.check_memory()
        return [node.operation.for_replay() for node in self.nodes]


class RunGraph(Operation):
    """One launch of a graph."""

    def __init__(self, graph: Graph, plan: Plan, operations: list[Operation], device: DeviceState) -> None:
        super().__init__(overhead=device.graph_launch_overhead)
        self._graph = weakref.ref(graph)
        self._plan = plan
        self._operations = operations
        self._device = device
        self._uses_node_priority = graph._options.use_node_priority
        # For each node, how many that it depends on have not ended.
        self._missing = list(plan.pred_counts)
        self._unfinished = len(operations)

    def begin(self, priority: int, end: Callable[[], None]) -> bool:
        """Begin the nodes that depend on nothing."""
        self._priority, self._end = priority, end
        for number, missing in enumerate(self._plan.pred_counts):
            if not missing:
                self._begin_node(number)
        return not self._operations

    def _begin_node(self, number: int) -> None:
        timeline = self._device.machine.timeline
        priority = self._plan.nodes[number].priority if self._uses_node_priority else self._priority
        end = partial(self._end_node, number)
        self._operations[number].origin = self.origin
        if self._operations[number].begin(priority, end):
            timeline.call_at(timeline.now, end)

    def _end_node(self, number: int) -> None:
        timeline = self._device.machine.timeline
        for later in self._plan.succ[number]:
            self._missing[later] -= 1
            if not self._missing[later]:
                delay = self._device.graph_node_overhead if self._operations[later].takes_time else 0
                timeline.call_at(timeline.now + delay, partial(self._begin_node, later))
        self._unfinished -= 1
        if not self._unfinished:
            graph = self._graph()
            if graph is None or graph._plan is not self._plan:
                # The last reference may be here. The nodes refer to the program's objects, which must not be freed
                # with the lock held, so they go with user code that does nothing.
                timeline.run_user_code(partial(_forget, self._plan, self._operations))
                self._plan, self._operations = Plan([]), []
            self._end()


def _forget(*_: object) -> None:
    """Do nothing with objects that somebody has to hold until now."""


class GraphDefinition(metaclass=MadeByDriver):
    """The nodes of a graph and the edges between them, as they were captured.

    A simulated definition comes from a capture (:attr:`GraphBuilder.graph_definition`) and cannot be changed.
    """

    __slots__ = ("_machine", "_records", "handle")
    __headrace_device__ = "sim"
    _made_by = "GraphBuilder; on a simulated device there is no other way"
    is_valid = True

    def __init__(self, machine: Machine, records: list[RecordedNode]) -> None:
        self._machine = machine
        self._records = records  # each after those that it depends on
        self.handle = machine.new_handle()

    def nodes(self) -> set[GraphNode]:
        """Return the nodes."""
        return {record.kind._create(self, record) for record in self._records}

    def edges(self) -> set[tuple[GraphNode, GraphNode]]:
        """Return the edges: pairs of a node and one that depends on it."""
        return {(before, node) for node in self.nodes() for before in node.pred}

    def instantiate(self, options: GraphCompleteOptions | None = None) -> Graph:
        """Return an executable graph of these nodes."""

        return Graph._create(self, options)

    def __repr__(self) -> str:
        return f"<GraphDefinition handle={self.handle:#x}>"


class GraphNode(metaclass=MadeByDriver):
    """A node of a graph."""

    _made_by = "GraphDefinition.nodes"
    is_valid = True

    def __init__(self, graph: GraphDefinition, record: RecordedNode) -> None:
        self.graph = graph
        self._record = record

    @property
    def handle(self) -> int:
        """The driver's handle."""
        return self._record.handle

    @property
    def pred(self) -> set[GraphNode]:
        """The nodes that it depends on."""
        return {record.kind._create(self.graph, record) for record in self._record.pred}

    @property
    def succ(self) -> set[GraphNode]:
        """The nodes that depend on it."""
        return {node for node in self.graph.nodes() if self._record in node._record.pred}

    def __eq__(self, other: object) -> bool:
        return self._record is other._record if isinstance(other, GraphNode) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._record)

    def __repr__(self) -> str:
        return f"<{self.__class__.__name__} handle={self.handle:#x}>"


class KernelNode(GraphNode):
    """The launch of a kernel."""


class MemcpyNode(GraphNode):
    """A copy."""


class MemsetNode(GraphNode):
    """The filling of memory with a pattern."""


class HostCallbackNode(GraphNode):
    """The call of a function on the host."""


class EmptyNode(GraphNode):
    """A node without work, which joins others."""


class EventRecordNode(GraphNode):
    """The record of an event by every launch of the graph ."""
