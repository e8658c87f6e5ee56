"""Timelines that go by the wall clock: real time, and paced time.

A thread of the timeline's own carries out what is due, so a program may wait for the device in any way it likes:
in ``sync``, for a lock that a callback releases, or in ``time.sleep``.

**Real** time is the wall clock's. It is simple, and it is wrong on a busy computer: what Python and the simulation
itself take between two calls counts as the host's time, and that is far more than the host of a real GPU takes. It
hides what partitions do.

**Paced** time is the default where a program makes no machine of its own. Its clock is the simulation's:

* while the program works, it stands still: what the host does between two calls costs nothing;
* while the program waits for the device (every attached thread does, or where none is attached some thread), it
  passes at the pace of the wall clock and never faster. So a kernel of 2 ms takes at least 2 ms by any clock, and
  exactly that by the device's own events;
* a thread that keeps away from the device for :data:`AWAY` or longer is taken to wait for something else: a sleep,
  a lock, a file. Then time passes as well, and all of the time it was away counts. So ``time.sleep`` between two
  launches is what it is on a real device, and no program hangs because time stands still;
* of a program that works for :data:`RESTLESS` and never waits, the time counts from then on, until it waits. So a
  timer that stands beside it comes.

In a formula: time that has stood still is lost, since ``lag``, the wall clock less this one, never shrinks.

Decided against as the default: virtual time. It jumps, so a program that times kernels with the wall clock would
see them take nothing, one that waits for a callback's lock would wait for ever, and a sleep would mean nothing.
"""

import threading
import time
from collections.abc import Callable

from penstock.gpu.sim.timeline import LOOKS, Timeline, _Wait
from penstock.gpu.uncaught import report

# How long, in nanoseconds, a thread may do without the device until it counts as one that waits for something else.
AWAY = 1_000_000

# How long time stands still at most, while a program works and never waits.
RESTLESS = 50_000_000

# How long closing waits for the program's code that the timeline's thread may be running, in seconds.
_PATIENCE = 1.0


class WallTimeline(Timeline):
    """What the two have in common: the thread, and when it looks again."""

    def __init__(self) -> None:
        super().__init__()
        self._news = threading.Condition(self.lock)  # the thread waits on it, and nobody else
        self._thread: threading.Thread | None = None
        self._idle = False  # whether the thread waits and what is added concerns it

    def close(self) -> None:
        """Stop: nothing more is carried out, and whoever waits gets an error."""
        super().close()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            # The thread may be in code of the program's that waits for whoever closes.
            thread.join(_PATIENCE)

    def _added(self) -> None:
        if self._thread is None and not self._stopped:
            self._thread = threading.Thread(target=self._run, name="penstock-sim", daemon=True)
            self._thread.start()
        elif self._idle:
            self._news.notify()

    def _stir(self) -> None:
        super()._stir()
        self._news.notify()

    def _run(self) -> None:
        with self.lock:
            self._stepper = threading.get_ident()
            try:
                while not self._stopped:
                    self._carry_on()
            except BaseException as error:  # a bug in an action; whoever waits must hear of it
                self._failure = error
                self._stopped = True
            finally:
                self._stepper = None
                self._changed.notify_all()
        if self._failure is not None:
            self._disappoint()

    def _carry_on(self) -> None:
        """Carry out the next thing if its time has come, or wait for news of it."""
        raise NotImplementedError

    def _rest(self, nanoseconds: int | None, *, standing: bool = False) -> None:
        """Have the thread wait for news, or for so long; where time stands still, what is added is no news."""
        self._idle = not standing
        try:
            self._news.wait(None if nanoseconds is None else max(nanoseconds, 0) / 1e9)
        finally:
            self._idle = False


class RealTimeline(WallTimeline):
    """Time as the wall clock has it."""

    kind = "real"
    is_wall = True

    def __init__(self) -> None:
        super().__init__()
        self._origin = time.monotonic_ns()
        self._foreign_free = 0  # when the piece of foreign code before ended

    def host_now(self) -> int:
        """Return the host's time in nanoseconds: what a call made now is stamped with."""
        return time.monotonic_ns() - self._origin

    read = _clock = host_now

    def _block(self, wait: _Wait, me: int) -> None:
        if wait.deadline is None:
            self._changed.wait()
        else:
            self._changed.wait(max(wait.deadline - self._clock(), 0) / 1e9)

    def _denied(self, me: int) -> bool:
        return False

    def _carry_on(self) -> None:
        if self._foreign or (self._due and self._due[0][0] <= self._clock()):
            self._step()
            self._changed.notify_all()
        else:
            self._rest(self._due[0][0] - self._clock() if self._due else None)

    def _next_moment(self) -> int | None:  # whoever waits for a deadline looks at the clock by itself
        return self._due[0][0] if self._due else None

    def _ran_foreign(
        self, due: int, took: int, then: Callable[[], None] | None, interrupt: BaseException | None
    ) -> None:
        # Counted from when it was due, not from when this thread came to it: that would add the host's
        # lateness to the device's time.
        self._foreign_free = max(due, self._foreign_free) + took
        if then is not None:
            self.at(self._foreign_free, then)
        if interrupt is not None:
            report(interrupt)


