"""The definition of a graph, as a program sees it: what was recorded, and in which order.

The classes have the names and properties of cuda.core's. A simulated definition and its nodes cannot be changed.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from headrace.gpu.sim.capture import RecordedNode
from headrace.gpu.sim.kernel import Kernel, LaunchConfig
from headrace.gpu.sim.objects import MadeByDriver

if TYPE_CHECKING:
    from headrace.gpu.sim.graph import Graph, GraphCompleteOptions
    from headrace.gpu.sim.machine import Machine
    from headrace.gpu.sim.stream import Event

T = TypeVar("T")


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
        from headrace.gpu.sim.graph import Graph  # a cycle: a graph is made from its definition

        return Graph._create(self, options)

    def __repr__(self) -> str:
        return f"<GraphDefinition handle={self.handle:#x}>"


class CUgraphNodeType(IntEnum):
    """The kinds of nodes, named and numbered as by the driver."""

    CU_GRAPH_NODE_TYPE_KERNEL = 0
    CU_GRAPH_NODE_TYPE_MEMCPY = 1
    CU_GRAPH_NODE_TYPE_MEMSET = 2
    CU_GRAPH_NODE_TYPE_HOST = 3
    CU_GRAPH_NODE_TYPE_EMPTY = 5
    CU_GRAPH_NODE_TYPE_WAIT_EVENT = 6
    CU_GRAPH_NODE_TYPE_EVENT_RECORD = 7


class Shown(Generic[T]):
    """A property of a node that shows one of the details that were recorded, or something that follows from it."""

    def __init__(self, detail: str, show: Callable[[Any], T] = lambda detail: detail) -> None:
        self._detail = detail
        self._show = show

    def __get__(self, node: GraphNode, kind: type) -> T:
        return self._show(node._record.details[self._detail])


def _address(memory: Any) -> int:
    return int(memory.ctypes.data)


def _size(memory: Any) -> int:
    return int(memory.nbytes)


class GraphNode(metaclass=MadeByDriver):
    """A node of a graph."""

    _made_by = "GraphDefinition.nodes"
    type: CUgraphNodeType
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

    type = CUgraphNodeType.CU_GRAPH_NODE_TYPE_KERNEL
    kernel: Shown[Kernel[...]] = Shown("kernel")
    grid: Shown[tuple[int, int, int]] = Shown("config", lambda config: config._grid_in_blocks)
    block: Shown[tuple[int, int, int]] = Shown("config", lambda config: config.block)
    shmem_size: Shown[int] = Shown("config", lambda config: config.shmem_size)

    @property
    def config(self) -> LaunchConfig:
        """The configuration of the launch, without clusters."""
        return LaunchConfig(grid=self.grid, block=self.block, shmem_size=self.shmem_size)


class MemcpyNode(GraphNode):
    """A copy."""

    type = CUgraphNodeType.CU_GRAPH_NODE_TYPE_MEMCPY
    dst: Shown[int] = Shown("dst", _address)
    src: Shown[int] = Shown("src", _address)
    size: Shown[int] = Shown("src", _size)


class MemsetNode(GraphNode):
    """The filling of memory with a pattern, in one row."""

    type = CUgraphNodeType.CU_GRAPH_NODE_TYPE_MEMSET
    dptr: Shown[int] = Shown("dst", _address)
    value: Shown[int] = Shown("pattern", lambda pattern: int.from_bytes(pattern, "little"))
    element_size: Shown[int] = Shown("pattern", len)
    height = 1
    pitch = 0  # unused, since there is one row

    @property
    def width(self) -> int:
        """The number of patterns in a row."""
        return _size(self._record.details["dst"]) // self.element_size


class HostCallbackNode(GraphNode):
    """The call of a function on the host."""

    type = CUgraphNodeType.CU_GRAPH_NODE_TYPE_HOST
    callback: Shown[Callable[[], object]] = Shown("callback")


class EmptyNode(GraphNode):
    """A node without work, which joins others."""

    type = CUgraphNodeType.CU_GRAPH_NODE_TYPE_EMPTY


class EventRecordNode(GraphNode):
    """The record of an event by every launch of the graph (:func:`headrace.gpu.record_external`)."""

    type = CUgraphNodeType.CU_GRAPH_NODE_TYPE_EVENT_RECORD
    event: Shown[Event] = Shown("event")


class EventWaitNode(GraphNode):
    """A wait for an event from outside the graph (:func:`headrace.gpu.wait_external`)."""

    type = CUgraphNodeType.CU_GRAPH_NODE_TYPE_WAIT_EVENT
    event: Shown[Event] = Shown("event")
