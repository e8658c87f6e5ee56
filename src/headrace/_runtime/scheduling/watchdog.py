"""Watchdog: notices computes that take longer than the deadline of their operator (`OperatorSpec.deadline`).

A compute with a deadline notes when it began and on which thread. A thread of the watchdog looks at these notes at
the earliest time at which a deadline can have passed: that of the oldest compute in progress. If nothing computes,
it waits until a compute begins, so an idle run uses no CPU. A compute that begins looks at one flag, and wakes the
thread only from such a wait. It does not tell the thread anything else: a thread that wakes and finds the next
compute in progress waits for the deadline of that one.

Time is that of the run's clock. The time of some clocks cannot be waited for: the program moves it, which wakes the
thread (`Clock.watch`), or the computes themselves do. So a compute also looks at its end whether it took too long.
The count is exact for every clock; only the stack is missing if the compute was over before the thread could look.

What a deadline costs a compute: two readings of the clock, about 0.9 µs. Other computes cost nothing.

Where a compute is stuck is told by the stack of its thread. Without a deadline nobody has noted which thread that
is; it is found by the code of the operator's compute in the stacks of all threads. Compiled code has no frames, but
operators are not compiled.

The thread needs the interpreter lock. A compute that never releases it, inside of a library, is not noticed.

Unreceived: operators that compute repeatedly without receiving their messages.

If `compute` never receives from an input, its operator stays ready forever: it spins, nothing raises, and the run
does not end. A check at every receive would cost more than the receive itself, so the check runs only once in
1024 sweeps of a ready queue. It replaces the `take` of an input with one that restores the original at the
first message taken. If the replacement is still in place at the next check, and the operator has computed since, no
message was taken.
"""

from __future__ import annotations

import sys
import threading
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any

from headrace import waits
from headrace.core.error_policy import Stuck
from headrace.core.errors import StuckError, UnreceivedMessageWarning, add_note
from headrace.core.function import FunctionOperator

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import FrameType

    from headrace._runtime.messages.ports import InputPort
    from headrace._runtime.scheduling.node import Node
    from headrace._runtime.scheduling.ready_queue import ReadyQueue
    from headrace.core.operator import Operator


class _Watched:
    """The compute of a node with a deadline.

    Attributes
    ----------
    began, thread
        When the compute in progress began, None if there is none, and its thread. Changed by the compute alone.
    reported
        When the last compute began that was reported. Changed under the watchdog's lock.
    stack
        Returns where a call is that awaits and has no thread; None for a compute.
    """

    __slots__ = ("began", "limit", "node", "reported", "stack", "thread")

    def __init__(self, node: Node) -> None:
        self.node = node
        self.limit: int = node.operator.spec.time_limit
        self.began: int | None = None
        self.thread = 0
        self.reported: int | None = None
        self.stack: Callable[[], str] | None = None


