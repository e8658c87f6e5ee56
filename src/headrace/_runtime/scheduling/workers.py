"""The workers of a run: take a ready node, run it, continue with a node that it made ready.

With one worker, nothing is locked and nobody is woken (`run_alone`).

With several, one of them computes at a time. Python threads take turns anyway: one of them holds the interpreter
lock. Computes on several threads only hand that lock back and forth, and each launch of a kernel and each short
call into a library is an occasion to do so. An operator whose compute waits, or works outside the interpreter, says
so (`Operator.parallel`). Such nodes are in a queue of their own (`ReadyQueue.beside`), and compute beside others at
once, on the other workers, as do those of thread pools.

An operator may wait without having said so. So if a compute has lasted a millisecond while others wait for their
turn, another worker goes on with these (`waiting`), as Go's scheduler does for a system call. Nothing is remembered
of that: the next compute of that operator has its turn like any other. Measuring computes to find out which of them
wait was decided against: what a program does would depend on how busy the host is.

A worker holds the engine's lock to take and to finish a node, and releases it during the compute.

ScheduledRun: a run as its scheduler sees it. headrace's own schedulers use the two loops, on one thread and on
several, which are written for speed. A `Worker` does the same step by step, for schedulers of a program's own: it
takes the engine's lock for every step, so that any number of threads may each have one.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, cast

from headrace import waits
from headrace._runtime.scheduling.notes import note
from headrace._runtime.scheduling.ready_queue import Parker, ReadyQueue
from headrace.gpu.current import leave

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from headrace._runtime.scheduling.engine import Engine
    from headrace._runtime.scheduling.node import Node
    from headrace.core import node as core_node
    from headrace.core.clock import Clock
    from headrace.core.thread_pool import Assignment, ThreadPool

    # A worker: what it parks on, its cores, and its operator if it has only one.
    _Place: TypeAlias = tuple[Parker, tuple[int, ...], Assignment | None]


def run_alone(engine: Engine, parker: Parker) -> None:
    """Run until the engine is finished, on this thread, which is the only worker."""
    ready_queue, waiting = parker.ready_queue, engine.waiting
    node: Node | None = None  # which runs next
    while True:
        if node is None:
            node = engine.take(ready_queue)
            if node is None:
                if not waiting.wait(parker, None):
                    return
                continue
        try:
            if node.has_extra_work:
                engine.compute_with_extra_work(node)
            else:
                # Fetched, then called: in Python 3.11 a call directly from a slot makes the step 2 % slower.
                compute = node.compute
                compute(node.input, node.output, node.context)
        except BaseException as error:
            note(error, "compute", node.operator)
            raise
        node = engine.finish(node, True)


class Threads:
    """The worker threads of one run.

    Parameters
    ----------
    engine
        What runs.
    cores
        The cores that threads are bound to which are not those of a pool; none if empty.
    """

    def __init__(self, engine: Engine, cores: Sequence[int]) -> None:
        self._engine = engine
        self._cores = tuple(cores)
        # How many of the threads are those of no pool.
        self._count = 0
        self._run: Callable[[Engine, Parker], None] = _run_beside_others
        self._workers: list[WorkerThread] = []

    def run(self, count: int, pools: Sequence[ThreadPool]) -> None:
        """Run until the engine is finished, on `count` threads and those of the pools."""
        engine = self._engine
        if count > 1:
            engine.ready_queues.append(engine.ready_queues[0].take_turns())
        places = [place for pool in pools for place in _places_of(engine, pool)]
        engine.place_nodes()
        if count == 1 and not places:
            self._run = run_alone
        try:
            # No worker begins before all are started: otherwise simulated time would pass without the missing ones.
            with engine.lock:
                self.add(count)
                for place in places:
                    self._start(place)
            self._wait()
        except BaseException:
            # A thread could not be started, or a signal handler of the program raised where the run could not hold
            # it back (`interrupts`): let the workers finish their computes and end.
            engine.request_stop()
            self._wait()
            raise

    def add(self, count: int) -> None:
        """Run on `count` threads besides those of pools, if these are more; with the lock held."""
        engine = self._engine
        for _ in range(self._count, count):
            parker = Parker(engine.ready_queues[0])
            self._start((parker, self._cores, None))
            self._count += 1

    def _start(self, place: _Place) -> None:
        work = partial(_work, self._engine, place, self._run)
        worker = WorkerThread(work, self._engine.clock, f"headrace worker {len(self._workers)}")
        worker.start()
        self._workers.append(worker)

    def _wait(self) -> None:
        # Those that are added meanwhile come at the end of the list.
        for worker in self._workers:
            worker.wait()


def _places_of(engine: Engine, pool: ThreadPool) -> list[_Place]:
    """Move the nodes of a pool's operators to separate ready queues, and return the parkers of their workers."""
    shared = ReadyQueue()
    cores: set[int] = set()
    places: list[_Place] = []
    used = False
    for assignment in pool.assignments:
        node = next((node for node in engine.nodes if node.operator is assignment.operator), None)
        if node is None:
            raise ValueError(
                f"thread pool {pool.name!r} holds operator {assignment.operator.name!r}, which is not part "
                "of this application's graph"
            )
        ready_queue = shared
        if assignment.pinned:
            ready_queue = ReadyQueue()
            engine.ready_queues.append(ready_queue)
            parker = Parker(ready_queue)
            places.append((parker, assignment.cores, assignment))
        else:
            cores.update(assignment.cores)
            used = True
        node.move_to(ready_queue)
    if used:
        shared.is_shared = pool.initial_size > 1
        engine.ready_queues.append(shared)
        places += [(Parker(shared), tuple(sorted(cores)), None) for _ in range(pool.initial_size)]
    return places


