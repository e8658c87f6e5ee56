"""PacedTimeline: virtual time that follows the wall clock.

It runs due actions on its own thread, so a program may wait for the device in any way: in ``sync``, for a lock
that a callback releases, or in ``time.sleep``. It is the default for programs that create no machine, and follows
these rules:

* While the program works, time stands still: the host's work between two calls takes no time.
* While the program waits for the device, time passes at the pace of the wall clock and never faster. The
  program waits when every attached thread waits, or any thread if none is attached. A kernel of 2 ms thus takes
  at least 2 ms by any clock, and exactly 2 ms by the device's own events.
* A thread that does not use the device for :data:`AWAY_NS` is assumed to wait for something else: a sleep, a lock,
  a file. Time then passes too, and all of the time it was away counts. ``time.sleep`` between two launches thus has
  the effect that it has on a real device, and no program hangs because time stands still.
* Time passes after a program has worked for :data:`STANDSTILL_NS` without waiting, until it waits. So timers still
  fire meanwhile.

Time that has stood still is lost: ``_lag``, the wall clock minus this clock, never shrinks.

Decided against: the time of the wall clock itself. The time that Python and the simulation take between two calls
would count as host time, far more than the host of a real GPU takes, and hide the effect of partitions.

Virtual time was rejected as the default because it jumps. A program that times kernels with the wall clock would
measure nothing, a program that waits for a lock that a callback releases would wait forever, and a sleep would have
no effect.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from headrace import waits
from headrace.gpu.callbacks import report_uncaught
from headrace.gpu.sim.timeline import POLLS_TOLERATED, Timeline, _Wait

# How long a thread may go without using the device before it is assumed to wait for something else.
AWAY_NS = 1_000_000

# The longest time for which time stands still while a program works without waiting.
STANDSTILL_NS = 50_000_000

# How long closing waits for user code that the timeline's thread may be running, in seconds.
_JOIN_TIMEOUT = 1.0


class PacedTimeline(Timeline):
    """Virtual time that never runs ahead of the wall clock, and passes while a program waits for something else."""

    kind = "paced"

    def __init__(self) -> None:
        super().__init__()
        self._wakeup = threading.Condition(self.lock)  # only the timeline's thread waits on it
        self._thread: threading.Thread | None = None
        self._wants_wakeup = False  # whether the thread waits and must be notified of newly scheduled actions
        wall = time.monotonic_ns()
        self._lag = wall  # the wall clock minus this clock, when a thread of the program last used the device
        self._last_active = wall  # the time of that use, or of the last wake-up of the program
        self._last_waited = wall  # when the program last waited
        self._reached = -1  # actions due by then run, whether or not time passes now
        self._in_user_code = False

    def close(self) -> None:
        """Stop: no further action runs, and waiting threads get an error."""
        super().close()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            # The thread may be running user code that waits for the closing thread.
            waits.join(thread, _JOIN_TIMEOUT)

    def _work_added(self) -> None:
        if self._thread is None and not self._stopped:
            self._thread = threading.Thread(target=self._run, name="headrace-sim", daemon=True)
            self._thread.start()
        elif self._wants_wakeup:
            self._wakeup.notify()

    def _wake_all(self) -> None:
        super()._wake_all()
        self._wakeup.notify()

    def host_now(self) -> int:
        """Return the host's time in nanoseconds, the timestamp of a call made now."""
        if self._stepper != threading.get_ident():
            self._note_activity()
        return self.now

    def read(self) -> int:
        """Return the time; reading the clock does not count as using the device."""
        if self._stepper != threading.get_ident():
            self._catch_up(time.monotonic_ns())
        return self.now

    def wall_now(self) -> int:
        """Return what the host's monotonic clock showed at the simulated moment, in nanoseconds."""
        return self.now + self._lag

    # -- calls from the program's threads, with the lock held -----------------------------------------

    def _note_activity(self, *, counts: bool = False) -> None:
        """Record that a thread of the program uses the device. Time that has stood still until now is lost.

        With ``counts``, the time since the last use passes, however short it was.
        """
        wall = time.monotonic_ns()
        self._catch_up(wall, counts=counts)
        self._lag = wall - self.now
        self._last_active = wall

    def _catch_up(self, wall: int, *, counts: bool = False) -> None:
        """Advance the clock to the present, and run the actions due until then."""
        if not self._time_passes(wall) and (not counts or self._in_user_code):
            return
        here = wall - self._lag
        thread, self._stepper = self._stepper, threading.get_ident()
        try:
            # User code is left to the timeline's thread, and time does not pass beyond it.
            while not self._user_code:
                moment = self._next_moment()
                if moment is None or moment > here:
                    self.now = max(self.now, here)
                    break
                self._step()
                if any(map(self._is_over, self._waits)):
                    self._changed.notify_all()
                    break
            else:
                self._wakeup.notify()
        finally:
            self._stepper = thread
        self._reached = self.now

    def _register(self, wait: _Wait) -> None:
        super()._register(wait)
        self._work_added()
        self._wakeup.notify()  # time may pass from now on

    def _unregister(self, wait: _Wait) -> None:
        if not self._stopped:
            if sum(other.attached for other in self._waits) == len(self._attached):
                self._last_waited = time.monotonic_ns()
            self._note_activity()
        super()._unregister(wait)
        self._wakeup.notify()

    def _block(self, wait: _Wait, me: int, patience: float | None) -> None:
        waits.wait(self._changed, patience)

    def _poll_failed(self, me: int) -> bool:
        failed = self._failed_polls[me] = self._failed_polls.get(me, 0) + 1
        if not self._attached:
            self._note_activity(counts=failed > 1)  # a thread that only polls is waiting
            return bool(self._user_code)
        if me in self._attached:
            others_wait = sum(wait.attached for wait in self._waits) == len(self._attached) - 1
            self._note_activity(counts=others_wait and failed > POLLS_TOLERATED)
        return False

    # -- the timeline's thread ------------------------------------------------------------------------

    def _run(self) -> None:
        with self.lock:
            self._stepper = threading.get_ident()
            try:
                while not self._stopped:
                    self._run_next()
            except BaseException as error:  # a bug in an action; waiting threads must get the error
                self._failure = error
                self._stopped = True
            finally:
                self._stepper = None
                self._changed.notify_all()
        if self._failure is not None:
            self._run_stop_callbacks()

    def _sleep(self, nanoseconds: int | None, *, standing: bool = False) -> None:
        """Wait for a wakeup, or for that long; newly scheduled work causes none while time stands still."""
        self._wants_wakeup = not standing
        try:
            waits.wait(self._wakeup, None if nanoseconds is None else max(nanoseconds, 0) / 1e9)
        finally:
            self._wants_wakeup = False

    def _time_passes(self, wall: int) -> bool:
        """Return whether time passes: the program waits, or has worked for :data:`STANDSTILL_NS`."""
        if self._in_user_code:
            return False
        blocked = 0
        for wait in self._waits:
            if self._is_over(wait):
                return False  # it has not woken up yet, but will
            blocked += wait.attached
        if (self._waits and blocked == len(self._attached)) or wall - self._last_active >= AWAY_NS:
            self._last_waited = wall
            return True
        return wall - self._last_waited >= STANDSTILL_NS

    def _run_next(self) -> None:
        """Run the next action or user code if it is due, or wait until it may be."""
        if any(map(self._is_over, self._waits)):
            self._changed.notify_all()
            self._sleep(AWAY_NS, standing=True)  # until that thread has continued
            return
        moment = self._next_moment()
        if moment is None:
            self._sleep(None)
            return
        if moment > self._reached:
            wall = time.monotonic_ns()
            if not self._time_passes(wall):
                self._sleep(
                    min(self._last_active + AWAY_NS, self._last_waited + STANDSTILL_NS) - wall, standing=True
                )
                return
            here = wall - self._lag
            if moment > here:
                self._sleep(moment - here)
                return
        is_user_code = bool(self._user_code)
        self._step()
        if is_user_code or any(map(self._is_over, self._waits)):
            self._last_active = time.monotonic_ns()  # the program has something to do now

    def _run_next_user_code(self) -> None:
        self._in_user_code = True
        try:
            super()._run_next_user_code()
        finally:
            self._in_user_code = False

    def _user_code_ended(
        self, took: int, then: Callable[[], None] | None, interrupt: BaseException | None
    ) -> None:
        self._in_user_code = False
        if then is not None and took >= AWAY_NS:  # only then has it taken time
            self.call_at(self.now + took, then)
        elif then is not None:
            then()
        if interrupt is not None:
            report_uncaught(interrupt)
