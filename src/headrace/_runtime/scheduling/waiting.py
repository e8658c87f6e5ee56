"""Waiting: which workers are parked, what wakes them, and how a run ends.

This file is the whole mechanism by which workers wait and are woken, for one thread and for several. Nothing here
polls, with two exceptions: users' conditions that must be polled, and a worker on standby.

**The states of a worker**

=========  ========================================================================================================
running    It computes, or holds the engine's lock to take or finish a node. It needs no waking: it checks the
           inbox, the timers and its ready queue before it parks.
parked     It is in `parked` of its ready queue and waits for a permit (`Parker`). With a *deadline* it wakes up by
           itself at that time; the parked worker with the earliest deadline is the timer worker.
standby    Parked, while nodes of its ready queue wait for their turn (`workers`). It wakes up by itself after a
           millisecond. If the turn of the same compute still lasts then, it ends that turn and goes on with the
           others. If not, it stands by again.
waking     Removed from `parked` and given a permit, but it does not hold the lock yet. It checks everything when it
           does, so no other worker need be woken for the same reason.
=========  ========================================================================================================

**The invariants while no thread holds the lock**, and the lines that maintain them:

1. *Work.* If a ready queue has a node to take and a parked worker, then a worker of that queue is waking; if the
   node waits for its turn, a worker is waking or on standby. A worker that adds to a queue calls `wake_others`
   before it computes or parks. One worker is woken at a time; it wakes the next when it has taken its node and more
   nodes are left.
2. *Time.* If something is due at a time and a worker is parked, then some parked worker has a deadline that is not
   later, or is waking, or is on standby. A worker that parks takes the deadline itself unless another worker has
   it; a worker that is about to compute wakes a worker if no worker has it.
3. *Announcements.* They come from any thread, without the lock: from a CUDA callback, a signal handler, a user's
   thread. An announcing thread first adds to the inbox and then looks for a parked worker; a parking worker first
   lists itself and then checks the inbox. So one of the two sees the other. For the same reason, a waking worker
   leaves `waking` before it checks the inbox.
4. *Permits.* Only one thread removes a worker from `parked`, and then gives it one permit. A worker that wakes at
   its deadline removes itself. If another thread was faster, the worker takes the permit that this thread gives, so
   that the permit does not end its next wait.

**The end.** A run may end, and time may jump, only when nothing runs and nothing is ready. The last worker that
finds nothing to do detects this, under the lock, and decides (`_decide`): it evaluates the conditions that must be
polled, declares a deadlock, moves a clock that can be moved, or waits for the next time like any other worker.

Work beside the workers, such as a call that awaits, holds the clock (`Clock.hold`): as long as it lasts, virtual
time does not jump, and a worker that parks in the clock's time does not wake by itself. Its end is announced.
While virtual time stands still for something outside the run, a call or an event, nothing in it can reach the end
of a run with a duration. So the real time of these waits, added up, counts towards it (`_left_outside`).

**The gate.** While no node may begin (`Gate.is_still`), rules 1 and 2 do not hold: workers park without a deadline,
whatever is ready or due, and nothing is decided. What opens the gate wakes all of them, by rule 3. If it is open
for a node that waits for a time, a clock that can be moved goes on to it although others are ready (`_may_jump`).
The same holds while a node computes alone, or waits for others to end so that it can (`alone`). The last of these
others finds the node, or wakes a worker of its queue; the end of the compute wakes all workers.

`tests/interleavings` runs these lines under every interleaving of threads that small graphs allow, with planted
faults against each of the four rules.
"""

from __future__ import annotations

from time import monotonic_ns
from typing import TYPE_CHECKING

from headrace import waits
from headrace.core.clock import LONGEST_TURN

if TYPE_CHECKING:
    import threading

    from headrace._runtime.scheduling.engine import Engine
    from headrace._runtime.scheduling.node import Node
    from headrace._runtime.scheduling.ready_queue import Parker, ReadyQueue

_LONGEST = 1.0  # seconds that a node waits to compute alone

