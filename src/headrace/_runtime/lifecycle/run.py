"""The life of a run: compose, assemble, initialize, start, execute and, even after errors, stop.

Every step of the tear-down (`tear_down`) is carried out, even if earlier steps raised, and no interrupt is raised
in it (`interrupts`). `run` raises the first error. Later errors are in its notes, in its ``other_errors`` and in
the outcome. An interrupt takes precedence over any error of an operator: a program that continues after errors must
not continue after Ctrl-C.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from headrace import waits
from headrace._runtime.lifecycle.accounts import count_messages, find_starved, operators_of
from headrace._runtime.lifecycle.assembly import assemble
from headrace._runtime.lifecycle.changes import Changes
from headrace._runtime.lifecycle.interrupts import Interrupts
from headrace._runtime.lifecycle.tear_down import StopTimeout, TearDownStep, steps_of, stop_timeout_of
from headrace._runtime.messages.queue import Queue
from headrace._runtime.scheduling.notes import note, note_condition
from headrace._runtime.scheduling.watchdog import stack_of, stacks_of
from headrace._runtime.scheduling.workers import ScheduledRun, required_pools
from headrace.core.checks import check_compute, compose
from headrace.core.errors import StuckError, add_note, message_of, notes_of
from headrace.core.outcome import EndedBy, ErrorRecord, OperatorOutcome, Outcome, SegmentOutcome, Starved
from headrace.core.parameters import holder_of
from headrace.core.ports import OperatorStatus
from headrace.core.resource import Resource
from headrace.gpu.backend import aside

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace._runtime.lifecycle.assembly import Supplies
    from headrace._runtime.observer import Observer
    from headrace._runtime.scheduling.engine import Engine
    from headrace.core.composition import Composition
    from headrace.core.control import RunControl
    from headrace.core.operator import Operator


def run(fragment: Composition, control: RunControl, supplies: Supplies) -> Outcome:
    """Run a fragment to its end and return its outcome; raise an operator's exception unchanged."""
    life = _Life(fragment, control, supplies)
    interrupts = life.interrupts
    if os.environ.get("HEADRACE_LOG_LEVEL") or os.environ.get("HEADRACE_LOG_FORMAT"):
        from headrace.core.log import configure_log

        configure_log()
    errors = life.errors
    try:
        interrupts.install()
        seconds = stop_timeout_of(fragment)
        fragment._headrace.claim(control)
        with supplies.progress(fragment):
            if seconds is None:
                life.live()
            elif not life.live_apart(seconds):
                errors = life.give_up()
    except BaseException as error:
        control.failure = error
        raise
    finally:
        if control.failure is None:
            control.failure = _what_comes_out(errors, interrupts.first)
        if life.is_given_up:
            control.end()  # nobody waits for it any more, but the fragment stays in use
        else:
            fragment._headrace.release(control)
        interrupts.restore()
    failure, interrupts.first = _what_comes_out(errors, interrupts.first), None
    errors.clear()
    if failure is not None:
        try:
            raise failure
        finally:
            # The traceback refers to this frame; without this line, the frame would also refer to the exception.
            del failure
    assert life.outcome is not None
    return life.outcome


def run_async(fragment: Composition, control: RunControl, run_it: Callable[[], Outcome]) -> Future[Outcome]:
    """Call `run_it`, which runs a fragment, on a thread; if another run is in progress, raise here."""
    future = OutcomeFuture()

    def work() -> None:
        try:
            future.set_result(run_it())
        except BaseException as error:
            future.set_exception(error)

    future.set_running_or_notify_cancel()
    # Claimed by this thread, so that a stop right after this call is not lost. Claiming again for the same run
    # changes nothing.
    interrupts = Interrupts(fragment.name, control.stop, lambda: "its thread")
    try:
        interrupts.install()
        fragment._headrace.claim(control)
        try:
            future.thread = threading.Thread(target=work, name=f"{fragment.name} run", daemon=True)
            future.thread.start()
        except BaseException:
            fragment._headrace.release(control)
            raise
    finally:
        interrupts.restore()
    interrupt, interrupts.first = interrupts.first, None
    if interrupt is not None:
        raise interrupt
    return future