def _pin(cores: tuple[int, ...]) -> None:
    try:
        os.sched_setaffinity(0, cores)
    except OSError as error:
        allowed = sorted(os.sched_getaffinity(0))
        error.add_note(f"cannot pin a worker thread to cores {list(cores)}; this process may use {allowed}")
        raise


def _work(engine: Engine, place: _Place, run: Callable[[Engine, Parker], None]) -> None:
    parker, cores, assignment = place
    try:
        if cores:
            _pin(cores)
        if assignment is not None and assignment.realtime is not None:
            from headrace._runtime.scheduling.realtime_thread import schedule_realtime

            schedule_realtime(assignment.realtime, assignment.operator.name)
        run(engine, parker)
    except BaseException as error:
        engine.errors.append(error)
        engine.request_stop()


def _run_beside_others(engine: Engine, parker: Parker) -> None:
    """Run until the engine is finished, on this thread, which is one of several workers."""
    ready_queue, waiting, lock = parker.ready_queue, engine.waiting, engine.lock
    turns = ready_queue if ready_queue.beside is not None else None
    beside = ready_queue.beside or ready_queue
    several = turns is None or len(engine.ready_queues) > 2
    parked, now, later = ready_queue.parked, beside.now, beside.later
    acquire, release = lock.acquire, lock.release
    with lock:
        node: Node | None = None  # which runs next
        while True:
            if node is None:
                node = engine.take_beside_others(ready_queue)
                if node is None:
                    if several:
                        waiting.wake_others(ready_queue, computes=False)
                    if not waiting.wait(parker, lock):
                        return
                    continue
            takes_turns = node.ready_queue is turns
            if takes_turns:
                ready_queue.current = node
            else:
                engine.beside_turns += 1
            # Asked first, because in most steps nobody is to be woken: a worker stands by for all that takes turns.
            if several or (parked and (ready_queue.standby is None or now or later or not takes_turns)):
                waiting.wake_others(ready_queue, computes=True)
            release()
            try:
                if node.has_extra_work:
                    engine.compute_with_extra_work(node)
                else:
                    compute = node.compute  # as in `run_alone`
                    compute(node.input, node.output, node.context)
            except BaseException as error:
                note(error, "compute", node.operator)
                raise
            finally:
                acquire()
                is_its_turn = ready_queue.current is node
                if is_its_turn:
                    ready_queue.current = None
                else:
                    engine.beside_turns -= 1
            if takes_turns and not is_its_turn and not node.announces_room:
                node.input.announce_room(None)  # which began when others went on beside it
            node = engine.finish(node, is_its_turn)


class WorkerThread:
    """A thread with a way to wait for its end that can be interrupted by Ctrl-C and repeated.

    `Thread.join` cannot be repeated: in some versions of CPython, an interrupted join marks the thread as ended.
    """

    __slots__ = ("_entering", "_leaving", "_left", "thread")

    def __init__(self, work: Callable[[], None], clock: Clock, name: str) -> None:
        self._left = False
        self._entering = threading.Lock()
        self._entering.acquire()
        self._leaving = threading.Lock()
        self._leaving.acquire()

        def work_and_leave() -> None:
            try:
                with clock.attach():
                    self._entering.release()
                    work()
            finally:
                leave()  # another thread may be given its number
                self._left = True
                if self._entering.locked():
                    self._entering.release()
                self._leaving.release()

        self.thread = threading.Thread(target=work_and_leave, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread, and wait until it is attached to the clock."""
        self.thread.start()
        waits.acquire(self._entering)

    def wait(self) -> None:
        """Wait until the thread has ended."""
        if not self._left:
            waits.acquire(self._leaving)
        waits.join(self.thread)


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
