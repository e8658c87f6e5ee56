"""Controller: real threads with a baton, so that exactly one runs at a time and a strategy says which.

Every controlled thread is a `Task`. A task runs until it comes to a switch point: a primitive (a lock, a park,
a sleep, the start or the end of a thread), a line of a traced module, or a point that a scenario names. There
the controller works out which tasks could go on and asks the strategy. There is no thread for the controller:
the task that holds the baton runs it, and hands the baton over.

Time is the controller's too. It moves in two ways only: no task can go on, and then it moves to the earliest
deadline; or the strategy lets the earliest deadline pass although others could go on, which costs a preemption.
"""

from __future__ import annotations

import _thread
import ctypes
import gc
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from tests.limits import PATIENCE

from .faults import Fault, Kind

if TYPE_CHECKING:
    from types import CodeType, FrameType

__all__ = ["Abort", "Controller", "Decision", "Line", "Strategy", "Task", "Until", "Waitable"]

_NEW, _READY, _BLOCKED, _DONE = "not started", "ready", "blocked", "done"

_STEPS_KEPT = 14
_WALL_SECONDS = PATIENCE


class Abort(BaseException):
    """Unwinds the tasks of a run that is given up."""


class Waitable(Protocol):
    """What a task can be blocked on."""

    def is_free(self) -> bool:
        """Say whether a task that is blocked on this could go on."""
        ...


class Until:
    """What a scenario's thread is blocked on until a predicate holds."""

    def __init__(self, predicate: Callable[[], bool]) -> None:
        self.is_free = predicate

    def __repr__(self) -> str:
        return "a predicate of the scenario"


