"""Scheduler: on which threads ready operators run, and when a run ends.

The engine of the runtime knows which operators are ready, wakes those that wait, and detects the end. A scheduler
decides on which threads they run, and in which order if several are ready. It sees the run as the Protocols `Run`
and `Worker`, because core must not import the runtime.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar, Protocol

from headrace.core.clock import Clock, RealtimeClock
from headrace.core.construction import Inner
from headrace.core.parameters import Converted, converted, declared, parameter
from headrace.core.resource import InnerComponent, Resource
from headrace.core.values import boolean, milliseconds

if TYPE_CHECKING:
    from datetime import timedelta

    from headrace.core.composition import Composition
    from headrace.core.node import Node

SHORTEST_RECESSION_MS = 1.0
"""The shortest period of polling. With a period of 0 an idle run would use a whole core."""


class Worker(Protocol):
    """One thread that runs operators, for a scheduler that decides itself which of them runs next.

    Use it in a ``with`` block, which counts the thread as working for a clock of simulated time.
    """

    def take(self) -> Node | None:
        """Take the next operator that is ready, or return None if none is.

        A worker may take several and run them in any order. It runs all of them before it waits.
        """

    def run(self, node: Node) -> None:
        """Run the compute of an operator that was taken, and make those ready that wait for it.

        An exception of the compute is raised here. The scheduler lets it through, and the run ends with it.
        """

    def wait(self) -> bool:
        """Wait until something may be ready and return True, or return False if the run is over."""

    def __enter__(self) -> Worker: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Run(Protocol):
    """A run, as its scheduler sees it."""

    @property
    def clock(self) -> Clock:
        """The clock of the run."""

    def run_here(self) -> None:
        """Run all operators on this thread, to the end of the run."""

    def run_on_threads(self, count: int, cores: Sequence[int] = ()) -> None:
        """Run operators on `count` new threads, and on those of the thread pools, to the end of the run.

        The new threads are bound to `cores`, if any are given.
        """

    def add_threads(self, count: int) -> None:
        """Run operators on `count` threads in all from now on, if these are more; in `follow_change`."""

    def worker(self) -> Worker:
        """Return a worker for one thread; make the workers of all threads before the first of them takes."""

    def request_stop(self) -> None:
        """End the run; may be called from any thread."""


class InnerScheduler(InnerComponent):
    """The state of a scheduler, and what subclasses of headrace's own change about it."""

    clock_type: ClassVar[type[Clock]] = RealtimeClock
    """The clock of a scheduler that is given none."""
    clock_was_given = False


@declared(kw_only=False)
class Scheduler(Resource):
    """The base of schedulers; subclass it and write `execute`.

    ::

        class ShortestNameFirst(Scheduler):
            def execute(self, run: Run) -> None:
                with run.worker() as worker:
                    while True:
                        ready = []
                        while (node := worker.take()) is not None:
                            ready.append(node)
                        for node in sorted(ready, key=lambda node: len(node.operator.name)):
                            worker.run(node)
                        if not ready and not worker.wait():
                            return

    Parameters
    ----------
    fragment
        The fragment that it runs.
    clock
        The clock for every wait. By default it is a `RealtimeClock`, or the clock of the simulated machine that the
        run will use, if that machine is in virtual or paced time.
    stop_on_deadlock
        Whether the run ends when nothing is running, ready or pending.
    stop_on_deadlock_timeout
        The milliseconds of the clock's time to wait before that; with a negative value, the run never ends this
        way.
    max_duration_ms
        The milliseconds of the clock's time after which the run ends; a negative value means no bound.
    check_recession_period_ms
        The period at which a user's condition that returns WAIT is checked again while nothing else happens; at
        least 1 ms, which 0 means too.

    The last three are numbers of milliseconds, or a str with a unit such as ``"1.5s"``, or a timedelta.
    """

    _headrace = Inner(InnerScheduler)

    clock: Converted[Clock | None, Clock] = parameter(default=None, kw_only=True)
    stop_on_deadlock: bool = parameter(default=True, convert=boolean, kw_only=True)
    stop_on_deadlock_timeout: Converted[float | str | timedelta, int] = converted(
        milliseconds, default=0, kw_only=True
    )
    max_duration_ms: Converted[float | str | timedelta, float] = converted(
        milliseconds, default=-1, kw_only=True
    )
    check_recession_period_ms: Converted[float | str | timedelta, float] = converted(
        milliseconds, default=5.0, kw_only=True
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        clock: object = self.clock
        if not isinstance(clock, Clock | None):
            raise TypeError(f"{self.name!r}: clock must be a Clock, not {type(clock).__name__}")
        self._headrace.clock_was_given = clock is not None
        self.clock = self._headrace.clock_type(self.fragment) if clock is None else clock
        self.set_limits(
            self.stop_on_deadlock,
            self.stop_on_deadlock_timeout,
            self.max_duration_ms,
            self.check_recession_period_ms,
        )

    def set_limits(
        self,
        stop_on_deadlock: bool,
        stop_on_deadlock_timeout: float | str | timedelta,
        max_duration_ms: float | str | timedelta,
        check_recession_period_ms: float | str | timedelta,
    ) -> None:
        """Set when a run ends by itself, and how often conditions are polled."""
        where = f"scheduler {self.name!r}: "
        timeout = milliseconds(stop_on_deadlock_timeout, f"{where}stop_on_deadlock_timeout")
        self.stop_on_deadlock_timeout = math.ceil(timeout)
        self.stop_on_deadlock = boolean(stop_on_deadlock, f"{where}stop_on_deadlock") and timeout >= 0
        self.max_duration_ms = milliseconds(max_duration_ms, f"{where}max_duration_ms")
        period = milliseconds(check_recession_period_ms, f"{where}check_recession_period_ms")
        if period < 0:
            raise ValueError(f"{where}check_recession_period_ms must not be negative, and is {period}")
        self.check_recession_period_ms = max(float(period), SHORTEST_RECESSION_MS)

    def prepare(self, fragment: Composition) -> None:
        """Prepare for a run of a composed graph."""

    def check_change(self, fragment: Composition) -> None:
        """Raise GraphError if the run cannot go on with a graph that was changed while it runs."""

    def follow_change(self, fragment: Composition) -> None:
        """Follow a graph that was changed while it runs; called when nothing computes."""

    @property
    def workers(self) -> int:
        """The number of worker threads; 0 when operators run on the thread that called `run`."""
        return 0

    def execute(self, run: Run) -> None:
        """Run operators until the run is over."""
        raise NotImplementedError
