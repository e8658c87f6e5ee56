"""Watch: looks at a run from outside and finds what is wrong with its waiting and waking.

A wake-up may be on its way at any moment, so the state is judged only where nobody could bring it: before time
moves because no thread can go on, and when the run is stuck. What is counted is counted all along. What the engine
holds about the nodes that wait is compared with a new evaluation wherever one thread hands over to another and none
is about to change it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from . import bindings
from .controller import Controller, Task
from .faults import Fault, Kind

__all__ = ["Watch"]


class Watch:
    """The detectors of one run."""

    def __init__(self, control: Controller) -> None:
        self.control = control
        self.engine: Any = None
        self.wake_ups = 0
        self.idle_wake_ups = 0
        # Wake-ups since the last event: a compute, an action of the scenario, time that moved, the end.
        self.since_event = 0
        self.most_since_event = 0
        self._parkers: dict[Any, str] = {}
        # The workers that were woken and ran nothing since.
        self._idle: set[Any] = set()
        # The wake-ups that each task gave.
        self._given: dict[Task | None, int] = {}
        # How long the work of a ready queue has waited while a worker of that queue was parked.
        self._waited: dict[tuple[int, str], int] = {}
        control.before_time_moves = self._before_time_moves
        control.when_stuck = self._when_stuck
        control.on_event = self._on_event
        control.on_switch = self._on_switch
        # The nodes whose conditions a task is changing, once for each.
        self._changing: list[Any] = []

    def watch_engine(self, engine: Any) -> None:
        """Begin to look at an engine that is about to run."""
        self.engine = engine
        self.control.guard = bindings.guard_of(engine, self.control)

    # What is counted.

    def _on_event(self) -> None:
        self.since_event = 0

    def begins(self, name: str) -> None:
        """Take note that a compute begins."""
        self._on_event()
        task = self.control.current
        self._idle -= {parker for parker, worker in self._parkers.items() if task and worker == task.name}
        self._waited.clear()  # the others wait for the turn of this one now

    @contextmanager
    def announcing(self) -> Iterator[None]:
        """Judge an announcement: it needs to wake one worker at most."""
        task = self.control.current
        before = self._given.get(task, 0)
        yield
        woken = self._given.get(task, 0) - before
        if woken > 1:
            self.fail(Kind.SPIN, f"one announcement woke {woken} workers")

    @contextmanager
    def changing(self, node: Any) -> Iterator[None]:
        """Take note that a condition of a node is being changed, and will be announced."""
        self._changing.append(node)
        try:
            yield
        finally:
            self._changing.remove(node)

    def _on_switch(self) -> None:
        engine = self.engine
        if engine is None or self.control.aborting or bindings.is_stopping(engine):
            return
        if self.control.guard is None:
            # One worker, without a lock: what it is about to change is settled while it is parked.
            if not self._parked():
                return
        elif self.control.guard.holder is not None:
            return
        with self.control.undisturbed():
            found = bindings.misjudged(engine, self._changing.__contains__)
        if found:
            self.fail(Kind.MISJUDGED, "; ".join(found))

    def parks(self, parker: Any) -> None:
        """Take note that a worker parks."""
        if self.control.current is not None:
            self._parkers[parker] = self.control.current.name
        if parker in self._idle:
            self._idle.discard(parker)
            self.idle_wake_ups += 1

    def woken(self, parker: Any, again: bool) -> None:
        """Take note of a wake-up, `again` if the worker has not taken the one before."""
        self.wake_ups += 1
        self._idle.add(parker)
        self._given[self.control.current] = self._given.get(self.control.current, 0) + 1
        self.since_event += 1
        self.most_since_event = max(self.most_since_event, self.since_event)
        if again:
            self.fail(Kind.DOUBLE_WAKE_UP, f"{self._name(parker)} is woken before it took the wake-up before")
        self._judge_need(parker)
        workers = sum(not task.external for task in self.control.tasks) - 1
        if self.since_event > workers + 1:
            self.fail(
                Kind.SPIN,
                f"{self.since_event} wake-ups for {workers} workers, without a compute, an announcement or a "
                "timer in between",
            )

    def _judge_need(self, parker: Any) -> None:
        """Judge a wake-up that a worker gives: there must be more to do than those who were woken will see to."""
        task = self.control.current
        if task is None or task.external or bindings.is_stopping(self.engine):
            return
        with self.control.undisturbed():
            queue = bindings.queue_of(parker)
            waking = [
                name
                for other, name in self._parkers.items()
                if bindings.queue_of(other) is queue and bindings.has_wake_up(other)
            ]
            needed = max(len(bindings.work_in(self.engine, queue)), 1) + bindings.has_timers(self.engine)
        if len(waking) >= needed:
            self.fail(Kind.SPIN, f"{self._name(parker)} is woken for what {' and '.join(waking)} will see to")

    def ended(self, engine: Any) -> None:
        """Judge an engine that finds that there is nothing left to do."""
        with self.control.undisturbed():
            reasons = bindings.unfinished(engine)
        self._on_event()
        if reasons:
            self.fail(Kind.PREMATURE_END, f"the run ends although {', '.join(reasons)}")

    # What is judged when nobody can go on.

    def _before_time_moves(self, until: int) -> None:
        with self.control.undisturbed():
            self._judge(until)

    def _when_stuck(self) -> None:
        with self.control.undisturbed():
            self._judge(None)
            if self.engine is not None and bindings.is_stopping(self.engine):
                self.fail(Kind.HANG, "the run is to end, and a thread never leaves")

    def _judge(self, until: int | None) -> None:
        engine = self.engine
        parked = self._parked()
        if engine is None or not parked:
            return
        if bindings.is_stopping(engine):
            self.fail(Kind.LOST_WAKE_UP, f"the run is to end, and {_names(parked)} stay parked")
        self._judge_work(parked, until)
        self._judge_time(parked)

    def _judge_work(self, parked: list[Task], until: int | None) -> None:
        waiting: dict[tuple[int, str], int] = {}
        queues = {id(queue): queue for queue in (bindings.queue_of(task.parker) for task in parked)}
        for number, queue in queues.items():
            for work in bindings.work_in(self.engine, queue):
                passed = 0 if until is None else until - self.control.now
                waited = waiting[number, work] = self._waited.get((number, work), 0) + passed
                if until is None or waited > bindings.work_patience(self.engine):
                    idle = [task for task in parked if bindings.queue_of(task.parker) is queue]
                    self.fail(Kind.LOST_WAKE_UP, f"{work} is ready, and {_names(idle)} stay parked")
        self._waited = waiting

    def _judge_time(self, parked: list[Task]) -> None:
        remaining = bindings.next_time(self.engine)
        if remaining is None:
            return
        due = self.control.now + max(remaining, 0)
        earliest = min((task.deadline for task in parked if task.deadline is not None), default=None)
        patience = bindings.time_patience(self.engine) + self.control.haste
        if earliest is None or earliest > due + patience:
            woken = "never" if earliest is None else f"at {earliest / 1e6:g} ms"
            self.fail(
                Kind.MISSED_TIME,
                f"a timer is due at {due / 1e6:g} ms, and the first of {_names(parked)} to wake up does so {woken}",
            )

        keeping = [task for task in parked if task.deadline is not None and abs(task.deadline - due) <= 1_000]
        if len(keeping) > 1 and not bindings.is_shared_time(self.engine):
            self.fail(
                Kind.SPIN, f"{_names(keeping)} all wake up for the timer that is due at {due / 1e6:g} ms"
            )

    def _parked(self) -> list[Task]:
        return [task for task in self.control.tasks if task.parker is not None and not task.is_done]

    # At the end.

    def judge_end(self) -> None:
        """Judge what a run that is over left behind."""
        if self.engine is None:
            return
        found = bindings.left_behind(self.engine)
        found += [
            f"a wake-up for {name}" for parker, name in self._parkers.items() if bindings.has_wake_up(parker)
        ]
        if found:
            self.fail(Kind.LEAK, f"at the end of the run there is still {', '.join(found)}")

    def fail(self, kind: Kind, what: str) -> None:
        """Give the run up, with the state of its workers."""
        fault = Fault(kind, what)
        if self.engine is not None:
            with self.control.undisturbed():
                fault.state = bindings.state_of(self.engine, self._name)
        self.control.fail(fault)

    def _name(self, parker: Any) -> str:
        return "None" if parker is None else self._parkers.get(parker, "a worker")


def _names(tasks: list[Task]) -> str:
    return " and ".join(task.name for task in tasks)
