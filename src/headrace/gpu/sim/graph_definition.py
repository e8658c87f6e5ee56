"""The definition of a graph: its nodes and their order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.gpu.sim.graph_nodes import GraphNode
from headrace.gpu.sim.recorded_node import RecordedNode

if TYPE_CHECKING:
    from headrace.gpu.sim.graph import Graph, GraphCompleteOptions
    from headrace.gpu.sim.machine import Machine


class GraphDefinition:
    """The nodes of a graph and the edges between them, as they were captured.

    A simulated definition comes from a capture (:attr:`GraphBuilder.graph_definition`) and cannot be changed.
    """

    __slots__ = ("_handle", "_machine", "_records")
    __headrace_device__ = "sim"
    _handle: int
    _machine: Machine
    _records: list[RecordedNode]  # each after those that it depends on

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise RuntimeError(
            "GraphDefinition objects cannot be created directly on a simulated device; use GraphBuilder"
        )

    @classmethod
    def _create(cls, machine: Machine, records: list[RecordedNode]) -> GraphDefinition:
        self = cls.__new__(cls)
        self._machine = machine
        self._handle = machine.new_handle()
        self._records = records
        return self

    @property
    def handle(self) -> int:
        """The driver's handle."""
        return self._handle

    @property
    def is_valid(self) -> bool:
        """Whether the graph exists."""
        return True

    def nodes(self) -> set[GraphNode]:
        """Return the nodes."""
        return {GraphNode._of(self, record) for record in self._records}

    def edges(self) -> set[tuple[GraphNode, GraphNode]]:
        """Return the edges: pairs of a node and one that depends on it."""
        return {(before, node) for node in self.nodes() for before in node.pred}

    def instantiate(self, options: GraphCompleteOptions | None = None) -> Graph:
        """Return an executable graph of these nodes."""
        from headrace.gpu.sim.graph import Graph  # a cycle: a graph is made from its definition

        return Graph._create(self, options)

    def __repr__(self) -> str:
        return f"<GraphDefinition handle={self._handle:#x}>"
