"""A graph as boxes and lines on a terminal, from top to bottom."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.drawing.layout import Layout, lay_out, place
from headrace.drawing.svg import slices_of

if TYPE_CHECKING:
    from headrace.core.graph import Graph
    from headrace.core.segment_protocol import Segment

# The directions in which a line leaves a cell, and the letter for each combination.
_UP, _DOWN, _LEFT, _RIGHT = 1, 2, 4, 8
_LETTERS = " ╵╷│╴┘┐┤╶└┌├─┴┬┼"


class _Canvas:
    """Cells of text and of lines."""

    def __init__(self) -> None:
        self.lines: dict[tuple[int, int], int] = {}
        self.texts: dict[tuple[int, int], str] = {}

    def vertical(self, x: int, top: int, bottom: int) -> None:
        for y in range(top, bottom + 1):
            self._add(x, y, (_UP if y > top else 0) | (_DOWN if y < bottom else 0))

    def horizontal(self, y: int, left: int, right: int) -> None:
        for x in range(left, right + 1):
            self._add(x, y, (_LEFT if x > left else 0) | (_RIGHT if x < right else 0))

    def rectangle(self, left: int, top: int, right: int, bottom: int) -> None:
        for y in (top, bottom):
            self.horizontal(y, left, right)
        for x in (left, right):
            self.vertical(x, top, bottom)

    def write(self, x: int, y: int, text: str) -> None:
        for letter in text:
            self.texts[x, y] = letter
            x += _cells(letter)

    def _add(self, x: int, y: int, directions: int) -> None:
        self.lines[x, y] = self.lines.get((x, y), 0) | directions

    def text(self) -> str:
        cells = [*self.lines, *self.texts]
        rows = []
        for y in range(max((y for _, y in cells), default=-1) + 1):
            row, x = "", 0
            last = max((x for x, at in cells if at == y), default=-1)
            while x <= last:
                letter = self.texts.get((x, y)) or _LETTERS[self.lines.get((x, y), 0)]
                row += letter
                x += _cells(letter)
            rows.append(row.rstrip())
        return "\n".join(rows)


def draw_boxes(graph: Graph, segments: Sequence[Segment] = ()) -> str:
    """Return `graph` drawn with boxes and lines; flows that lead back are listed below.

    A captured segment has a frame. If the frame would be around other boxes, too, the boxes of the segment have its
    name in them instead.
    """
    framed = dict(enumerate(segments))
    while True:
        text, wrong = _draw(graph, segments, framed)
        if not wrong:
            return text
        for number in wrong:
            del framed[number]


def _draw(graph: Graph, segments: Sequence[Segment], framed: dict[int, Segment]) -> tuple[str, list[int]]:
    """Return the drawing with some of the frames, and those of them that are around other boxes."""
    operators = list(graph)
    slices = slices_of(graph)
    named = {
        operator.name: segment.label
        for number, segment in enumerate(segments)
        if number not in framed
        for operator in segment.operators
    }
    contents = [
        [operator.name, *(texts[operator.name] for texts in (slices, named) if operator.name in texts)]
        for operator in operators
    ]
    number = {operator.name: position for position, operator in enumerate(operators)}
    # Several flows between two operators are one line; the ports are listed by the text style.
    pairs = list(dict.fromkeys((number[flow.source.name], number[flow.target.name]) for flow in graph.flows))
    groups = {number[op.name]: group for group, segment in framed.items() for op in segment.operators}
    layout = lay_out(len(operators), pairs, groups)
    widths = _widths(contents, pairs, layout)
    centres = place(layout, _sizes(layout, widths, framed), 3.0)
    left = [round(centre - width / 2) for centre, width in zip(centres, widths, strict=True)]
    frames = {group: _Frame(layout, group, segment.label, left, widths) for group, segment in framed.items()}
    wrong = [group for group, frame in frames.items() if frame.encloses_others(layout, left, widths)]
    if wrong:
        return "", wrong
    # So many rows are needed for frames that begin above a layer, or end below it.
    above = [
        2 * any(frame.first == layer for frame in frames.values()) for layer in range(len(layout.layers))
    ]
    below = [
        int(any(frame.last == layer for frame in frames.values())) for layer in range(len(layout.layers))
    ]
    canvas = _Canvas()
    y = above[0] if above else 0
    for position, layer in enumerate(layout.layers):
        height = max((len(contents[v]) + 2 for v in layer if v < len(operators)), default=0)
        for vertex in layer:
            if vertex < len(operators):
                _draw_box(canvas, left[vertex], y, widths[vertex], contents[vertex])
        lower = y + height - 1
        for frame in frames.values():
            frame.note(position, y, lower)
        # Down to the lower edge of the layer, from boxes that are not as high as others, and through bends.
        bottoms = {v: y + len(contents[v]) + 1 if v < len(operators) else y for v in layer}
        if position + 1 < len(layout.layers):
            boxes = range(len(operators))
            lower += below[position]
            room = above[position + 1] // 2
            y = _draw_edges(canvas, layout, position, left, widths, boxes, bottoms, lower, room)
    for frame in frames.values():
        frame.draw(canvas)
    text = canvas.text()
    back = [
        f"{operators[source].name} leads back to {operators[target].name}"
        for (source, target), path in zip(pairs, layout.paths, strict=True)
        if not path
    ]
    return "\n".join([text, *back]), []


class _Frame:
    """The frame of a segment: a rectangle of lines with the name of the segment in the upper one.

    Attributes
    ----------
    first, last
        The first and the last layer of its boxes.
    """

    def __init__(self, layout: Layout, group: int, label: str, left: list[int], widths: list[int]) -> None:
        self._group = group
        self._label = label
        layers = layout.layers_of(group)
        vertices = [vertex for _, each in layers for vertex in each]
        self.first, self.last = layers[0][0], layers[-1][0]
        self._left = min(left[vertex] for vertex in vertices) - 2
        self._right = max(left[vertex] + widths[vertex] for vertex in vertices) + 1
        missing = _frame_width(label) - (self._right - self._left + 1)
        if missing > 0:
            self._left -= (missing + 1) // 2
            self._right += (missing + 1) // 2
        self._top = self._bottom = 0

    def encloses_others(self, layout: Layout, left: list[int], widths: list[int]) -> bool:
        """Return whether a box or a line of others is inside, or is touched."""
        return any(
            layout.groups.get(vertex) != self._group
            and left[vertex] <= self._right + 1
            and left[vertex] + widths[vertex] >= self._left
            for layer in layout.layers[self.first : self.last + 1]
            for vertex in layer
        )

    def note(self, layer: int, upper: int, lower: int) -> None:
        """Note the rows of a layer."""
        if layer == self.first:
            self._top = upper - 2
        if layer == self.last:
            self._bottom = lower + 1

    def draw(self, canvas: _Canvas) -> None:
        """Draw the frame around everything else that is drawn."""
        crossed = [
            x
            for x in range(self._left, self._right + 1)
            if canvas.lines.get((x, self._top), 0) & (_UP | _DOWN)
        ]
        canvas.rectangle(self._left, self._top, self._right, self._bottom)
        label = f" {self._label} "
        room = range(self._left + 2, self._right - _length(label))
        free = [x for x in room if not any(x <= line < x + _length(label) for line in crossed)]
        canvas.write((free or list(room))[0], self._top, label)


def _frame_width(label: str) -> int:
    """Return the least width of a frame, so that its label has room beside a line in the middle."""
    return 2 * (_length(label) + 5) + 1


def _sizes(layout: Layout, widths: list[int], framed: dict[int, Segment]) -> list[float]:
    """Return the extent of each vertex across its layer, with the room for frames."""
    sizes = [float(width) for width in widths]
    for group, segment in framed.items():
        for _, vertices in layout.layers_of(group):
            least = _frame_width(segment.label) / len(vertices)
            for vertex in vertices:
                sizes[vertex] = max(sizes[vertex] + 6, least + 4)
    return sizes


def _widths(contents: list[list[str]], pairs: list[tuple[int, int]], layout: Layout) -> list[int]:
    """Return the width of each box, with room for the lines that begin or end there, and of each bend."""
    widths = []
    for vertex, lines in enumerate(contents):
        most = max(len(layout.before.get(vertex, ())), len(layout.after.get(vertex, ())))
        width = max(max(map(_length, lines)) + 4, 4 * most + 1)
        widths.append(width + 1 - width % 2)  # odd, so that there is a middle
    return widths + [1] * (sum(map(len, layout.layers)) - len(contents))


def _draw_box(canvas: _Canvas, x: int, y: int, width: int, lines: list[str]) -> None:
    canvas.rectangle(x, y, x + width - 1, y + len(lines) + 1)
    for number, line in enumerate(lines):
        canvas.write(x + 1 + (width - 2 - _length(line)) // 2, y + 1 + number, line)


def _draw_edges(
    canvas: _Canvas,
    layout: Layout,
    position: int,
    left: list[int],
    widths: list[int],
    boxes: range,
    bottoms: dict[int, int],
    lower: int,
    room: int,
) -> int:
    """Draw the lines from one layer to the next, and return the upper edge of the next layer.

    `room` is the number of rows to leave for frames.
    """
    layer, following = layout.layers[position], layout.layers[position + 1]
    order = {vertex: place for place, vertex in enumerate((*layer, *following))}
    leaves: dict[tuple[int, int], int] = {}
    enters: dict[tuple[int, int], int] = {}
    for vertex in layer:
        targets = sorted(layout.after.get(vertex, ()), key=order.__getitem__)
        for place_, target in zip(_spread(left[vertex], widths[vertex], len(targets)), targets, strict=True):
            leaves[vertex, target] = place_
    for vertex in following:
        sources = sorted(layout.before.get(vertex, ()), key=order.__getitem__)
        for place_, source in zip(_spread(left[vertex], widths[vertex], len(sources)), sources, strict=True):
            enters[source, vertex] = place_
    tracks = _tracks({edge: (leaves[edge], enters[edge]) for edge in leaves})
    first = lower + 2
    top = first + max(tracks.values(), default=-2) + 2 + room
    for edge, begin in leaves.items():
        end = enters[edge]
        is_bend = edge[1] not in boxes
        down = top if is_bend else top - 1
        if edge not in tracks:
            canvas.vertical(begin, bottoms[edge[0]], down)
        else:
            row = first + tracks[edge]
            canvas.vertical(begin, bottoms[edge[0]], row)
            canvas.horizontal(row, min(begin, end), max(begin, end))
            canvas.vertical(end, row, down)
        if not is_bend:
            canvas.write(end, down, "▼")
    return top


def _tracks(edges: dict[tuple[int, int], tuple[int, int]]) -> dict[tuple[int, int], int]:
    """Return the row of each edge that is not straight: edges in one row do not touch.

    If one edge begins in the column in which another ends, the first is in the row above, so that they do not
    overlap.
    """
    tracks: dict[tuple[int, int], int] = {}
    bent = {edge: ends for edge, ends in edges.items() if ends[0] != ends[1]}
    # Lines to the right begin with the rightmost, lines to the left with the leftmost: so they cross least.
    queue = sorted(bent, key=lambda edge: -bent[edge][0] if bent[edge][1] > bent[edge][0] else bent[edge][0])
    while queue:
        ready = [
            edge
            for edge in queue
            if not any(bent[other][0] == bent[edge][1] for other in queue if other != edge)
        ]
        edge = (ready or queue)[0]
        queue.remove(edge)
        low, high = sorted(bent[edge])
        row = max((tracks[other] + 1 for other in tracks if bent[other][0] == bent[edge][1]), default=0)
        while any(
            at == row and not (high < min(bent[other]) or max(bent[other]) < low)
            for other, at in tracks.items()
        ):
            row += 1
        tracks[edge] = row
    return tracks


def _spread(left: int, width: int, count: int) -> list[int]:
    """Return the columns of `count` lines at one edge of a box, around its middle."""
    middle, step = left + width // 2, min(4, max((width - 2) // max(count, 1), 1))
    return [middle + round((number - (count - 1) / 2) * step) for number in range(count)]


def _length(text: str) -> int:
    return sum(map(_cells, text))


def _cells(letter: str) -> int:
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1
