"""A graph as boxes and lines on a terminal, from top to bottom."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

from penstock.core.layout import Layout, lay_out, place
from penstock.core.svg_drawing import slices_of

if TYPE_CHECKING:
    from penstock.core.graph import Graph

__all__ = ["draw_boxes"]

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


def draw_boxes(graph: Graph) -> str:
    """Return `graph` drawn with boxes and lines; flows that lead back are listed below."""
    operators = list(graph)
    slices = slices_of(graph)
    contents = [
        [operator.name, *([slices[operator.name]] if operator.name in slices else [])]
        for operator in operators
    ]
    number = {operator.name: position for position, operator in enumerate(operators)}
    # Several flows between two operators are one line; the ports are listed by the text style.
    pairs = list(dict.fromkeys((number[flow.source.name], number[flow.target.name]) for flow in graph.flows))
    layout = lay_out(len(operators), pairs)
    widths = _widths(contents, pairs, layout)
    centres = place(layout, [float(width) for width in widths], 3.0)
    left = [round(centre - width / 2) for centre, width in zip(centres, widths, strict=True)]
    canvas = _Canvas()
    y = 0
    for position, layer in enumerate(layout.layers):
        height = max((len(contents[v]) + 2 for v in layer if v < len(operators)), default=0)
        for vertex in layer:
            if vertex < len(operators):
                _draw_box(canvas, left[vertex], y, widths[vertex], contents[vertex])
        # Down to the lower edge of the layer, from boxes that are not as high as others, and through bends.
        bottoms = {v: y + len(contents[v]) + 1 if v < len(operators) else y for v in layer}
        if position + 1 < len(layout.layers):
            y = _draw_edges(
                canvas, layout, position, left, widths, range(len(operators)), bottoms, y + height - 1
            )
    text = canvas.text()
    back = [
        f"{operators[source].name} leads back to {operators[target].name}"
        for (source, target), path in zip(pairs, layout.paths, strict=True)
        if not path
    ]
    return "\n".join([text, *back])


def _widths(contents: list[list[str]], pairs: list[tuple[int, int]], layout: Layout) -> list[int]:
    """Return the width of each box, with room for the lines that begin or end there, and of each bend."""
    widths = []
    for vertex, lines in enumerate(contents):
        most = max(len(layout.before.get(vertex, ())), len(layout.after.get(vertex, ())))
        width = max(max(map(_length, lines)) + 4, 4 * most + 1)
        widths.append(width + 1 - width % 2)  # odd, so that there is a middle
    return widths + [1] * (sum(map(len, layout.layers)) - len(contents))


def _draw_box(canvas: _Canvas, x: int, y: int, width: int, lines: list[str]) -> None:
    right, bottom = x + width - 1, y + len(lines) + 1
    canvas.horizontal(y, x, right)
    canvas.horizontal(bottom, x, right)
    canvas.vertical(x, y, bottom)
    canvas.vertical(right, y, bottom)
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
) -> int:
    """Draw the lines from one layer to the next, and return the upper edge of the next layer."""
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
    top = first + max(tracks.values(), default=-2) + 2
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
