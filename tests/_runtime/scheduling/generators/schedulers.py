"""Schedulers with one worker and with many, in virtual and in real time."""

from __future__ import annotations

from typing import Any

from headrace import Application, EventBasedScheduler
from headrace.resources import ManualClock, RealtimeClock
from tests.harness import SCHEDULERS, MakeScheduler


def workers(count: int) -> MakeScheduler:
    def make(app: Application, **kwargs: Any) -> EventBasedScheduler:
        clock = kwargs.pop("clock", None) or ManualClock(app)
        return EventBasedScheduler(app, clock=clock, worker_thread_number=count, **kwargs)

    make.__name__ = f"workers_{count}"
    return make


def real_time(app: Application, **kwargs: Any) -> EventBasedScheduler:
    return EventBasedScheduler(app, clock=RealtimeClock(app), worker_thread_number=3, **kwargs)


WITH_MORE_WORKERS = [*SCHEDULERS, workers(1), workers(5), real_time]
