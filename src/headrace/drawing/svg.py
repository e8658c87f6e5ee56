"""A graph as an SVG picture: operators as boxes with their ports, flows as curves, slices of the GPU as colours.

A stream that operators share is a bar of its colour at the left of their boxes, with its name beside their class.

The picture needs no other program and no font of its own. It follows the reader's choice of light or dark
(``prefers-color-scheme``), with plain rules instead of CSS variables, which converters do not know.
"""

from __future__ import annotations

import itertools
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from xml.etree.ElementTree import Element, SubElement, tostring

from headrace.core.graph import queues_of
from headrace.drawing.layout import lay_out, place, shown_outputs, slices_of

if TYPE_CHECKING:
    from headrace.core.graph import Graph
    from headrace.core.operator import Operator
    from headrace.drawing.layout import Segment

_EM, _SMALL = 13.0, 11.0  # the sizes of the text
_LINE = 17.0  # the height of a port
_HEAD = 40.0  # the height of the name and the class
_PAD = 12.0
_GAP_X, _GAP_Y = 72.0, 24.0
_MARGIN = 24.0
# The distance of the frame of a segment from its boxes, and the room that it takes in all.
_ABOVE, _BELOW, _BESIDE = 21.0, 9.0, 16.0
_FRAME = _ABOVE + _BELOW
# Hues that differ in both modes and for colour-blind readers (after Okabe and Ito).
_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#b3a400", "#7f5fc0")


class _Rect(NamedTuple):
    """The place of the box of an operator, or of a bend, which is as wide as its column."""

    left: float
    top: float
    right: float
    bottom: float

    def port(self, names: list[str], name: str) -> float:
        """Return the height of a port, one of `names`."""
        return self.top + _HEAD + (names.index(name) + 0.5) * _LINE


def draw_svg(graph: Graph, title: str, segments: Sequence[Segment], streams: Mapping[str, str]) -> str:
    """Return `graph` as the text of an SVG file, with a frame around each captured segment.

    `streams` has the names of streams that operators share.
    """
    kinds = {operator.name: _kind(operator, streams.get(operator.name, "")) for operator in graph}
    operators = list(graph)
    number = {operator.name: position for position, operator in enumerate(operators)}
    edges = [(number[flow.source.name], number[flow.target.name]) for flow in graph.flows]
    groups = {number[one.name]: group for group, segment in enumerate(segments) for one in segment.operators}
    layout = lay_out(len(operators), edges, groups)
    sizes = [_size(operator, kinds[operator.name]) for operator in operators]
    # Bends are a little higher than a line, so that a flow keeps away from the boxes that it passes.
    sizes += [(0.0, _LINE)] * (sum(map(len, layout.layers)) - len(operators))
    # A frame takes room above and below.
    heights = [height + _FRAME * (vertex in layout.groups) for vertex, (_, height) in enumerate(sizes)]
    centres = place(layout, heights, _GAP_Y)
    rects: dict[int, _Rect] = {}
    columns: list[tuple[float, float]] = []
    x = _MARGIN
    for layer in layout.layers:
        column = max((sizes[vertex][0] for vertex in layer), default=0.0)
        for vertex in layer:
            width, height = sizes[vertex][0] or column, sizes[vertex][1]
            left, top = x + (column - width) / 2, _MARGIN + centres[vertex] - height / 2
            rects[vertex] = _Rect(left, top, left + width, top + height)
        columns.append((x, x + column))
        x += column + _GAP_X
    right = max(x - _GAP_X, _MARGIN) + _MARGIN
    bottom = max((rect.bottom for rect in rects.values()), default=0.0)

    root = Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "role": "img"})
    _add(root, "title", title)
    style = Path(__file__).with_suffix(".css").read_text("utf-8")
    _add(root, "style", f"\n{style}")
    _add(root, "rect", class_="paper", width="100%", height="100%")
    for group, segment in enumerate(segments):
        framed = [
            _Rect(
                columns[layer][0],
                min(rects[vertex].top for vertex in vertices),
                columns[layer][1],
                max(rects[vertex].bottom for vertex in vertices),
            )
            for layer, vertices in layout.layers_of(group)
        ]
        _add_frame(root, segment, framed)
        bottom = max(bottom, *(rect.bottom + _BELOW for rect in framed))
    for flow, (source, target), path in zip(graph.flows, edges, layout.paths, strict=True):
        begin = (
            rects[source].right,
            rects[source].port(list(flow.source._headrace.spec.every_output), flow.output),
        )
        end = rects[target].left, rects[target].port(list(flow.target._headrace.spec.every_input), flow.input)
        tip = end[0] - 7, end[1]
        if path:
            bends = [rects[vertex] for vertex in path[1:-1]]
            sides = [(x, (rect.top + rect.bottom) / 2) for rect in bends for x in (rect.left, rect.right)]
            line = _curve([begin, *sides, tip])
        else:
            bottom += 18
            line = _around(begin, tip, bottom)
        _add(_add(root, "path", class_="flow", d=line), "title", str(flow))
        # The tip belongs to the curve, so that both are hidden under nothing; an arrow without a marker.
        _add(root, "path", class_="tip", d=f"M{end[0]:.1f} {end[1]:.1f}l-8 -4v8z")
    slices = slices_of(graph)
    colours = dict(zip(dict.fromkeys(slices.values()), itertools.cycle(_COLOURS), strict=False))
    bars = dict(zip(dict.fromkeys(streams.values()), itertools.cycle(reversed(_COLOURS)), strict=False))
    for vertex, operator in enumerate(operators):
        share = slices.get(operator.name, "")
        _add_box(root, operator, rects[vertex], share, colours.get(share, ""), kinds[operator.name])
        if operator.name in streams:
            left, top, _, low = rects[vertex]
            bar = {"x": left, "y": top, "width": 5, "height": low - top, "rx": 2.5}
            _add(root, "rect", **bar, style=f"fill:{bars[streams[operator.name]]}")
    if colours:
        bottom += 20
        x = _MARGIN
        for text, colour in colours.items():
            tint = {"fill": colour, "fill_opacity": ".35", "stroke": colour}
            _add(root, "rect", x=x, y=bottom, width=12, height=12, rx=3, **tint)
            _add(root, "text", text, class_="small", x=x + 18, y=bottom + 10)
            x += _width(text, _SMALL) + 42
        right = max(right, x)
        bottom += 12
    if graph.flows:
        bottom += 24
        text = "[4 pop]: an input's queue holds 4 messages, and drops the oldest when it is full"
        _add(root, "text", text, class_="muted", x=_MARGIN, y=bottom)
        right = max(right, _width(text, _SMALL) + 2 * _MARGIN)
    height = bottom + _MARGIN
    for name, value in {"width": right, "height": height}.items():
        root.set(name, f"{value:.0f}")
    root.set("viewBox", f"0 0 {right:.0f} {height:.0f}")
    for element in root:
        element.tail = "\n"
    return tostring(root, "unicode") + "\n"


