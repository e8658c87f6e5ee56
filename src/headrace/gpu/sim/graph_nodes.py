"""The definition of a graph, as a program sees it: what was recorded, and in which order.

The classes have the names of cuda.core's. A simulated definition and its nodes cannot be changed, and a node tells
its kind and its place in the order, but not its parameters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.gpu.sim.capture import RecordedNode
from headrace.gpu.sim.objects import MadeByDriver

if TYPE_CHECKING:
    from headrace.gpu.sim.graph import Graph, GraphCompleteOptions
    from headrace.gpu.sim.machine import Machine


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
    """The record of an event by every launch of the graph (:func:`headrace.gpu.record_external`)."""


class EventWaitNode(GraphNode):
    """A wait for an event from outside the graph (:func:`headrace.gpu.wait_external`)."""
