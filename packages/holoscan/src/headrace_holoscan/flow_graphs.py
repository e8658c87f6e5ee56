"""holoscan.flow_graphs: the graphs of operators and of fragments, as versions from 4.0 call them.

A graph of operators and one of fragments answer the same questions (`FlowGraph`): what is before and behind a node,
and which ports are connected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from headrace import core

__all__ = [
    "FlowGraphImpl",
    "FragmentFlowGraph",
    "FragmentFlowGraphImpl",
    "OperatorFlowGraph",
    "OperatorFlowGraphImpl",
]

N = TypeVar("N")


class Link(NamedTuple, Generic[N]):
    """A connection of two nodes, and the names of its ports."""

    source: N
    output: str
    target: N
    input: str


class FlowGraph(Generic[N]):
    """What every graph answers; a subclass lists its nodes and its links, and names the ports of a node."""

    __slots__ = ()

    @property
    def _nodes(self) -> Sequence[N]:
        raise NotImplementedError

    @property
    def _links(self) -> Iterable[Link[N]]:
        raise NotImplementedError

    def _port_name(self, node: N, port: str) -> str:
        """Return the name of a port in the whole graph."""
        raise NotImplementedError

    def get_nodes(self) -> list[N]:
        """Return all nodes, in the order in which they were added."""
        return list(self._nodes)

    def get_root_nodes(self) -> list[N]:
        """Return the nodes that nothing leads to."""
        return [node for node in self._nodes if self.is_root(node)]

    def get_next_nodes(self, node: N) -> list[N]:
        """Return the nodes that a node leads to, in the order in which they were connected."""
        return _distinct(link.target for link in self._links if link.source is node)

    def get_previous_nodes(self, node: N) -> list[N]:
        """Return the nodes that lead to a node, in the order in which they were connected."""
        return _distinct(link.source for link in self._links if link.target is node)

    def is_root(self, node: N) -> bool:
        """Return whether nothing leads to a node."""
        return all(link.target is not node for link in self._links)

    def is_leaf(self, node: N) -> bool:
        """Return whether a node leads nowhere."""
        return all(link.source is not node for link in self._links)

    def get_port_map(self, source: N, target: N) -> dict[str, set[str]]:
        """Return the inputs of `target` that each output of `source` is connected to."""
        found: dict[str, set[str]] = {}
        for link in self._links:
            if link.source is source and link.target is target:
                found.setdefault(link.output, set()).add(link.input)
        return found

    def get_port_connectivity_maps(self) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
        """Return the outputs that each connected input receives from, and the inputs behind each output.

        Ports are named as in ``"camera.out"``; everything is in alphabetical order.
        """
        pairs = [
            (self._port_name(link.source, link.output), self._port_name(link.target, link.input))
            for link in self._links
        ]
        return _grouped((input_, output) for output, input_ in pairs), _grouped(pairs)

    def port_map_description(self) -> str:
        """Return `get_port_connectivity_maps` as YAML, under ``input_to_output`` and ``output_to_input``."""
        import yaml

        class Indented(yaml.SafeDumper):
            increase_indent: Callable[..., None] = lambda self, flow=False, indentless=False: (
                yaml.SafeDumper.increase_indent(self, flow, False)
            )

        inputs, outputs = self.get_port_connectivity_maps()
        maps = {"input_to_output": inputs or None, "output_to_input": outputs or None}
        text: str = yaml.dump(maps, Dumper=Indented, default_flow_style=False, width=1 << 20)
        return text.rstrip("\n").replace(": null", ": ~")


def _distinct(nodes: Iterable[N]) -> list[N]:
    return list({id(node): node for node in nodes}.values())


def _grouped(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for key, value in sorted(set(pairs)):
        found.setdefault(key, []).append(value)
    return found


class OperatorFlowGraph(FlowGraph[Any], core.Graph):
    """The operators of a fragment and the flows between them."""

    __slots__ = ()

    @property
    def _nodes(self) -> list[Any]:
        return self.operators

    @property
    def _links(self) -> list[Link[Any]]:
        # Each flow to an input that takes any number of them has a port of its own.
        count: dict[tuple[int, str], int] = {}
        found = []
        for flow in self.flows:
            input_, port = flow.input, flow.target.spec.every_input.get(flow.input)
            if port is not None and port.is_receivers:
                number = count[id(flow.target), input_] = count.get((id(flow.target), input_), -1) + 1
                input_ = f"{input_}:{number}"
            found.append(Link(flow.source, flow.output, flow.target, input_))
        return found

    def _port_name(self, node: Any, port: str) -> str:
        return f"{node.fragment._headrace.full_name(node.name)}.{port}"


class OperatorFlowGraphImpl(OperatorFlowGraph):
    """A graph of operators that can be changed."""

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


class FragmentFlowGraph(FlowGraph[Any], core.FragmentGraph):
    """The fragments of an application and the flows between them."""

    __slots__ = ()

    @property
    def _nodes(self) -> list[Any]:
        return self.fragments

    @property
    def _links(self) -> list[Link[Any]]:
        return [Link(flow.source, flow.output, flow.target, flow.input) for flow in self.flows]

    def _port_name(self, node: Any, port: str) -> str:
        return f"{node.name}.{port}"


class FragmentFlowGraphImpl(FragmentFlowGraph):
    """A graph of fragments that can be changed."""

    __slots__ = ()

    def add_node(self, fragment: Any) -> None:
        """Add a fragment."""
        self.add(fragment)


FlowGraphImpl = OperatorFlowGraphImpl