def _add(parent: Element, tag: str, text: str = "", /, **attributes: object) -> Element:
    """Add an element; numbers get one digit after the point, and ``class_`` and ``text_anchor`` their spelling."""
    written = {
        name.rstrip("_").replace("_", "-"): f"{value:.1f}" if isinstance(value, float) else str(value)
        for name, value in attributes.items()
    }
    element = SubElement(parent, tag, written)
    element.text = text or None
    return element


def _add_frame(root: Element, segment: Segment, columns: list[_Rect]) -> None:
    """Add the frame of a segment, given the place of its boxes in each of its columns.

    In each column it is as high as the boxes there, so that it is around no other box.
    """
    upper: list[str] = []
    lower: list[str] = []
    middles = [(one.right + other.left) / 2 for one, other in itertools.pairwise(columns)]
    edges = [columns[0].left - _BESIDE, *middles, columns[-1].right + _BESIDE]
    for rect, sides in zip(columns, itertools.pairwise(edges), strict=True):
        upper += [f"{x:.1f} {rect.top - _ABOVE:.1f}" for x in sides]
        lower += [f"{x:.1f} {rect.bottom + _BELOW:.1f}" for x in sides]
    group = _add(root, "g")
    _add(group, "title", f"segment {segment.label}" + (f": {segment.reason}" if segment.reason else ""))
    _add(group, "path", class_="frame", d=f"M{'L'.join([*upper, *reversed(lower)])}z")
    x, y = edges[0] + 8, columns[0].top - _ABOVE + 14
    _add(group, "text", segment.label, class_="small", x=x, y=y)


