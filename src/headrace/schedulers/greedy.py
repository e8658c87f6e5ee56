"""GreedyScheduler: all operators on the thread that called `run`."""

from __future__ import annotations

from headrace.core.scheduler import Run, Scheduler


class GreedyScheduler(Scheduler):
    """Runs one operator at a time, on the thread that called `run`, without locks or other threads.

    Every operator waits while another computes. So a consumer that blocks slows down its producer, even through a
    queue that drops messages; with the `DefaultScheduler` it does not.
    """

    def execute(self, run: Run) -> None:
        """Run operators until the run is over."""
        run.run_here()
