"""The catalogue of schedulers, on which threads operators run; and what a scheduler of one's own needs."""

from __future__ import annotations

from headrace.core.scheduler import Run, Scheduler, Worker
from headrace.schedulers.default import DefaultScheduler
from headrace.schedulers.greedy import GreedyScheduler
from headrace.schedulers.multi_thread import EventBasedScheduler, MultiThreadScheduler

__all__ = [
    "DefaultScheduler",
    "EventBasedScheduler",
    "GreedyScheduler",
    "MultiThreadScheduler",
    "Run",
    "Scheduler",
    "Worker",
]
