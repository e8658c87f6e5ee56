"""When things happen on a simulated machine.

A timeline is a queue of actions, each due at a nanosecond, and the rule by which time passes. There are three:

* in **virtual** time (this class) nothing passes while a thread of the program is still running. When every
  thread that counts is blocked, one of them carries out the next action and the clock jumps to it. No thread
  sleeps, and the same program sees the same times in every run;
* **paced** time is virtual time that is never ahead of the wall clock, and that goes on where a program waits for
  something else than the device (:mod:`penstock.gpu.sim.wall_timeline`);
* **real** time is the wall clock's (the same file).

Which threads count: those that called :meth:`Timeline.attach`. A program with one thread need not attach
it; a blocked thread that is not attached lets time pass as soon as no attached thread is running.

Two kinds of code run here. *Actions* change the simulated machine; they run with ``lock`` held and are
short. *Foreign* code (a kernel's effect, a host function, a callback) may take any lock of its own and run
for any time, so it runs with ``lock`` released, one piece at a time and in order, by the thread that is
carrying out actions. It may start work on the device but must not wait for any: on a real device that
deadlocks, here it is refused.

The lock is not re-entrant, and Python may run a finalizer of the program's at any line. So nothing of the
program's is dropped with the lock held where that can be helped, and no finalizer of ours takes it.

Decided against: a thread per stream (not deterministic), asyncio (the pipeline's own threads are the thing
under test), and a clock that runs while a Python thread computes (host time would leak into the results).
"""

import heapq
import itertools
import sys
import threading
import time
from bisect import bisect_right, insort
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ClassVar

from penstock.gpu.sim.errors import CUDAError
from penstock.gpu.uncaught import report

# What asking "is it done?" costs the host in virtual time, so that a program that asks in a loop gets there.
QUERY_NS = 1_000

# How often an attached thread may be told "no", and do nothing else with the device, until it counts as one
# that asks in a loop. Less often is a look in passing, perhaps with a lock of the program's held, which must
# cost nothing: what time brings may need that lock.
LOOKS = 1_000


_LAST = 1 << 60  # added to an action's number, which never gets there
_STUCK = 1.0  # seconds for which nobody holds the lock who can let go of it


