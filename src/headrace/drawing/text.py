"""Drawing a graph as text, boxes, SVG, Mermaid or DOT."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.core.errors import choices
from headrace.drawing.folding import fold

if TYPE_CHECKING:
    from headrace.core.graph import Graph
    from headrace.drawing.layout import Segment


def draw(graph: Graph, style: str = "text", segments: Sequence[Segment] = (), *, unfold: bool = False) -> str:
    """Return `graph` drawn in a style: ``"text"``, ``"boxes"``, ``"svg"``, ``"mermaid"`` or ``"dot"``.

    A subgraph is one box, unless `unfold` is true: then its operators are drawn. Each of the captured segments is a
    group, with its name and, after a run, its state.
    """
    try:
        drawer = _DRAWERS[style]
    except KeyError:
        raise ValueError(f"there is no drawing style {style!r}; there are {choices(_DRAWERS)}") from None
    if graph.subgraphs and not unfold:
        graph, segments = fold(graph, segments)
    return drawer(graph, segments)


def _text(graph: Graph, segments: Sequence[Segment]) -> str:
    lines = []
    for operator in graph:
        lines.append(f"{operator.name} ({type(operator).__name__})")
        for name in operator.spec.every_output:
            targets = [flow for flow in graph.flows if (flow.source, flow.output) == (operator, name)]
            if not targets and not operator._headrace.never_emits:
                lines.append(f"  {name} -> (nothing)")
            lines.extend(f"  {name} -> {flow.target.name}.{flow.input}" for flow in targets)
    for segment in segments:
        names = ", ".join(operator.name for operator in segment.operators)
        lines.append(f"segment {segment.label}: {names}" + (f" ({segment.reason})" if segment.reason else ""))
    return "\n".join(lines)


def _mermaid(graph: Graph, segments: Sequence[Segment]) -> str:
    keys = {operator.name: f"n{number}" for number, operator in enumerate(graph)}
    lines = ["flowchart LR"]
    lines += [f'  {key}["{_escaped(name)}"]' for name, key in keys.items()]
    for number, segment in enumerate(segments):
        lines.append(f'  subgraph s{number}["{_escaped(segment.label)}"]')
        lines += [f"    {keys[operator.name]}" for operator in segment.operators]
        lines.append("  end")
    lines += [
        f'  {keys[flow.source.name]} -- "{_escaped(flow.output)} → {_escaped(flow.input)}" --> '
        f"{keys[flow.target.name]}"
        for flow in graph.flows
    ]
    return "\n".join(lines)


def _dot(graph: Graph, segments: Sequence[Segment]) -> str:
    lines = ["digraph pipeline {", "  rankdir=LR;", "  node [shape=box];"]
    lines += [f'  "{_quoted(operator.name)}";' for operator in graph]
    for number, segment in enumerate(segments):
        lines += [
            f"  subgraph cluster_{number} {{",
            f'    label="{_quoted(segment.label)}"; style=dashed;',
            *(f'    "{_quoted(operator.name)}";' for operator in segment.operators),
            "  }",
        ]
    lines += [
        f'  "{_quoted(flow.source.name)}" -> "{_quoted(flow.target.name)}" '
        f'[taillabel="{_quoted(flow.output)}", headlabel="{_quoted(flow.input)}"];'
        for flow in graph.flows
    ]
    return "\n".join([*lines, "}"])


def _escaped(text: str) -> str:
    return text.replace('"', "#quot;")


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _boxes(graph: Graph, segments: Sequence[Segment]) -> str:
    from headrace.drawing.boxes import draw_boxes

    return draw_boxes(graph, segments)


def _svg(graph: Graph, segments: Sequence[Segment]) -> str:
    from headrace.drawing.svg import draw_svg

    return draw_svg(
        graph, next((operator.fragment._headrace.whole.name for operator in graph), "pipeline"), segments
    )


_DRAWERS = {"text": _text, "boxes": _boxes, "svg": _svg, "mermaid": _mermaid, "dot": _dot}
