"""Executable graphs by the addresses of their frames: which graph is launched, and when it is changed."""

from __future__ import annotations

from typing import Any

import pytest

from headrace._runtime.compiled import is_compiled
from headrace.gpu.executables import Executables

pytestmark = pytest.mark.skipif(is_compiled(), reason="compiled code takes no copies that stand for others")


class Graph:
    """Stands for an executable graph: notes the addresses that it has at each launch."""

    def __init__(self) -> None:
        self.addresses: dict[int, int] = {}
        self.launched: list[tuple[int, ...]] = []
        self.changes = 0
        self.is_closed = False

    def launch(self, stream: Any) -> None:
        assert not self.is_closed
        self.launched.append(tuple(address for _, address in sorted(self.addresses.items())))

    def close(self) -> None:
        self.is_closed = True


class Definition:
    """Stands for a recorded graph: keeps the graphs that were made of it."""

    def __init__(self, most: int = 1000) -> None:
        self.made: list[Graph] = []
        self._most = most

    def instantiate(self, options: Any) -> Graph:
        if len(self.made) == self._most:
            raise RuntimeError("there is too little memory")
        self.made.append(Graph())
        return self.made[-1]


class Copy:
    """Stands for a copy at the border, by its number; a change of it may fail."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.fails = False

    def change(self, graph: Graph, outside: int) -> None:
        if self.fails:
            raise RuntimeError("refused by the driver")
        graph.addresses[self.number] = outside
        graph.changes += 1


class Stream:
    """Stands for the handle of a stream."""

    stream = None


def launch(executables: Any, *addresses: int) -> None:
    executables.launch(addresses, Stream())


def test_addresses_that_come_again_launch_the_same_graph_unchanged() -> None:
    definition = Definition()
    executables = Executables(definition, [Copy(0), Copy(1)])
    for _ in range(5):
        for place in range(3):
            launch(executables, place, place + 100)
    assert [graph.launched for graph in definition.made] == [[(place, place + 100)] * 5 for place in range(3)]
    assert [graph.changes for graph in definition.made] == [2, 2, 2]


def test_the_number_of_graphs_does_not_grow_with_that_of_addresses() -> None:
    counts = set()
    for frames in (100, 1000):
        definition = Definition()
        executables = Executables(definition, [Copy(0)])
        for address in range(frames):
            launch(executables, address)
        launched = [one for graph in definition.made for one in graph.launched]
        assert sorted(launched) == [(address,) for address in range(frames)]
        counts.add(len(definition.made))
    assert len(counts) == 1
    assert counts.pop() < 50


def test_addresses_of_before_make_room_for_those_that_come_again() -> None:
    """The first frames may be at many addresses that never come again."""
    definition = Definition()
    executables = Executables(definition, [Copy(0)])
    for address in range(1000):
        launch(executables, address)
    for _ in range(2):
        changes = sum(graph.changes for graph in definition.made)
        for address in range(2000, 2016):
            launch(executables, address)
    assert sum(graph.changes for graph in definition.made) == changes


def test_a_graph_whose_change_failed_stands_for_no_frame() -> None:
    definition = Definition(1)
    copies = [Copy(0), Copy(1)]
    executables = Executables(definition, copies)
    launch(executables, 1, 2)
    copies[1].fails = True
    with pytest.raises(RuntimeError, match="refused"):
        launch(executables, 3, 4)
    copies[1].fails = False
    launch(executables, 1, 2)
    launch(executables, 3, 4)
    assert [graph.launched for graph in definition.made] == [[(1, 2), (1, 2), (3, 4)]]
    executables.close()
    assert definition.made[0].is_closed


@pytest.mark.parametrize("most", [1, 2, 5])
def test_where_no_more_graphs_can_be_made_one_is_changed_and_stands_for_no_other_frame(most: int) -> None:
    """The one that is changed is launched for addresses that come again only after another change."""
    definition = Definition(most)
    executables = Executables(definition, [Copy(0), Copy(1)])
    frames = [(place, place + 100) for place in (*range(8), *range(8), 0, 7, 1, 6)]
    launched: list[tuple[int, ...]] = []
    for addresses in frames:
        before = [len(graph.launched) for graph in definition.made]
        launch(executables, *addresses)
        for number, graph in enumerate(definition.made):
            launched += graph.launched[before[number] if number < len(before) else 0 :]
    assert launched == frames
    assert len(definition.made) == most


@pytest.mark.parametrize("frames", [0, 1, 10, 100])
def test_every_graph_that_was_made_is_closed(frames: int) -> None:
    definition = Definition()
    executables = Executables(definition, [Copy(0)])
    for address in range(frames):
        launch(executables, address)
    executables.close()
    assert definition.made
    assert all(graph.is_closed for graph in definition.made)
