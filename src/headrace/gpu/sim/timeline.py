"""The clock of a simulated machine and the actions scheduled on it.

A timeline is a queue of actions, each due at a nanosecond, and a rule for how time passes. There are two rules:

* **Virtual** time (this class) stands still while an attached thread of the program runs. When every attached
  thread is blocked, one of them runs the next action, and the clock jumps to its time. No thread sleeps, and the
  same program sees the same times in every run.
* **Paced** time is virtual time that never runs ahead of the wall clock, and that passes while a program waits for
  something other than the device (:mod:`headrace.gpu.sim.paced_timeline`).

A thread is attached by :meth:`Timeline.attach`. A program with one thread need not attach it: a blocked thread that
is not attached lets time pass as soon as no attached thread is running. One that runs may wait for the blocked one,
in a ``join`` for example. So after :data:`STANDSTILL` time passes all the same, until the blocked one can continue.

Two kinds of code run here. *Actions* change the simulated machine. They run with ``lock`` held and are short. *User
code* (a kernel's effect, a host function, a callback) may take locks of its own and run for any time. It therefore
runs with ``lock`` released, one function at a time and in order, on the thread that runs the actions. User code may
submit work to the device but must not wait for it: a real device would deadlock, and this one raises an error.

The lock is not reentrant, and Python may run a finalizer of the program at any line. Objects of the program are
therefore released without the lock wherever possible, and no finalizer of the simulation takes the lock.

The rejected alternatives are one thread per stream (not deterministic), asyncio (the pipeline's own threads are
under test), and a clock that runs while a Python thread computes (host time would leak into the results).
"""

from __future__ import annotations

import heapq
import itertools
import sys
import threading
import time
from bisect import bisect_right, insort
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import ClassVar

from headrace import waits
from headrace.gpu.callbacks import report_uncaught
from headrace.gpu.sim.objects import CUDAError

# The virtual time that a poll ("is it done?") takes, so that a program that polls in a loop makes progress.
POLL_NS = 1_000

# The seconds of real time after which a poll answers though a function of the program has not returned.
_POLL_PATIENCE = 1e-3

# The number of consecutive polls that may fail before an attached thread counts as polling in a loop. Until then a
# poll takes no time, because the program may hold a lock that the next user code needs.
POLLS_TOLERATED = 1_000


# The seconds of real time for which an attached thread that runs keeps time from the others.
STANDSTILL = 1.0

_LAST = 1 << 60  # added to an action's sequence number, which never becomes that large
_LOCK_TIMEOUT = 1.0  # seconds; a thread that can release the lock does so sooner


