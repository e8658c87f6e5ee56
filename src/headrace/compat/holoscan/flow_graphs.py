"""holoscan.flow_graphs: the graphs of operators and of fragments, as versions from 4.0 call them."""

from __future__ import annotations

from typing import Any

from headrace.core.fragment_graph import FragmentGraph
from headrace.core.graph import Graph
from headrace.core.graph_queries import GraphQueries

__all__ = [
    "FlowGraphImpl",
    "FragmentFlowGraph",
    "FragmentFlowGraphImpl",
    "OperatorFlowGraph",
    "OperatorFlowGraphImpl",
]

FlowGraph = GraphQueries
OperatorFlowGraph = Graph
FragmentFlowGraph = FragmentGraph


class OperatorFlowGraphImpl(Graph):
    """The operators of a fragment and the flows between them."""

    __slots__ = ()

    @property
    def context(self) -> None:
        """None: there is no context of an executor."""

    def add_node(self, op: Any) -> None:
        """Add an operator."""
        self.add(op)

    def remove_node(self, op: Any) -> None:
        """Remove an operator and its flows."""
        self.remove(op)


class FragmentFlowGraphImpl(FragmentGraph):
    """The fragments of an application and the flows between them."""

    __slots__ = ()

    def add_node(self, fragment: Any) -> None:
        """Add a fragment."""
        self.add(fragment)


FlowGraphImpl = OperatorFlowGraphImpl