class _Life:
    """One run, from compose to the end of the tear-down."""

    def __init__(self, fragment: Composition, control: RunControl, supplies: Supplies) -> None:
        self.fragment = fragment
        self.control = control
        self.supplies = supplies
        self.errors: list[BaseException] = []
        self.outcome: Outcome | None = None
        self.interrupts = Interrupts(fragment.name, control.stop, self._waits_for)
        self._doing = "compose"
        self._engine: Engine | None = None
        self._observer: Observer | None = None
        self._changes: Changes | None = None
        self._resources: list[Resource] = []
        self._started: list[Operator] = []
        self._stop: StopTimeout | None = None
        self._began = self._ended = 0
        self._starved: tuple[Starved, ...] = ()
        self._operators: dict[str, OperatorOutcome] = {}
        self._segments: tuple[SegmentOutcome, ...] = ()

    def live(self) -> None:
        """Run from beginning to end; collect all errors in `errors`."""
        fragment = self.fragment
        fragment._headrace.outcome = None
        try:
            try:
                # On a thread of its own, no handler of a signal can raise in it.
                self.interrupts.held = self._stop is not None
                compose(fragment)
                engine = self._engine = self._assemble()
                engine.on_stop = self.control.on_stop
                self._changes = self.control.changes = Changes(
                    fragment, engine, self.supplies, self._initialize, self._start_one, self._started
                )
                self.control.begin(engine)
                for operator in fragment.graph:
                    if operator._headrace.stop_wanted:
                        operator.stop_execution()
                self._start(engine)
                self._execute(engine)
            finally:
                # Before anything else, and before an exception is handled.
                self.interrupts.held = True
        except BaseException as error:
            self.errors.append(error)
        if self._engine is not None:
            self._tear_down(self._engine)
        self._take_outside_errors("and from outside of the run")

    def live_apart(self, seconds: float) -> bool:
        """Run on a thread of its own; return False if the run took longer than `seconds` to stop, and goes on."""
        control = self.control
        stop = self._stop = StopTimeout(seconds, self._is_stopping, self._drain, control.stop)
        control.on_stop = stop.wake
        self.interrupts.drain = stop.drain

        def work() -> None:
            try:
                self.live()
            except BaseException as error:
                self.errors.append(error)

        return stop.run(work, partial(self.fragment._headrace.release, control), f"{self.fragment.name} run")

    def _is_stopping(self) -> bool:
        return self.control.stop_wanted or (self._engine is not None and self._engine.stopping)

    def _drain(self) -> None:
        """End the sources; a run that has not begun is stopped."""
        if self.control.has_started:
            self.control.drain_wanted = True
            self.supplies.drain(self.fragment)
        else:
            self.control.stop()

    @property
    def is_given_up(self) -> bool:
        """Whether the run takes too long to stop, and nobody waits for it any more."""
        return self._stop is not None and self._stop.is_given_up

    def give_up(self) -> list[BaseException]:
        """Return the errors of a run that is given up, and report how it ended; the run itself goes on."""
        import logging

        assert self._stop is not None
        engine = self._engine
        text = f"{self.fragment.name!r} has not stopped within {self._stop.seconds:g} s: it still waits for "
        stuck = StuckError(
            f"{text}{self._waits_for()}. Nothing was stopped or released, because it may be in use\n"
            f"{self._stacks()}"
        )
        logging.getLogger("headrace.watchdog").error("%s", stuck)
        self._take_outside_errors("and while stopping")
        # Copies: the run may go on to change its own. It may be moving the engine's to its own, so those come first
        # here: each is found once or twice.
        of_engine = () if engine is None else tuple(engine.errors)
        errors = list({id(error): error for error in (*self.errors, *of_engine)}.values())
        if errors:
            add_note(errors[0], f"and the run did not stop: {type(stuck).__name__}: {stuck}")
        errors.append(stuck)
        if engine is not None:
            with suppress(Exception):  # the queues are in use
                self._operators = operators_of(engine)
        self._conclude(engine, errors)
        self.fragment._headrace.outcome = self.outcome
        interrupt = self.interrupts.first
        if isinstance(interrupt, SystemExit) and interrupt.code == _TERMINATED:
            interrupt.code = 1  # it was not ended as SIGTERM asks for
        return errors

    def _stacks(self) -> str:
        """Return where the threads are that a run waits for."""
        if self._engine is not None and not self._doing:
            found = stacks_of(node.operator for node in self._engine.operator_nodes)
            if found:
                return "\n".join(f"stack of operator {name!r}:\n{stack}" for name, stack in found.items())
        assert self._stop is not None
        return f"stack of the run:\n{stack_of(self._stop.thread)}"

    def _assemble(self) -> Engine:
        """Create the engine, and what watches the run, if anything was asked for."""
        fragment = self.fragment
        observer = self._observer = self.supplies.observer(fragment)
        engine = assemble(fragment, self.supplies, Queue if observer is None else observer.make_queue)
        engine.ends.find_starved = find_starved
        engine.followers.append(lambda changed: engine.scheduler.follow_change(fragment))
        if observer is not None:
            engine.observer = engine.streams.observer = observer
            observer.attach(engine)
            engine.followers.append(observer.follow)
        elif fragment.count_messages:
            count_messages(engine)
        return engine

    def _start(self, engine: Engine) -> None:
        """Initialize and start; a stop in the meantime skips the rest."""
        fragment = self.fragment
        if not engine.stopping:
            self._initialize_all(engine)
            engine.streams.open(fragment.graph)
        for operator in fragment.graph:
            if engine.stopping:
                return
            # Listed before its start: an operator whose start failed half-way must also be stopped.
            self._started.append(operator)
            self._start_one(operator)

    def _start_one(self, operator: Operator) -> None:
        operator._headrace.run_phase = OperatorStatus.START_PENDING
        node: Any = operator._headrace.node
        node.streams.call(partial(self._call, "start", operator))
        operator._headrace.run_phase = OperatorStatus.STARTED
        check_compute(operator)

    def _initialize_all(self, engine: Engine) -> None:
        fragment = self.fragment
        engine.clock._headrace.began = self.control.began
        shared = [service for service in fragment._headrace.all_services() if isinstance(service, Resource)]
        for resource in dict.fromkeys((engine.clock, engine.scheduler, *shared)):
            self._call("initialize", resource)
            self._resources.append(resource)
        self._initialize(list(fragment.graph))

    def _initialize(self, operators: list[Operator]) -> None:
        """Initialize operators, and before that their resources that are not."""
        found: dict[int, Resource] = {}
        for operator in operators:
            found.update((id(resource), resource) for resource in _resources_of(operator))
        for known in self._resources:
            found.pop(id(known), None)
        for resource in found.values():
            self._call("initialize", resource)
            self._resources.append(resource)
        for operator in operators:
            node: Any = operator._headrace.node
            self._call("initialize", operator)
            # Also the conditions that the run created for ports.
            conditions = {id(each): each for each in (*operator._headrace.conditions, *node.conditions)}
            for condition in conditions.values():
                try:
                    condition.initialize()
                except BaseException as error:
                    note_condition(error, "initialize", condition, operator.name)
                    raise

    def _call(self, phase: str, component: Operator | Resource) -> None:
        """Call the method of a phase; an exception gets a note with the component and the phase."""
        kind = "resource" if isinstance(component, Resource) else "operator"
        before, self._doing = self._doing, f"{phase}() of {kind} {component.name!r}"
        try:
            getattr(component, phase)()
        except BaseException as error:
            note(error, phase, component)
            raise
        finally:
            self._doing = before  # an operator that joins the run starts while others compute

    def _execute(self, engine: Engine) -> None:
        if engine.stopping or not engine.nodes:
            return
        self._doing = ""
        engine.prime()
        assert self._changes is not None
        self._changes.open()
        self.control.start()
        # Workers finish their computes, even if a signal arrives on this thread meanwhile.
        has_workers = engine.scheduler.workers > 0 or bool(required_pools(engine))
        self.interrupts.held = self.interrupts.held or has_workers
        self._began = self._ended = engine.clock.timestamp()
        try:
            engine.scheduler.execute(ScheduledRun(engine))
        finally:
            self._ended = engine.clock.timestamp()
        if not engine.ended_by and not engine.errors:
            self._starved = engine.ends.starved or find_starved(engine)

    def _waits_for(self) -> str:
        """Return what the run is doing, for the log."""
        if self._doing or self._engine is None:
            return self._doing
        nodes = self._engine.computing()
        computing = [f"{node.name!r} ({type(node.operator).__name__})" for node in nodes]
        return f"compute of {', '.join(computing)}" if computing else "its workers"

    # The end.

    def _tear_down(self, engine: Engine) -> None:
        """Stop and release everything, even after errors, and report how the run ended."""
        engine.stopping = engine.held = True
        engine.gate.close()
        if self._changes is not None:  # or the run was interrupted before that
            self._changes.close()
        if engine.watchdog is not None:  # before the errors are read, as it may add one
            self._attempt(TearDownStep("its watchdog", engine.watchdog.close))
        for error in engine.errors:
            self._add(error, "and in the same run")
        engine.errors.clear()
        self._take_outside_errors("and from outside of the run")
        self.control.error = self.errors[0] if self.errors else self.interrupts.first
        # All steps before the first is taken, since nothing may raise between them.
        steps = list(
            steps_of(
                engine, self._stops(engine), self._resources, self._observer, partial(self._account, engine)
            )
        )
        for step in (*steps, TearDownStep("its segments", self._describe_segments)):
            self._attempt(step)
        self._take_outside_errors("and while stopping")
        self._conclude(engine, self.errors)
        if not self.is_given_up:
            self.fragment._headrace.outcome = self.outcome
        self._attempt(TearDownStep("its log", self._log))
        observer = self._observer
        if observer is not None:
            self._attempt(TearDownStep("its observer", partial(observer.close, self.outcome)))

    def _stops(self, engine: Engine) -> list[Operator]:
        """Return the operators in the order in which they are stopped."""
        ended = [node.operator for node in engine.ends.of_themselves]
        return self.fragment._headrace.order_of_stops(self._started, ended, self.errors)

    def _take_outside_errors(self, when: str) -> None:
        """Add the errors with which other threads let the run fail."""
        errors = self.control.errors
        while errors:
            try:
                error = errors.popleft()
            except IndexError:  # the run and whoever gives it up take them, on two threads
                return
            self._add(error, when)

    def _attempt(self, step: TearDownStep) -> None:
        self._doing = step.doing
        try:
            step.action()
        except BaseException as error:
            if step.component is not None:
                note(error, step.phase, step.component)
            self._add(error, "and while stopping")

    def _add(self, error: BaseException, when: str) -> None:
        """Add an error; any but the first is also added to the notes of the first."""
        if self.errors:
            add_note(self.errors[0], f"{when}: {type(error).__name__}: {message_of(error)}")
        self.errors.append(error)

    def _account(self, engine: Engine) -> None:
        """Count what each operator did, while the queues still hold their messages."""
        self._operators = operators_of(engine)

    def _describe_segments(self) -> None:
        self._segments = tuple(segment.outcome() for segment in self.fragment._headrace.segments)

    def _conclude(self, engine: Engine | None, errors: list[BaseException]) -> None:
        """Create the outcome; of plain data only, so that there is one whatever happened."""
        self.outcome = Outcome(
            application=self.fragment.name,
            ended_by=self._ended_by(engine, errors),
            seconds=max(self._ended - self._began, 0) / 1e9,
            operators=self._operators,
            starved=self._starved,
            errors=tuple(map(_record, errors)),
            segments=self._segments,
        )

    def _log(self) -> None:
        """Log the outcome, and each error that `run` will not raise."""
        import logging

        outcome = self.outcome
        assert outcome is not None
        from headrace.core.log import fields_of

        logger, extra = logging.getLogger("headrace.run"), fields_of(self.fragment)
        level = getattr(logging, _LEVELS.get(outcome.ended_by, "INFO"))
        raised = self.errors[0] if outcome.ended_by is EndedBy.FAILED else None
        logger.log(level, "%s", outcome, exc_info=raised, extra=extra)
        for segment in outcome.segments:
            logging.getLogger("headrace.capture").info("%s", segment, extra=extra)
        for error in self.errors[0 if self.is_given_up else 1 :]:
            logger.error(
                "%r: an error in addition to the one that run() raises",
                outcome.application,
                exc_info=error,
                extra=extra,
            )

    def _ended_by(self, engine: Engine | None, errors: list[BaseException]) -> EndedBy:
        if self.interrupts.first is not None or any(isinstance(e, KeyboardInterrupt) for e in errors):
            return EndedBy.INTERRUPTED
        if errors:
            return EndedBy.FAILED
        if engine is not None and engine.ended_by:
            return EndedBy(engine.ended_by)
        return EndedBy.STARVED if self._starved else EndedBy.FINISHED