class Watchdog:
    """Watches the computes with a deadline of one run."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self._clock = engine.clock
        self._watched: list[_Watched] = []
        self._lock = threading.Lock()
        # Whether the thread waits for a compute to begin. It sets the flag and then looks at the computes; a
        # compute notes that it began and then looks at the flag. So one of the two sees the other.
        self._is_idle = False
        self._is_closed = False
        self._permit = threading.Lock()
        self._permit.acquire()
        self._thread: threading.Thread | None = None

    def around(self, node: Node, compute: Callable[..., None]) -> Callable[..., None]:
        """Return the compute of a node, which is watched; of one that awaits, watch its calls instead."""
        operator: Any = node.operator
        if operator._headrace.awaits:
            operator.watch_calls(partial(self._watch_call, node))
            return compute
        watched = _Watched(node)
        self._watched.append(watched)
        now, limit = self._clock.timestamp, watched.limit

        def compute_watched(op_input: Any, op_output: Any, context: Any) -> None:
            watched.thread = get_ident()
            began = watched.began = now()
            if self._is_idle:
                self._wake()
            try:
                compute(op_input, op_output, context)
            finally:
                watched.began = None
                if now() - began > limit:
                    self._report(watched, began)

        return compute_watched

    def _watch_call(self, node: Node, stack: Callable[[], str]) -> Callable[[], None]:
        """Watch one call of an operator that awaits, from now until the returned function is called."""
        watched = _Watched(node)
        watched.stack = stack
        began = watched.began = self._clock.timestamp()
        self._watched.append(watched)
        if self._is_idle:
            self._wake()

        def end() -> None:
            watched.began = None
            self._watched.remove(watched)
            if self._clock.timestamp() - began > watched.limit:
                self._report(watched, began)

        return end

    def computing_for(self) -> dict[str, float]:
        """Return the seconds for which each operator with a deadline that computes now has computed."""
        now = self._clock.timestamp()
        found: dict[str, float] = {}
        for watched in tuple(self._watched):
            began, name = watched.began, watched.node.name
            if began is not None:
                found[name] = max(found.get(name, 0.0), (now - began) / 1e9)
        return found

    def start(self) -> None:
        """Start the thread, unless it runs."""
        if self._thread is not None:
            return
        self._clock.watch(self._wake)
        self._thread = threading.Thread(target=self._work, name="headrace watchdog", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._clock.unwatch(self._wake)
        self._is_closed = True
        self._wake()
        if self._thread is not None and self._thread is not threading.current_thread():
            waits.join(self._thread)

    def _wake(self) -> None:
        """Make the thread look at the computes; may be called from any thread."""
        self._is_idle = False
        with suppress(RuntimeError):  # it is about to look
            self._permit.release()

    def _work(self) -> None:
        while not self._is_closed:
            due = self._look()
            seconds: float | None = None
            if due is None:
                self._is_idle = True
                due = self._look()
            if due is not None:
                self._is_idle = False
                # If no real wait reaches that time, the one who moves the clock wakes this thread.
                if self._clock.passes and not self._clock.is_virtual:
                    seconds = self._clock.seconds_until(due)
            waits.acquire(self._permit, seconds)

    def _look(self) -> int | None:
        """Report computes that take too long; return when the next compute in progress will, or None."""
        now = self._clock.timestamp()
        due: int | None = None
        for watched in tuple(self._watched):
            began = watched.began
            if began is None or began == watched.reported:
                continue
            if now - began > watched.limit:
                self._report(watched, began)
            else:
                until = began + watched.limit + 1
                due = until if due is None else min(due, until)
        return due

    def _report(self, watched: _Watched, began: int) -> None:
        """Count a compute that took too long, once, and do what its operator asks for."""
        node = watched.node
        with self._lock:
            if watched.reported == began:
                return
            watched.reported = began
            node.counts.stuck += 1
            number = node.counts.stuck
        seconds = (self._clock.timestamp() - began) / 1e9
        stack = ""
        if watched.began == began:
            stack = stack_of(watched.thread, node.operator) if watched.stack is None else watched.stack()
        if watched.began != began:
            stack = ""  # it ended meanwhile
        stuck = Stuck(node.name, seconds, watched.limit / 1e9, stack)
        on_stuck = node.operator.spec.on_stuck
        if callable(on_stuck):
            try:
                on_stuck(stuck)
            except Exception as error:
                add_note(error, f"raised in on_stuck of operator {node.name!r}")
                self._fail(error)
        elif on_stuck == "abort":
            self._log("ERROR", f"the run is aborted: {stuck}")
            self._fail(StuckError(str(stuck)))
        elif not number & (
            number - 1
        ):  # at 1, 2, 4, 8: an operator that is always slow must not flood the log
            self._log("WARNING", str(stuck) if number == 1 else f"{stuck}\n({number} stuck computes so far)")

    def _fail(self, error: Exception) -> None:
        self._engine.errors.append(error)
        self._engine.request_stop()

    def _log(self, level: str, text: str) -> None:
        import logging

        logging.getLogger("headrace.watchdog").log(getattr(logging, level), "%s", text)


def stack_of(thread: int, operator: Operator | None = None) -> str:
    """Return the stack of a thread, from the compute of an operator on, if that is in it; "" without the thread."""
    frame = sys._current_frames().get(thread)
    if frame is None:
        return ""
    frames = _frames(frame)
    begin = 0 if operator is None else max(_compute_in(frames, operator), 0)
    return _text(frames[begin:])


def stacks_of(operators: Iterable[Operator]) -> dict[str, str]:
    """Return the stack of each of these operators whose compute is in the stack of a thread."""
    threads = [_frames(frame) for frame in sys._current_frames().values()]
    found: dict[str, str] = {}
    for operator in operators:
        for frames in threads:
            begin = _compute_in(frames, operator)
            if begin >= 0:
                found[operator.name] = _text(frames[begin:])
                break
    return found


def _frames(innermost: FrameType) -> list[FrameType]:
    """Return the frames of a stack, the outermost first."""
    return [frame for frame, _ in traceback.walk_stack(innermost)][::-1]


def _compute_in(frames: list[FrameType], operator: Operator) -> int:
    """Return the place of the frame in which an operator computes, or -1."""
    if isinstance(operator, FunctionOperator):
        function = operator.declared.function
        return next((place for place, frame in enumerate(frames) if frame.f_code is function.__code__), -1)
    compute: Any = operator.compute
    code = getattr(getattr(compute, "__func__", compute), "__code__", None)
    for place, frame in enumerate(frames):
        # Several operators may have the same class.
        if frame.f_code is code and frame.f_locals.get("self", operator) is operator:
            return place
    return -1


def _text(frames: list[FrameType]) -> str:
    lines = traceback.StackSummary.extract((frame, frame.f_lineno) for frame in frames).format()
    return "".join(lines).rstrip()


SWEEPS = 1023
"""The number of sweeps between two checks, minus one: a power of two minus one."""

# The number of consecutive computes without a receive that is certainly a mistake.
_COMPUTES = 1_000


def look_for_unreceived(nodes: Iterable[Node], ready_queue: ReadyQueue) -> None:
    """Warn about each input from which an operator of a ready queue has stopped receiving."""
    for node in nodes:
        if node.ready_queue is not ready_queue or node.retired or has_more(node.operator):
            continue
        ports = [port for port in node.input.ports if port.queues and not port.is_optional]
        untaken = [port for port in ports if type(port.take) is _Untaken]
        for port in ports:
            take = port.take
            if not isinstance(take, _Untaken):
                port.take = _Untaken(port, node.computes)
            elif not all(port.queues):
                take.since = node.computes  # nothing waits there
            elif (
                not take.is_told
                and node.computes - take.since >= _COMPUTES
                # An operator that runs for any of several inputs may ignore one of them for long.
                and (len(untaken) == len(ports) or all(queue.min_size for queue in port.queues))
            ):
                take.is_told = True
                _warn(node, port, node.computes - take.since)


def has_more(operator: Operator) -> bool:
    """Return whether an operator runs without receiving because it has more to emit for its last messages."""
    return isinstance(operator, FunctionOperator) and operator.has_more


def _warn(node: Node, port: InputPort, computes: int) -> None:
    warnings.warn(
        f"operator {node.name!r} has computed {computes} times in a row without receiving from its input "
        f"{port.name!r}, where messages wait: until it receives them, the operator stays ready and the run "
        f"does not end; call op_input.receive({port.name!r}) in compute, or declare the input with "
        ".condition(ConditionType.NONE) if messages may stay there",
        UnreceivedMessageWarning,
        stacklevel=2,
    )


class _Untaken:
    """Takes the next message as the port did before, and restores the port's own `take`."""

    __slots__ = ("is_told", "port", "since", "take")

    def __init__(self, port: InputPort, computes: int) -> None:
        self.port = port
        self.take: Callable[[], Any] = port.take
        self.since = computes
        self.is_told = False

    def __call__(self) -> Any:
        item = self.take()
        self.port.take = self.take
        return item
