"""Folding: a graph in which each subgraph is one box with its own ports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.core.graph import Flow, Graph

if TYPE_CHECKING:
    from headrace.core.operator import Operator
    from headrace.core.subgraph import Subgraph
    from headrace.core.wiring import Port
    from headrace.drawing.layout import Segment


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
