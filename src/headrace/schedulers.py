"""The catalogue of schedulers, on which threads operators run; and what a scheduler of one's own needs.

The default scheduler runs all operators on the thread that called `run`, as `GreedyScheduler` does, unless the
program declares that operators do not wait for each other: by a queue that drops messages (POP or REJECT), or by a
thread pool. A queue that drops does not slow down its producer. One thread cannot keep that promise: while the
consumer of such a queue computes, or waits for a device, its producer could not run, and a camera would lose frames
that nobody counts. So such a program gets worker threads, as with `EventBasedScheduler`.

Why not worker threads always? A program without such a queue gains little, because its slow operators slow down
their producers in any case. Its branches would run in another order in each run, and code that belongs to one
thread (a window, a database connection, PyTorch's gradient mode) would fail. Nor does the scheduler measure whether
an operator blocks and then start threads: the same program would run on one thread or on several, depending on the
machine and its load. What a program declares is the same everywhere.

There are as many workers as operators, since each operator may block, up to `_MOST`; those that join the run bring
theirs. A worker that has nothing to do costs no time: a thread is woken only for an operator that computes beside
others, or if a compute lasts (`workers`).

In virtual time (`Clock.is_virtual`) one thread runs all operators, because every run is to be the same: the order
of computes at one moment would depend on which thread was faster.
"""

from __future__ import annotations

import copy
import os
from typing import TYPE_CHECKING

from headrace.core.errors import GraphError
from headrace.core.graph import queues_of
from headrace.core.parameters import Converted, converted, declared, parameter
from headrace.core.ports import IOSpec
from headrace.core.run_options import MOST_WORKERS
from headrace.core.scheduler import Run, Scheduler, Worker
from headrace.core.values import whole_numbers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.core.composition import Composition
    from headrace.core.operator import Operator
    from headrace.core.run_options import RunOptions


__all__ = [
    "DefaultScheduler",
    "EventBasedScheduler",
    "GreedyScheduler",
    "MultiThreadScheduler",
    "Run",
    "Scheduler",
    "Worker",
]


class GreedyScheduler(Scheduler):
    """Runs one operator at a time, on the thread that called `run`, without locks or other threads.

    Every operator waits while another computes. So a consumer that blocks slows down its producer, even through a
    queue that drops messages; with the `DefaultScheduler` it does not.
    """

    def execute(self, run: Run) -> None:
        """Run operators until the run is over."""
        run.run_here()


