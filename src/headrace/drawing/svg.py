"""A graph as an SVG picture: operators as boxes with their ports, flows as curves, slices of the GPU as colours.

The picture needs no other program and no font of its own. It follows the reader's choice of light or dark
(``prefers-color-scheme``), with plain rules instead of CSS variables, which converters do not know.
"""

from __future__ import annotations

import itertools
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING

from headrace._runtime import slice_of
from headrace.core.queues import queues_of
from headrace.drawing.layout import lay_out, place

if TYPE_CHECKING:
    from headrace.core.graph import Graph
    from headrace.core.operator import Operator
    from headrace.core.segment_protocol import Segment

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
_STYLE = """\
text{font-family:ui-sans-serif,system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;fill:#1b1f24}
.paper{fill:#ffffff}.box{fill:#f6f8fa;stroke:#8c959f}.name{font-size:13px;font-weight:600}
.small{font-size:11px}.muted{font-size:11px;fill:#59636e}.flow{fill:none;stroke:#59636e;stroke-width:1.5}
.tip{fill:#59636e}.dot{fill:#ffffff;stroke:#59636e}.rule{stroke:#8c959f;stroke-opacity:.45}
.frame{fill:#0969da;fill-opacity:.05;stroke:#0969da;stroke-dasharray:5 4;stroke-linejoin:round}
@media(prefers-color-scheme:dark){
text{fill:#e6edf3}.paper{fill:#0d1117}.box{fill:#161b22;stroke:#6e7681}.muted{fill:#9198a1}
.flow{stroke:#9198a1}.tip{fill:#9198a1}.dot{fill:#0d1117;stroke:#9198a1}
.frame{fill:#4493f8;fill-opacity:.08;stroke:#4493f8}}
"""


