"""MultiThreadScheduler and EventBasedScheduler: operators on several worker threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from headrace.core.run_options import MOST_WORKERS
from headrace.core.scheduler import Run, Scheduler, SchedulerOptions
from headrace.core.values import whole_number, whole_numbers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.core.composition import Composition


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
    strict_job_thread_pinning
        Accepted for compatibility.
    """

    def __init__(
        self,
        fragment: Composition | None = None,
        *,
        worker_thread_number: int = 1,
        pin_cores: Sequence[int] | None = None,
        strict_job_thread_pinning: bool = False,
        **kwargs: Unpack[SchedulerOptions],
    ) -> None:
        super().__init__(fragment, **kwargs)
        where = f"scheduler {self.name!r}: "
        self.worker_thread_number = whole_number(
            worker_thread_number, f"{where}worker_thread_number", 1, MOST_WORKERS
        )
        self.pin_cores = () if pin_cores is None else whole_numbers(pin_cores, f"{where}pin_cores")
        # Accepted for compatibility: a thread that an operator is pinned to never runs another operator.
        self.strict_job_thread_pinning = strict_job_thread_pinning

    @property
    def workers(self) -> int:
        """The number of worker threads."""
        return self.worker_thread_number

    def execute(self, run: Run) -> None:
        """Run operators until the run is over."""
        run.run_on_threads(self.worker_thread_number, self.pin_cores)


class ThreadOptions(SchedulerOptions, total=False):
    """The keyword arguments that :class:`EventBasedScheduler` passes on."""

    pin_cores: Sequence[int] | None
    strict_job_thread_pinning: bool


class EventBasedScheduler(MultiThreadScheduler):
    """Runs operators on `worker_thread_number` threads and on the threads of the fragment's thread pools.

    It is the same scheduler as `MultiThreadScheduler`, under the name of the Holoscan SDK.

    Parameters
    ----------
    worker_thread_number
        The number of threads for operators without a thread pool.
    enable_queue_stealing, steal_scan_limit, enable_worker_postcheck_fastpath
        Accepted for compatibility: the workers share one queue, so there is nothing to steal.
    """

    def __init__(
        self,
        fragment: Composition | None = None,
        *,
        worker_thread_number: int = 1,
        enable_queue_stealing: bool = False,
        steal_scan_limit: int = 0,
        enable_worker_postcheck_fastpath: bool = False,
        **kwargs: Unpack[ThreadOptions],
    ) -> None:
        super().__init__(fragment, worker_thread_number=worker_thread_number, **kwargs)
        self.enable_queue_stealing = enable_queue_stealing
        self.steal_scan_limit = steal_scan_limit
        self.enable_worker_postcheck_fastpath = enable_worker_postcheck_fastpath