class Timeline:
    """A clock and the actions that are due on it; this one is in virtual time."""

    kind: ClassVar[str] = "virtual"
    is_wall: ClassVar[bool] = False
    """Whether its clock is the wall clock, so that the program's own clocks show the same."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.now = 0  # the moment being simulated; never ahead of the host's clock
        self._changed = threading.Condition(self.lock)
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._foreign: deque[_Foreign] = deque()
        self._stepper: int | None = None
        self._attached: set[int] = set()
        self._noes: dict[int, int] = {}  # how often each thread was told "no" in a row
        self._waits: list[_Wait] = []
        self._deadlines: list[int] = []  # of those waits that have one, in order
        self._stopped = False
        self._failure: BaseException | None = None  # why it stopped, if nobody asked it to
        # Who is to be told if what they wait for never comes, because the timeline stopped.
        self._expecting: dict[object, Callable[[CUDAError], None]] = {}

    # -- for the simulated machine, with the lock held ------------------------------------------------

    def host_now(self) -> int:
        """Return the host's time in nanoseconds: what a call made now is stamped with."""
        return self.now

    def read(self) -> int:
        """Return the host's time, where that is only looked at."""
        return self.now

    def at(self, when: int, action: Callable[[], None], *, last: bool = False) -> None:
        """Have an action carried out at that time (at once if the time has passed).

        Those of one time are carried out in the order in which they were given, and after them the ``last``.
        """
        if self._stopped:
            raise self._why_stopped()
        heapq.heappush(self._due, (when, next(self._order) + (_LAST if last else 0), action))
        self._added()

    def run_foreign(self, code: Callable[[], object], then: Callable[[], None] | None = None) -> None:
        """Have the program's code run without the lock, then an action with it."""
        if self._stopped:
            raise self._why_stopped()
        self._foreign.append((self.now, code, then))
        self._added()

    def expect(self, tell: Callable[[CUDAError], None]) -> object:
        """Have a function called, without the lock, if the timeline stops before `expected` is called.

        Returns what `expected` takes.
        """
        if self._stopped:
            raise self._why_stopped()
        token = object()
        self._expecting[token] = tell
        return token

    # -- for the program's threads, without the lock --------------------------------------------------

    def wait(self, ready: Callable[[], bool], timeout: int | None = None) -> bool:
        """Block until ``ready()`` (asked with the lock held) or for that many nanoseconds.

        Returns whether it became ready. Raises CUDAError if the timeline is closed first.
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
            self.busy()
            wait = _Wait(ready, deadline, me in self._attached)
            self._register(wait)
            try:
                while not self._is_over(wait):
                    if self._stopped:
                        raise self._why_stopped()
                    self._block(wait, me)
                return ready()
            finally:
                self._unregister(wait)

    def sleep(self, nanoseconds: int) -> None:
        """Let the host's clock pass by that much."""
        self.wait(_never, nanoseconds)

    def query(self, answer: Callable[[], bool]) -> bool:
        """Ask a question of the machine without waiting for it to become true, nor for another thread.

        In virtual time somebody who asks in a loop must get there. Where no thread is attached every "no"
        costs a moment. Time stands still while an attached thread runs; one that has asked often enough lets
        a moment pass all the same, if no other attached thread runs.
        """
        me = threading.get_ident()
        with self.lock:
            if answer():
                self._noes.pop(me, None)
                return True
            if self._stopped:
                raise self._why_stopped()
            if self._stepper == me:
                return False
            if not self._denied(me):
                return answer()
        self.sleep(QUERY_NS)
        with self.lock:
            return answer()

    def busy(self) -> None:
        """Note that this thread does something with the device other than ask, with the lock held."""
        if self._noes:
            self._noes.pop(threading.get_ident(), None)

    def expected(self, token: object) -> bool:
        """Say that what was expected has come; return whether nobody was told otherwise before."""
        with self.lock:
            return self._expecting.pop(token, None) is not None

    def notify(self) -> None:
        """Have every blocked thread look again at what it waits for."""
        if not self.lock.acquire(timeout=_STUCK):
            # This may be a signal handler that has interrupted the thread that holds the lock.
            threading.Thread(target=self.notify, name="penstock-sim-notify", daemon=True).start()
            return
        try:
            self._changed.notify_all()
        finally:
            self.lock.release()

    @contextmanager
    def attach(self) -> Iterator[None]:
        """Count this thread: virtual time stands still while it runs."""
        me = threading.get_ident()
        with self.lock:
            if me in self._attached:
                raise RuntimeError("this thread is attached to the simulated clock already")
            self.host_now()
            self._attached.add(me)
        try:
            yield
        finally:
            with self.lock:
                self._attached.discard(me)
                self._stir()

    def close(self) -> None:
        """Stop: nothing more is carried out, whoever waits gets an error, and whoever expects something is told."""
        with self.lock:
            self._stopped = True
            abandoned = (self._due, self._foreign)
            self._due, self._foreign = [], deque()
            self._stir()
        del abandoned  # what the program's code held goes now, with the lock released
        self._disappoint()

    def _disappoint(self) -> None:
        """Tell whoever expects something that it never comes, without the lock."""
        with self.lock:
            tellers = list(self._expecting.values())
            self._expecting.clear()
            why = self._why_stopped()
        for tell in tellers:
            try:
                tell(why)
            except CUDAError:
                pass  # it asked the closed machine for more
            except Exception as error:
                report(error)

    # -- by the rule of virtual time ------------------------------------------------------------------

    def _added(self) -> None:
        """See to it that what has just been added is carried out."""

    def _stir(self) -> None:
        """Have whoever waits look again: time may pass now, or never again."""
        self._changed.notify_all()

    def _clock(self) -> int:
        """Return the time by which waits end."""
        return self.now

    def _block(self, wait: "_Wait", me: int) -> None:
        """Block this thread until its wait may be over, or carry out what is due until then."""
        if self._may_advance():
            self._advance(wait, me)
            return
        if any(map(self._is_over, self._waits)):
            self._changed.notify_all()  # somebody can go on and may not know it
        self._changed.wait()

    def _denied(self, me: int) -> bool:
        """Note that a thread was told "no"; return whether it has to let a moment pass."""
        if not self._attached:
            return True
        noes = self._noes[me] = self._noes.get(me, 0) + 1
        if me in self._attached and noes > LOOKS:
            self._let_pass(QUERY_NS, me)
        return False

    def _let_pass(self, nanoseconds: int, me: int) -> None:
        """Let this attached thread count as blocked for a moment, as far as that needs no other thread."""
        wait = _Wait(_never, self.now + nanoseconds, True)
        self._register(wait)
        try:
            self._advance(wait, me)
        finally:
            self._unregister(wait)

    def _may_advance(self) -> bool:
        """Whether virtual time may pass: no thread that counts is running or about to."""
        if self._stepper is not None:
            return False
        blocked = 0
        for wait in self._waits:
            if wait.attached:
                if self._is_over(wait):
                    return False  # it has not woken up yet, but it will
                blocked += 1
        return blocked == len(self._attached)

    def _advance(self, wait: "_Wait", me: int) -> None:
        """Carry out what is due until this wait is over or a thread that counts can go on."""
        try:
            while not self._stopped and self._may_advance() and not self._is_over(wait):
                self._stepper = me
                try:
                    if not self._step():
                        raise RuntimeError(
                            "the simulated clock cannot move: "
                            "every thread waits and nothing is due on the device"
                        )
                finally:
                    self._stepper = None
        finally:
            self._changed.notify_all()  # also when this thread leaves with an error: others must step now

    # -- carrying out ---------------------------------------------------------------------------------

    def _register(self, wait: "_Wait") -> None:
        self._waits.append(wait)
        if wait.deadline is not None:
            insort(self._deadlines, wait.deadline)

    def _unregister(self, wait: "_Wait") -> None:
        self._waits.remove(wait)
        if wait.deadline is not None:
            self._deadlines.remove(wait.deadline)

    def _is_over(self, wait: "_Wait") -> bool:
        return wait.ready() or (wait.deadline is not None and self._clock() >= wait.deadline)

    def _next_moment(self) -> int | None:
        """Return when something is to be carried out or a wait ends, or None if there is nothing."""
        if self._foreign:
            return self.now
        when = self._due[0][0] if self._due else None
        later = bisect_right(self._deadlines, self.now)
        if later < len(self._deadlines) and (when is None or self._deadlines[later] < when):
            return self._deadlines[later]
        return when

    def _step(self) -> bool:
        """Carry out the next thing, with the lock held; False if there is none."""
        if self._foreign:
            self._run_next_foreign()
            return True
        when = self._next_moment()
        if when is None:
            return False
        if not self._due or self._due[0][0] > when:
            self.now = when  # a wait's deadline is a moment to stop at, too: time may not jump over it
            return True
        _, _, action = heapq.heappop(self._due)
        if when > self.now:
            self.now = when
        action()
        return True

    def _run_next_foreign(self) -> None:
        due, code, then = self._foreign.popleft()
        interrupt: BaseException | None = None
        started = time.monotonic_ns()
        self.lock.release()
        try:
            code()
        except Exception:
            sys.excepthook(*sys.exc_info())  # owners catch what they know; a bug must not stop the clock
        except BaseException as error:  # Ctrl-C, sys.exit
            interrupt = error
        finally:
            del code  # with what it holds, while the lock is free
            took = time.monotonic_ns() - started
            self.lock.acquire()
        self._ran_foreign(due, took, None if self._stopped else then, interrupt)

    def _ran_foreign(
        self, due: int, took: int, then: Callable[[], None] | None, interrupt: BaseException | None
    ) -> None:
        """Go on after a piece of the program's code, which took so long."""
        if then is not None:
            then()
        if interrupt is not None:
            raise interrupt  # meant for whoever waits, and that is this thread

    def _why_stopped(self) -> CUDAError:
        if self._failure is None:
            return CUDAError(
                "CUDA_ERROR_DEINITIALIZED: the simulated machine was closed; nothing on it goes on"
            )
        error = CUDAError(f"CUDA_ERROR_UNKNOWN: the simulation itself failed: {self._failure!r}")
        error.__cause__ = self._failure
        return error


def _never() -> bool:
    return False


# When it was due, the program's code, and the action that comes after it.
_Foreign = tuple[int, Callable[[], object], Callable[[], None] | None]


class _Wait:
    __slots__ = ("attached", "deadline", "ready")

    def __init__(self, ready: Callable[[], bool], deadline: int | None, attached: bool) -> None:
        self.ready = ready
        self.deadline = deadline
        self.attached = attached
