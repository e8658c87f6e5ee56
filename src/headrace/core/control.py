"""RunControl: stops, pauses and steps of a run, from the call of `run` to its end, from any thread.

TimeBase: what the timestamps of a run mean to others, which its parts and other programs have to know.

A timestamp is in nanoseconds of the run's clock, or since 1970. The two are told apart by their size
(`SINCE_1970`): a run's clock that begins at 0 reaches such a time after 31 years, and one that shows the time since
1970 means it.

A run's clock begins at 0 unless it is told otherwise, so its times mean nothing without the moment of that 0. On
one host that moment is given by CLOCK_MONOTONIC, which all processes read alike, so a conversion there is exact.
Between hosts it is given since 1970, as their clocks show it, and is as good as these agree (NTP, PTP).

Decided against: CLOCK_TAI, which is CLOCK_REALTIME on every host where nobody has set its offset; a conversion with
both clocks read anew for each message, of which two with the same timestamp would get different ones.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple, Protocol, TypeAlias

from headrace import waits
from headrace.gpu.backend import aside

Request: TypeAlias = tuple[str, int, str]
PAUSE = "pause"
STEP = "step"
RESUME = "resume"
RUNNING = "is running"
"""What a fragment does, for errors."""


SINCE_1970 = 10**18
"""Timestamps from here on count the nanoseconds since 1970; smaller ones are of the run's clock."""


def counts_since_1970(timestamp: float) -> bool:
    """Return whether a timestamp counts since 1970, and so means the same in all programs."""
    return timestamp >= SINCE_1970


def clock_name() -> str:
    """Return a name for the clock of this process, which is the same in all processes that read it; or nothing.

    Containers of one host may have clocks of their own, in time namespaces.
    """
    with suppress(OSError):
        name = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        with suppress(OSError):  # before Linux 5.6 there is one clock
            name += " " + os.readlink("/proc/self/ns/time")
        return name
    return ""


class TimeBase(NamedTuple):
    """When a run's clock showed 0.

    Attributes
    ----------
    clock
        The name of the host's clock (`clock_name`).
    zero
        The moment by that clock (CLOCK_MONOTONIC), in nanoseconds.
    since_1970
        The moment in nanoseconds since 1970.
    """

    clock: str
    zero: int
    since_1970: int

    @classmethod
    def of(cls, zero: int) -> TimeBase:
        """Return the base of a clock of this process that showed 0 at a moment of CLOCK_MONOTONIC."""
        return cls(clock_name(), zero, zero + _since_1970())

    def convert(self, timestamp: int, to: TimeBase) -> int:
        """Return a timestamp of this clock as another one shows it."""
        if counts_since_1970(timestamp):
            return timestamp
        if self.clock and self.clock == to.clock:
            return timestamp + self.zero - to.zero
        return timestamp + self.since_1970 - to.since_1970


