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
        failure: BaseException | None = None
        with engine.clock.attach():
            try:
                run_single_threaded(engine)
            except BaseException as error:
                # Raised only outside: a context manager written as a generator sets the traceback of an exception
                # that passes through it, which a frozen one refuses.
                failure = error
        if failure is not None:
            try:
                raise failure
            finally:
                del failure  # the frame refers to it, and its traceback to the frame
