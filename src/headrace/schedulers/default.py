"""DefaultScheduler: the scheduler of an application that sets none.

It runs all operators on the thread that called `run`, as `GreedyScheduler` does, unless the program declares that
operators do not wait for each other: by a queue that drops messages (POP or REJECT), or by a thread pool. A queue
that drops does not slow down its producer. One thread cannot keep that promise: while the consumer of such a queue
computes, or waits for a device, its producer could not run, and a camera would lose frames that nobody counts. So
such a program gets worker threads, as with `EventBasedScheduler`.

Why not worker threads always? A program without such a queue gains little, because its slow operators slow down
their producers in any case. Its branches would run in another order in each run, and code that belongs to one
thread (a window, a database connection, PyTorch's gradient mode) would fail. Nor does the scheduler measure whether
an operator blocks and then start threads: the same program would run on one thread or on several, depending on the
machine and its load. What a program declares is the same everywhere.

There are as many workers as operators, since each operator may block, up to `_MOST`; those that join the run bring
theirs. A worker that has nothing to
do costs no time: a thread is woken only for an operator that computes beside others, or if a compute lasts
(`workers`).

In virtual time (`Clock.is_virtual`) one thread runs all operators, because every run is to be the same: the order
of computes at one moment would depend on which thread was faster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.core.errors import GraphError
from headrace.core.graph import queues_of
from headrace.core.ports import IOSpec
from headrace.core.scheduler import Run, Scheduler

if TYPE_CHECKING:
    from headrace.core.composition import Composition
    from headrace.core.operator import Operator

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
