"""The layout of a graph in layers, for drawings.

Operators are put in layers so that flows lead from one layer to a later one. A flow that passes over a layer gets a
*bend* there, so that it is drawn between the operators. The order inside the layers is improved by moving each
vertex to the mean place of its neighbours (Sugiyama's method), and the coordinates are the nearest ones to the
neighbours that keep the order and the distances. Flows that close a circle are left out of all this; drawings lead
them around.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING, Any, Protocol

from headrace._runtime import slice_of
from headrace.core.graph import Flow, Graph, edges_back

if TYPE_CHECKING:
    from headrace.core.operator import Operator
    from headrace.core.subgraph import Subgraph
    from headrace.core.wiring import Port


_ROUNDS = 12


class Segment(Protocol):
    """What is drawn of operators that are captured as one CUDA graph (`headrace.capture.Segment`)."""

    operators: tuple[Operator, ...]
    reason: str

    @property
    def label(self) -> str:
        """The name and, after a run, the state."""


@dataclass(slots=True)
class Layout:
    """Vertices in layers; the first vertices are the operators, the others are bends."""

    layers: list[list[int]]
    """The vertices of each layer, in order."""
    paths: list[list[int]]
    """The vertices that each edge passes, from its source to its target; empty if it leads back."""
    before: dict[int, list[int]] = field(default_factory=dict)
    """The neighbours of each vertex in the layer before."""
    after: dict[int, list[int]] = field(default_factory=dict)
    """The neighbours of each vertex in the next layer."""
    groups: dict[int, int] = field(default_factory=dict)
    """The group of each vertex that is in one; the vertices of a group are side by side in each layer."""

    def layers_of(self, group: int) -> list[tuple[int, list[int]]]:
        """Return the numbers of the layers that have vertices of a group, each with these vertices."""
        found = [[vertex for vertex in layer if self.groups.get(vertex) == group] for layer in self.layers]
        return [(number, vertices) for number, vertices in enumerate(found) if vertices]


def lay_out(count: int, edges: Sequence[tuple[int, int]], groups: Mapping[int, int]) -> Layout:
    """Return a layout of `count` operators with edges between their numbers.

    `groups` has the groups of operators that are drawn together. Bends of an edge inside a group belong to it.
    """
    backward = _backward(count, edges)
    forward = [edge for number, edge in enumerate(edges) if number not in backward]
    rank = _ranks(count, forward)
    layers: list[list[int]] = [[] for _ in range(max(rank, default=0) + 1)]
    for vertex in range(count):
        layers[rank[vertex]].append(vertex)
    layout = Layout(layers, [], groups=dict(groups))
    bends = count
    for number, (source, target) in enumerate(edges):
        if number in backward:
            layout.paths.append([])
            continue
        path = [source]
        for layer in range(rank[source] + 1, rank[target]):
            layers[layer].append(bends)
            path.append(bends)
            if source in layout.groups and layout.groups[source] == layout.groups.get(target):
                layout.groups[bends] = layout.groups[source]
            bends += 1
        path.append(target)
        layout.paths.append(path)
        for first, second in itertools.pairwise(path):
            layout.after.setdefault(first, []).append(second)
            layout.before.setdefault(second, []).append(first)
    _order(layout)
    return layout


def place(layout: Layout, sizes: Sequence[float], gap: float) -> list[float]:
    """Return the centre of each vertex across its layer: near its neighbours, with `gap` between two vertices.

    `sizes` has the extent of each vertex, operators first.
    """
    centres = [0.0] * sum(map(len, layout.layers))
    for layer in layout.layers:
        _settle(layer, centres, dict.fromkeys(layer, 0.0), sizes, gap)
    for turn in range(2 * _ROUNDS):
        down = turn % 2 == 0
        neighbours = layout.before if down else layout.after
        for layer in layout.layers if down else reversed(layout.layers):
            _settle(layer, centres, _means(layer, centres, neighbours, centres), sizes, gap)
    least = min((centres[v] - sizes[v] / 2 for layer in layout.layers for v in layer), default=0.0)
    return [centre - least for centre in centres]


def _means(layer: list[int], places: Any, neighbours: dict[int, list[int]], own: Any) -> dict[int, float]:
    """Return the mean of the places of the neighbours of each vertex, or its own place if it has none."""
    return {
        vertex: sum(places[each] for each in near) / len(near)
        if (near := neighbours.get(vertex))
        else own[vertex]
        for vertex in layer
    }


def _settle(
    layer: list[int], centres: list[float], wanted: dict[int, float], sizes: Sequence[float], gap: float
) -> None:
    """Move the vertices of a layer as near to the wanted centres as their order and distances allow.

    Without the distances before a vertex, its centre must not be less than that of the one before it: so this is an
    isotonic regression, which pools neighbours that violate the order.
    """
    offsets, offset = [], 0.0
    for position, vertex in enumerate(layer):
        if position:
            offset += (sizes[layer[position - 1]] + sizes[vertex]) / 2 + gap
        offsets.append(offset)
    pools: list[tuple[float, int]] = []
    for vertex, offset in zip(layer, offsets, strict=True):
        mean, size = wanted[vertex] - offset, 1
        while pools and pools[-1][0] > mean:
            other, number = pools.pop()
            mean, size = (mean * size + other * number) / (size + number), size + number
        pools.append((mean, size))
    means = [mean for mean, size in pools for _ in range(size)]
    for vertex, mean, offset in zip(layer, means, offsets, strict=True):
        centres[vertex] = mean + offset


def _backward(count: int, edges: Sequence[tuple[int, int]]) -> set[int]:
    """Return the edges that close a circle, found by a depth-first search."""
    leaving: dict[int, list[tuple[int, int]]] = {}
    for number, (source, target) in enumerate(edges):
        leaving.setdefault(source, []).append((number, target))
    has_input = {target for source, target in edges if source != target}
    starts = sorted(range(count), key=lambda vertex: vertex in has_input)
    return set(edges_back(starts, lambda vertex: leaving.get(vertex, ())))


def _ranks(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """Return the layer of each vertex: after all that lead to it; sources right before their first target."""
    before: dict[int, list[int]] = {vertex: [] for vertex in range(count)}
    after: dict[int, list[int]] = {vertex: [] for vertex in range(count)}
    for source, target in edges:
        before[target].append(source)
        after[source].append(target)
    rank = [0] * count
    for vertex in TopologicalSorter(before).static_order():
        rank[vertex] = max((rank[source] + 1 for source in before[vertex]), default=0)
    for vertex in range(count):
        if not before[vertex]:
            rank[vertex] = min((rank[target] - 1 for target in after[vertex]), default=0)
    return rank


def _order(layout: Layout) -> None:
    """Reorder the layers so that few edges cross."""
    for layer in layout.layers:
        _sort(layer, {vertex: float(place) for place, vertex in enumerate(layer)}, layout.groups)
    best, fewest = [list(layer) for layer in layout.layers], _crossings(layout)
    for turn in range(_ROUNDS):
        down = turn % 2 == 0
        neighbours = layout.before if down else layout.after
        layers = layout.layers if down else list(reversed(layout.layers))
        for fixed, layer in itertools.pairwise(layers):
            place_of = {vertex: place for place, vertex in enumerate(fixed)}
            own = {vertex: place for place, vertex in enumerate(layer)}
            _sort(layer, _means(layer, place_of, neighbours, own), layout.groups)
        crossings = _crossings(layout)
        if crossings < fewest:
            best, fewest = [list(layer) for layer in layout.layers], crossings
    layout.layers[:] = best


def _sort(layer: list[int], key: dict[int, float], groups: dict[int, int]) -> None:
    """Sort the vertices of a layer by their keys, but keep those of a group together, at their mean."""
    keys: dict[int, list[float]] = {}
    for vertex in layer:
        if vertex in groups:
            keys.setdefault(groups[vertex], []).append(key[vertex])

    def place(vertex: int) -> tuple[float, int, float]:
        group = groups.get(vertex)
        if group is None:
            return key[vertex], -1, 0.0
        return sum(keys[group]) / len(keys[group]), group, key[vertex]

    layer.sort(key=place)


def _crossings(layout: Layout) -> int:
    total = 0
    for layer, following in zip(layout.layers, layout.layers[1:], strict=False):
        place_of = {vertex: place for place, vertex in enumerate(following)}
        targets = [sorted(place_of[target] for target in layout.after.get(vertex, ())) for vertex in layer]
        flat = [place for places in targets for place in places]
        total += sum(a > b for position, a in enumerate(flat) for b in flat[position + 1 :])
    return total


def fold(graph: Graph, segments: Sequence[Segment]) -> tuple[Graph, list[Segment]]:
    """Return a graph with its outermost subgraphs in place of their operators, and the segments that are left.

    A segment inside of one subgraph is not drawn.
    """
    boxes: dict[Operator, Any] = {operator: _outermost(graph, operator) or operator for operator in graph}
    folded = Graph()
    folded.operators = list(dict.fromkeys(boxes.values()))
    flows: dict[Flow, None] = {}
    for flow in graph.flows:
        source, target = boxes[flow.source], boxes[flow.target]
        output = _port(source, "outputs", flow.source, flow.output)
        input_ = _port(target, "inputs", flow.target, flow.input)
        # Other flows are inside of the box.
        if output is not None and input_ is not None:
            flows[Flow(source, output, target, input_)] = None
    folded.flows = list(flows)
    left: list[Segment] = []
    taken: set[Any] = set()
    for segment in segments:
        members = tuple(dict.fromkeys(boxes[operator] for operator in segment.operators))
        if members == segment.operators or (len(members) > 1 and taken.isdisjoint(members)):
            left.append(_FoldedSegment(members, segment.label, segment.reason))
            taken.update(members)
    return folded, left


@dataclass(slots=True)
class _FoldedSegment:
    """A segment some of whose operators are in subgraphs."""

    operators: tuple[Any, ...]
    label: str
    reason: str


def members_of(box: Any) -> list[Operator]:
    """Return the operators in the box of a subgraph, or of an operator."""
    if not box._headrace.is_subgraph:
        return [box]
    return [operator for operator in box.graph if operator.name.startswith(box._headrace.prefix)]


def slices_of(graph: Graph) -> dict[str, str]:
    """Return the slice of the device of each operator that has one, as text: ``"vision: 16 SMs"``."""
    shares = {operator.name: {slice_of(one) for one in members_of(operator)} for operator in graph}
    return {
        name: str(share)
        for name, found in shares.items()
        if len(found) == 1 and (share := found.pop()) is not None
    }


def shown_outputs(box: Any) -> list[str]:
    """Return the outputs that are drawn: of a function, which may return nothing, those that flows lead from."""
    outputs = list(box._headrace.spec.every_output)
    used = {flow.output for flow in box._headrace.outgoing} if box.is_function else outputs
    return [name for name in outputs if name in used]


def _outermost(graph: Graph, operator: Operator) -> Subgraph | None:
    """Return the outermost subgraph that an operator is in; `Graph.subgraphs` has the outer ones first."""
    inside = (
        name for name, each in graph.subgraphs.items() if operator.name.startswith(each._headrace.prefix)
    )
    name = next(inside, None)
    return None if name is None else graph.subgraphs[name]


def _port(box: Any, side: str, operator: Operator, port: str) -> str | None:
    """Return the port of a box that stands for a port of an operator, or None if there is none."""
    if not box._headrace.is_subgraph:
        return port
    ports_of: dict[str, tuple[Port, ...]] = getattr(box._headrace.spec, side)
    for name, ports in ports_of.items():
        if any(each.owner.name == operator.name and each.name == port for each in ports):
            return name
    return None
