"""Drawing a graph as text, SVG, Mermaid or DOT."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from headrace._runtime import StreamLayout, captured_operators
from headrace.core.errors import choices
from headrace.drawing.layout import fold, members_of, shown_outputs, slices_of

if TYPE_CHECKING:
    from headrace.core.graph import Graph
    from headrace.drawing.layout import Segment


def draw(graph: Graph, style: str = "text", segments: Sequence[Segment] = (), *, unfold: bool = False) -> str:
    """Return `graph` drawn in a style: ``"text"``, ``"svg"``, ``"mermaid"`` or ``"dot"``.

    A subgraph is one box, unless `unfold` is true: then its operators are drawn. Each of the captured segments is a
    group, with its name and, after a run, its state. Operators that share a stream have its name.
    """
    try:
        drawer = _DRAWERS[style]
    except KeyError:
        raise ValueError(f"there is no drawing style {style!r}; there are {choices(_DRAWERS)}") from None
    layout = StreamLayout(graph, captured_operators(segments))
    if graph.subgraphs and not unfold:
        graph, segments = fold(graph, segments)
    return drawer(graph, segments, _streams(graph, layout))


def _streams(graph: Graph, layout: StreamLayout) -> dict[str, str]:
    """Return the stream of each operator that has one together with others, or the default stream."""
    found: dict[str, str] = {}
    for operator in graph:
        streams = {layout.of(one) for one in members_of(operator)}
        planned = streams.pop()
        if not streams and (len(planned.operators) > 1 or planned.kind == "default"):
            found[operator.name] = planned.label
    return found


def _by_stream(streams: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the names of the operators on each shared stream."""
    found: dict[str, list[str]] = {}
    for name, stream in streams.items():
        found.setdefault(stream, []).append(name)
    return found


def _text(graph: Graph, segments: Sequence[Segment], streams: Mapping[str, str]) -> str:
    lines, slices = [], slices_of(graph)
    for operator in graph:
        on = f", {slices[operator.name]}" if operator.name in slices else ""
        lines.append(f"{operator.name} ({type(operator).__name__}){on}")
        for name in shown_outputs(operator):
            targets = [flow for flow in graph.flows if (flow.source, flow.output) == (operator, name)]
            lines += [f"  {name} -> {flow.target.name}.{flow.input}" for flow in targets]
            lines += [] if targets else [f"  {name} -> (nothing)"]
    for segment in segments:
        names = ", ".join(operator.name for operator in segment.operators)
        lines.append(f"segment {segment.label}: {names}" + (f" ({segment.reason})" if segment.reason else ""))
    lines += [f"{stream}: {', '.join(names)}" for stream, names in _by_stream(streams).items()]
    return "\n".join(lines)


def _mermaid(graph: Graph, segments: Sequence[Segment], streams: Mapping[str, str]) -> str:
    keys = {operator.name: f"n{number}" for number, operator in enumerate(graph)}
    lines = ["flowchart LR"]
    lines += [f'  {key}["{_escaped(name)}{_below(streams, name, "<br/>")}"]' for name, key in keys.items()]
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


def _dot(graph: Graph, segments: Sequence[Segment], streams: Mapping[str, str]) -> str:
    lines = ["digraph pipeline {", "  rankdir=LR;", "  node [shape=box];"]
    for operator in graph:
        name = _quoted(operator.name)
        stream = _below(streams, operator.name, r"\n")
        lines.append(f'  "{name}" [label="{name}{stream}"];' if stream else f'  "{name}";')
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


def _below(streams: Mapping[str, str], name: str, line_break: str) -> str:
    return line_break + streams[name] if name in streams else ""


def _escaped(text: str) -> str:
    return text.replace('"', "#quot;")


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _svg(graph: Graph, segments: Sequence[Segment], streams: Mapping[str, str]) -> str:
    from headrace.drawing.svg import draw_svg

    title = next((operator.fragment._headrace.whole.name for operator in graph), "pipeline")
    return draw_svg(graph, title, segments, streams)


_DRAWERS = {"text": _text, "svg": _svg, "mermaid": _mermaid, "dot": _dot}
