"""holoscan.flow_graphs: the graphs of operators and of fragments, as versions from 4.0 call them."""

from __future__ import annotations

from typing import Any

from headrace.core import FragmentGraph, Graph
from headrace.vocabulary import GraphQueries, Link

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
    def _links(self) -> list[Link[Any]]:
        # Each flow to an input that takes any number of them has a port of its own.
        count: dict[tuple[int, str], int] = {}
        found = []
        for link in super()._links:
            port = link.target.spec.every_input.get(link.input)
            if port is not None and port.is_receivers:
                number = count[id(link.target), link.input] = count.get((id(link.target), link.input), -1) + 1
                link = link._replace(input=f"{link.input}:{number}")
            found.append(link)
        return found

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
