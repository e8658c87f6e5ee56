"""Executable graphs, and their launches on the timeline of the machine.

A launch waits for the stream's earlier work and for the graph's previous launch, on whichever stream that was.
After the graph's launch overhead the nodes begin that depend on nothing, and a node that depends on others begins a
fixed time after the last of them ended (both from the profile). The nodes contend for SMs and copy engines as other
work does. The stream continues when every node has ended.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.gpu.sim.errors import CUDAError
from penstock.gpu.sim.fences import Fence
from penstock.gpu.sim.graph_definition import GraphDefinition
from penstock.gpu.sim.graph_nodes import GraphNode
from penstock.gpu.sim.operations import Operation, Runner
from penstock.gpu.sim.options import options_of
from penstock.gpu.sim.stream import Stream
from penstock.gpu.sim.timeline import Timeline

if TYPE_CHECKING:
    from penstock.gpu.sim.graph_builder import GraphBuilder


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


class Graph:
    """An executable graph."""

    __slots__ = ("__weakref__", "_definition", "_handle", "_last_launch", "_nodes", "_options")
    _definition: GraphDefinition
    _handle: int
    _last_launch: Fence | None
    _nodes: list[GraphNode] | None
    _options: GraphCompleteOptions

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise RuntimeError("Graph objects cannot be created directly; use GraphBuilder.complete")

    @classmethod
    def _create(cls, definition: GraphDefinition, options: GraphCompleteOptions | None) -> Graph:
        self = cls.__new__(cls)
        self._options = options_of(GraphCompleteOptions, options, "Graph")
        if self._options.device_launch:
            raise CUDAError("CUDA_ERROR_NOT_SUPPORTED: launches of graphs by kernels are not simulated")
        self._definition = definition
        self._handle = definition._machine.new_handle()
        self._nodes = list(definition._nodes)
        self._last_launch = None
        return self

    @property
    def handle(self) -> int:
        """The driver's handle, or 0 if closed."""
        return 0 if self._nodes is None else self._handle

    @property
    def is_closed(self) -> bool:
        """Whether it has been closed."""
        return self._nodes is None

    def launch(self, stream: Stream | GraphBuilder) -> None:
        """Launch the graph on a stream: later work of the stream waits until every node has ended.

        Launches of the same graph run one after the other, even on different streams.
        """
        nodes = self._open()
        queue = stream._queue
        device = queue.context.device
        device.machine.check()
        timeline = queue.timeline
        with timeline.lock:
            if queue.capture is not None:
                queue.capture.check()
                raise queue.capture.invalidate(
                    CUDAError("CUDA_ERROR_NOT_SUPPORTED: a graph within a captured graph is not simulated")
                )
            for node in nodes:
                node._check_memory()
            # Events that the graph waits for: the records before this launch. So waits are prepared first.
            prepared = {node: node._prepare(timeline) for node in sorted(nodes, key=_records_event)}
            done = Fence(timeline)
            queue.submit(
                RunGraph(
                    [(node, prepared[node]) for node in nodes],
                    launch_overhead=device.graph_launch_overhead,
                    node_overhead=device.graph_node_overhead,
                    priority=None if self._options.use_node_priority else queue.priority,
                    after=self._last_launch,
                    done=done,
                )
            )
            self._last_launch = done

    def upload(self, stream: Stream | GraphBuilder) -> None:
        """Upload the graph to the device, so that the first launch is not slower; simulated launches never are."""
        self._open()
        stream._queue.context.device.machine.check()

    def update(self, source: GraphBuilder | GraphDefinition) -> None:
        """Take the parameters of the nodes of another graph, which must have the same structure.

        Launches that were submitted before are not affected.
        """
        nodes = self._open()
        definition = source if isinstance(source, GraphDefinition) else source.graph_definition
        if _structure(definition._nodes) != _structure(nodes):
            raise CUDAError(
                "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE: the graphs differ in their nodes or in the order between "
                "them"
            )
        self._definition = definition
        self._nodes = list(definition._nodes)

    def close(self) -> None:
        """Close the graph; a launch in progress still ends."""
        self._nodes = None

    def __repr__(self) -> str:
        return "<Graph closed>" if self._nodes is None else f"<Graph handle={self._handle:#x}>"

    def _open(self) -> list[GraphNode]:
        if self._nodes is None:
            raise RuntimeError("this graph has been closed")
        return self._nodes


def _records_event(node: GraphNode) -> bool:
    return node.type.name == "CU_GRAPH_NODE_TYPE_EVENT_RECORD"


def _structure(nodes: list[GraphNode]) -> list[tuple[object, ...]]:
    """Return the kinds of the nodes, and the positions of the nodes that each depends on."""
    position = {node: index for index, node in enumerate(nodes)}
    return [(node.type, *sorted(position[before] for before in node.pred)) for node in nodes]


class RunGraph(Operation):
    """One launch of a graph."""

    __slots__ = (
        "_after",
        "_done",
        "_launch_overhead",
        "_node_overhead",
        "_nodes",
        "_priority",
        "_runner",
        "_running",
        "_waits_for",
    )

    def __init__(
        self,
        nodes: list[tuple[GraphNode, Operation]],
        *,
        launch_overhead: int,
        node_overhead: int,
        priority: int | None,
        after: Fence | None,
        done: Fence,
    ) -> None:
        self._nodes = dict(nodes)
        self._launch_overhead = launch_overhead
        self._node_overhead = node_overhead
        self._priority = priority
        self._after = after
        self._done = done
        self._waits_for = {node: len(node._pred) for node in self._nodes}
        self._running = len(nodes)

    def begin(self, runner: Runner) -> bool:
        """Begin the nodes that depend on nothing, no sooner than the launch overhead and the last launch allow."""
        self._runner = runner
        if self._after is None or self._after.is_signaled:
            self._start()
        else:
            self._after.on_signal(self._start)
        return False

    def _start(self) -> None:
        timeline = self._runner.timeline
        timeline.call_at(max(self.submitted + self._launch_overhead, timeline.now), self._begin_first)

    def _begin_first(self) -> None:
        if not self._nodes:
            self._finish()
        for node, count in self._waits_for.items():
            if not count:
                self._begin_node(node)

    def _begin_node(self, node: GraphNode) -> None:
        timeline = self._runner.timeline
        operation = self._nodes[node]
        operation.submitted = timeline.now
        slot = _NodeRunner(self, node, timeline, node._priority if self._priority is None else self._priority)
        if operation.begin(slot):
            timeline.call_at(timeline.now, slot.end)

    def _end_node(self, node: GraphNode) -> None:
        timeline = self._runner.timeline
        for later in node._succ:
            self._waits_for[later] -= 1
            if not self._waits_for[later]:
                delay = self._node_overhead if later._takes_time else 0
                timeline.call_at(timeline.now + delay, partial(self._begin_node, later))
        self._running -= 1
        if not self._running:
            self._finish()

    def _finish(self) -> None:
        self._done.signal()
        self._runner.end()


class _NodeRunner:
    """Runs the operation of a node for one launch."""

    __slots__ = ("_launch", "_node", "priority", "timeline")

    def __init__(self, launch: RunGraph, node: GraphNode, timeline: Timeline, priority: int) -> None:
        self._launch = launch
        self._node = node
        self.timeline = timeline
        self.priority = priority

    def end(self) -> None:
        self._launch._end_node(self._node)

    def run_user_code(self, code: Callable[[], object]) -> None:
        device = self._node._context.device
        self.timeline.run_user_code(partial(device.call, code), then=self.end)
