"""Calls: what the driver asks the parts and sets there, and what their answers are."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.core import Progress
from headrace.core.errors import Failure
from headrace.parts.calls import Calls
from headrace.parts.messages import Call, Reply
from headrace.parts.outcomes import PartProgress, ProgressOfParts
from tests.harness import PATIENCE

OPERATOR: Any = SimpleNamespace(name="scale", fragment=SimpleNamespace(name="server"))


class Loop:
    """Calls of other threads, and what the loop of the driver is given of them."""

    def __init__(self) -> None:
        self.woken = threading.Semaphore(0)
        self.calls = Calls(self.woken.release)
        self._pool = ThreadPoolExecutor()

    def call(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Let another thread call something that wakes the loop."""
        future = self._pool.submit(function, *arguments)
        assert self.woken.acquire(timeout=PATIENCE)
        return future

    def set(self, value: int, method: str = "set_live") -> Future[None]:
        """Let another thread set a value, and send it to the part."""
        return self.call(self.calls.set_value, OPERATOR, method, "gain", value)

    def take(self, *alive: str) -> list[Call]:
        return [call for _, call in self.calls.take(alive)]

    def sent_again(self) -> list[int]:
        return [call.number for call in self.calls.values_of("server")]


@pytest.fixture
def loop() -> Iterator[Loop]:
    made = Loop()
    yield made
    made.calls.close()
    made._pool.shutdown()


def test_whoever_sets_a_value_while_its_part_is_started_again_has_an_answer_of_the_new_process(
    loop: Loop,
) -> None:
    set_by = [loop.set(number) for number in (1, 2, 3)]
    assert loop.sent_again() == []  # they are sent next
    assert [call.number for call in loop.take("server")] == [1, 2, 3]
    loop.calls.leave("server", is_over=False)
    assert loop.sent_again() == [1, 2, 3]
    for number in loop.sent_again():
        loop.calls.answer(Reply(number))
    assert [each.result(PATIENCE) for each in set_by] == [None] * 3
    assert loop.sent_again() == [3]


def test_a_refused_value_leaves_the_accepted_one_before_it(loop: Loop) -> None:
    set_by = [loop.set(number) for number in (1, 2)]
    loop.take("server")
    loop.calls.answer(Reply(1))
    assert loop.sent_again() == [1, 2]  # the second may be refused by the new process
    loop.calls.answer(Reply(2, Failure.of(ValueError("too large"))))
    with pytest.raises(ValueError, match="too large"):
        set_by[1].result(PATIENCE)
    loop.calls.answer(Reply(1))  # the new process has it
    assert loop.sent_again() == [1]
    loop.set(7, "set_knob")
    loop.take("server")
    loop.calls.answer(Reply(3))
    assert loop.sent_again() == [1, 3]


def test_a_part_that_is_started_again_pauses_if_the_run_is_paused_now(loop: Loop) -> None:
    """A pause that was ended may be answered after what came later."""
    paused = [loop.calls.call("server", "pause", is_paused) for is_paused in (True, False)]
    loop.take("server")
    loop.calls.answer(Reply(2))
    assert loop.sent_again() == [1, 2]
    loop.calls.answer(Reply(1))
    assert loop.sent_again() == [2]
    assert [answer.result(PATIENCE) for answer in paused] == [None] * 2
    loop.calls.call("server", "drain")
    assert loop.take() == []  # it has no links
    assert loop.sent_again() == [2, 3]


def test_a_value_for_a_part_without_links_is_sent_when_it_has_them(loop: Loop) -> None:
    set_by = loop.set(1)
    assert loop.take("another") == []
    assert loop.sent_again() == [1]
    loop.calls.leave("server", is_over=True)  # it will not compute again
    assert set_by.result(PATIENCE) is None


def part(**computes: int) -> PartProgress:
    names = {name.replace("_", "."): count for name, count in computes.items()}
    return PartProgress(Progress("Plant", True, names, waiting={"server.detector.in": 1}))


def progress_of(loop: Loop, *alive: str) -> ProgressOfParts:
    application: Any = SimpleNamespace(name="Plant", graph=())
    found = ProgressOfParts(application, (), lambda: alive)
    found.calls = loop.calls
    return found


def test_progress_waits_for_the_answers_of_all_parts_that_are_there(loop: Loop) -> None:
    progress = progress_of(loop, "edge", "server")
    found = loop.call(progress.find)
    assert loop.woken.acquire(timeout=PATIENCE)
    edge, server = loop.take("edge", "server")
    assert (edge.method, server.method) == ("progress", "progress")
    loop.calls.answer(Reply(edge.number, part(edge_camera=3)))
    assert not found.done()
    progress.leave("server", part(server_detector=9))
    loop.calls.leave("server", is_over=True)
    said = found.result(PATIENCE)
    assert said.computes == {"edge.camera": 3, "server.detector": 9}
    assert said.is_running


def test_progress_of_a_run_that_ends_waits_for_nobody(loop: Loop) -> None:
    progress = progress_of(loop, "edge")
    found = loop.call(progress.find)
    assert loop.take() == []  # the part has gone meanwhile
    assert found.result(PATIENCE).computes == {}
    assert progress_of(loop, "edge").find().computes == {}  # on the thread of the loop
    progress.calls = None
    loop.calls.close()
    assert not progress.find().is_running
    assert loop.calls.call("edge", "progress").result(PATIENCE) is None
