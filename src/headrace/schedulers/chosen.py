"""The scheduler that the environment chooses for a run, in place of the application's own."""

from __future__ import annotations

import copy
import os
from typing import TYPE_CHECKING, Any

from headrace.core.scheduler import Scheduler, recession_period
from headrace.schedulers.event_based import EventBasedScheduler
from headrace.schedulers.greedy import GreedyScheduler
from headrace.schedulers.multi_thread import MultiThreadScheduler

if TYPE_CHECKING:
    from headrace.core.run_options import RunOptions


def chosen_scheduler(scheduler: Scheduler, options: RunOptions) -> Scheduler:
    """Return a scheduler for one run: `scheduler` with the changes that `options` ask for.

    The application's own scheduler is not changed. Both have the same clock.
    """
    if options.scheduler is None:
        changed = copy.copy(scheduler)
    elif options.scheduler == "greedy":
        changed = GreedyScheduler(scheduler.fragment, **_common(scheduler))
    else:
        kind = EventBasedScheduler if options.scheduler == "event" else MultiThreadScheduler
        # The default scheduler's own choice is not kept: it counts operators, and the program did not ask for it.
        own = scheduler if isinstance(scheduler, MultiThreadScheduler) else None
        changed = kind(
            scheduler.fragment,
            worker_thread_number=options.workers or (_cores() if own is None else own.workers),
            pin_cores=None if own is None else own.pin_cores,
            **_common(scheduler),
        )
    if options.max_duration_ms is not None:
        changed.max_duration_ms = options.max_duration_ms
    if options.stop_on_deadlock_timeout is not None:
        changed.stop_on_deadlock_timeout = options.stop_on_deadlock_timeout
        changed.stop_on_deadlock = changed.stop_on_deadlock and options.stop_on_deadlock_timeout >= 0
    if options.stop_on_deadlock is not None:
        changed.stop_on_deadlock = options.stop_on_deadlock and changed.stop_on_deadlock_timeout >= 0
    if options.check_recession_period_ms is not None:
        changed.check_recession_period_ms = recession_period(
            options.check_recession_period_ms, "check_recession_period_ms"
        )
    return changed


def _common(scheduler: Scheduler) -> dict[str, Any]:
    """Return the parameters that every scheduler has."""
    return {
        "clock": scheduler.clock,
        "stop_on_deadlock": scheduler.stop_on_deadlock,
        "stop_on_deadlock_timeout": scheduler.stop_on_deadlock_timeout,
        "max_duration_ms": scheduler.max_duration_ms,
        "check_recession_period_ms": scheduler.check_recession_period_ms,
        "name": scheduler.name,
    }


def _cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
