"""Ctrl-C between the taking of a lock and the ``try`` that releases it: the lock does not stay locked."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from headrace import CountCondition, waits
from headrace._runtime import Interrupts
from headrace._runtime.scheduling.engine import is_compiled
from headrace.conditions import PeriodicCondition
from headrace.gpu.sim.memory_pool import MemoryPool
from headrace.link.channel import pack
from headrace.link.protocol import Sample
from headrace.observe import progress_line
from headrace.observe.events.gpu_timing import Timer
from headrace.parts.messages import Beat
from headrace.resources.block_store import BlockStore
from headrace.resources.memory_sources import PlainMemory
from headrace.schedulers import Run, Scheduler
from tests.harness import App, Step, greedy
from tests.link.pipes import Pair
from tests.parts.running import channel_and_socket


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
    channel, theirs = channel_and_socket()
    channel._lock = lock
    channel.offer(pack(Beat()))
    assert theirs.recv(100)
    channel.close()
    theirs.close()


def return_the_memory_of_a_frame(lock: Any) -> None:
    with Pair() as link:
        link.sender.send(Sample(np.zeros(100_000, np.uint8)))
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
    assert app.outcome.ended_by == "interrupted"


@pytest.mark.skipif(is_compiled(), reason="compiled modules cannot be patched")
def test_an_interrupt_while_the_progress_line_begins_leaves_the_line_to_the_next_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lock = InterruptedLock()
    monkeypatch.setattr(progress_line, "_LINE", lock)
    monkeypatch.setattr(progress_line, "is_wanted", lambda: True)
    monkeypatch.setattr(progress_line, "_line_of", lambda fragment: nullcontext())
    monkeypatch.setenv("HEADRACE_PROGRESS", "1")
    with pytest.raises(KeyboardInterrupt):
        App(lambda app: app.add_operator(Step(app, CountCondition(app, 1), name="step")), greedy).run()
    assert lock.interrupts == 1
    assert not lock.locked()


class CountedLock(InterruptedLock):
    """A lock; Ctrl-C comes when it has been taken and released so many times in all."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.at = at
        self.release = self._release  # type: ignore[assignment]

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        is_taken = self._lock.acquire(blocking, timeout)
        if is_taken:
            self._count()
        return is_taken

    def _release(self) -> None:
        self._lock.release()
        self._count()

    def _count(self) -> None:
        self.at -= 1
        if self.at == 0:
            self.interrupts += 1
            signal.raise_signal(signal.SIGINT)


class OwnScheduler(Scheduler):
    """Runs everything on the thread of the run, with the given lock of the engine."""

    lock: Any

    def execute(self, run: Run) -> None:
        run._engine.lock = self.lock  # type: ignore[attr-defined]
        with run.worker() as worker:
            while True:
                node = worker.take()
                if node is not None:
                    worker.run(node)
                elif not worker.wait():
                    return


@pytest.mark.skipif(is_compiled(), reason="compiled classes cannot be patched")
@pytest.mark.parametrize("at", range(1, 5))
def test_an_interrupt_leaves_the_engine_of_a_scheduler_of_the_programs_own_unlocked(at: int) -> None:
    """It releases the lock while it waits on the main thread; threads beside it would wait for it for ever."""
    lock = CountedLock(at)

    def scheduler(app: Any, **settings: Any) -> Scheduler:
        made = OwnScheduler(app, **settings)
        made.lock = lock
        return made

    def compose(app: Any) -> None:
        conditions = CountCondition(app, 3), PeriodicCondition(app, "10ms")  # in between, it waits
        source = Step(
            app, *conditions, outputs=["out"], body=lambda op, i, o: o.emit(1, "out"), name="source"
        )
        app.add_flow(source, Step(app, inputs=["in"], body=lambda op, i, o: i.receive("in"), name="sink"))

    with pytest.raises(KeyboardInterrupt):
        App(compose, scheduler).run()
    assert lock.interrupts == 1
    assert not lock.locked()
