"""Executable graphs, and their launches on the timeline of the machine.

A launch waits for the stream's earlier work and for the graph's previous launch, on whichever stream that was.
After the graph's launch overhead the nodes begin that depend on nothing, and a node that depends on others begins a
fixed time after the last of them ended (both from the profile). The nodes contend for SMs and copy engines as other
work does. The stream continues when every node has ended.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from headrace.gpu.sim.errors import CUDAError
from headrace.gpu.sim.fences import Fence
from headrace.gpu.sim.graph_definition import GraphDefinition
from headrace.gpu.sim.graph_nodes import GraphNode, MemcpyNode
from headrace.gpu.sim.memory import Buffer, recorded_copy
from headrace.gpu.sim.operations import Operation, Runner
from headrace.gpu.sim.options import options_of
from headrace.gpu.sim.recorded_node import RecordedNode
from headrace.gpu.sim.stream import Stream
from headrace.gpu.sim.timeline import Timeline

if TYPE_CHECKING:
    from headrace.gpu.sim.device_state import DeviceState
    from headrace.gpu.sim.graph_builder import GraphBuilder


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

    __slots__ = ("__weakref__", "_handle", "_last_launch", "_options", "_plan")
    _handle: int
    _last_launch: Fence | None
    _options: GraphCompleteOptions
    _plan: Plan | None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise RuntimeError("Graph objects cannot be created directly; use GraphBuilder.complete")

    @classmethod
    def _create(cls, definition: GraphDefinition, options: GraphCompleteOptions | None) -> Graph:
        self = cls.__new__(cls)
        self._options = options_of(GraphCompleteOptions, options, "Graph")
        if self._options.device_launch:
            raise CUDAError("CUDA_ERROR_NOT_SUPPORTED: launches of graphs by kernels are not simulated")
        self._handle = definition._machine.new_handle()
        self._plan = Plan(definition._records)
        self._last_launch = None
        return self

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
        timeline = queue.timeline
        with timeline.lock:
            if queue.capture is not None:
                queue.capture.check()
                raise queue.capture.invalidate(
                    CUDAError("CUDA_ERROR_NOT_SUPPORTED: a graph within a captured graph is not simulated")
                )
            operations = plan.prepare()
            done = Fence(timeline)
            queue.submit(
                RunGraph(
                    self,
                    plan,
                    operations,
                    launch_overhead=device.graph_launch_overhead,
                    node_overhead=device.graph_node_overhead,
                    priority=None if self._options.use_node_priority else queue.priority,
                    after=self._last_launch,
                    done=done,
                )
            )
            self._last_launch = done

    def __getitem__(self, node: GraphNode) -> ExecutableMemcpyNode:
        """Return a copy of this graph, to change what later launches copy; other nodes cannot be changed here."""
        plan = self._open()
        if node._record.handle not in plan.numbers:
            raise ValueError(f"{node!r} is not a node of the definition that this graph was made from")
        if node._record.kind is not MemcpyNode:
            raise NotImplementedError("of simulated graphs only copies can be changed")
        return ExecutableMemcpyNode._create(self, node._record.handle)

    def upload(self, stream: Stream | GraphBuilder) -> None:
        """Upload the graph to the device, so that the first launch is not slower; simulated launches never are."""
        self._open()
        stream._queue.context.device.machine.check()

    def update(self, source: GraphBuilder | GraphDefinition) -> None:
        """Take the parameters of the nodes of another graph, which must have the same structure.

        Launches that were submitted before are not affected.
        """
        plan = self._open()
        definition = _definition_of(source)
        new = Plan(definition._records)
        if new.structure() != plan.structure():
            raise CUDAError(
                "Graph update failed (CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED): the graphs differ in their "
                "nodes or in the order between them"
            )
        self._plan = new

    def close(self) -> None:
        """Close the graph; a launch in progress still ends."""
        self._plan = None

    def __repr__(self) -> str:
        return "<Graph closed>" if self._plan is None else f"<Graph handle={self._handle:#x}>"

    def _open(self) -> Plan:
        if self._plan is None:
            raise RuntimeError("this graph has been closed")
        return self._plan


def _definition_of(source: object) -> GraphDefinition:
    from headrace.gpu.sim.graph_builder import GraphBuilder  # a cycle: a builder makes graphs

    if isinstance(source, GraphDefinition):
        return source
    if not isinstance(source, GraphBuilder):
        raise TypeError(
            f"a graph is updated from a GraphBuilder or a GraphDefinition, got {type(source).__name__}"
        )
    if source._definition is None:
        raise ValueError("the builder has not finished building")
    return source._definition


class ExecutableMemcpyNode:
    """A copy of an executable graph."""

    __slots__ = ("_graph", "_handle")
    _graph: Graph
    _handle: int

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise RuntimeError("ExecutableMemcpyNode objects cannot be created directly; use graph[node]")

    @classmethod
    def _create(cls, graph: Graph, handle: int) -> ExecutableMemcpyNode:
        self = cls.__new__(cls)
        self._graph = graph
        self._handle = handle
        return self

    def update(self, *, dst: Buffer | int, src: Buffer | int, size: int) -> None:
        """Copy other memory in later launches; those that were submitted before are not affected."""
        plan = self._graph._open()
        number = plan.numbers[self._handle]
        node = plan.nodes[number]
        target, source = (one if isinstance(one, int) else one.handle for one in (dst, src))
        with node.context.device.machine.timeline.lock:
            plan.nodes[number] = recorded_copy(node, target, source, size)


class Plan:
    """The nodes of an executable graph by number, and which of them depend on which."""

    __slots__ = ("nodes", "numbers", "pred_counts", "succ")

    def __init__(self, nodes: list[RecordedNode]) -> None:
        self.nodes = list(nodes)
        self.numbers = {node.handle: number for number, node in enumerate(nodes)}
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

    def structure(self) -> list[tuple[object, ...]]:
        """Return the kinds of the nodes, and the numbers of the nodes that depend on each."""
        return [(node.kind, *later) for node, later in zip(self.nodes, self.succ, strict=True)]


class RunGraph(Operation):
    """One launch of a graph."""

    __slots__ = (
        "_after",
        "_done",
        "_graph",
        "_launch_overhead",
        "_missing",
        "_node_overhead",
        "_operations",
        "_plan",
        "_priority",
        "_runner",
        "_unfinished",
    )

    def __init__(
        self,
        graph: Graph,
        plan: Plan,
        operations: list[Operation],
        *,
        launch_overhead: int,
        node_overhead: int,
        priority: int | None,
        after: Fence | None,
        done: Fence,
    ) -> None:
        self._graph = weakref.ref(graph)
        self._plan = plan
        self._operations = operations
        self._launch_overhead = launch_overhead
        self._node_overhead = node_overhead
        self._priority = priority
        self._after = after
        self._done = done
        self._missing = list(plan.pred_counts)  # for each node, how many that it depends on have not ended
        self._unfinished = len(operations)

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
        if not self._unfinished:
            self._finish()
        for number, count in enumerate(self._plan.pred_counts):
            if not count:
                self._begin_node(number)

    def _begin_node(self, number: int) -> None:
        timeline = self._runner.timeline
        operation = self._operations[number]
        operation.submitted = timeline.now
        node = self._plan.nodes[number]
        priority = node.priority if self._priority is None else self._priority
        runner = _NodeRunner(timeline, priority, node.context.device, partial(self._end_node, number))
        if operation.begin(runner):
            timeline.call_at(timeline.now, runner.end)

    def _end_node(self, number: int) -> None:
        timeline = self._runner.timeline
        for later in self._plan.succ[number]:
            self._missing[later] -= 1
            if not self._missing[later]:
                delay = self._node_overhead if self._operations[later].takes_time else 0
                timeline.call_at(timeline.now + delay, partial(self._begin_node, later))
        self._unfinished -= 1
        if not self._unfinished:
            self._finish()

    def _finish(self) -> None:
        self._done.signal()
        graph = self._graph()
        if graph is None or graph._plan is not self._plan:
            # The last reference may be here. The nodes refer to the program's objects, which must not be freed with
            # the lock held, so they go with user code that does nothing.
            self._runner.timeline.run_user_code(partial(_forget, self._plan, self._operations))
            self._plan, self._operations = Plan([]), []
        self._runner.end()


def _forget(*_: object) -> None:
    """Do nothing with objects that somebody has to hold until now."""


class _NodeRunner:
    """Runs the operation of a node for one launch."""

    __slots__ = ("_device", "end", "priority", "timeline")

    def __init__(
        self, timeline: Timeline, priority: int, device: DeviceState, end: Callable[[], None]
    ) -> None:
        self.timeline = timeline
        self.priority = priority
        self.end = end
        self._device = device

    def run_user_code(self, code: Callable[[], object]) -> None:
        """Run a function of the program with the node's device current, then end the node."""
        self.timeline.run_user_code(partial(self._device.call, code), then=self.end)
