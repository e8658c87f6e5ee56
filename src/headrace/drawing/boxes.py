"""A graph as boxes and lines on a terminal, from top to bottom."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from headrace.drawing.layout import lay_out, number_operators, place
from headrace.drawing.svg import slices_of

if TYPE_CHECKING:
    from headrace.core.graph import Graph
    from headrace.drawing.layout import Segment

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


def draw_boxes(
    graph: Graph, segments: Sequence[Segment] = (), streams: Mapping[str, str] | None = None
) -> str:
    """Return `graph` drawn with boxes and lines; flows that lead back are listed below.

    `streams` has the names of streams that operators share. These are in their boxes, and so are the names of
    slices and of captured segments.
    """
    return _Drawing(graph, segments, streams or {}).draw()


class _Drawing:
    """The places of the boxes of a graph."""

    def __init__(self, graph: Graph, segments: Sequence[Segment], streams: Mapping[str, str]) -> None:
        self._names = [operator.name for operator in graph]
        slices = slices_of(graph)
        edges, groups = number_operators(graph, segments)
        # Several flows between two operators are one line; the ports are listed by the text style.
        self._edges = list(dict.fromkeys(edges))
        self._lines = [
            [name, *(each[name] for each in (slices, streams) if name in each)] for name in self._names
        ]
        for vertex, group in groups.items():
            self._lines[vertex].append(segments[group].label)
        layout = self._layout = lay_out(len(self._names), self._edges)
        self._widths = [self._width_of(vertex) for vertex in range(sum(map(len, layout.layers)))]
        centres = place(layout, [float(width) for width in self._widths], 3.0)
        self._left = [round(centre - width / 2) for centre, width in zip(centres, self._widths, strict=True)]
        self._canvas = _Canvas()

    def _is_box(self, vertex: int) -> bool:
        return vertex < len(self._names)

    def _width_of(self, vertex: int) -> int:
        """Return the width of a box, with room for the lines that begin or end there, or of a bend."""
        if not self._is_box(vertex):
            return 1
        most = max(len(self._layout.before.get(vertex, ())), len(self._layout.after.get(vertex, ())))
        width = max(max(map(_length, self._lines[vertex])) + 4, 4 * most + 1)
        return width + 1 - width % 2  # odd, so that there is a middle

    def draw(self) -> str:
        """Return the drawing."""
        layers = self._layout.layers
        y = 0
        for position, layer in enumerate(layers):
            bottoms = dict.fromkeys(layer, y)
            for vertex in filter(self._is_box, layer):
                bottoms[vertex] = y + len(self._lines[vertex]) + 1
                self._draw_box(vertex, y)
            if position + 1 < len(layers):
                y = self._draw_edges(position, bottoms)
        back = [
            f"{self._names[source]} leads back to {self._names[target]}"
            for (source, target), path in zip(self._edges, self._layout.paths, strict=True)
            if not path
        ]
        return "\n".join([self._canvas.text(), *back])

    def _draw_box(self, vertex: int, y: int) -> None:
        x, width, lines = self._left[vertex], self._widths[vertex], self._lines[vertex]
        self._canvas.rectangle(x, y, x + width - 1, y + len(lines) + 1)
        for number, line in enumerate(lines):
            self._canvas.write(x + 1 + (width - 2 - _length(line)) // 2, y + 1 + number, line)

    def _draw_edges(self, position: int, bottoms: dict[int, int]) -> int:
        """Draw the lines from one layer to the next, and return the upper edge of the next layer.

        `bottoms` has the rows in which they begin.
        """
        layer, following = self._layout.layers[position : position + 2]
        leaves = self._ends(layer, following, self._layout.after)
        enters = {
            (source, target): x
            for (target, source), x in self._ends(following, layer, self._layout.before).items()
        }
        tracks = _tracks({edge: (leaves[edge], enters[edge]) for edge in leaves})
        # From boxes that are not as high as others, and through bends, to the lower edge of the layer.
        first = max(bottoms.values()) + 2
        top = first + max(tracks.values(), default=-2) + 2
        for edge, begin in leaves.items():
            end = enters[edge]
            down = top - 1 if self._is_box(edge[1]) else top
            row = first + tracks.get(edge, 0)
            self._canvas.vertical(begin, bottoms[edge[0]], row if edge in tracks else down)
            if edge in tracks:
                self._canvas.horizontal(row, min(begin, end), max(begin, end))
                self._canvas.vertical(end, row, down)
            if self._is_box(edge[1]):
                self._canvas.write(end, down, "▼")
        return top

    def _ends(
        self, layer: list[int], others: list[int], neighbours: dict[int, list[int]]
    ) -> dict[tuple[int, int], int]:
        """Return the column in which each line between two layers meets the first of them."""
        found = {}
        for vertex in layer:
            near = sorted(neighbours.get(vertex, ()), key=others.index)
            columns = _spread(self._left[vertex], self._widths[vertex], len(near))
            found.update({(vertex, other): x for other, x in zip(near, columns, strict=True)})
        return found


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