class _Never:
    def is_free(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "the time"


class Strategy(Protocol):
    """Chooses who goes on."""

    def choose(self, number: int, options: list[Task], costs: list[int]) -> int:
        """Return the position in `options` of the task to run; 0 is the default choice and costs nothing."""
        ...


Line = tuple["CodeType", int]


class Decision(NamedTuple):
    """What there was to decide and what was decided."""

    options: list[Task]
    costs: list[int]
    position: int
    # The line that the running thread was about to run, and whether it holds the guard; None at other points.
    line: tuple[Line, bool] | None


class Task:
    """A controlled thread."""

    def __init__(self, name: str, work: Callable[[], object], number: int, external: bool) -> None:
        self.name = name
        self.work = work
        self.number = number
        # Whether it belongs to the scenario and not to the system under test.
        self.external = external
        self.state = _NEW
        self.ident = 0
        self.waits_for: Waitable | None = None
        self.deadline: int | None = None
        self.interrupt: BaseException | None = None
        # What it is parked on, where it is parked rather than blocked on a lock.
        self.parker: Any = None
        self.steps: deque[tuple[int, Any, int]] = deque(maxlen=_STEPS_KEPT)
        self.baton = _thread.allocate_lock()
        self.baton.acquire()

    @property
    def is_done(self) -> bool:
        return self.state is _DONE

    def describe(self, now: int) -> str:
        """Return what the task is at, in words."""
        if self.state is not _BLOCKED:
            return self.state
        where = "parked" if self.parker is not None else f"blocked on {self.waits_for!r}"
        if self.deadline is None:
            return f"{where}, without a deadline"
        return f"{where}, until {self.deadline / 1e6:g} ms (in {(self.deadline - now) / 1e6:g} ms)"


class Controller:
    """Runs tasks one at a time, in the order a strategy gives."""

    # No run of a thorough exploration took more than 10,000 steps.
    def __init__(self, strategy: Strategy, traced: Iterable[str] = (), max_steps: int = 20_000) -> None:
        self.strategy = strategy
        self.traced = frozenset(traced)
        self.max_steps = max_steps
        self.now = 0
        self.steps = 0
        self.tasks: list[Task] = []
        self.current: Task | None = None
        self.fault: Fault | None = None
        self.aborting = False
        self.record: list[Decision] = []
        # A lock that guards most of the state: what is done under it and what without it is told apart.
        self.guard: Any = None
        # The lines that were run, and whether the guard was held.
        self.lines: set[tuple[Line, bool]] = set()
        # By how much time moved although a task could have gone on: that is not the fault of whoever is late.
        self.haste = 0
        self.before_time_moves: Callable[[int], None] = lambda until: None
        self.when_stuck: Callable[[], None] = lambda: None
        self.on_event: Callable[[], None] = lambda: None
        self.on_switch: Callable[[], None] = lambda: None
        self._quiet = False
        self._others: list[Task] | None = None
        self._costs: list[int] = []
        self._finished = _thread.allocate_lock()
        self._local: dict[CodeType, bool] = {}

    # Running.

    def run(self, name: str, work: Callable[[], object]) -> None:
        """Run `work` as the first task, and all it starts, to their end or to the first fault."""
        self._finished.acquire()
        first = self.spawn(name, work, external=False)
        self.start(first)
        self.current = first
        collecting = gc.isenabled()
        gc.disable()
        try:
            first.baton.release()
            self._await_end()
        finally:
            if collecting:
                gc.enable()

    def _await_end(self) -> None:
        end = time.monotonic() + _WALL_SECONDS
        while not self._finished.acquire(timeout=1.0):
            task = self.current
            if self.aborting and task is not None and task.ident:
                # It unwinds into a loop, and an exception in a trace function ends the tracing.
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(task.ident), ctypes.py_object(Abort)
                )
            if time.monotonic() > end:
                raise RuntimeError(
                    "the harness itself is stuck: a task waits for something that is not controlled\n"
                    + "\n".join(f"{task.name}: {task.describe(self.now)}" for task in self.tasks)
                )

    def spawn(self, name: str, work: Callable[[], object], external: bool) -> Task:
        """Make a task; it does not run before `start`."""
        taken = {task.name for task in self.tasks}
        base, number = name, 2
        while name in taken:
            name, number = f"{base}_{number}", number + 1
        task = Task(name, work, len(self.tasks), external)
        self.tasks.append(task)
        return task

    def start(self, task: Task) -> None:
        """Let a task take part."""
        if self.aborting:
            raise Abort
        task.state = _READY
        self._others = None
        _thread.start_new_thread(self._life, (task,))

    def _life(self, task: Task) -> None:
        task.ident = _thread.get_ident()
        task.baton.acquire()
        try:
            if not self.aborting:
                if task.number:
                    self.trace_lines()
                task.work()
        except Abort:
            pass
        except BaseException as error:
            self._note_fault(Fault(Kind.ERROR, f"{task.name} raised {type(error).__name__}: {error}", error))
        finally:
            sys.settrace(None)
            self._leave(task)

    def _leave(self, task: Task) -> None:
        task.state = _DONE
        task.steps.append((self.steps, "leaves", 0))
        self._others = None
        following = None
        if not self.aborting:
            with suppress(Abort):
                following = self._choose(task)
        if following is None:
            following = next((other for other in self.tasks if other.state in (_READY, _BLOCKED)), None)
        if following is None:
            self.current = None
            self._finished.release()
        else:
            self.current = following
            following.baton.release()

    def trace_lines(self) -> None:
        """Make lines of traced modules switch points on this thread, in the functions that are called from now on.

        On the first task that is the scenario's to say: until there are others, it would only take time.
        """
        if self.traced:
            sys.settrace(self._trace)

    def fail(self, fault: Fault) -> None:
        """Give the run up because of a fault; called by the running task, which unwinds."""
        self._note_fault(fault)
        raise Abort

    def _note_fault(self, fault: Fault) -> None:
        if self.fault is None:
            self.fault = fault
            fault.note(self)
        self.aborting = True

    # Switch points.

    def point(self, what: str) -> None:
        """Let others go on here, if the strategy wants that."""
        task = self.current
        if task is None or self.aborting or self._quiet:
            return
        self.steps += 1
        task.steps.append((self.steps, what, 0))
        self._account(task)
        self._others = None
        self._offer(task)

    @contextmanager
    def undisturbed(self) -> Iterator[None]:
        """Have no switch points for a while, for code that looks at the state of the run."""
        before, self._quiet = self._quiet, True
        try:
            yield
        finally:
            self._quiet = before

    def event(self) -> None:
        """Take note that something happened that may be worth a wake-up."""
        self.on_event()

    def block(self, on: Waitable, deadline: int | None = None) -> bool:
        """Block the running task; return True when `on` is free and False when its time is up."""
        task = self.current
        assert task is not None
        while True:
            if self.aborting:
                raise Abort
            if task.interrupt is not None:
                interrupt, task.interrupt = task.interrupt, None
                raise interrupt
            if on.is_free():
                return True
            if deadline is not None and deadline <= self.now:
                return False
            task.state, task.waits_for, task.deadline = _BLOCKED, on, deadline
            self._others = None
            try:
                following = self._choose(task)
                assert following is not None
                self._switch(task, following)
            finally:
                task.state, task.waits_for, task.deadline = _READY, None, None
                self._others = None

    def sleep(self, nanoseconds: int) -> None:
        """Let the running task take time."""
        if self.current is not None and not self.aborting:
            self.block(_Never(), self.now + nanoseconds)

    def wait_until(self, predicate: Callable[[], bool]) -> None:
        """Block the running task until a predicate holds."""
        self.block(Until(predicate))

    def interrupt(self, name: str, error: BaseException) -> None:
        """Raise an exception in a task the next time it blocks, or now where it is blocked."""
        for task in self.tasks:
            if task.name == name and not task.is_done:
                task.interrupt = error
        self._others = None

    # Choosing.

    def _offer(self, task: Task, line: tuple[Line, bool] | None = None) -> None:
        others = self._others
        if others is None:
            others = self._find(task, can_stay=True)
            others.insert(0, task)
            self._costs.insert(0, 0)
        if len(others) > 1:
            chosen = self._decide(others, self._costs, line)
            if chosen is not task:
                self._move_time(chosen)
                self._switch(task, chosen)

    def _choose(self, task: Task) -> Task | None:
        """Return who goes on after a task that cannot; None when all are done."""
        options = self._find(task, can_stay=False)
        if not options:
            if all(other.state in (_DONE, _NEW) for other in self.tasks):
                return None
            self.when_stuck()
            self.fail(Fault(Kind.HANG, "no task can go on"))
        if all(self._is_future(option) for option in options):
            assert options[0].deadline is not None
            self.before_time_moves(options[0].deadline)
        chosen = options[0] if len(options) == 1 else self._decide(options, self._costs)
        self._move_time(chosen)
        return chosen

    def _find(self, task: Task, can_stay: bool) -> list[Task]:
        """Return the other tasks that can go on, and set what each costs."""
        ready: list[Task] = []
        late: list[Task] = []
        earliest: int | None = None
        count = len(self.tasks)
        for offset in range(0 if not can_stay else 1, count):
            other = self.tasks[(task.number + offset) % count]
            state = other.state
            if state is _READY:
                ready.append(other)
            elif state is _BLOCKED:
                waits_for = other.waits_for
                assert waits_for is not None
                deadline = other.deadline
                if waits_for.is_free() or other.interrupt is not None:
                    ready.append(other)
                elif deadline is not None:
                    if deadline <= self.now:
                        ready.append(other)
                    elif earliest is None or deadline < earliest:
                        earliest, late = deadline, [other]
                    elif deadline == earliest:
                        late.append(other)
        costs_ready = 1 if can_stay else 0
        costs_late = 1 if can_stay or ready else 0
        self._costs = [costs_ready] * len(ready) + [costs_late] * len(late)
        found = ready + late
        # Lines change nothing about it: whoever makes a predicate of the scenario true comes to a point after that.
        self._others = found if can_stay else None
        return found

    def _is_future(self, task: Task) -> bool:
        """Say whether a task goes on only because time moves."""
        if task.state is not _BLOCKED or task.interrupt is not None:
            return False
        assert task.waits_for is not None
        return not task.waits_for.is_free() and task.deadline is not None and task.deadline > self.now

    def _can_go_on(self, task: Task) -> bool:
        if task.state is _BLOCKED:
            assert task.waits_for is not None
            is_due = task.deadline is not None and task.deadline <= self.now
            return is_due or task.waits_for.is_free() or task.interrupt is not None
        return task.state is _READY

    def _decide(self, options: list[Task], costs: list[int], line: Any = None) -> Task:
        try:
            position = self.strategy.choose(len(self.record), options, costs)
        except Exception as error:
            self.fail(Fault(Kind.ERROR, f"the strategy failed: {error}", error))
            raise  # never: the run is given up
        self.record.append(Decision(options, costs, position, line))
        return options[position]

    def _move_time(self, chosen: Task) -> None:
        if self._is_future(chosen):
            assert chosen.deadline is not None
            if any(self._can_go_on(task) for task in self.tasks):
                self.haste += chosen.deadline - self.now
            self.now = chosen.deadline
            self.event()

    def _switch(self, task: Task, chosen: Task) -> None:
        if chosen is task:
            return
        self.on_switch()
        self.current = chosen
        self._others = None
        chosen.baton.release()
        task.baton.acquire()
        self._others = None
        if self.aborting:
            raise Abort

    # Lines.

    def _account(self, task: Task) -> None:
        if task.external:
            self.on_event()
        if self.steps > self.max_steps:
            self.fail(Fault(Kind.LIVELOCK, f"the run is not over after {self.max_steps} steps"))

    def _trace(self, frame: FrameType, event: str, arg: Any) -> Any:
        code = frame.f_code
        wanted = self._local.get(code)
        if wanted is None:
            wanted = self._local[code] = code.co_filename in self.traced
        return self._trace_line if wanted else None

    def _trace_line(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "line" and not self.aborting and not self._quiet:
            task = self.current
            if task is not None:
                code, line = frame.f_code, frame.f_lineno
                self.steps += 1
                task.steps.append((self.steps, code, line))
                if task.external or self.steps > self.max_steps:
                    self._account(task)
                others = self._others
                if others is None or len(others) > 1:
                    guard = self.guard
                    here = ((code, line), guard is not None and guard.holder is task)
                    self.lines.add(here)
                    self._offer(task, here if guard is not None else None)
        return self._trace_line
