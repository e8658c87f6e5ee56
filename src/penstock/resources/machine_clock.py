"""MachineClock: the time of a simulated machine, so that a pipeline and its device share one clock."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, ClassVar

from penstock.core.clock import Clock

if TYPE_CHECKING:
    from penstock.core.fragment import Fragment
    from penstock.gpu.sim import Machine
    from penstock.runtime.parker import Parker

__all__ = ["MachineClock", "machine_clock"]


class MachineClock(Clock):
    """The clock of a simulated machine.

    In virtual time it moves when every worker sleeps, to the next thing that happens on the device or that a
    worker waits for; a pipeline on it takes no time and is the same in every run.

    Parameters
    ----------
    machine
        The machine; the current one unless given.
    """

    passes: ClassVar[bool] = True

    def __init__(
        self, fragment: Fragment | None = None, machine: Machine | None = None, *, name: str = "machine_clock"
    ) -> None:
        super().__init__(fragment, name=name)
        from penstock.gpu import sim

        self.machine = sim.current_machine() if machine is None else machine

    def timestamp(self) -> int:
        """Give the time in nanoseconds."""
        timeline = self.machine.timeline
        with timeline.lock:
            return timeline.host_now()

    def sleep_until(self, target_time_ns: int) -> None:
        """Sleep until the machine's clock shows `target_time_ns`."""
        remaining = target_time_ns - self.timestamp()
        if remaining > 0:
            self.machine.timeline.sleep(remaining)

    def seconds_until(self, target_time_ns: int) -> float:
        """Give the seconds of the machine's time until it shows a time."""
        return (target_time_ns - self.timestamp()) / 1e9

    def park(self, parker: Parker, seconds: float | None) -> bool:
        """Have a worker sleep in the machine's time."""
        woken = False

        def is_woken() -> bool:
            nonlocal woken  # asked more than once, and not only by this thread; a wake-up can be taken once
            woken = woken or parker.take()
            return woken

        return self.machine.wait(is_woken, seconds)

    def unpark(self, parker: Parker) -> None:
        """End the wait of a worker that is parked in the machine's time."""
        parker.unpark()
        self.machine.notify()

    def attach(self) -> AbstractContextManager[None]:
        """Count this thread: virtual time stands still while it runs."""
        return self.machine.attach()


def machine_clock(fragment: Fragment | None) -> MachineClock | None:
    """Give a clock of the current simulated machine if that is in virtual time; imports and makes nothing."""
    import sys

    module = sys.modules.get("penstock.gpu.sim.machine")
    machine: Machine | None = None if module is None else module._current
    if machine is None or not machine.timeline.virtual:
        return None
    return MachineClock(fragment, machine)
