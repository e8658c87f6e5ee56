"""The workers of a run: take a ready node, run it, continue with a node that it made ready.

With one thread, that which called `run`, the worker takes no lock and wakes no other worker.

A worker finishes one node and takes the next under one hold of the engine's lock, so a compute costs one lock
operation. After a compute, the worker itself takes a node that became ready; it wakes another thread only if more
nodes are left in the ready queue. Waking a thread costs tens of microseconds, and the woken thread could not run
anyway until this one releases the GIL.

Nor does it wake a thread for work that it will reach in a moment itself. Two threads that make short calls that
release the GIL (such as kernel launches) hand the GIL back and forth at every call, and both become much slower: a
chain of CuPy operators took 65 µs per compute on four workers and 20 on one. So a node whose computes take less
than `_QUICK` runs with its ready queue to itself. In case it takes longer after all, one parked worker stands by:
it checks every millisecond whether the same compute still runs, and takes over if it does. A node counts as slow
until one of its computes has been measured, so slow nodes run in parallel from the first compute.
"""

from __future__ import annotations

import os
from functools import partial
from time import perf_counter_ns
from typing import TYPE_CHECKING

from headrace import waits
from headrace._runtime.scheduling.notes import note
from headrace._runtime.scheduling.parker import Parker
from headrace._runtime.scheduling.ready_queue import ReadyQueue
from headrace._runtime.scheduling.threads import WorkerThread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace._runtime.scheduling.engine import Engine
    from headrace._runtime.scheduling.node import Node
    from headrace._runtime.scheduling.queue_state import QueueState
    from headrace.core.thread_pool import ThreadPool

_QUICK = 100_000  # nanoseconds


def run_single_threaded(engine: Engine) -> None:
    """Run until the engine is finished, on this thread."""
    ready_queue = engine.ready_queues[0]
    parker = Parker(ready_queue, waits.runs_signal_handlers())
    waiting = engine.waiting
    while True:
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
        engine.finish(node)


def run_workers(
    engine: Engine, count: int, cores: Sequence[int] = (), pools: Sequence[ThreadPool] = ()
) -> None:
    """Run until the engine is finished, on `count` threads and those of the pools."""
    places = [(Parker(engine.ready_queues[0]), tuple(cores)) for _ in range(count)]
    for pool in pools:
        places += _places_of(engine, pool)
    if len(places) > 1:
        for node in engine.nodes:
            announce_room(engine, node)
    workers = [
        WorkerThread(partial(_work, engine, parker, pinned), engine.clock, f"headrace worker {number}")
        for number, (parker, pinned) in enumerate(places)
    ]
    try:
        # No worker begins before all are started: otherwise simulated time would pass without the missing ones.
        with engine.lock:
            for worker in workers:
                worker.start()
        for worker in workers:
            worker.wait()
    except BaseException:
        # A thread could not be started, or a signal handler of the program raised where the run could not hold it
        # back (`interrupts`): let the workers finish their computes and end.
        engine.request_stop()
        for worker in workers:
            if worker.thread.ident is not None:
                worker.wait()
        raise


def _places_of(engine: Engine, pool: ThreadPool) -> list[tuple[Parker, tuple[int, ...]]]:
    """Move the nodes of a pool's operators to separate ready queues, and return the parkers of their workers."""
    shared = ReadyQueue()
    cores: set[int] = set()
    places: list[tuple[Parker, tuple[int, ...]]] = []
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
            places.append((Parker(ready_queue), assignment.cores))
        else:
            cores.update(assignment.cores)
            used = True
        if node.busy and not node.retired:
            node.ready_queue.later.remove(node)
            ready_queue.later.append(node)
        node.ready_queue = ready_queue
    if used:
        engine.ready_queues.append(shared)
        places += [(Parker(shared), tuple(sorted(cores))) for _ in range(pool.initial_size)]
    return places


def announce_room(engine: Engine, node: Node) -> None:
    """Let the receives of a node announce the room that they make (`InputContext.announce_room`)."""
    for port in node.input.ports:
        states: list[QueueState] = [queue.state for queue in port.queues]
        producers = [request.node for state in states for request in state.requests]
        port.serves_others = any(producer.ready_queue is not node.ready_queue for producer in producers)
    node.input.announce_room(partial(engine.announce_room, node), node.ready_queue)


def _pin(cores: tuple[int, ...]) -> None:
    try:
        os.sched_setaffinity(0, cores)
    except OSError as error:
        allowed = sorted(os.sched_getaffinity(0))
        error.add_note(f"cannot pin a worker thread to cores {list(cores)}; this process may use {allowed}")
        raise


def _work(engine: Engine, parker: Parker, cores: tuple[int, ...]) -> None:
    lock = engine.lock
    ready_queue = parker.ready_queue
    waiting = engine.waiting
    several = len(engine.ready_queues) > 1
    node = None
    try:
        if cores:
            _pin(cores)
        lock.acquire()
        try:
            while True:
                if ready_queue.quick is None:
                    node = engine.take(ready_queue)
                else:
                    node = None
                    engine.service()
                if node is None:
                    if several:
                        waiting.wake_others(ready_queue, computes=False)
                    if not waiting.wait(parker, lock):
                        return
                    continue
                engine.running += 1
                if node.expected_ns < _QUICK:
                    ready_queue.quick = node
                # While this worker has the only ready queue to itself and another stands by, there is no worker to
                # wake.
                if ready_queue.quick is None or ready_queue.standby is None or several or engine.timed:
                    waiting.wake_others(ready_queue, computes=True)
                lock.release()
                # A quick node is timed only occasionally: reading the clock twice costs a tenth of the whole step.
                timed = node.expected_ns >= _QUICK or not node.remaining & 7
                began = perf_counter_ns() if timed else 0
                try:
                    if node.has_extra_work:
                        engine.compute_with_extra_work(node)
                    else:
                        compute = node.compute  # as in `run_single_threaded`
                        compute(node.input, node.output, node.context)
                except BaseException as error:
                    note(error, "compute", node.operator)
                    raise
                finally:
                    if timed:
                        node.expected_ns = _expect(node.expected_ns, perf_counter_ns() - began)
                    lock.acquire()
                    engine.running -= 1
                    if ready_queue.quick is node:
                        ready_queue.quick = None
                engine.finish(node)
        finally:
            lock.release()
    except BaseException as error:
        engine.errors.append(error)
        engine.request_stop()


def _expect(before: int, took: int) -> int:
    """Return the expected duration of a compute, from the previous expectation and the last measurement.

    The minimum of the last few measurements counts: threads that compete for the GIL make each other look slow, and
    would continue to do so. A compute that took far longer than that is slow.
    """
    return took if took > 4 * _QUICK else min(took, before + (before >> 3) + 1_000)
