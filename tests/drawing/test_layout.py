"""The layout of graphs in layers."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from headrace.drawing.layout import Layout, lay_out, place
from tests.limits import examples


def layer_of(layout: Layout) -> dict[int, int]:
    return {vertex: number for number, layer in enumerate(layout.layers) for vertex in layer}


def test_edges_that_close_a_circle_are_left_out() -> None:
    layout = lay_out(3, [(0, 1), (1, 2), (2, 1), (1, 1)], {})
    assert layout.layers == [[0], [1], [2]]
    assert layout.paths == [[0, 1], [1, 2], [], []]


def test_edges_do_not_cross_where_they_need_not() -> None:
    layout = lay_out(4, [(0, 3), (1, 2)], {})
    place_of = {vertex: place for layer in layout.layers for place, vertex in enumerate(layer)}
    assert (place_of[0] < place_of[1]) == (place_of[3] < place_of[2])


@pytest.mark.parametrize("seed", range(examples(30)))
def test_random_graphs_keep_the_rules(seed: int) -> None:
    generator = random.Random(seed)
    count = generator.randint(1, 14)
    edges = [
        (generator.randrange(count), generator.randrange(count))
        for _ in range(generator.randint(0, 2 * count))
    ]
    layout = lay_out(count, edges, {})
    layers = layer_of(layout)
    assert sorted(vertex for layer in layout.layers for vertex in layer) == list(range(len(layers)))
    for (source, target), path in zip(edges, layout.paths, strict=True):
        if path:
            assert (path[0], path[-1]) == (source, target)
            assert all(layers[b] == layers[a] + 1 for a, b in pairwise(path))
    sizes = [generator.uniform(1, 50) for _ in range(len(layers))]
    centres = place(layout, sizes, 7)
    for layer in layout.layers:
        for a, b in pairwise(layer):
            assert centres[b] - sizes[b] / 2 - (centres[a] + sizes[a] / 2) >= 7 - 1e-6
    assert min(centre - size / 2 for centre, size in zip(centres, sizes, strict=True)) == pytest.approx(0)
