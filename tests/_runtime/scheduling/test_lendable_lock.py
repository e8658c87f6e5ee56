"""LendableLock: who holds the lock that a worker keeps while it computes."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from headrace._runtime import is_compiled
from headrace._runtime.scheduling.lendable_lock import LendableLock
from tests.harness import PATIENCE, wait_until

pytestmark = pytest.mark.skipif(is_compiled(), reason="compiled code takes no stand-ins for nodes")


def node() -> Any:
    return SimpleNamespace(ready_queue=SimpleNamespace(current=None), input_states=())


def held() -> LendableLock:
    lock = LendableLock(lambda: None)
    lock.acquire()
    return lock


def test_a_lock_is_held_until_it_is_released_or_lent() -> None:
    lock = held()
    assert not lock.try_acquire()
    lock.release()
    assert lock.try_acquire()
    lock.lent.append(node())
    assert lock.try_acquire()
    assert not lock.try_acquire()


def test_who_takes_a_lent_lock_counts_the_compute_and_says_which_it_is() -> None:
    lock, computing = held(), node()
    lock.lent.append(computing)
    lock.acquire()
    assert (lock.running, computing.ready_queue.current) == (1, computing)
    lock.release()
    lock.regain(None)
    assert lock.running == 0
    assert not lock.try_acquire()


def test_a_worker_that_finds_the_token_of_another_holds_the_lock_in_its_place() -> None:
    lock, first, second = held(), node(), node()
    lock.lent.append(first)
    lock.acquire()  # by the worker of the second
    lock.lent.append(second)
    lock.regain(lock.lent.pop())  # by the worker of the first
    assert (lock.running, second.ready_queue.current) == (1, second)
    lock.release()
    lock.regain(None)  # by the worker of the second
    assert lock.running == 0


def test_the_holder_makes_way_for_who_waits() -> None:
    looks: list[int] = []
    lock = LendableLock(lambda: looks.append(1))
    lock.acquire()
    order: list[str] = []

    def wait() -> None:
        with lock:
            order.append("waiting")

    thread = threading.Thread(target=wait)
    thread.start()
    wait_until(lambda: bool(looks), "a thread that waits")
    assert lock.is_wanted
    lock.make_way()
    order.append("holder")
    lock.release()
    thread.join(PATIENCE)
    assert order == ["waiting", "holder"]
    assert not lock.is_wanted


def test_who_made_way_does_not_want_the_lock_from_who_has_it_now() -> None:
    """Two workers would make way for each other at every look, and neither would take a node."""
    attempts: list[int] = []
    wanted: list[bool] = []

    class Watched(LendableLock):
        def try_acquire(self) -> bool:
            attempts.append(threading.get_ident())
            return super().try_acquire()

    lock = Watched(lambda: None)
    lock.acquire()
    worker = threading.get_ident()

    def wait() -> None:
        with lock:
            attempts.clear()
            wait_until(lambda: attempts.count(worker) >= 2, "a worker that made way and waits")
            wanted.append(lock.is_wanted)

    thread = threading.Thread(target=wait)
    thread.start()
    wait_until(lambda: lock.is_wanted, "a thread that waits")
    lock.make_way()
    lock.release()
    thread.join(PATIENCE)
    assert wanted == [False]


def test_who_waits_takes_the_lock_if_its_holder_lends_it_and_computes_for_long() -> None:
    looks: list[int] = []
    lock = LendableLock(lambda: looks.append(1))
    lock.acquire()
    thread = threading.Thread(target=lock.acquire)
    thread.start()
    wait_until(lambda: bool(looks), "a thread that waits")
    lock.lent.append(node())
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert lock.running == 1


def test_a_thread_that_takes_the_lock_notes_the_message_that_the_node_computes_for() -> None:
    lock, computing = LendableLock(lambda: None), node()
    state = SimpleNamespace(available=False, note_waiting=lambda: noted.append(state))
    noted: list[SimpleNamespace] = []
    computing.input_states = (SimpleNamespace(available=True), state)
    lock.acquire()
    lock.lent.append(computing)
    lock.acquire()
    assert noted == [state]
