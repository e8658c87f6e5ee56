"""ScheduledRun: a run as its scheduler sees it.

The two loops that headrace's own schedulers use, on one thread and on several, are written for speed and use the
engine directly. A worker of this module does the same step by step, for schedulers of a program's own: it takes the
engine's lock for every step, so that any number of threads may each have one.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, cast

from headrace import waits
from headrace._runtime.scheduling.notes import note
from headrace._runtime.scheduling.ready_queue import Parker
from headrace._runtime.scheduling.workers import Threads, run_alone

if TYPE_CHECKING:
    from headrace._runtime.scheduling.engine import Engine
    from headrace._runtime.scheduling.node import Node
    from headrace.core import node as core_node
    from headrace.core.clock import Clock
    from headrace.core.thread_pool import ThreadPool


class ScheduledRun:
    """A run as its scheduler sees it; `headrace.core.scheduler.Run` describes it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._workers = 0
        self._threads: Threads | None = None

    @property
    def clock(self) -> Clock:
        """The clock of the run."""
        return self._engine.clock

    def run_here(self) -> None:
        """Run all operators on this thread, to the end of the run; replicas have threads of their own."""
        pools = required_pools(self._engine)
        if pools:
            Threads(self._engine, ()).run(1, pools)
            return
        self._engine.streams.is_on_one_thread = True
        with self._engine.clock.attach():
            run_alone(self._engine, self._parker())

    def run_on_threads(self, count: int, cores: Sequence[int] = ()) -> None:
        """Run operators on new threads and on those of the thread pools, to the end of the run."""
        pools = self._engine.nodes[0].operator.fragment._headrace.thread_pools
        self._threads = Threads(self._engine, cores)
        self._threads.run(count, pools)

    def add_threads(self, count: int) -> None:
        """Run operators on `count` threads in all from now on, if these are more."""
        if self._threads is not None:
            self._threads.add(count)

    def worker(self) -> Worker:
        """Return a worker for one thread."""
        self._workers += 1
        if self._workers == 2:
            self._engine.ready_queues[0].is_shared = True
            self._engine.place_nodes()
        return Worker(self._engine, self._parker())

    def _parker(self) -> Parker:
        return Parker(self._engine.ready_queues[0], waits.runs_signal_handlers())

    def request_stop(self) -> None:
        """End the run; may be called from any thread."""
        self._engine.request_stop()


def required_pools(engine: Engine) -> list[ThreadPool]:
    """Return the thread pools whose threads exist whatever the scheduler does."""
    pools: list[ThreadPool] = engine.nodes[0].operator.fragment._headrace.thread_pools
    return [pool for pool in pools if pool.is_required]


class Worker:
    """One thread that runs operators; `headrace.core.scheduler.Worker` describes it."""

    def __init__(self, engine: Engine, parker: Parker) -> None:
        self._engine = engine
        self._parker = parker
        self._attached = engine.clock.attach()

    def __enter__(self) -> Worker:
        self._attached.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._attached.__exit__(kind, error, trace)

    def take(self) -> Node | None:
        """Take the next node that is ready, or return None."""
        engine, ready_queue = self._engine, self._parker.ready_queue
        with engine.lock:
            node = engine.take(ready_queue)
            if node is not None:
                engine.beside_turns += 1
                engine.waiting.wake_others(ready_queue, computes=True)
            return node

    def run(self, node: core_node.Node) -> None:
        """Run the compute of a node that was taken, and make those ready that wait for it."""
        engine, taken = self._engine, cast("Node", node)
        try:
            engine.compute_with_extra_work(taken)
        except BaseException as error:
            note(error, "compute", taken.operator)
            with engine.lock:
                engine.beside_turns -= 1
            raise
        with engine.lock:
            engine.beside_turns -= 1
            engine.finish(taken)

    def wait(self) -> bool:
        """Wait until something may be ready, or return False if the run is over."""
        with self._engine.lock:
            return self._engine.waiting.wait(self._parker, self._engine.lock)