class Timeline:
    """A clock and the actions scheduled on it, in virtual time."""

    kind: ClassVar[str] = "virtual"

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.now = 0  # the simulated moment; never ahead of the host's clock
        self._changed = threading.Condition(self.lock)
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._user_code: deque[_UserCode] = deque()
        self._stepper: int | None = None
        self._attached: set[int] = set()
        self._failed_polls: dict[int, int] = {}  # by thread: how many polls in a row have failed
        self._waits: list[_Wait] = []
        self._deadlines: list[int] = []  # of the waits that have one, sorted
        self._stopped = False
        self._failure: BaseException | None = None  # the error that stopped it, if close() did not
        # Called if the timeline stops first, by token.
        self._stop_callbacks: dict[object, Callable[[CUDAError], None]] = {}

    # -- for the simulated machine, with the lock held ------------------------------------------------

    def host_now(self) -> int:
        """Return the host's time in nanoseconds, the timestamp of a call made now."""
        return self.now

    def read(self) -> int:
        """Return the host's time without counting as activity of the program."""
        return self.now

    def wall_now(self) -> int:
        """Return what the host's monotonic clock showed at the simulated moment, in nanoseconds."""
        return time.monotonic_ns()

    def call_at(self, when: int, action: Callable[[], None], *, last: bool = False) -> None:
        """Schedule an action for that time, or for now if the time has passed.

        Actions of the same time run in the order in which they were scheduled, those with ``last`` after the
        others.
        """
        if self._stopped:
            raise self._stop_error()
        heapq.heappush(self._due, (when, next(self._order) + (_LAST if last else 0), action))
        self._work_added()

    def run_user_code(self, code: Callable[[], object], then: Callable[[], None] | None = None) -> None:
        """Schedule a function of the program, to run without the lock; ``then`` runs after it, with the lock."""
        if self._stopped:
            raise self._stop_error()
        self._user_code.append((code, then))
        self._work_added()

    def add_stop_callback(self, callback: Callable[[CUDAError], None]) -> object:
        """Register a function to call, without the lock, if the timeline stops.

        Returns a token for :meth:`remove_stop_callback`.
        """
        if self._stopped:
            raise self._stop_error()
        token = object()
        self._stop_callbacks[token] = callback
        return token

    # -- for the program's threads, without the lock --------------------------------------------------

    def wait(
        self,
        ready: Callable[[], bool],
        timeout: int | None = None,
        outside: bool = False,
        patience: float | None = None,
    ) -> bool:
        """Block until ``ready()`` is true or that many nanoseconds have passed.

        ``ready`` is called with the lock held. Returns whether it became true. Raises CUDAError if the timeline is
        closed first. With ``outside``, a thread that is not attached may make it true: if nothing is scheduled,
        time stands still until then, and that is no error. After `patience` seconds of real time the wait ends in
        any case: an attached thread may wait for something else than the machine, and time stands still meanwhile.
        """
        me = threading.get_ident()
        with self.lock:
            if ready():
                return True
            if self._stepper == me:
                raise CUDAError(
                    "CUDA_ERROR_NOT_PERMITTED: a host function or callback must not wait for the device"
                )
            deadline = None if timeout is None else self.host_now() + timeout
            self.reset_polls()
            wait = _Wait(ready, deadline, me in self._attached, outside)
            wait.stands_at, wait.stands_since = self.now, time.monotonic()
            self._register(wait)
            try:
                until = None if patience is None else time.monotonic() + patience
                left = patience
                while not self._is_over(wait) and (left is None or left > 0):
                    if self._stopped:
                        raise self._stop_error()
                    self._block(wait, me, left)
                    left = None if until is None else until - time.monotonic()
                return ready()
            finally:
                self._unregister(wait)

    def sleep(self, nanoseconds: int) -> None:
        """Block until that many nanoseconds have passed."""
        self.wait(_never, nanoseconds)

    def query(self, answer: Callable[[], bool]) -> bool:
        """Return the result of a query about the machine, without waiting for it to become true.

        A program that polls in a loop must make progress in virtual time. If no thread is attached, every failed
        poll takes :data:`POLL_NS`. While an attached thread runs, time stands still; but after
        :data:`POLLS_TOLERATED` failed polls in a row it lets that much time pass, if no other attached thread runs.
        """
        me = threading.get_ident()
        with self.lock:
            if answer():
                self._failed_polls.pop(me, None)
                return True
            if self._stopped:
                raise self._stop_error()
            if self._stepper == me:
                return False
            if not self._poll_failed(me):
                return answer()
        self.wait(_never, POLL_NS, patience=_POLL_PATIENCE)
        with self.lock:
            return answer()

    def reset_polls(self) -> None:
        """Reset this thread's count of failed polls, because it has submitted work or waited; the lock is held."""
        if self._failed_polls:
            self._failed_polls.pop(threading.get_ident(), None)

    def remove_stop_callback(self, token: object) -> bool:
        """Remove a stop callback; return whether it was still registered and so has not been called."""
        with self.lock:
            return self._stop_callbacks.pop(token, None) is not None

    def notify(self) -> None:
        """Wake every blocked thread so that it checks its condition again."""
        if not self.lock.acquire(timeout=_LOCK_TIMEOUT):
            # This may be a signal handler that interrupted the thread that holds the lock.
            threading.Thread(target=self.notify, name="headrace-sim-notify", daemon=True).start()
            return
        try:
            self._changed.notify_all()
        finally:
            self.lock.release()

    def attach(self) -> AbstractContextManager[None]:
        """Attach this thread for a ``with`` block: virtual time stands still while it runs."""
        return _Attachment(self)

    def aside(self) -> AbstractContextManager[None]:
        """Detach this thread for a ``with`` block, if it is attached: it waits there for other threads."""
        return _Detachment(self)

    def close(self) -> None:
        """Stop: no further action runs, waiting threads get an error, and the stop callbacks are called."""
        with self.lock:
            self._stopped = True
            abandoned = (self._due, self._user_code)
            self._due, self._user_code = [], deque()
            self._wake_all()
        del abandoned  # releases the objects of the program, without the lock
        self._run_stop_callbacks()

    def _run_stop_callbacks(self) -> None:
        """Call the stop callbacks, without the lock."""
        with self.lock:
            callbacks = list(self._stop_callbacks.values())
            self._stop_callbacks.clear()
            why = self._stop_error()
        for callback in callbacks:
            try:
                callback(why)
            except CUDAError:
                pass  # the callback tried to use the closed machine
            except Exception as error:
                report_uncaught(error)

    # -- the rule of virtual time ---------------------------------------------------------------------

    def _work_added(self) -> None:
        """Make sure that an action or user code that was just scheduled will run."""
        if self._waits:
            self._changed.notify_all()  # all threads may be waiting for what comes from outside

    def _wake_all(self) -> None:
        """Wake every waiting thread: time may pass now, or never again."""
        self._changed.notify_all()

    def _block(self, wait: _Wait, me: int, patience: float | None) -> None:
        """Block this thread until its wait may be over, or run what is due until then."""
        if self._advance(wait, me):
            return
        if any(map(self._is_over, self._waits)):
            self._changed.notify_all()  # a thread can continue and may not have noticed
        if not wait.attached:
            left = max(wait.stands_since + STANDSTILL - time.monotonic(), 0)
            patience = left if patience is None else min(patience, left)
        waits.wait(self._changed, patience)

    def _poll_failed(self, me: int) -> bool:
        """Count a failed poll; return whether the thread has to sleep for :data:`POLL_NS`."""
        if not self._attached:
            return True
        failed = self._failed_polls[me] = self._failed_polls.get(me, 0) + 1
        if me in self._attached and failed > POLLS_TOLERATED:
            self._advance_by(POLL_NS, me)
        return False

    def _advance_by(self, nanoseconds: int, me: int) -> None:
        """Count this attached thread as blocked for that long, if no other attached thread is running."""
        wait = _Wait(_never, self.now + nanoseconds, True)
        self._register(wait)
        try:
            self._advance(wait, me)
        finally:
            self._unregister(wait)

    def _may_advance(self, stood_still: bool) -> bool:
        """Return whether virtual time may pass: no attached thread is about to run, or one has run for long."""
        if self._stepper is not None or any(wait.attached and self._is_over(wait) for wait in self._waits):
            return False  # one that is over has not woken up yet, but will
        return stood_still or not self._somebody_runs()

    def _somebody_runs(self) -> bool:
        """Return whether an attached thread is running."""
        return sum(wait.attached for wait in self._waits) < len(self._attached)

    def _has_stood_still(self, wait: _Wait) -> bool:
        """Return whether time has stood still for :data:`STANDSTILL` while a thread that is not attached waited."""
        if wait.attached:
            return False
        now = time.monotonic()
        has = wait.stands_at == self.now and now >= wait.stands_since + STANDSTILL
        if has or wait.stands_at != self.now:
            wait.stands_at, wait.stands_since = self.now, now
        return has

    def _advance(self, wait: _Wait, me: int) -> bool:
        """Run what is due until this wait is over or an attached thread can continue.

        Returns False if time may not pass, or if nothing is left to run and somebody else may change that.
        """
        stood_still = self._has_stood_still(wait)
        if not self._may_advance(stood_still):
            return False
        try:
            while not self._stopped and self._may_advance(stood_still) and not self._is_over(wait):
                self._stepper = me
                try:
                    if not self._step():
                        if any(each.outside for each in self._waits) or self._somebody_runs():
                            return False
                        raise RuntimeError(
                            "the simulated clock cannot advance: "
                            "every thread is waiting and nothing is scheduled on the device"
                        )
                finally:
                    self._stepper = None
            return True
        finally:
            self._changed.notify_all()  # after an error, too: another thread has to continue

    # -- running actions ------------------------------------------------------------------------------

    def _register(self, wait: _Wait) -> None:
        self._waits.append(wait)
        if wait.deadline is not None:
            insort(self._deadlines, wait.deadline)

    def _unregister(self, wait: _Wait) -> None:
        self._waits.remove(wait)
        if wait.deadline is not None:
            self._deadlines.remove(wait.deadline)

    def _is_over(self, wait: _Wait) -> bool:
        return wait.ready() or (wait.deadline is not None and self.now >= wait.deadline)

    def _next_moment(self) -> int | None:
        """Return the time of the next action or deadline, or None if there is none."""
        if self._user_code:
            return self.now
        when = self._due[0][0] if self._due else None
        later = bisect_right(self._deadlines, self.now)
        if later < len(self._deadlines) and (when is None or self._deadlines[later] < when):
            return self._deadlines[later]
        return when

    def _step(self) -> bool:
        """Run the next action or user code, with the lock held; return False if there is none."""
        if self._user_code:
            self._run_next_user_code()
            return True
        when = self._next_moment()
        if when is None:
            return False
        if not self._due or self._due[0][0] > when:
            self.now = when  # time must not jump over the deadline of a wait
            return True
        _, _, action = heapq.heappop(self._due)
        if when > self.now:
            self.now = when
        action()
        return True

    def _run_next_user_code(self) -> None:
        code, then = self._user_code.popleft()
        interrupt: BaseException | None = None
        started = time.monotonic_ns()
        self._release_lock()
        try:
            code()
        except Exception:
            sys.excepthook(*sys.exc_info())  # callers handle expected errors; a bug must not stop the clock
        except BaseException as error:  # Ctrl-C, sys.exit
            interrupt = error
        finally:
            del code  # and what it references, while the lock is released
            took = self._regain_lock(started)
        self._user_code_ended(took, None if self._stopped else then, interrupt)

    @waits.shielded
    def _release_lock(self) -> None:
        self.lock.release()

    @waits.shielded
    def _regain_lock(self, started: int) -> int:
        """Return the nanoseconds since a time, and acquire the lock."""
        took = time.monotonic_ns() - started
        self.lock.acquire()
        return took

    def _user_code_ended(
        self, took: int, then: Callable[[], None] | None, interrupt: BaseException | None
    ) -> None:
        """Continue after user code that took that many nanoseconds."""
        if then is not None:
            then()
        if interrupt is not None:
            raise interrupt  # meant for the waiting thread, which is this thread

    def _stop_error(self) -> CUDAError:
        if self._failure is None:
            return CUDAError(
                "CUDA_ERROR_DEINITIALIZED: the simulated machine was closed and its work abandoned"
            )
        error = CUDAError(f"CUDA_ERROR_UNKNOWN: the simulation itself failed: {self._failure!r}")
        error.__cause__ = self._failure
        return error


