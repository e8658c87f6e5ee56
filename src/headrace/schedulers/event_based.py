"""EventBasedScheduler: operators on several worker threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.schedulers.multi_thread import MultiThreadScheduler

if TYPE_CHECKING:
    from headrace.core.composition import Composition


class EventBasedScheduler(MultiThreadScheduler):
    """Runs operators on `worker_thread_number` threads and on the threads of the fragment's thread pools.

    It is the same scheduler as `MultiThreadScheduler`, under the name that programs for the Holoscan SDK use.

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
        **kwargs: Any,
    ) -> None:
        super().__init__(fragment, worker_thread_number=worker_thread_number, **kwargs)
        self.enable_queue_stealing = enable_queue_stealing
        self.steal_scan_limit = steal_scan_limit
        self.enable_worker_postcheck_fastpath = enable_worker_postcheck_fastpath
