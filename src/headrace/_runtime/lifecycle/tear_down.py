"""Tear-down: the steps that end a run.

Every step is carried out, whatever the others raise (`run`). So the steps are listed here, in their order, and each
of them is small: a step that raises leaves out only its own rest.

StopTimeout: a run that has to stop within a time, even if a compute never returns.

Python cannot end a thread from outside, and nothing may be released under a compute: not its frames, its streams,
the pools they are from, nor the files and models of other operators, which it may be using. So such a run is left
alone as it is. What can be done is to stop waiting for it. For that, the whole run takes place on a thread of its
own, from compose to the last step of its tear-down. The caller of `run` waits for that thread, and no longer than
the timeout after the run has begun to stop, for whatever reason. All threads of a run are daemon threads, so the
process can end while they are stuck. If the compute returns after all, the run goes on to stop and release
everything, in the background, and only then may the application be run again.

The time is real time. A clock of the program stands still when nobody moves it, and a process has to end anyway.

Decided against: to wait for the workers with a timeout, and then to tear down what is not stuck. It would release
what a stuck compute uses; and a `stop` or a device that hangs would hold the run as a compute does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from headrace import waits
from headrace._runtime.scheduling.notes import name_of
from headrace.core.errors import ParameterError
from headrace.core.ports import OperatorStatus
from headrace.core.run_options import read_run_options
from headrace.core.values import nanoseconds

if TYPE_CHECKING:
    from headrace._runtime.observer import Observer
    from headrace._runtime.scheduling.engine import Engine
    from headrace.core.composition import Composition
    from headrace.core.operator import Operator
    from headrace.core.resource import Resource


@dataclass(frozen=True, slots=True)
class TearDownStep:
    """One step of a tear-down.

    Attributes
    ----------
    doing
        What it does, for the log.
    action
        Does it.
    phase, component
        What raises its errors, for their notes; None if that is not the program's.
    """

    doing: str
    action: Callable[[], object]
    phase: str = ""
    component: Operator | Resource | None = None


def steps_of(
    engine: Engine,
    stops: Iterable[Operator],
    resources: Iterable[Resource],
    observer: Observer | None,
    account: Callable[[], object],
) -> Iterator[TearDownStep]:
    """Yield the steps that stop and release everything; `account` counts what each operator did.

    `stops` are the operators in the order in which they are stopped.
    """
    yield TearDownStep("the current stream", engine.streams.restore_current)
    # Wait for the device first: an operator that stops may release memory that its kernels still use.
    yield TearDownStep("the device", partial(_finish_device, engine))
    for node in engine.operator_nodes:
        if node.ending is not None:
            yield TearDownStep(f"end() of {name_of(node)!r}", node.ending.close, "end", node.operator)
    for operator in stops:
        yield TearDownStep(
            f"stop() of operator {name_of(operator)!r}", partial(_stop, operator), "stop", operator
        )
    # Wait again: work that stop() launched is part of the run.
    yield TearDownStep("the device", partial(_finish_device, engine))
    for node in engine.all_nodes:
        for condition in node.conditions:
            yield TearDownStep(f"the messages of condition {name_of(condition)!r}", condition.end_run)
    if observer is not None:
        yield TearDownStep("its observer", observer.finish)
    for node in engine.operator_nodes:
        if node.faults is not None:
            yield TearDownStep(f"the retries of {name_of(node)!r}", node.faults.end_run)
    yield TearDownStep("its undelivered messages", partial(_count_undelivered, engine))
    yield TearDownStep("its outcome", account)
    # The groups before the memory and the streams that they use.
    for group in engine.groups:
        yield TearDownStep(f"what runs {group.name!r}", group.runner.finish)
    # Undelivered messages before the streams: their memory may be freed on one of them.
    for node in engine.all_nodes:
        name = name_of(node)
        yield TearDownStep(f"the knobs of {name!r}", node.streams.close_knobs)
        for queue in node.inputs:
            yield TearDownStep(f"the messages at {name!r}", queue.release)
        yield TearDownStep(f"the metadata of {name!r}", node.clear_details)
        yield TearDownStep(f"the frames of {name!r}", node.streams.close)
    yield TearDownStep("its streams", engine.streams.close)
    for resource in reversed(list(resources)):
        yield TearDownStep(
            f"release() of resource {name_of(resource)!r}",
            partial(resource._headrace.release, resource),
            "release",
            resource,
        )
    yield TearDownStep("its clock", lambda: engine.clock.unwatch(engine.time_moved))
    for node in engine.all_nodes:
        operator, name = node.operator, name_of(node)
        yield TearDownStep(
            f"the state of {name!r}", partial(setattr, operator._headrace, "stop_wanted", False)
        )
        if operator._headrace.live_state is not None:
            yield TearDownStep(
                f"the live parameters of {name!r}",
                operator._headrace.live_state.end_run,
                "set_live",
                operator,
            )
        conditions = {id(each): each for each in (*node.conditions, *operator._headrace.conditions)}
        for condition in conditions.values():
            yield TearDownStep(f"condition {name_of(condition)!r}", condition.detach)
    for node in engine.operator_nodes:
        end_run = partial(node.operator._headrace.knobs.end_run, node.computes)
        yield TearDownStep(f"the knobs of {name_of(node)!r}", end_run)
    yield TearDownStep("its announcements", engine.inbox.clear)


def _stop(operator: Operator) -> None:
    operator._headrace.run_phase = OperatorStatus.STOP_PENDING
    try:
        node: Any = operator._headrace.node
        if node is None:
            operator.stop()
        else:
            node.streams.call(operator.stop)
    finally:
        operator._headrace.run_phase = OperatorStatus.NOT_STARTED


def _finish_device(engine: Engine) -> None:
    """Wait for the device, then release the frames that were kept for it."""
    try:
        engine.streams.finish()
    finally:
        for node in engine.all_nodes:
            node.streams.release()


def _count_undelivered(engine: Engine) -> None:
    for node in engine.operator_nodes:
        for queue in node.inputs:
            queue.undelivered = len(queue)


def stop_timeout_of(fragment: Composition) -> float | None:
    """Return the seconds that a run of a fragment may take to stop; None for any number."""
    milliseconds = read_run_options().stop_timeout_ms
    if milliseconds is not None:
        return milliseconds / 1e3
    given = fragment._headrace.stop_timeout
    if given is None:
        return None
    where = f"stop_timeout of {fragment.name!r}"
    if isinstance(given, int):
        raise ParameterError(f"{where} needs a unit, as in '10s' or '500ms', and is {given!r}")
    try:
        seconds = nanoseconds(given, where) / 1e9
    except (TypeError, ValueError) as error:
        raise ParameterError(str(error)) from None
    if seconds <= 0:
        raise ParameterError(f"{where} must be positive, not {given!r}")
    return seconds


class StopTimeout:
    """Runs something on a thread of its own, and gives up waiting for it some time after it has begun to stop.

    Parameters
    ----------
    seconds
        How long it may take to stop.
    is_stopping
        Returns whether it has begun to stop; whoever makes it stop calls `wake` afterwards.
    drain, stop
        End its sources, and stop it; called on the thread that waits for it.
    """

    def __init__(
        self,
        seconds: float,
        is_stopping: Callable[[], bool],
        drain: Callable[[], None],
        stop: Callable[[], None],
    ) -> None:
        self.seconds = seconds
        self._is_stopping = is_stopping
        self._drain = drain
        self._stop = stop
        self._drains = False
        self._is_over = False
        self._deciding = threading.Lock()
        self._permit = threading.Lock()
        self._permit.acquire()
        self.thread = 0
        self.is_given_up = False
        """Whether nobody waits for it any more."""

    def drain(self) -> None:
        """Let it end by itself in half of its time, and stop it then; may be called from a signal handler.

        The other half is left for the stop, which waits for computes that are under way.
        """
        self._drains = True
        self.wake()

    def wake(self) -> None:
        """Let the waiting thread see what has changed; from any thread, and from a signal handler."""
        with suppress(RuntimeError):  # it is about to do so
            self._permit.release()

    def run(self, work: Callable[[], None], after: Callable[[], None], name: str) -> bool:
        """Run `work` to its end, and return True; return False if it was given up.

        If it was given up and comes to its end later, `after` is called then.
        """

        def work_and_tell() -> None:
            self.thread = threading.get_ident()
            try:
                work()
            finally:
                with self._deciding:
                    self._is_over = True
                self.wake()
                if self.is_given_up:
                    after()

        context = copy_context()
        threading.Thread(target=context.run, args=(work_and_tell,), name=name, daemon=True).start()
        until = drained_until = float("inf")
        while not self._is_over:
            now = monotonic()
            if until == float("inf") and (self._drains or self._is_stopping()):
                until = now + self.seconds
                if not self._is_stopping():
                    drained_until = now + self.seconds / 2
                    self._drain()
            if now >= drained_until:
                drained_until = float("inf")
                self._stop()
            if now >= until:
                with self._deciding:
                    self.is_given_up = not self._is_over
                break
            left = min(until, drained_until) - now
            waits.acquire(self._permit, None if left == float("inf") else left)
        return not self.is_given_up
