"""The main thread looks for signals while it waits; other threads wait in one piece."""

from __future__ import annotations

import signal
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from types import FrameType
from typing import Any

import pytest

from headrace import waits
from tests.harness.threads import wait_until_blocked


class Waited:
    """A lock, condition, event and thread that says how long it was waited for; the last wait succeeds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, parts: int) -> None:
        self.now = 100.0
        self.limits: list[float | None] = []
        self._left = parts
        monkeypatch.setattr(waits, "monotonic", lambda: self.now)

    def wait(self, timeout: float | None = None) -> bool:
        self.limits.append(timeout)
        self._left -= 1
        if self._left <= 0:
            return True
        assert timeout is not None
        self.now += timeout
        return False

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        return self.wait(None if timeout == -1 else timeout)

    def join(self, timeout: float | None = None) -> None:
        self.wait(timeout)

    def is_alive(self) -> bool:
        return self._left > 0


WAYS: dict[str, Callable[..., bool]] = {"lock": waits.acquire, "event": waits.wait, "thread": waits.join}
ways = pytest.mark.parametrize("way", WAYS)


@ways
def test_the_main_thread_waits_for_a_second_at_a_time(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    waited = Waited(monkeypatch, 4)
    assert WAYS[way](waited)
    assert waited.limits == [1.0] * 4


@ways
def test_a_limit_is_kept(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    waited = Waited(monkeypatch, 9)
    assert not WAYS[way](waited, 2.25)
    assert waited.limits == [1.0, 1.0, 0.25]
    waited = Waited(monkeypatch, 9)
    assert not WAYS[way](waited, -1)
    assert waited.limits == [0.0]
    waited = Waited(monkeypatch, 2)
    assert WAYS[way](waited, 1e300)
    assert waited.limits == [1.0, 1.0]


def on_another_thread(work: Callable[[], Any]) -> Any:
    """Return the result of a function, called on another thread."""
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(work()))
    thread.start()
    thread.join()
    return results[0]


@ways
def test_another_thread_waits_in_one_piece(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    waited = Waited(monkeypatch, 1)
    assert on_another_thread(lambda: WAYS[way](waited))
    assert waited.limits == [None]
    waited = Waited(monkeypatch, 2)
    assert not on_another_thread(lambda: WAYS[way](waited, 1e300))
    assert waited.limits == [threading.TIMEOUT_MAX]


def test_a_predicate_is_waited_for_and_its_last_result_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: Any = Waited(monkeypatch, 3)
    answers = iter(["", "", "yes"])
    assert waits.wait_for(waited, lambda: next(answers)) == "yes"
    waited = Waited(monkeypatch, 99)
    assert waits.wait_for(waited, lambda: "", 1.5) == ""
    assert waited.limits == [1.0, 0.5]


def test_all_futures_are_waited_for() -> None:
    first, second = Future[int](), Future[int]()
    assert not waits.wait_for_futures((first, second), 0)
    first.set_result(0)
    assert not waits.wait_for_futures((first, second), 0)
    assert not on_another_thread(lambda: waits.wait_for_futures((first, second), 0))
    waiting = threading.Thread(target=waits.wait_for_futures, args=((first, second),))
    waiting.start()
    second.set_exception(ValueError())
    waiting.join()
    for _ in range(2):
        assert waits.wait_for_futures((first, second))
        assert waits.wait_for_futures((first, second), -1)


def test_a_future_that_is_asked_for_again_and_again_keeps_nothing_of_that() -> None:
    future = Future[int]()
    for _ in range(3):
        assert not waits.wait_for_futures((future,), 0)
    assert len(future._done_callbacks) == 1  # type: ignore[attr-defined]
    gone = weakref.ref(future)
    del future
    assert gone() is None


# -- a signal that interrupts nothing ----------------------------------------------------------------


class Interrupted(Exception):
    """Raised by the handler of the signal."""


@pytest.fixture
def interrupting(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A handler that raises, and a main thread that looks for signals often."""
    monkeypatch.setattr(waits, "_LONGEST", 0.02)

    def handle(number: int, frame: Any) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGUSR1, handle)
    yield
    signal.signal(signal.SIGUSR1, before)


def interrupt_another_thread() -> threading.Thread:
    """Deliver the signal to another thread, when this one waits for a condition.

    Such a signal wakes nobody: only a thread that looks for it learns of it.
    """

    def deliver() -> None:
        wait_until_blocked(threading.main_thread())
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)

    thread = threading.Thread(target=deliver)
    thread.start()
    return thread


@pytest.mark.parametrize("way", ["condition", "predicate", "event"])
def test_a_signal_that_another_thread_gets_ends_a_wait(interrupting: None, way: str) -> None:
    condition = threading.Condition()
    with condition:
        thread = interrupt_another_thread()
        with pytest.raises(Interrupted):
            if way == "condition":
                waits.wait(condition)
            elif way == "predicate":
                waits.wait_for(condition, lambda: False)
            else:
                waits.wait(threading.Event())
    thread.join()


@pytest.mark.parametrize("way", ["lock", "thread", "future"])
def test_a_signal_that_comes_before_a_wait_ends_it(interrupting: None, way: str) -> None:
    """These waits have no condition, so that a handler may raise at any moment."""
    lock, end, due = threading.Lock(), threading.Event(), threading.Lock()
    lock.acquire()
    due.acquire()
    endless = threading.Thread(target=end.wait)
    endless.start()

    class Late(threading.Thread):
        """Delivers the signal to itself, at any moment of the wait or before."""

        def run(self) -> None:
            due.acquire()
            signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)

    late = Late()
    late.start()  # before it is due: it waits for a condition as well
    with pytest.raises(Interrupted):
        due.release()
        if way == "lock":
            waits.acquire(lock)
        elif way == "thread":
            waits.join(endless)
        else:
            waits.wait_for_futures((Future(),))
    end.set()
    late.join()
    endless.join()


def test_a_signal_leaves_no_future_locked_wherever_it_interrupts_a_wait() -> None:
    """The thread that is to end the future would wait for its lock for ever."""
    future = Future[int]()
    waits.wait_for_futures((future,), 0)  # the first wait asks the future to tell its end

    def is_free() -> bool:
        condition = future._condition  # type: ignore[attr-defined]
        return bool(condition.acquire(blocking=False)) and condition.release() is None

    def interrupt(step: int) -> bool:
        """Raise at one of the steps of a wait; return False if it has fewer."""

        def trace(frame: FrameType, event: str, argument: Any) -> Any:
            nonlocal step
            step -= 1
            if step == 0:
                raise Interrupted
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            waits.wait_for_futures((future,), 0)
        except Interrupted:
            return True
        finally:
            sys.settrace(before)
        return False

    steps = 0
    while interrupt(steps + 1):
        steps += 1
        assert on_another_thread(is_free)
    assert steps > 10


def test_no_notification_is_lost_between_two_parts_of_a_wait() -> None:
    """Another thread can notify only while the wait listens: between its parts the lock is held."""
    lock = threading.Lock()
    is_free: list[bool] = []

    class Watched(threading.Condition):
        def wait(self, timeout: float | None = None) -> bool:
            is_free.append(not lock.locked())
            if len(is_free) < 3:
                return super().wait(0)
            thread.start()
            return super().wait()

    def notify() -> None:
        with condition:
            condition.notify_all()

    condition = Watched(lock)
    thread = threading.Thread(target=notify)
    with condition:
        assert waits.wait(condition)
    thread.join()
    assert is_free == [False] * 3