def _resources_of(operator: Operator) -> list[Resource]:
    """Return the resources that an operator was given: as such, as parameters, or through its conditions."""
    parameters = [getattr(holder_of(operator), name, None) for name in operator.spec.params]
    found = [*operator.resources.values(), *(value for value in parameters if isinstance(value, Resource))]
    for condition in operator._headrace.conditions:
        for each in (condition, *condition.terms):
            found += each.resources
    return found


_TERMINATED = 128 + 15  # the exit status that `interrupts` chooses for SIGTERM
_LEVELS = {EndedBy.STARVED: "WARNING", EndedBy.FAILED: "ERROR"}


def _record(error: BaseException) -> ErrorRecord:
    where = next((text for text in notes_of(error) if text.startswith(("raised in ", "raised by "))), "")
    return ErrorRecord(type(error).__name__, message_of(error), where)


def _what_comes_out(errors: list[BaseException], interrupt: BaseException | None) -> BaseException | None:
    """Return the exception that `run` raises, with the others attached to it, or None."""
    first = interrupt or next(iter(errors), None)
    others = [error for error in errors if error is not first]
    if first is None or not others:
        return first
    if first is interrupt and errors[0] is not interrupt and not _leads_to(errors[0], interrupt):
        _CONTEXT.__set__(first, errors[0])
    with suppress(Exception):
        vars(first)["other_errors"] = others  # not by setattr: a class may refuse attributes
    return first


# Not by the attribute, which a class may refuse or replace.
_CONTEXT = BaseException.__dict__["__context__"]


def _leads_to(error: BaseException | None, earlier: BaseException) -> bool:
    """Return whether an exception was raised while another was being handled."""
    seen: set[int] = set()  # a program can make a circle of exceptions
    while error is not None and error is not earlier and id(error) not in seen:
        seen.add(id(error))
        error = _CONTEXT.__get__(error)
    return error is earlier


class OutcomeFuture(Future[Outcome]):
    """The outcome of a run that is in progress on another thread."""

    thread: threading.Thread | None = None
    """The thread of the run; it ends right after the run."""

    def result(self, timeout: float | None = None) -> Outcome:
        """Return the outcome, or raise the exception that ended the run, after waiting for its end."""
        self.wait(timeout)
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the exception that ended the run, or None, after waiting for its end."""
        self.wait(timeout)
        return super().exception(0)

    def wait(self, timeout: float | None = None) -> None:
        """Wait for the end of the run, at most for so many seconds."""
        with aside():
            waits.wait_for_futures((self,), timeout)