def _since_1970() -> int:
    """Return the nanoseconds since 1970 at 0 of CLOCK_MONOTONIC; of a few readings, by the quickest."""
    readings = []
    for _ in range(5):
        before = time.monotonic_ns()
        shown = time.time_ns()
        after = time.monotonic_ns()
        readings.append((after - before, shown - (before + after) // 2))
    return min(readings)[1]


class ControlledEngine(Protocol):
    """The engine of a run, which core must not import."""

    @property
    def gate(self) -> Any:
        """What opens and closes the run: `requests`, `wake` and `wait`."""

    @property
    def stopping(self) -> bool:
        """Whether the run is ending."""

    def request_stop(self, ended_by: str = "stopped") -> None:
        """End the run; may be called from any thread."""


class RunControl:
    """The control of one use of a fragment: a run, or composing without one.

    Any thread may stop, pause or step the run at any time, even before there is an engine.
    `stop` first sets `stop_wanted` and then looks for an engine; `begin` first sets the engine and then checks
    `stop_wanted`. So at least one of them sees the other. Pauses, steps and resumes are appended to `requests`,
    from which the engine takes them in their order (`_runtime/scheduling/gate`).

    Attributes
    ----------
    has_started
        Whether every operator has started.
    drain_wanted
        Whether the sources of the run were told to end, so that it ends after them.
    requests
        What was requested and not carried out yet: the kind, and for steps their number and the operator, if one
        was named. Any thread appends.
    errors
        The errors with which the run was told to fail. Any thread appends; the run takes them when it ends.
    pause_wanted
        Whether the last request was to pause or to step.
    run_id
        A name of the run, for logs.
    began
        When the clock of the run began, for a part of a run; None if it begins here and now.
    set_elsewhere
        Sets a live parameter or a knob of an operator that computes in another process: takes the operator, the
        method (``"set_live"`` or ``"set_knob"``), the name and the value. None if operators compute here.
    """

    def __init__(self, doing: str) -> None:
        self.doing = doing
        self.run_id = os.urandom(6).hex() if doing else ""
        self.engine: ControlledEngine | None = None
        # What changes the graph of the run, once it has begun (`_runtime/lifecycle/changes`).
        self.changes: Any = None
        self.stop_wanted = False
        self.drain_wanted = False
        # Called after a stop was requested, on the thread that requested it.
        self.on_stop: Callable[[], None] | None = None
        self.pause_wanted = False
        self.requests: deque[Request] = deque()
        self.has_started = False
        self.errors: deque[BaseException] = deque()
        self.set_elsewhere: Callable[[Any, str, str, Any], None] | None = None
        self.began: TimeBase | None = None
        self._has_begun = threading.Event()
        self._is_under_way = threading.Event()  # or it ended before
        self.has_ended = False
        """Whether the use is over; set after `failure`."""
        self.failure: BaseException | None = None
        """What the run raised, once it has ended."""
        self.error: BaseException | None = None
        """The first error of a run that is stopping its operators."""
        self._at_end: deque[Callable[[], object]] = deque()

    @property
    def is_run(self) -> bool:
        """Whether it controls a run, and not composing without one."""
        return self.doing == RUNNING

    def begin(self, engine: ControlledEngine) -> None:
        """Set the engine of the run, and stop it if a stop was requested before."""
        engine.gate.requests = self.requests
        self.engine = engine
        if self.stop_wanted:
            engine.request_stop()
        if self.requests:
            engine.gate.wake()
        self._has_begun.set()

    @property
    def is_stopping(self) -> bool:
        """Whether the run was stopped, or is ending by itself."""
        return self.stop_wanted or (self.engine is not None and self.engine.stopping)

    @property
    def has_begun(self) -> bool:
        """Whether the operators of the run exist, here or elsewhere: what is set now is set in this run."""
        return self.engine is not None or self.set_elsewhere is not None

    def drain_elsewhere(self) -> bool:
        """End the sources of a run in other processes; return whether there is one that has begun."""
        return False

    def problems(self) -> list[str]:
        """Return what is wrong with operators that compute elsewhere, in words."""
        return []

    def start(self) -> None:
        """Record that every operator has started."""
        self.has_started = True
        self._is_under_way.set()

    @classmethod
    def of_no_run(cls) -> RunControl:
        """Return a control that has no effect, because there is no run."""
        control = cls("")
        control.end()
        return control

    def end(self) -> None:
        """End the waits for a run, because it is over or there will be none."""
        self._has_begun.set()
        self._is_under_way.set()
        self.has_ended = True
        self._call_at_end()

    def wait_until_begun(self) -> None:
        """Wait until the graph of the run is composed, or the run has ended before that."""
        waits.wait(self._has_begun)

    def call_at_end(self, callback: Callable[[], object]) -> None:
        """Call a function when the run has ended, once; at once if it has."""
        self._at_end.append(callback)
        if self.has_ended:
            self._call_at_end()

    def _call_at_end(self) -> None:
        while True:
            try:
                callback = self._at_end.popleft()  # atomic: two threads never call the same one
            except IndexError:
                return
            callback()

    def stop(self, ended_by: str = "stopped") -> None:
        """Stop the run; may be called from any thread. `ended_by` is how it ends, if it has begun."""
        self.stop_wanted = True
        engine = self.engine
        if engine is not None:
            engine.request_stop(ended_by)
        if self.on_stop is not None:
            self.on_stop()

    def fail(self, error: BaseException) -> None:
        """Stop the run, and let it raise `error`; may be called from any thread."""
        self.errors.append(error)
        self.stop()

    def pause(self) -> None:
        """Pause the run; may be called from any thread."""
        self.pause_wanted = True
        self._request((PAUSE, 0, ""))

    def resume(self) -> None:
        """End a pause; may be called from any thread."""
        self.pause_wanted = False
        self._request((RESUME, 0, ""))

    def step(self, count: int, op_name: str = "") -> None:
        """Let `count` computes begin, of an operator or of any; pause the run first if it is not paused."""
        self.pause_wanted = True
        self._request((STEP, count, op_name))

    def _request(self, request: Request) -> None:
        self.requests.append(request)
        engine = self.engine
        if engine is not None:
            engine.gate.wake()

    def wait_until_started(self, timeout: float | None) -> bool:
        """Wait until every operator has started; return whether that is so."""
        with aside():
            waits.wait(self._is_under_way, timeout)
        return self.has_started

    def wait_until_paused(self, timeout: float | None) -> bool:
        """Wait until the run is paused and nothing computes; return whether that is so."""
        began = monotonic()
        waits.wait(self._has_begun, timeout)
        engine = self.engine
        if engine is None:
            return False
        left = None if timeout is None else max(timeout - (monotonic() - began), 0.0)
        with aside():
            return bool(engine.gate.wait(left))
