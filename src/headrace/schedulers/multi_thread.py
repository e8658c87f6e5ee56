"""MultiThreadScheduler: operators on several worker threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace._runtime import run_workers
from headrace.core.run_options import MOST_WORKERS
from headrace.core.scheduler import Scheduler

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace._runtime import Engine
    from headrace.core.fragment import Fragment

__all__ = ["MultiThreadScheduler"]


class MultiThreadScheduler(Scheduler):
    """Runs operators on `worker_thread_number` threads and on the threads of the fragment's thread pools.

    In the Holoscan SDK this scheduler polls. Here it waits for events, as the others do, and
    `check_recession_period_ms` matters only for users' conditions that must be polled.

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
        fragment: Fragment | None = None,
        *,
        worker_thread_number: int = 1,
        pin_cores: Sequence[int] | None = None,
        strict_job_thread_pinning: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(fragment, **kwargs)
        if isinstance(worker_thread_number, bool) or not isinstance(worker_thread_number, int):
            raise TypeError(f"worker_thread_number must be an int, not {worker_thread_number!r}")
        if not 1 <= worker_thread_number <= MOST_WORKERS:
            raise ValueError(
                f"worker_thread_number must be from 1 to {MOST_WORKERS}, not {worker_thread_number}"
            )
        self.worker_thread_number = worker_thread_number
        self.pin_cores = tuple(pin_cores or ())
        # Accepted for compatibility: a thread that an operator is pinned to never runs another operator.
        self.strict_job_thread_pinning = strict_job_thread_pinning

    @property
    def workers(self) -> int:
        """The number of worker threads."""
        return self.worker_thread_number

    def execute(self, engine: Engine) -> None:
        """Run until the engine is finished."""
        pools = engine.nodes[0].operator.fragment._thread_pools
        run_workers(engine, self.worker_thread_number, self.pin_cores, pools)
