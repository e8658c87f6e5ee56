"""A clock in virtual time that counts how often workers are woken."""

from __future__ import annotations

from typing import Any

from headrace import EventBasedScheduler
from headrace._runtime.scheduling.ready_queue import Parker
from headrace.resources import MachineClock
from tests.harness import MakeScheduler
from tests.harness.application import SEVERAL

MS = 1_000_000  # nanoseconds
WORKERS = [1, *SEVERAL]


class CountingClock(MachineClock):
    """The clock of a virtual machine, which counts how often workers are woken and how often they wake."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.unparked = 0
        self.parked = 0

    def unpark(self, parker: Parker) -> None:
        self.unparked += 1
        super().unpark(parker)

    def park(self, parker: Parker, seconds: float | None) -> bool:
        self.parked += 1
        return super().park(parker, seconds)


def in_virtual_time(workers: int, **settings: Any) -> MakeScheduler:
    """Return what makes an event-based scheduler with a `CountingClock`."""

    def make(app: Any, **more: Any) -> Any:
        return EventBasedScheduler(
            app, clock=CountingClock(app), worker_thread_number=workers, **settings, **more
        )

    return make