class PacedTimeline(WallTimeline):
    """Virtual time that is never ahead of the wall clock and stops for no program that waits elsewhere."""

    kind = "paced"

    def __init__(self) -> None:
        super().__init__()
        wall = time.monotonic_ns()
        self._lag = wall  # the wall clock less this one, when a thread of the program was last seen here
        self._seen = wall  # when that was, or when the program was last given something to do
        self._waited = wall  # when the program last waited
        self._reached = -1  # what is due by then is carried out, whether or not time passes now
        self._in_foreign = False

    def host_now(self) -> int:
        """Return the host's time in nanoseconds: what a call made now is stamped with."""
        if self._stepper != threading.get_ident():
            self._see()
        return self.now

    def read(self) -> int:
        """Return the time; to look at the clock is not to work with the device."""
        if self._stepper != threading.get_ident():
            self._pass(time.monotonic_ns())
        return self.now

    # -- what the program does, with the lock held ----------------------------------------------------

    def _see(self, *, counts: bool = False) -> None:
        """Note that a thread of the program is here. If time has stood still till now, that is lost.

        ``counts``: the time since a thread was last seen counts, however short.
        """
        wall = time.monotonic_ns()
        self._pass(wall, counts=counts)
        self._lag = wall - self.now
        self._seen = wall

    def _pass(self, wall: int, *, counts: bool = False) -> None:
        """Bring the clock to where it is by now, and carry out what is due until then."""
        if not self._passes(wall) and (not counts or self._in_foreign):
            return
        here = wall - self._lag
        thread, self._stepper = self._stepper, threading.get_ident()
        try:
            # The program's own code is left to the timeline's thread, and time does not pass it.
            while not self._foreign:
                moment = self._next_moment()
                if moment is None or moment > here:
                    self.now = max(self.now, here)
                    break
                self._step()
                if any(map(self._is_over, self._waits)):
                    self._changed.notify_all()
                    break
            else:
                self._news.notify()
        finally:
            self._stepper = thread
        self._reached = self.now

    def _register(self, wait: _Wait) -> None:
        super()._register(wait)
        self._added()
        self._news.notify()  # time may pass from here on

    def _unregister(self, wait: _Wait) -> None:
        if not self._stopped:
            if sum(other.attached for other in self._waits) == len(self._attached):
                self._waited = time.monotonic_ns()
            self._see()
        super()._unregister(wait)
        self._news.notify()

    def _block(self, wait: _Wait, me: int) -> None:
        self._changed.wait()

    def _denied(self, me: int) -> bool:
        noes = self._noes[me] = self._noes.get(me, 0) + 1
        if not self._attached:
            self._see(counts=noes > 1)  # a thread that only asks, waits
            return bool(self._foreign)
        if me in self._attached:
            others_wait = sum(wait.attached for wait in self._waits) == len(self._attached) - 1
            self._see(counts=others_wait and noes > LOOKS)
        return False

    # -- the thread -----------------------------------------------------------------------------------

    def _passes(self, wall: int) -> bool:
        """Whether time passes: the program waits for the device, or for something else, or never does."""
        if self._in_foreign:
            return False
        blocked = 0
        for wait in self._waits:
            if self._is_over(wait):
                return False  # it has not woken up yet, but it will
            blocked += wait.attached
        if (self._waits and blocked == len(self._attached)) or wall - self._seen >= AWAY:
            self._waited = wall
            return True
        return wall - self._waited >= RESTLESS

    def _carry_on(self) -> None:
        if any(map(self._is_over, self._waits)):
            self._changed.notify_all()
            self._rest(AWAY, standing=True)  # until that thread has left
            return
        moment = self._next_moment()
        if moment is None:
            self._rest(None)
            return
        if moment > self._reached:
            wall = time.monotonic_ns()
            if not self._passes(wall):
                self._rest(min(self._seen + AWAY, self._waited + RESTLESS) - wall, standing=True)
                return
            here = wall - self._lag
            if moment > here:
                self._rest(moment - here)
                return
        is_foreign = bool(self._foreign)
        self._step()
        if is_foreign or any(map(self._is_over, self._waits)):
            self._seen = time.monotonic_ns()  # the program has something to do now

    def _run_next_foreign(self) -> None:
        self._in_foreign = True
        try:
            super()._run_next_foreign()
        finally:
            self._in_foreign = False

    def _ran_foreign(
        self, due: int, took: int, then: Callable[[], None] | None, interrupt: BaseException | None
    ) -> None:
        self._in_foreign = False
        if then is not None:
            if took >= AWAY:
                self.at(self.now + took, then)
            else:
                then()
        if interrupt is not None:
            report(interrupt)
