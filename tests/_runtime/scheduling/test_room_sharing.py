"""The line in which producers wait for room in one queue: who comes first, and who may overtake."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from headrace._runtime.compiled import is_compiled
from headrace._runtime.scheduling.room_sharing import RoomLine

pytestmark = pytest.mark.skipif(is_compiled(), reason="compiled, a line takes claims of nodes only")


class Messages(list[int]):
    """Stands in for a queue with so many places."""

    def __init__(self, limit: int, waiting: int, is_emptied: bool) -> None:
        super().__init__(range(waiting))
        self.limit = limit
        self.min_size = 1
        self.consumer = SimpleNamespace(blockers=0 if is_emptied else 1, evaluated=None)
        self.gate = SimpleNamespace(close=lambda is_closed: None)


class Line:
    """A line of producers, by name, for a queue of four places."""

    def __init__(self, waiting: int, is_emptied: bool = False) -> None:
        self.queue = Messages(4, waiting, is_emptied)
        self.line = RoomLine(self.queue)  # type: ignore[arg-type]
        self.woken: list[str] = []
        self.engine: Any = SimpleNamespace(
            pausing=SimpleNamespace(is_paused=False),
            enqueue_if_ready=lambda node: self.woken.append(node.name),
        )

    def claim(self, name: str, places: int, blockers: int = 0) -> Any:
        node = SimpleNamespace(name=name, blockers=blockers)
        return SimpleNamespace(node=node, places=places, is_promised=False)

    def add(self, name: str, places: int, blockers: int = 0) -> None:
        self.line.add(self.claim(name, places, blockers))

    def promise(self) -> list[str]:
        self.line.promise(self.engine)
        return self.woken


def test_room_goes_to_those_who_came_first_whatever_they_need() -> None:
    line = Line(waiting=0)
    for name, places in (("first", 1), ("second", 2), ("third", 1), ("fourth", 1)):
        line.add(name, places)
    assert line.promise() == ["first", "second", "third"]


def test_one_that_needs_less_overtakes_one_that_there_is_no_room_for() -> None:
    line = Line(waiting=2)
    for name, places in (("large", 3), ("small", 1), ("smaller", 1), ("smallest", 1)):
        line.add(name, places)
    assert line.promise() == ["small", "smaller"]


def test_nobody_overtakes_while_the_queue_is_about_to_be_emptied() -> None:
    line = Line(waiting=2, is_emptied=True)
    line.add("large", 3)
    line.add("small", 1)
    assert line.promise() == []
    assert not line.line.has_room(line.engine, line.claim("smaller", 1))
    line.queue.clear()
    assert line.promise() == ["large", "small"]


def test_one_that_comes_later_leaves_the_room_to_those_who_wait() -> None:
    """Room was made that nobody was told of yet."""
    line = Line(waiting=4)
    line.add("first", 1)
    del line.queue[0]
    assert not line.line.has_room(line.engine, line.claim("later", 1))
    assert line.woken == ["first"]


def test_one_that_has_ended_is_promised_nothing() -> None:
    line = Line(waiting=3)
    line.add("ended", 1, blockers=1)
    line.add("second", 1)
    assert line.promise() == ["second"]
    assert line.line.promised == 1