@dataclass(slots=True)
class _Box:
    """The box of one operator."""

    operator: Operator
    inputs: list[str]
    outputs: list[str]
    labels: dict[str, str]
    width: float = 0.0
    height: float = 0.0
    x: float = 0.0
    y: float = 0.0
    slice: str = ""
    colour: str = ""
    places: dict[tuple[str, str], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rows = max(len(self.inputs), len(self.outputs))
        self.height = _HEAD + rows * _LINE + (_PAD / 2 if rows else 0)
        labels = [self.labels[name] for name in self.inputs]
        pairs = itertools.zip_longest(labels, self.outputs, fillvalue="")
        ports = [sum(_width(text, _SMALL) for text in pair) for pair in pairs]
        head = max(
            _width(self.operator.name, _EM) * 1.06, _width(_kind(self.operator), _SMALL)
        )  # bold is wider
        self.width = max(head, *(width + 2 * _PAD for width in ports), 60.0) + 2 * _PAD

    def port(self, side: str, name: str) -> tuple[float, float]:
        """Return the place of a port: ``"in"`` on the left or ``"out"`` on the right."""
        names = self.inputs if side == "in" else self.outputs
        y = self.y + _HEAD + (names.index(name) + 0.5) * _LINE
        return (self.x if side == "in" else self.x + self.width), y


def draw_svg(graph: Graph, title: str = "pipeline", segments: Sequence[Segment] = ()) -> str:
    """Return `graph` as the text of an SVG file, with a frame around each captured segment."""
    boxes = [
        _Box(
            operator,
            list(operator.spec.inputs),
            [] if operator.never_emits else list(operator.spec.outputs),
            {name: f"{name} {queue_label(operator, name)}".rstrip() for name in operator.spec.inputs},
        )
        for operator in graph
    ]
    slices = slices_of(graph)
    colours = {text: _COLOURS[n % len(_COLOURS)] for n, text in enumerate(dict.fromkeys(slices.values()))}
    for box in boxes:
        box.slice = slices.get(box.operator.name, "")
        box.colour = colours.get(box.slice, "")
    number = {box.operator.name: position for position, box in enumerate(boxes)}
    edges = [(number[flow.source.name], number[flow.target.name]) for flow in graph.flows]
    groups = {number[op.name]: group for group, segment in enumerate(segments) for op in segment.operators}
    layout = lay_out(len(boxes), edges, groups)

    # Bends are a little higher than a line, so that a flow keeps away from the boxes that it passes.
    sizes = [box.height for box in boxes] + [_LINE] * (sum(map(len, layout.layers)) - len(boxes))
    # A frame takes room above and below.
    sizes = [size + (_FRAME if vertex in layout.groups else 0) for vertex, size in enumerate(sizes)]
    centres = place(layout, sizes, _GAP_Y)
    bends: dict[int, tuple[float, float, float]] = {}  # left, right and height of each
    extents: dict[int, tuple[float, float]] = {}  # the upper and lower edge of each vertex
    columns: list[tuple[float, float]] = []
    x = _MARGIN
    for layer in layout.layers:
        width = max((boxes[v].width for v in layer if v < len(boxes)), default=0.0)
        for vertex in layer:
            if vertex < len(boxes):
                box = boxes[vertex]
                box.x = x + (width - box.width) / 2
                box.y = _MARGIN + centres[vertex] - box.height / 2
                extents[vertex] = box.y, box.y + box.height
            else:
                y = _MARGIN + centres[vertex]
                bends[vertex] = x, x + width, y
                extents[vertex] = y - _LINE / 2, y + _LINE / 2
        columns.append((x, x + width))
        x += width + _GAP_X
    right = x - _GAP_X + _MARGIN if boxes else 2 * _MARGIN
    bottom = max((box.y + box.height for box in boxes), default=0.0)
    bottom = max([bottom, *(y for _, _, y in bends.values())])

    parts: list[str] = []
    for group, segment in enumerate(segments):
        framed = [
            (*columns[layer], min(extents[v][0] for v in vertices), max(extents[v][1] for v in vertices))
            for layer, vertices in layout.layers_of(group)
        ]
        parts.append(_frame(segment, framed))
        bottom = max(bottom, *(lower + _BELOW for _, _, _, lower in framed))
    for flow, (source, target), path in zip(graph.flows, edges, layout.paths, strict=True):
        begin = boxes[source].port("out", flow.output)
        end = boxes[target].port("in", flow.input)
        if path:
            points = [begin]
            for vertex in path[1:-1]:
                left, far, y = bends[vertex]
                points += [(left, y), (far, y)]
            line = _curve([*points, (end[0] - 7, end[1])])
        else:
            bottom += 18
            line = _around(begin, (end[0] - 7, end[1]), bottom)
        # The tip belongs to the curve, so that both are hidden under nothing.
        parts.append(f'<path class="flow" d="{line}"><title>{escape(str(flow))}</title></path>')
        parts.append(
            f'<path class="tip" d="M{end[0]:.1f} {end[1]:.1f}l-8 -4v8z"/>'  # an arrow without a marker
        )
    parts += [_box(box) for box in boxes]
    if colours:
        bottom += 20
        x = _MARGIN
        for text, colour in colours.items():
            parts.append(
                f'<rect x="{x:.1f}" y="{bottom:.1f}" width="12" height="12" rx="3" fill="{colour}" '
                f'fill-opacity=".35" stroke="{colour}"/>'
                f'<text class="small" x="{x + 18:.1f}" y="{bottom + 10:.1f}">{escape(text)}</text>'
            )
            x += _width(text, _SMALL) + 42
        right = max(right, x)
        bottom += 12
    if graph.flows:
        bottom += 24
        text = "[4 pop]: an input's queue holds 4 messages, and drops the oldest when it is full"
        parts.append(f'<text class="muted" x="{_MARGIN:.1f}" y="{bottom:.1f}">{text}</text>')
        right = max(right, _width(text, _SMALL) + 2 * _MARGIN)
    height = bottom + _MARGIN
    return "\n".join(
        [
            (
                f'<svg xmlns="http://www.w3.org/2000/svg" width="{right:.0f}" height="{height:.0f}" '
                f'viewBox="0 0 {right:.0f} {height:.0f}" role="img">'
            ),
            f"<title>{escape(title)}</title>",
            f"<style>\n{_STYLE}</style>",
            '<rect class="paper" width="100%" height="100%"/>',
            *parts,
            "</svg>",
            "",
        ]
    )


def _frame(segment: Segment, extents: list[tuple[float, float, float, float]]) -> str:
    """Return the frame of a segment, given the left, right, top and bottom of its boxes in each of its columns.

    In each column it is as high as the boxes there, so that it is around no other box.
    """
    upper: list[str] = []
    lower: list[str] = []
    for number, (left, right, top, bottom) in enumerate(extents):
        left = left - _BESIDE if not number else (extents[number - 1][1] + left) / 2
        right = right + _BESIDE if number + 1 == len(extents) else (right + extents[number + 1][0]) / 2
        upper += [f"{left:.1f} {top - _ABOVE:.1f}", f"{right:.1f} {top - _ABOVE:.1f}"]
        lower += [f"{left:.1f} {bottom + _BELOW:.1f}", f"{right:.1f} {bottom + _BELOW:.1f}"]
    x, _, y, _ = extents[0]
    told = f": {segment.reason}" if segment.reason else ""
    return (
        f"<g><title>segment {escape(segment.label)}{escape(told)}</title>"
        f'<path class="frame" d="M{"L".join([*upper, *reversed(lower)])}z"/>'
        f'<text class="small" x="{x - _BESIDE + 8:.1f}" y="{y - _ABOVE + 14:.1f}">{escape(segment.label)}</text>'
        "</g>"
    )


def slices_of(graph: Graph) -> dict[str, str]:
    """Return the slice of the device of each operator that has one, as text: ``"vision: 16 SMs"``."""
    shares = {operator.name: slice_of(operator) for operator in graph}
    return {name: str(share) for name, share in shares.items() if share is not None}


def queue_label(operator: Operator, port: str) -> str:
    """Return the size of an input's queue, and its policy if it drops: ``"[4 pop]"``."""
    queues = queues_of(operator, operator.spec.inputs[port])
    if not queues:
        return "[0]"
    policy = "" if queues[0].policy.name == "FAULT" else f" {queues[0].policy.name.lower()}"
    number = f"{len(queues)}×" if operator.spec.inputs[port].is_receivers else ""
    return f"[{number}{queues[0].size}{policy}]"


def _box(box: _Box) -> str:
    operator = box.operator
    middle = box.x + box.width / 2
    tint = f' style="fill:{box.colour};fill-opacity:.16;stroke:{box.colour}"' if box.colour else ""
    lines = [
        f"<g><title>{escape(operator.name)}: {escape(_kind(operator))}"
        + (f", {escape(box.slice)}" if box.slice else "")
        + "</title>",
        # Opaque below the tint, so that no flow shines through.
        (
            f'<rect class="box" x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" '
            f'height="{box.height:.1f}" rx="7"/>'
        ),
        f'<rect x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" '
        f'rx="7"{tint}/>'
        if tint
        else "",
        (
            f'<text class="name" text-anchor="middle" x="{middle:.1f}" y="{box.y + 17:.1f}">'
            f"{escape(operator.name)}</text>"
        ),
        (
            f'<text class="muted" text-anchor="middle" x="{middle:.1f}" y="{box.y + 31:.1f}">'
            f"{escape(_kind(operator))}</text>"
        ),
    ]
    if box.inputs or box.outputs:
        y = box.y + _HEAD - 2
        lines.append(
            f'<path class="rule" d="M{box.x + 1:.1f} {y:.1f}h{box.width - 2:.1f}" stroke-width="1"/>'
        )
    for name in box.inputs:
        x, y = box.port("in", name)
        label = box.labels[name].removeprefix(name)
        lines.append(
            f'<text class="small" x="{x + _PAD:.1f}" y="{y + 4:.1f}">{escape(name)}'
            f'<tspan class="muted">{escape(label)}</tspan></text>'
        )
    for name in box.outputs:
        x, y = box.port("out", name)
        lines.append(f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="3"/>')
        lines.append(
            f'<text class="small" text-anchor="end" x="{x - _PAD:.1f}" y="{y + 4:.1f}">{escape(name)}</text>'
        )
    return "\n".join(line for line in [*lines, "</g>"] if line)


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


def _kind(operator: Operator) -> str:
    return "function" if operator.is_function else type(operator).__name__


def _width(text: str, size: float) -> float:
    """Return about how wide a text is in a proportional font."""
    return size * sum(
        1.0 if unicodedata.east_asian_width(letter) in "WF" else 0.36 if letter in "iljtfrI.,:;'|! " else 0.62
        for letter in text
    )