def _never() -> bool:
    return False


# The function of the program, and the action that follows it.
_UserCode = tuple[Callable[[], object], Callable[[], None] | None]


@dataclass(slots=True, eq=False)
class _Wait:
    ready: Callable[[], bool]
    deadline: int | None
    attached: bool
    outside: bool = False
    # Since when, in seconds of real time, the clock has shown the time that it shows.
    stands_at: int = 0
    stands_since: float = 0.0


@dataclass(slots=True, eq=False)
class _Attachment(AbstractContextManager[None]):
    """The thread that enters is attached until it leaves; a block inside of another changes nothing.

    So a thread that is attached may run an application, which attaches it, and a compute may run another one.

    Not a generator: that would set the traceback of an exception that passes through it, which an exception such as
    a frozen dataclass refuses.
    """

    _timeline: Timeline
    _thread: int = 0
    _is_inner: bool = False

    def __enter__(self) -> None:
        timeline, self._thread = self._timeline, threading.get_ident()
        with timeline.lock:
            self._is_inner = self._thread in timeline._attached
            if not self._is_inner:
                timeline.host_now()
                timeline._attached.add(self._thread)

    def __exit__(self, *raised: object) -> None:
        if self._is_inner:
            return
        with self._timeline.lock:
            self._timeline._attached.discard(self._thread)
            self._timeline._wake_all()


@dataclass(slots=True, eq=False)
class _Detachment(AbstractContextManager[None]):
    """The thread that enters is not attached until it leaves."""

    _timeline: Timeline
    _was_attached: bool = False

    def __enter__(self) -> None:
        timeline, me = self._timeline, threading.get_ident()
        with timeline.lock:
            self._was_attached = me in timeline._attached
            if self._was_attached:
                timeline.reset_polls()
                timeline._attached.discard(me)
                timeline._wake_all()

    def __exit__(self, *raised: object) -> None:
        if self._was_attached:
            with self._timeline.lock:
                self._timeline.host_now()
                self._timeline._attached.add(threading.get_ident())
