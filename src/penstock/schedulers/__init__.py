"""The catalogue of schedulers: on which threads operators run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core.registry import registry
from penstock.schedulers.event_based import EventBasedScheduler
from penstock.schedulers.greedy import GreedyScheduler
from penstock.schedulers.multi_thread import MultiThreadScheduler

if TYPE_CHECKING:
    from penstock.core.run_options import RunOptions
    from penstock.core.scheduler import Scheduler

__all__ = ["EventBasedScheduler", "GreedyScheduler", "MultiThreadScheduler"]


def _chosen_scheduler(scheduler: Scheduler, options: RunOptions) -> Scheduler:
    from penstock.schedulers.chosen import chosen_scheduler

    return chosen_scheduler(scheduler, options)


registry.default_scheduler = GreedyScheduler
registry.chosen_scheduler = _chosen_scheduler
