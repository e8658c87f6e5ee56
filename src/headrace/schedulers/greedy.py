"""GreedyScheduler: all operators on the thread that called `run`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace._runtime import run_single_threaded
from headrace.core.scheduler import Scheduler

if TYPE_CHECKING:
    from headrace._runtime import Engine

__all__ = ["GreedyScheduler"]


class GreedyScheduler(Scheduler):
    """Runs one operator at a time, on the thread that called `run`, without locks or other threads.

    Every operator waits while another computes. So a consumer that blocks slows down its producer, even through a
    queue that drops messages; with the `DefaultScheduler` it does not.
    """

    def execute(self, engine: Engine) -> None:
        """Run until the engine is finished."""
        with engine.clock.attach():
            run_single_threaded(engine)