@declared(kw_only=False)
class MultiThreadScheduler(Scheduler):
    """Runs operators on `worker_thread_number` threads and on the threads of the fragment's thread pools.

    One operator computes at a time; those that say that they wait, or work outside the interpreter
    (:attr:`Operator.parallel`), and those of thread pools compute beside it. A compute that has lasted a
    millisecond does not keep others from theirs.

    It waits for events, as the others do; `check_recession_period_ms` matters only for users' conditions that must
    be polled.

    Parameters
    ----------
    worker_thread_number
        The number of threads for operators without a thread pool.
    pin_cores
        The CPU cores that those threads may use; any unless given.
    """

    worker_thread_number: int = parameter(default=1, minimum=1, maximum=MOST_WORKERS, kw_only=True)
    _cores: Converted[Sequence[int] | None, tuple[int, ...] | None] = converted(
        whole_numbers, default=None, alias="pin_cores", kw_only=True
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.pin_cores = self._cores or ()

    @property
    def workers(self) -> int:
        """The number of worker threads."""
        return self.worker_thread_number

    def execute(self, run: Run) -> None:
        """Run operators until the run is over."""
        run.run_on_threads(self.worker_thread_number, self.pin_cores)


class EventBasedScheduler(MultiThreadScheduler):
    """Runs operators on `worker_thread_number` threads and on the threads of the fragment's thread pools.

    It is the same scheduler as `MultiThreadScheduler`, under the name of the Holoscan SDK.
    """


_MOST = 32
_FAULT = IOSpec.QueuePolicy.FAULT


class DefaultScheduler(Scheduler):
    """Runs operators on one thread, or on several if the program has a queue that drops, or a thread pool.

    Without these, operators run one at a time on the thread that called `run`, as with `GreedyScheduler`. With a
    queue that drops messages (`POP` or `REJECT`), its producer does not wait for its consumer: operators then run
    on as many worker threads as there are operators, at most 32, and on one more for each that joins the run. In
    virtual time such a program stays on one thread, so that every run is the same. Thread pools have their own
    threads, as with `EventBasedScheduler`.
    """

    # For the next or current run.
    _workers = 0

    @property
    def workers(self) -> int:
        """The number of worker threads of the last run; 0 if operators ran on the thread that called `run`."""
        return self._workers

    def prepare(self, fragment: Composition) -> None:
        """Choose the clock and the number of workers, for a run of a composed graph."""
        super().prepare(fragment)
        if not self.clock.is_virtual and any(map(_drops, fragment.graph)):
            self._workers = _most_workers(fragment)
        else:
            self._workers = 1 if fragment._headrace.thread_pools else 0

    def check_change(self, fragment: Composition) -> None:
        """Raise if the graph has a queue that drops now, and operators run on one thread."""
        if self._workers > 1 or self.clock.is_virtual:
            return
        for operator in fragment.graph:
            if _drops(operator):
                raise GraphError(
                    f"{fragment.name!r}: operator {operator.name!r} would get a queue that drops messages, and "
                    "the run has one thread, on which the producer of that queue would wait for its consumer: "
                    "the default scheduler chooses its threads when a run begins; declare such a queue in "
                    "compose(), or choose an EventBasedScheduler"
                )

    def follow_change(self, fragment: Composition) -> None:
        """Add a worker for each operator that joins a run on several threads: it may block as any other."""
        if self._workers > 1:
            self._workers = max(self._workers, _most_workers(fragment))
            self._run.add_threads(self._workers)

    def execute(self, run: Run) -> None:
        """Run operators until the run is over."""
        self._run = run
        if self._workers:
            run.run_on_threads(self._workers)
        else:
            run.run_here()


def _most_workers(fragment: Composition) -> int:
    return min(len(list(fragment.graph)), _MOST)


def _drops(operator: Operator) -> bool:
    """Return whether an operator has a queue that drops the messages of another operator."""
    return any(
        queue.policy is not _FAULT and any(flow.source is not operator for flow in queue.flows)
        for port in operator.spec.every_input.values()
        for queue in queues_of(operator, port)
    )


def chosen_scheduler(scheduler: Scheduler, options: RunOptions) -> Scheduler:
    """Return a scheduler for one run: `scheduler` with the changes that `options` ask for.

    The application's own scheduler is not changed. Both have the same clock.
    """
    changed = copy.copy(scheduler)
    chosen, workers = options.scheduler or (None, None)
    if chosen == "greedy":
        changed = GreedyScheduler(scheduler.fragment, clock=scheduler.clock, name=scheduler.name)
    elif chosen is not None:
        kind = EventBasedScheduler if chosen == "event" else MultiThreadScheduler
        # The default scheduler's own choice is not kept: it counts operators, and the program did not ask for it.
        own = scheduler if isinstance(scheduler, MultiThreadScheduler) else None
        changed = kind(
            scheduler.fragment,
            worker_thread_number=workers or (_cores() if own is None else own.workers),
            pin_cores=None if own is None else own.pin_cores,
            clock=scheduler.clock,
            name=scheduler.name,
        )
    wanted = [(getattr(options, name), getattr(scheduler, name)) for name in _LIMITS]
    changed.set_limits(*(own if asked is None else asked for asked, own in wanted))
    return changed


# The arguments of `Scheduler.set_limits`, attributes of schedulers and options of the environment.
_LIMITS = ("stop_on_deadlock", "stop_on_deadlock_timeout", "max_duration_ms", "check_recession_period_ms")


def _cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
