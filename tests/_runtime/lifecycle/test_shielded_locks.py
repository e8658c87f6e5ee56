"""Ctrl-C between the taking of a lock and the ``try`` that releases it: the lock does not stay locked."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from headrace import waits
from headrace._runtime import Interrupts
from headrace.gpu.sim.memory_pool import MemoryPool
from headrace.link.terms import Parcel
from headrace.observe.events.gpu_timing import Timer
from headrace.parts.control import Beat, Channel
from headrace.resources.block_store import BlockStore
from headrace.resources.memory_sources import PlainMemory
from tests.harness import App, Step, greedy
from tests.link.pipes import Pair


class InterruptedLock:
    """A lock that somebody takes without waiting, and Ctrl-C comes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.locked, self.release = self._lock.locked, self._lock.release
        self.interrupts = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        is_taken = self._lock.acquire(blocking, timeout)
        if is_taken and not blocking:
            self.interrupts += 1
            signal.raise_signal(signal.SIGINT)
        return is_taken

    def __enter__(self) -> None:
        assert self._lock.acquire(blocking=False), "it has stayed locked"

    def __exit__(self, *_: object) -> None:
        self._lock.release()


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@contextmanager
def computing() -> Iterator[list[str]]:
    """Run a ``with`` block as a compute on the main thread, where Ctrl-C raises; note what is stopped."""
    stopped: list[str] = []
    interrupts = Interrupts("app", lambda: stopped.append("app"), lambda: "nothing")
    interrupts.install()
    interrupts.held = False
    try:
        yield stopped
    finally:
        interrupts.restore()


def offer_a_beat(lock: Any) -> None:
    channel, theirs = Channel.pair()
    channel._sending = lock
    assert channel.offer(Beat())
    channel.close()
    theirs.close()


def return_the_memory_of_a_frame(lock: Any) -> None:
    with Pair() as link:
        link.sender.send(Parcel(np.zeros(100_000, np.uint8)))
        received = link.take()
        link.receiver._lock = lock
        del received
        link.receiver.tick(0)
        assert not link.receiver._returned


class Key:
    """A stream, which is a key for the pool."""


def free_simulated_memory(lock: Any) -> None:
    pool, stream = MemoryPool(1024, lock), Key()
    pool.free(pool.allocate(64, stream), stream)
    assert pool.in_use == 0


def give_back_a_block(lock: Any) -> None:
    store = BlockStore(PlainMemory, 0, lambda: None, 128)
    taken = store.take(64, 64, None)
    store._lock = lock
    del taken
    assert store.in_use == (0, 0)


def read_gpu_times(lock: Any) -> None:
    timer: Any = SimpleNamespace(_reading=lock, pieces=())
    Timer.read_some(timer)


@pytest.mark.parametrize(
    "take",
    [
        offer_a_beat,
        return_the_memory_of_a_frame,
        free_simulated_memory,
        give_back_a_block,
        read_gpu_times,
    ],
)
def test_a_lock_that_was_taken_without_waiting_is_released(take: Any) -> None:
    lock = InterruptedLock()
    with computing() as stopped, suppress(KeyboardInterrupt):
        take(lock)
    assert lock.interrupts > 0
    assert not lock.locked()
    assert set(stopped) == {"app"}  # and `run` raises it at the end


def test_an_interrupt_that_was_held_back_comes_out_of_run_and_the_next_one_is_raised_at_once() -> None:
    events: list[str] = []

    @waits.shielded
    def interrupted() -> None:
        signal.raise_signal(signal.SIGINT)
        events.append("shielded")

    def body(op: Step, i: Any, o: Any) -> None:
        interrupted()
        events.append("goes on")
        signal.raise_signal(signal.SIGINT)
        events.append("is not reached")

    app = App(lambda app: app.add_operator(Step(app, body=body, name="step")), greedy)
    with pytest.raises(KeyboardInterrupt):
        app.run()
    assert events == ["shielded", "goes on"]
    assert app.outcome is not None
    assert app.outcome.ended_by == "interrupted"


def test_a_run_ends_after_the_compute_in_which_an_interrupt_was_held_back() -> None:
    computes: list[int] = []

    @waits.shielded
    def interrupted() -> None:
        signal.raise_signal(signal.SIGINT)

    def body(op: Step, i: Any, o: Any) -> None:
        interrupted()
        computes.append(1)

    app = App(lambda app: app.add_operator(Step(app, body=body, name="step")), greedy)
    with pytest.raises(KeyboardInterrupt):
        app.run()
    assert computes == [1]


def test_a_run_inside_a_compute_ends_as_well() -> None:
    """The handler of the inner run calls that of the outer one, which leaves it to the inner one to hold back."""
    computes: list[str] = []

    @waits.shielded
    def interrupted() -> None:
        signal.raise_signal(signal.SIGINT)

    def inner(op: Step, i: Any, o: Any) -> None:
        interrupted()
        computes.append("inner")

    def outer(op: Step, i: Any, o: Any) -> None:
        computes.append("outer")
        App(lambda app: app.add_operator(Step(app, body=inner, name="inner")), greedy).run()

    app = App(lambda app: app.add_operator(Step(app, body=outer, name="outer")), greedy)
    with pytest.raises(KeyboardInterrupt):
        app.run()
    assert computes == ["outer", "inner"]