def _add_box(root: Element, operator: Operator, rect: _Rect, share: str, colour: str, kind: str) -> None:
    """Add the box of an operator; `share` is its slice of the device, if any, and `kind` what is below its name."""
    left, top, right, bottom = rect
    middle = (left + right) / 2
    group = _add(root, "g")
    _add(group, "title", f"{operator.name}: {kind}" + (f", {share}" if share else ""))
    shape = {"x": left, "y": top, "width": right - left, "height": bottom - top, "rx": 7}
    _add(group, "rect", class_="box", **shape)  # opaque below the tint, so that no flow shines through
    if colour:
        _add(group, "rect", **shape, style=f"fill:{colour};fill-opacity:.16;stroke:{colour}")
    _add(group, "text", operator.name, class_="name", text_anchor="middle", x=middle, y=top + 17)
    _add(group, "text", kind, class_="muted", text_anchor="middle", x=middle, y=top + 31)
    inputs, outputs = list(operator._headrace.spec.every_input), shown_outputs(operator)
    if inputs or outputs:
        rule = f"M{left + 1:.1f} {top + _HEAD - 2:.1f}h{right - left - 2:.1f}"
        _add(group, "path", class_="rule", d=rule, stroke_width=1)
    for name in inputs:
        y = rect.port(inputs, name)
        text = _add(group, "text", name, class_="small", x=left + _PAD, y=y + 4)
        _add(text, "tspan", f" {queue_label(operator, name)}", class_="muted")
    for name in outputs:
        y = rect.port(outputs, name)
        _add(group, "circle", class_="dot", cx=right, cy=y, r=3)
        _add(group, "text", name, class_="small", text_anchor="end", x=right - _PAD, y=y + 4)


def _size(operator: Operator, kind: str) -> tuple[float, float]:
    """Return the width and the height of the box of an operator, with `kind` below its name."""
    inputs = [f"{name} {queue_label(operator, name)}" for name in operator._headrace.spec.every_input]
    outputs = shown_outputs(operator)
    rows = max(len(inputs), len(outputs))
    pairs = itertools.zip_longest(inputs, outputs, fillvalue="")
    ports = [sum(_width(text, _SMALL) for text in pair) + 2 * _PAD for pair in pairs]
    name = _width(operator.name, _EM) * 1.06  # bold is wider
    width = max(name, _width(kind, _SMALL), *ports, 60.0) + 2 * _PAD
    return width, _HEAD + rows * _LINE + (_PAD / 2 if rows else 0)


def queue_label(operator: Operator, port: str) -> str:
    """Return the size of an input's queue, and its policy if it drops: ``"[4 pop]"``."""
    behind: Any = operator._headrace.spec.every_input[port]
    if operator._headrace.is_subgraph:
        return queue_label(behind[0].owner, behind[0].name)
    queues = queues_of(operator, behind)
    if not queues:
        return "[0]"
    policy = "" if queues[0].policy.name == "FAULT" else f" {queues[0].policy.name.lower()}"
    number = f"{len(queues)}×" if operator._headrace.spec.every_input[port].is_receivers else ""
    return f"[{number}{queues[0].size}{policy}]"


def _curve(points: list[tuple[float, float]]) -> str:
    """Return a path through the points that leaves and enters each of them horizontally."""
    parts = [f"M{points[0][0]:.1f} {points[0][1]:.1f}"]
    for (x1, y1), (x2, y2) in itertools.pairwise(points):
        if abs(y1 - y2) < 0.05:
            parts.append(f"H{x2:.1f}")
            continue
        middle = (x1 + x2) / 2
        parts.append(f"C{middle:.1f} {y1:.1f} {middle:.1f} {y2:.1f} {x2:.1f} {y2:.1f}")
    return "".join(parts)


def _around(begin: tuple[float, float], end: tuple[float, float], bottom: float) -> str:
    """Return a path that leads back below everything."""
    (x1, y1), (x2, y2) = begin, end
    r = 8.0
    return (
        f"M{x1:.1f} {y1:.1f}h{r:.1f}q{r:.1f} 0 {r:.1f} {r:.1f}V{bottom - r:.1f}q0 {r:.1f} {-r:.1f} {r:.1f}"
        f"H{x2 - r:.1f}q{-r:.1f} 0 {-r:.1f} {-r:.1f}V{y2 + r:.1f}q0 {-r:.1f} {r:.1f} {-r:.1f}H{x2:.1f}"
    )


def _kind(operator: Operator, stream: str) -> str:
    """Return the class of an operator, and the stream that it shares, if any."""
    kind = "function" if operator.is_function else type(operator).__name__
    return f"{kind}, {stream}" if stream else kind


def _width(text: str, size: float) -> float:
    """Return about how wide a text is in a proportional font."""
    return size * sum(
        1.0 if unicodedata.east_asian_width(letter) in "WF" else 0.36 if letter in "iljtfrI.,:;'|! " else 0.62
        for letter in text
    )
