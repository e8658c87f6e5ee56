"""Rest: what a worker does that finds nothing ready, and how a run comes to its end.

Time may jump, and a deadlock may be declared, only when every worker is at rest and nothing is ready. So
the last worker to come to rest decides, under the engine's lock: it is the only one that can see that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import threading

    from penstock.runtime.engine import Engine
    from penstock.runtime.lane import Seat

__all__ = ["rest"]

_PATIENCE = 1e-3  # seconds


def rest(engine: Engine, seat: Seat, lock: threading.Lock | None) -> bool:
    """Sleep until there may be something to do and say True, or say False when the run is over.

    Called by a worker that found nothing to take, with `lock` held where there is one; it is let go
    during the sleep. The last worker to come to rest, with nothing running, decides: it asks what is
    only polled, ends the run, moves a clock that can be moved, or sleeps until the next timer.
    """
    if engine.stopping:
        return False
    if engine.inbox:
        return True
    until = engine.timers.next()
    if not engine.running and not any(lane.now or lane.later for lane in engine.lanes):
        if engine.polled and engine.progress:
            # Once; and again only after something ran, or after a while.
            engine.progress = False
            if engine.poll():
                return True
        if not engine.alive:
            return engine.end()
        if until is not None or engine.pending:
            engine.deadlock_at = None
        elif engine.scheduler.stop_on_deadlock:
            now = engine.clock.timestamp()
            if engine.deadlock_at is None:
                engine.deadlock_at = now + engine.scheduler.stop_on_deadlock_timeout * 1_000_000
            if now >= engine.deadlock_at:
                return engine.end()
            until = engine.deadlock_at
        can_jump = True
        if engine.limit is not None and (until is None or engine.limit < until):
            # With an event outstanding time must not jump to the end of the run before it comes.
            can_jump = until is not None or not engine.pending
            until = engine.limit
        if until is not None and can_jump and engine.clock.jump_to(until):
            return True
    else:
        until = engine.next_time()
    _sleep(engine, seat, until, lock)
    return True


def _sleep(engine: Engine, seat: Seat, until: int | None, lock: threading.Lock | None) -> None:
    seconds = None if until is None else engine.clock.seconds_until(until)
    if seconds is not None and until is not None:
        # One sleeper is enough to wake up for the next timer.
        if engine.keeper is None or until < engine.keeper_until:
            engine.keeper, engine.keeper_until = seat, until
        else:
            seconds = None
    if engine.polled:
        engine.progress = True
        recess = engine.scheduler.check_recession_period_ms / 1e3
        seconds = recess if seconds is None else min(seconds, recess)
    lane = seat.lane
    lane.asleep.append(seat)
    # Whoever announces appends to the inbox first and looks for sleepers second; looking at the inbox
    # after lying down, one of the two sees the other.
    woken = False
    if not engine.inbox:
        if lock is None:
            woken = engine.clock.park(seat, seconds)
        else:
            at_once = lane.quick is not None and lane.standby is None
            if at_once:
                lane.standby = seat
            lock.release()
            try:
                if not at_once:
                    woken = engine.clock.park(seat, seconds)
                if lane.standby is seat:
                    if not at_once:
                        if not woken:
                            seat.sleep(None)  # chosen as its time was up: the wake-up that comes with that
                        lane.asleep.append(seat)
                    woken = _stand_by(engine, seat, lock)
            finally:
                lock.acquire()
                if lane.standby is seat:
                    lane.standby = None
    if engine.keeper is seat:
        engine.keeper = None
    if not woken:
        try:
            lane.asleep.remove(seat)
        except ValueError:
            # Someone chose to wake this worker at the same moment: take the wake-up.
            seat.sleep(None)


def _stand_by(engine: Engine, seat: Seat, lock: threading.Lock) -> bool:
    """Watch over a lane until woken (True), or until one compute takes too long there or there is none (False)."""
    lane = seat.lane
    while True:
        node = lane.quick
        remaining = None if node is None else node.remaining
        if engine.clock.park(seat, _PATIENCE):
            return True
        if node is lane.quick and (node is None or node.remaining == remaining):
            # Whatever the other worker is at, it is not done in a moment.
            with lock:
                engine.overtake(lane, node)
            return False
