"""Questions about a graph: what is before and behind a node, which ports are connected, and where loops lead back.

A graph of operators and one of fragments answer `GraphQueries` alike. The names are those of the Holoscan SDK.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

N = TypeVar("N")
E = TypeVar("E")


class Link(NamedTuple, Generic[N]):
    """A connection of two nodes, and the names of its ports."""

    source: N
    output: str
    target: N
    input: str


class GraphQueries(Generic[N]):
    """The questions; a subclass lists its nodes and its links, and names the ports of a node."""

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


def edges_back(starts: Iterable[N], leaving: Callable[[N], Iterable[tuple[E, N]]]) -> list[E]:
    """Return the edges at which a way through a graph comes back to itself.

    Parameters
    ----------
    starts
        The vertices that ways begin at, the sources first.
    leaving
        The edges that leave a vertex, each with the vertex that it leads to.
    """
    found: list[E] = []
    seen: set[N] = set()
    for first in starts:
        if first in seen:
            continue
        seen.add(first)
        way = {first: iter(leaving(first))}
        while way:
            vertex = next(reversed(way))
            edge, target = next(way[vertex], (None, None))
            if edge is None or target is None:
                del way[vertex]
            elif target in way:
                found.append(edge)
            elif target not in seen:
                seen.add(target)
                way[target] = iter(leaving(target))
    return found


def reachable(
    first: N, step: Callable[[N], Iterable[N]], within: Container[N] | None = None
) -> dict[N, None]:
    """Return a vertex and those that steps lead to, within a set."""
    found = {first: None}
    for vertex in (new := [first]):
        for other in step(vertex):
            if other not in found and (within is None or other in within):
                found[other] = None
                new.append(other)
    return found
