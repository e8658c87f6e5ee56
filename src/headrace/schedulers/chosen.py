"""The scheduler that the environment chooses for a run, in place of the application's own."""

from __future__ import annotations

import copy
import os
from typing import TYPE_CHECKING

from headrace.core.scheduler import Scheduler
from headrace.schedulers.greedy import GreedyScheduler
from headrace.schedulers.multi_thread import EventBasedScheduler, MultiThreadScheduler

if TYPE_CHECKING:
    from headrace.core.run_options import RunOptions


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
