"""The workers of a run: take a ready node, run it, continue with a node that it made ready.

With one worker, nothing is locked and nobody is woken (`run_alone`).

With several, one worker of each ready queue at a time is its *runner*. The runner runs short computes, one after
the other, and keeps the engine's lock meanwhile: it lends the lock during a compute and takes it back after it
(`lendable_lock`). So a step costs hardly more than with one worker: 1.83 µs and 1.72 in `benchmarks.chain`. The
other workers leave the ready nodes to the runner. More threads would not make short computes faster but slower:
threads that make short calls which release the interpreter lock, such as kernel launches, hand that lock back and
forth at every call. A chain of CuPy operators took 65 µs per compute on four workers and 20 on one.

Before the runner begins a compute that is slow (`pace`), it releases the lock, wakes another worker for the nodes
that are left, and is not the runner any more. After that compute it goes on as the runner, unless there is one.

A short compute may turn out to be slow. Therefore a parked worker stands by as long as nodes are ready: it looks
every few milliseconds whether the runner is still in the same compute, and takes its place if so (`waiting`).
"""

from __future__ import annotations

import os
from functools import partial
from time import perf_counter_ns, process_time_ns, thread_time_ns
from typing import TYPE_CHECKING

from headrace._runtime.scheduling.notes import note
from headrace._runtime.scheduling.pace import judge, times_waited
from headrace._runtime.scheduling.parker import Parker
from headrace._runtime.scheduling.ready_queue import ReadyQueue
from headrace._runtime.scheduling.threads import WorkerThread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    from headrace._runtime.scheduling.engine import Engine
    from headrace._runtime.scheduling.node import Node
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


def run_workers(
    engine: Engine, count: int, cores: Sequence[int] = (), pools: Sequence[ThreadPool] = ()
) -> None:
    """Run until the engine is finished, on `count` threads and those of the pools."""
    has_others = count > 1 or bool(pools)
    places: list[_Place] = [
        (Parker(engine.ready_queues[0], waiting=engine.waiting, has_others=has_others), tuple(cores), None)
        for _ in range(count)
    ]
    for pool in pools:
        places += _places_of(engine, pool)
    for node in engine.nodes:
        producers = [request.node for state in node.input_states for request in state.requests]
        node.serves_others = any(producer.ready_queue is not node.ready_queue for producer in producers)
        for state in node.input_states:
            state.find_whether_sole()
    for node in engine.nodes:
        node.find_link()
    run = run_alone if len(places) == 1 else _run_beside_others
    workers = [
        WorkerThread(partial(_work, engine, place, run), engine.clock, f"headrace worker {number}")
        for number, place in enumerate(places)
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
            parker = Parker(ready_queue, waiting=engine.waiting, has_others=True)
            places.append((parker, assignment.cores, assignment))
        else:
            cores.update(assignment.cores)
            used = True
        if node.busy and not node.retired:
            node.ready_queue.later.remove(node)
            ready_queue.later.append(node)
        node.ready_queue = ready_queue
    if used:
        engine.ready_queues.append(shared)
        places += [
            (Parker(shared, waiting=engine.waiting, has_others=True), tuple(sorted(cores)), None)
            for _ in range(pool.initial_size)
        ]
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
    with engine.lock:
        _run_locked(engine, parker)


def _run_locked(engine: Engine, parker: Parker) -> None:
    ready_queue, waiting, lock = parker.ready_queue, engine.waiting, engine.lock
    while True:
        if ready_queue.runner is not None:
            engine.service()
        elif (node := engine.take(ready_queue)) is not None:
            if lock.has_made_way:
                lock.has_made_way = False
                if lock.is_wanted:
                    engine.held = True  # `take` has cleared it: make way after this node
            ready_queue.runner = parker
            _run_streak(engine, parker, node)
        if lock.is_wanted and not lock.has_made_way:
            lock.make_way()
            continue
        lock.has_made_way = False
        if len(engine.ready_queues) > 1:
            waiting.wake_others(ready_queue, computes=False)
        if not waiting.wait(parker, lock):
            return


def _run_streak(engine: Engine, parker: Parker, node: Node) -> None:
    """Run one node after the other as the runner of a ready queue, until there is none or another is the runner."""
    lock, waiting, ready_queue = engine.lock, engine.waiting, parker.ready_queue
    lent = lock.lent
    several = len(engine.ready_queues) > 1
    # Whether no worker has to be woken: one is on standby, or on its way. It stays so until it takes the lock.
    watched = False
    token: Node | None
    while True:
        if not watched and (several or ready_queue.parked):
            waiting.wake_others(ready_queue, computes=True, node=node)
            watched = not several and (ready_queue.standby is not None or bool(waiting.waking))
        lent.append(node)
        try:
            if node.is_measured:
                _compute_measured(engine, parker, node)
            elif node.has_extra_work:
                engine.compute_with_extra_work(node)
            else:
                compute = node.compute  # as in `run_alone`
                compute(node.input, node.output, node.context)
        except BaseException as error:
            lock.take_back(node)
            note(error, "compute", node.operator)
            raise
        # A copy of `take_back`, so that the token is compared once. With that, and with None looked for only after
        # `take`, a step of a chain takes 2.5 % less.
        try:
            token = lent.pop()
        except IndexError:
            token = None
        if token is node:
            following = engine.finish(node, True)
        else:
            lock.regain(token)
            following = engine.finish(node, False)
            watched = False
            if ready_queue.runner is None:
                ready_queue.runner = parker
            elif ready_queue.runner is not parker:
                return
        if following is None:
            following = engine.take(ready_queue)
            if following is None:
                ready_queue.runner = None
                return
        node = following


def _compute_measured(engine: Engine, parker: Parker, node: Node) -> None:
    """Run a node and measure how long it takes (`pace`); if it is slow, let other workers run meanwhile."""
    slow = node.slow
    if slow > 0:
        node.input.announce_room(engine.announce_room)
        engine.hand_over(node)
    waited = times_waited()
    wall, own, whole = perf_counter_ns(), thread_time_ns(), process_time_ns()
    try:
        engine.compute_with_extra_work(node)
    finally:
        whole, own, wall = process_time_ns() - whole, thread_time_ns() - own, perf_counter_ns() - wall
        has_waited = not waited or times_waited() != waited
        # From what it was before, so that a compute counts once if its worker was replaced (`overtake`).
        node.slow = judge(slow, parker not in node.measured_by, wall, own, whole, has_waited)
        node.measured_by.add(parker)
        if not node.slow:
            node.is_measured = False
            if not node.serves_others:
                node.input.announce_room(None)