_LONGEST_TURN = 1_000_000  # nanoseconds after which a compute does not keep others from theirs any longer

# The results of `_decide`.
_WAIT = "wait"
_GO_ON = "go on"
_OVER = "over"


class _Turn:
    """A compute whose turn a worker saw when it parked, and when that was on the run's clock and in real time."""

    __slots__ = ("at", "at_real", "node", "remaining")

    def __init__(self, node: Node, at: int) -> None:
        self.node = node
        self.remaining = node.remaining
        self.at = at
        self.at_real = monotonic_ns()


class WaitingWorkers:
    """The waiting and waking of the workers of one run.

    Attributes
    ----------
    waking
        The workers that have a permit and do not hold the lock yet. Any thread may add a worker; only the worker
        removes itself.
    """

    __slots__ = ("_engine", "_outside", "deadlock_at", "waking")

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        # When the run ends unless an operator runs before; set while the run is idle. Changed under the lock.
        self.deadlock_at: int | None = None
        # The real time for which virtual time stood still for something outside the run. Changed under the lock.
        self._outside = 0
        # A dict, because its order is deterministic.
        self.waking: dict[Parker, None] = {}

    # Waking. From any thread, with or without the lock.

    def announced(self, ready_queue: ReadyQueue | None) -> None:
        """Make sure that a worker checks the inbox; called after something was added to it."""
        if self.waking:
            return
        if ready_queue is not None:
            # The worker whose turn it is will soon check the inbox, or the worker on standby will.
            if ready_queue.current is not None and ready_queue.standby is not None:
                return
            if self._wake_one(ready_queue):
                return
        for other in self._engine.ready_queues:
            if self._wake_one(other):
                return

    def wake_all(self) -> None:
        """Wake every parked worker."""
        for ready_queue in self._engine.ready_queues:
            while self._wake_one(ready_queue):
                pass

    def time_moved(self) -> None:
        """Wake the workers that wait for a time, because the time until it has changed."""
        for ready_queue in self._engine.ready_queues:
            for parker in tuple(ready_queue.parked):
                if parker.deadline is not None or parker is ready_queue.standby:
                    try:
                        ready_queue.parked.remove(parker)
                    except ValueError:
                        continue  # it was woken just now
                    self._unpark(parker)

    def _wake_one(self, ready_queue: ReadyQueue) -> bool:
        """Wake a parked worker of a queue, preferably one without a deadline; return whether there was one."""
        try:
            parker = ready_queue.parked.pop()
        except IndexError:
            return False
        self._unpark(parker)
        return True

    def _unpark(self, parker: Parker) -> None:
        self.waking[parker] = None
        self._engine.clock.unpark(parker)

    # Waking, with the lock held, by a worker that is about to compute (`computes`) or to park.

    def wake_others(self, own: ReadyQueue, computes: bool) -> None:
        """Wake workers for the work and the deadlines that this worker does not handle itself.

        `own` is the queue that it serves.
        """
        engine = self._engine
        for ready_queue in engine.ready_queues:
            if not ready_queue.parked:
                continue
            if ready_queue.current is not None:
                if ready_queue.standby is not None or not ready_queue.waits_for_turn:
                    continue  # the woken worker will be on standby
            elif not (ready_queue.now or ready_queue.later):
                continue
            if engine.held and not engine.gate.allows(ready_queue):
                continue  # nobody may take them
            if ready_queue.parked is own.parked and not computes:
                continue  # it has found nothing there
            if not self._is_waking(ready_queue):
                self._wake_one(ready_queue)
        if engine.held and engine.gate.is_still:
            return  # whatever is due then is handled at the resume
        if computes and engine.timed and not self.waking and engine.clock.passes:
            if own.standby is not None:
                return
            until = engine.next_time()
            if until is not None and not self._has_timer_worker(until):
                for ready_queue in engine.ready_queues:
                    if self._wake_one(ready_queue):
                        return

    def _is_waking(self, ready_queue: ReadyQueue) -> bool:
        return any(parker.ready_queue.parked is ready_queue.parked for parker in tuple(self.waking))

    def _has_timer_worker(self, until: int) -> bool:
        """Return whether a parked worker wakes up by itself no later than `until`."""
        for ready_queue in self._engine.ready_queues:
            for parker in tuple(ready_queue.parked):
                deadline = parker.deadline
                if deadline is not None and deadline <= until:
                    return True
        return False

    # Waiting.

    def wait(self, parker: Parker, lock: threading.Lock | None) -> bool:
        """Wait until there may be something to do and return True, or return False when the run is over.

        A worker that found nothing to take calls it, with `lock` held if there is one; the lock is released while
        the worker is parked.
        """
        engine = self._engine
        if engine.stopping:
            return False
        if engine.inbox:
            return True
        is_still = False
        outside: float | None = None
        if engine.held:
            if not engine.gate.handle():
                return True
            is_still = engine.gate.is_still
        until: int | None
        if is_still:
            until = None
            engine.gate.settle()
        elif engine.running or engine.has_ready():
            until = engine.next_time()
            if engine.held and not engine.running and self._may_jump(until):
                return True
        else:
            verdict, until = self._decide()
            if verdict is not _WAIT:
                return verdict is _GO_ON
            outside = self._left_outside()
        clock = engine.clock
        ready_queue = parker.ready_queue
        # Seconds after which it ends a turn for which others wait; None if it does not stand by.
        patience: float | None = None
        self._see_turn(parker)
        if (
            ready_queue.standby is None
            and not is_still
            and ready_queue.waits_for_turn
            and not (engine.held and not engine.gate.allows(ready_queue))
        ):
            patience = self._left_of(parker.seen) / 1e9
            if patience <= 0.0:
                engine.let_others_go_on(ready_queue)
                return True
        for_alone = engine.alone.is_waiting
        seconds: float | None = _LONGEST if for_alone else None
        polls = False
        if not is_still:
            if until is not None:
                if not clock.passes:
                    if clock.timestamp() >= until:
                        return True
                else:
                    # If there is a timer worker, wait for the end of the run, which costs nothing until then.
                    deadline = engine.limit if self._has_timer_worker(until) else until
                    if deadline is not None:
                        parker.deadline = deadline
                        seconds = clock.seconds_until(deadline)
            if engine.polling.nodes and not clock.passes:
                # No thread can wait for a time of this clock, so users' conditions are polled in real time.
                polls = True
                seconds = engine.scheduler.check_recession_period_ms / 1e3
            if outside is not None:
                seconds = outside if seconds is None else min(seconds, outside)
        if patience is not None:
            seconds = patience if seconds is None else min(seconds, patience)
            ready_queue.standby = parker
        if parker.deadline is None and patience is None:
            ready_queue.parked.append(parker)
        else:
            ready_queue.parked.insert(0, parker)  # so that it is woken last
        woken = False
        began = 0 if outside is None else monotonic_ns()
        try:
            if engine.inbox:
                pass
            elif lock is None:
                woken = self._park(parker, seconds, is_still)
            else:
                woken = self._park_without(lock, parker, seconds, is_still)
        except BaseException:
            # An interrupt, perhaps after this thread took its permit. It leaves the run, and waits for none.
            woken = True
            if parker in ready_queue.parked:
                ready_queue.parked.remove(parker)
            raise
        finally:
            if woken:
                self.waking.pop(parker, None)
            else:
                self._leave(parker)
            parker.deadline = None
            if patience is not None:
                ready_queue.standby = None
            if outside is not None:
                self._outside += monotonic_ns() - began
        if not woken:
            if polls:
                engine.polling.poll()
            elif for_alone:
                engine.alone.give_up()
        return True

    def _may_jump(self, until: int | None) -> bool:
        """Let time jump to the next timer if no ready node may be taken, since a step is left for another node."""
        engine = self._engine
        if until is None or any(map(engine.gate.allows, engine.ready_queues)):
            return False
        return engine.clock.jump_to(until)

    def _park(self, parker: Parker, seconds: float | None, is_still: bool) -> bool:
        """Park in the clock's time; but in a pause in which nothing runs, so that its time stands still.

        A simulated machine moves its time when all workers wait. As long as something runs, it may need that. So
        may a node that is about to compute alone.
        """
        engine = self._engine
        if is_still and not engine.running and engine.alone.node is None:
            return parker.park(None)
        return engine.clock.park(parker, seconds)

    def _park_without(
        self, lock: threading.Lock, parker: Parker, seconds: float | None, is_still: bool
    ) -> bool:
        """Release the lock while the worker is parked."""
        lock.release()
        try:
            return self._park(parker, seconds, is_still)
        finally:
            lock.acquire()

    def _leave(self, parker: Parker) -> None:
        """Remove a worker that was not woken from the list of parked workers."""
        try:
            parker.ready_queue.parked.remove(parker)
        except ValueError:
            # Another thread chose it at the same moment. Its permit must not end the next wait.
            parker.park(None)
            self.waking.pop(parker, None)

    def _see_turn(self, parker: Parker) -> None:
        """Note the compute whose turn it is in the queue of a worker, unless the worker has seen it before."""
        node, seen = parker.ready_queue.current, parker.seen
        if node is None:
            parker.seen = None
        elif seen is None or seen.node is not node or seen.remaining != node.remaining:
            parker.seen = _Turn(node, self._engine.clock.timestamp())

    def _left_of(self, turn: _Turn) -> int:
        """Return the nanoseconds for which a turn keeps others from theirs, in the time that workers wait in."""
        clock = self._engine.clock
        passed = monotonic_ns() - turn.at_real
        if not clock.is_virtual:
            return _LONGEST_TURN - passed
        left = round(LONGEST_TURN * 1e9) - passed
        if not clock.passes or left <= 0:
            return left
        return _LONGEST_TURN - (clock.timestamp() - turn.at)

    def _decide(self) -> tuple[str, int | None]:
        """Return whether to wait, and for which time; called when nothing runs and nothing is ready."""
        engine = self._engine
        clock, scheduler = engine.clock, engine.scheduler
        if engine.progress:
            engine.progress = False
            self.deadlock_at = None
            # Evaluated once after the last compute, and then periodically.
            if engine.polling.nodes and engine.polling.poll():
                return _GO_ON, None
        if not engine.alive:
            engine.request_stop("")
            return _OVER, None
        until = engine.timers.next()
        if until is not None or engine.outstanding:
            self.deadlock_at = None
            if engine.on_idle is not None:
                engine.on_idle(until is None)
        elif scheduler.stop_on_deadlock:
            now = clock.timestamp()
            if self.deadlock_at is None:
                self.deadlock_at = now + scheduler.stop_on_deadlock_timeout * 1_000_000
            if now >= self.deadlock_at:
                if engine.ends.end_idle():
                    return _GO_ON, None
                engine.request_stop("")
                return _OVER, None
            until = self.deadlock_at
        # While an event is outstanding, time must not jump to the end of the run.
        can_jump = until is not None or not engine.outstanding
        if engine.limit is not None and (until is None or engine.limit < until):
            until = engine.limit
        if engine.polling.nodes and (until is not None or clock.passes):
            until = engine.polling.at if until is None else min(until, engine.polling.at)
        if until is not None and can_jump and not clock.is_held and clock.jump_to(until):
            return _GO_ON, None
        if engine.limit is not None and self._left_outside() == 0.0 and clock.jump_to(engine.limit):
            return _GO_ON, None
        return _WAIT, until

    def _left_outside(self) -> float | None:
        """Return the real seconds to wait for what is outside a run in virtual time; None if there is no limit."""
        engine = self._engine
        if engine.limit is None or not engine.clock.is_virtual or engine.clock.passes:
            return None
        return max(engine.limit - engine.clock.timestamp() - self._outside, 0) / 1e9


# A scheduler of a program's own may wait on the main thread, where Ctrl-C raises: its caller must hold the lock
# then. Not as a decorator, by which a call of the compiled method would take longer.
waits.shielded(WaitingWorkers._park_without)
