"""Applications whose compose is a function, under each scheduler and in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headrace import Application
from headrace.core import Clock, Scheduler
from headrace.gpu.sim import machine as simulated
from headrace.resources import ManualClock
from headrace.schedulers import EventBasedScheduler, GreedyScheduler, MultiThreadScheduler
from tests.limits import THOROUGH

MakeScheduler = Callable[..., Scheduler]


def greedy(app: Application, **settings: Any) -> Scheduler:
    return GreedyScheduler(app, **_in_virtual_time(app, settings))


def multi_thread(app: Application, **settings: Any) -> Scheduler:
    return MultiThreadScheduler(app, worker_thread_number=3, **_in_virtual_time(app, settings))


def event_based(app: Application, workers: int = 2, **settings: Any) -> Scheduler:
    return EventBasedScheduler(app, worker_thread_number=workers, **_in_virtual_time(app, settings))


# The two schedulers with threads are one scheduler under two names; here they differ in the number of threads.
THREADED: list[MakeScheduler] = [multi_thread, event_based] if THOROUGH else [event_based]
SCHEDULERS: list[MakeScheduler] = [greedy, *THREADED]
# Numbers of threads that are more than one; `event_based` has two.
SEVERAL = [2, 3, 5] if THOROUGH else [3]
threaded = pytest.mark.parametrize("scheduler", THREADED)


class App(Application):
    """An application whose compose is a function.

    Parameters
    ----------
    compose
        Adds operators and flows to the application.
    scheduler
        Makes the scheduler, from the application and `settings`.
    settings
        Passed to the scheduler. With ``clock=None`` the scheduler chooses its clock itself, as in a program.
    """

    def __init__(
        self, compose: Callable[[Any], None], scheduler: MakeScheduler = greedy, **settings: Any
    ) -> None:
        super().__init__([])
        self._compose = compose
        self._make_scheduler = scheduler
        self._settings = settings

    def compose(self) -> None:
        self.scheduler(self._make_scheduler(self, **self._settings))
        self._compose(self)

    @property
    def outcome(self) -> Any:
        """What became of the last run; a test knows whether there was one."""
        return super().outcome

    @property
    def now(self) -> int:
        """The time of the scheduler's clock, in nanoseconds."""
        return self.scheduler().clock.timestamp()


def run(compose: Callable[[Any], None], scheduler: MakeScheduler = greedy, **settings: Any) -> App:
    """Run an application whose compose is a function, and return it."""
    app = App(compose, scheduler, **settings)
    app.run()
    return app


def _in_virtual_time(app: Application, settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings with a clock in virtual time, unless they name one."""
    return settings if "clock" in settings else {**settings, "clock": _virtual_clock(app)}


def _virtual_clock(app: Application) -> Clock | None:
    # A scheduler without a clock takes that of the simulated machine. current_machine() would make a machine.
    machine = simulated._current
    is_virtual = machine is not None and machine.time == "virtual"
    return None if is_virtual else ManualClock(app)
