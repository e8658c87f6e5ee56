"""A queue while several threads are at it: nothing is lost, and each message is counted once."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from headrace import ConditionType, CountCondition, IOSpec
from headrace._runtime.contexts.input import InputPort
from headrace._runtime.messages.queue import Queue
from headrace.core import QueueFullError
from headrace.core.node import Receiver, Transmitter
from tests.harness import (
    PATIENCE,
    App,
    Step,
    event_based,
    run,
    switching_often,
)

POP, REJECT, FAULT = IOSpec.QueuePolicy.POP, IOSpec.QueuePolicy.REJECT, IOSpec.QueuePolicy.FAULT


def test_the_consumer_finds_a_message_while_the_oldest_is_dropped_for_a_new_one() -> None:
    """The dropped message's destructor lets the consumer receive in the middle of the producer's emit."""
    taken: list[Any] = []
    started, dropping, received = threading.Event(), threading.Event(), threading.Event()

    in_time: list[bool] = []

    class Oldest:
        def __del__(self) -> None:
            dropping.set()
            in_time.append(received.wait(PATIENCE))

    def compose(app: App) -> None:
        def send(op: Step, i: Any, o: Any) -> None:
            if op.ticks == 2:
                assert started.wait(PATIENCE)
            o.emit(Oldest() if op.ticks == 1 else "newest")

        def take(op: Step, i: Any, o: Any) -> None:
            started.set()
            assert dropping.wait(PATIENCE)
            taken.append(i.receive())
            received.set()

        def setup(spec: Any) -> None:
            spec.output("out").condition(ConditionType.NONE)

        a = Step(app, CountCondition(app, 2), setup=setup, body=send, name="a")
        b = Step(app, CountCondition(app, 1), inputs=[("in", {"policy": POP})], body=take, name="b")
        app.add_flow(a, b)

    app = run(compose, event_based, clock=None)
    assert taken == ["newest"]
    assert in_time == [True], "nothing is locked while what was dropped is let go of"
    assert app.dropped() == {"b.in": 1}
    assert app.undelivered() == {}


class WatchedLock:
    """A lock that says when somebody has to wait for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.waited_for = threading.Event()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self.waited_for.set()
            self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()


def at_line(number: int, queue: Queue, first: Callable[[], None], second: Callable[[], None]) -> bool:
    """Run `first`, and in the middle of it, at a line of the queue's code, `second` on another thread.

    If that has to wait for the queue's lock, `first` goes on. Says whether there was such a line.
    """
    settled = threading.Event()
    if queue.lock is not None:
        watched = WatchedLock()
        watched.waited_for = settled
        queue.lock = watched  # type: ignore[assignment]

    def other() -> None:
        try:
            second()
        finally:
            settled.set()

    thread = threading.Thread(target=other)
    lines = [0]

    def trace(frame: Any, event: str, argument: Any) -> Any:
        if frame.f_globals.get("__name__") != Queue.__module__:
            return None
        if event == "line":
            lines[0] += 1
            if lines[0] == number:
                thread.start()
                assert settled.wait(PATIENCE)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        first()
    finally:
        sys.settrace(before)
    if lines[0] < number:
        return False
    thread.join()
    return True


@pytest.mark.parametrize("limit", [1, 2, 3])
@pytest.mark.parametrize("everything", [False, True])
def test_the_newest_is_kept_wherever_the_consumer_comes_in_between(limit: int, everything: bool) -> None:
    for line in range(1, 30):
        queue = Queue(None, "in", limit, POP)
        queue.extend(range(limit))
        take = InputPort(IOSpec("in", IOSpec.IOType.INPUT, 2 if everything else 1), (queue,)).take
        taken: list[Any] = []

        def consume(take: Any = take, taken: list[Any] = taken) -> None:
            taken.extend(take() if everything else [take()])

        if not at_line(line, queue, lambda queue=queue: queue.offer("newest"), consume):  # type: ignore[misc]
            break
        left = list(queue)
        assert taken, f"the consumer found nothing at line {line}"
        assert (taken + left)[-1] == "newest"
        assert queue.dropped == limit + 1 - len(taken) - len(left)
        assert [*range(queue.dropped, limit), "newest"] == taken + left
    assert line > 5


@pytest.mark.parametrize("policy", [POP, REJECT, FAULT])
@pytest.mark.parametrize("waiting", [0, 1])
def test_two_producers_never_fill_one_place(policy: Any, waiting: int) -> None:
    for line in range(1, 30):
        queue = Queue(Step(App(lambda app: None)), "in", 1, policy)
        queue.extend(range(waiting))
        queue.share()
        assert queue.capacity == 0
        refused: list[str] = []

        def offer(item: str, queue: Queue = queue, refused: list[str] = refused) -> None:
            try:
                queue.offer(item)
            except QueueFullError:
                refused.append(item)

        if not at_line(line, queue, lambda offer=offer: offer("a"), lambda offer=offer: offer("b")):  # type: ignore[misc]
            break
        assert len(queue) == 1
        assert queue.dropped == waiting + 1
        assert len(refused) == (waiting + 1 if policy is FAULT else 0)
    assert line > 3


@pytest.mark.parametrize("limit", [1, 3])
def test_a_full_queue_is_never_seen_with_less_in_it(limit: int) -> None:
    """Conditions look at the length from other threads, without a lock."""
    queue = Queue(None, "in", limit, POP)
    for n in range(limit):
        queue.offer(n)
    seen: set[int] = set()
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            seen.add(len(queue))

    with switching_often():
        thread = threading.Thread(target=look)
        thread.start()
        for n in range(5000):
            queue.offer(n)
        done.set()
        thread.join()
    assert seen <= {limit, limit + 1}
    receiver = Receiver("in", (queue,))
    queue.append("one too many")
    assert (receiver.size, receiver.peek(), receiver.peek(99)) == (limit, 5000 - limit, None)
    assert Transmitter("out", (queue,)).free == 0


def test_a_queue_that_others_add_to_can_be_looked_through() -> None:
    class Changing(list[int]):
        times = 0

        def __iter__(self) -> Any:
            self.times += 1
            if self.times < 3:
                raise RuntimeError("deque mutated during iteration")
            return super().__iter__()

    assert Queue.snapshot(Changing([1, 2])) == (1, 2)  # type: ignore[arg-type]


@pytest.mark.parametrize("policy", [POP, REJECT])
def test_a_queue_records_when_its_waiting_messages_arrived(policy: Any) -> None:
    times = iter(range(100))
    queue = Queue(None, "in", 3, policy)
    queue.note_arrivals(lambda: next(times))
    assert queue.arrival() is None
    for number in range(20):
        queue.offer(number)
    first = 17 if policy is POP else 0
    assert list(queue) == [first, first + 1, first + 2]
    assert len(queue.arrivals or ()) == 3  # nothing is kept of those that were dropped
    for arrived in (first, first + 1, first + 2):
        assert queue.arrival() == arrived
        queue.popleft()
    assert queue.arrival() is None
    queue.offer("again")
    assert queue.arrival() == (20 if policy is POP else 3)
