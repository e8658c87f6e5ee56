"""The catalogue of schedulers: on which threads operators run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.core.registry import registry
from headrace.schedulers.default import DefaultScheduler
from headrace.schedulers.event_based import EventBasedScheduler
from headrace.schedulers.greedy import GreedyScheduler
from headrace.schedulers.multi_thread import MultiThreadScheduler

if TYPE_CHECKING:
    from headrace.core.run_options import RunOptions
    from headrace.core.scheduler import Scheduler

__all__ = ["DefaultScheduler", "EventBasedScheduler", "GreedyScheduler", "MultiThreadScheduler"]


def _chosen_scheduler(scheduler: Scheduler, options: RunOptions) -> Scheduler:
    from headrace.schedulers.chosen import chosen_scheduler

    return chosen_scheduler(scheduler, options)


registry.default_scheduler = DefaultScheduler
registry.chosen_scheduler = _chosen_scheduler
