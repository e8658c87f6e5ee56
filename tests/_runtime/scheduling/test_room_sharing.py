"""The line in which producers wait for room in one queue: who comes first, and who may overtake."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from headrace._runtime.scheduling.engine import is_compiled
from headrace._runtime.scheduling.queue_state import RoomLine, RoomRequest, SharedRoom

pytestmark = pytest.mark.skipif(is_compiled(), reason="compiled, a line takes requests of nodes only")


class Messages(list[int]):
    """Stands in for a queue with so many places."""

    def __init__(self, limit: int, waiting: int) -> None:
        super().__init__(range(waiting))
        self.limit = limit


class Line:
    """A line of producers, by name, for a queue of four places."""

    def __init__(self, waiting: int, is_emptied: bool = False) -> None:
        self.queue = Messages(4, waiting)
        state: Any = SimpleNamespace(queue=self.queue, min_size=1, set_waiting=lambda waits: None)
        engine = SimpleNamespace(gate=SimpleNamespace(is_open=True))
        state.consumer = SimpleNamespace(blockers=0 if is_emptied else 1, evaluated=None, engine=engine)
        self.line = RoomLine(state)
        self.woken: list[str] = []

    def request(self, name: str, places: int, blockers: int = 0) -> Any:
        node: Any = SimpleNamespace(blockers=blockers, enqueue_if_ready=lambda: self.woken.append(name))
        request = RoomRequest(node)
        request.add("out", places, limit=4)
        return request

    def has_room(self, name: str, places: int) -> bool:
        return self.line.has_room(self.request(name, places))

    def add(self, name: str, places: int, blockers: int = 0) -> None:
        self.line.add(self.request(name, places, blockers))

    def promise(self) -> list[str]:
        self.line.promise()
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
    assert not line.has_room("smaller", 1)
    line.queue.clear()
    assert line.promise() == ["large", "small"]


def test_one_that_comes_later_leaves_the_room_to_those_who_wait() -> None:
    """Room was made that nobody was told of yet."""
    line = Line(waiting=4)
    line.add("first", 1)
    del line.queue[0]
    assert not line.has_room("later", 1)
    assert line.woken == ["first"]


def test_one_that_has_ended_is_promised_nothing() -> None:
    line = Line(waiting=3)
    line.add("ended", 1, blockers=1)
    line.add("second", 1)
    assert line.promise() == ["second"]
    assert line.line.promised == 1


@pytest.mark.parametrize("is_promised", [False, True])
def test_one_that_needs_no_room_any_more_leaves_its_room_to_others(is_promised: bool) -> None:
    line = Line(waiting=0 if is_promised else 4)
    request = line.request("ends", 4)
    line.line.state.requests = [request]
    line.line.add(request)
    assert line.promise() == (["ends"] if is_promised else [])
    line.line.forgo(request.node)
    assert request.node.blockers == 0
    line.queue.clear()
    assert line.has_room("other", 4)


def test_a_consumer_that_finds_no_room_itself_does_not_keep_others_from_overtaking() -> None:
    """It was about to empty its queue, and waits now."""
    before, behind = Line(waiting=2, is_emptied=True), Line(waiting=4)
    before.add("large", 3)
    before.add("small", 1)
    assert before.promise() == []
    consumer: Any = SimpleNamespace(node=before.line.state.consumer, places=1, line=behind.line)
    consumer.is_promised = consumer.running = False
    room = SharedRoom()
    room.requests, room.emptied = [consumer], [before.line]
    assert not room.reserve()
    assert not consumer.node.busy
    assert before.woken == ["small"]
