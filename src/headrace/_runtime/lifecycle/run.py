"""The life of a run: compose, assemble, initialize, start, execute and, even after errors, stop.

Every step of the tear-down is carried out, even if earlier steps raised, and no interrupt is raised in it
(`interrupts`). `run` raises the first error. Later errors are in its notes, in its ``other_errors`` and in the
outcome. An interrupt takes precedence over any error of an operator: a program that continues after errors must not
continue after Ctrl-C.
"""

from __future__ import annotations

import os
import threading
from contextlib import nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING

from headrace._runtime.lifecycle.accounts import count_messages, operators_of
from headrace._runtime.lifecycle.assembly import assemble
from headrace._runtime.lifecycle.interrupts import Interrupts
from headrace._runtime.lifecycle.notes import message_of, note, traceback_of
from headrace._runtime.lifecycle.starvation import find_starved
from headrace.core.checks import check_compute
from headrace.core.outcome import EndedBy, ErrorRecord, OperatorOutcome, Outcome, Starved
from headrace.core.registry import registry
from headrace.core.resource import Resource

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future
    from contextlib import AbstractContextManager

    from headrace._runtime.scheduling.engine import Engine
    from headrace.core.claim import Claim
    from headrace.core.fragment import Fragment
    from headrace.core.operator import Operator
    from headrace.core.protocols import Observer

__all__ = ["run", "run_async"]


def run(fragment: Fragment, claim: Claim) -> Outcome:
    """Run a fragment to its end and return its outcome; raise an operator's exception unchanged."""
    life = _Life(fragment, claim)
    interrupts = life.interrupts
    if os.environ.get("HEADRACE_LOG_LEVEL") or os.environ.get("HOLOSCAN_LOG_LEVEL"):
        from headrace.core.log_output import configure_log

        configure_log()
    try:
        interrupts.install()
        fragment._claim(claim)
        with _progress_line(fragment):
            life.live()
    finally:
        fragment._release(claim)
        interrupts.restore()
    failure, interrupts.first = _what_comes_out(life.errors, interrupts.first), None
    life.errors.clear()
    if failure is not None:
        try:
            raise failure
        finally:
            # The traceback refers to this frame; without this line, the frame would also refer to the exception.
            del failure
    assert life.outcome is not None
    return life.outcome


def _progress_line(fragment: Fragment) -> AbstractContextManager[None]:
    """Return the context in which the progress of a run is shown, if the environment asks for it."""
    if not os.environ.get("HEADRACE_PROGRESS"):
        return nullcontext()
    from headrace._runtime.lifecycle.progress_line import is_wanted, shown_progress

    return shown_progress(fragment) if is_wanted() else nullcontext()


def run_async(fragment: Fragment, claim: Claim) -> Future[Outcome]:
    """Run a fragment on its own thread; if another run is in progress, raise here, not in the future."""
    from concurrent.futures import Future

    future: Future[Outcome] = Future()

    def work() -> None:
        try:
            future.set_result(run(fragment, claim))
        except BaseException as error:
            future.set_exception(error)

    future.set_running_or_notify_cancel()
    # Claimed by this thread, so that a stop right after this call is not lost. Claiming again with the same claim
    # changes nothing.
    interrupts = Interrupts(fragment.name, claim.stop, lambda: "its thread")
    try:
        interrupts.install()
        fragment._claim(claim)
        try:
            threading.Thread(target=work, name=f"{fragment.name} run", daemon=True).start()
        except BaseException:
            fragment._release(claim)
            raise
    finally:
        interrupts.restore()
    interrupt, interrupts.first = interrupts.first, None
    if interrupt is not None:
        raise interrupt
    return future


class _Life:
    """One run, from compose to the end of the tear-down."""

    def __init__(self, fragment: Fragment, claim: Claim) -> None:
        self.fragment = fragment
        self.claim = claim
        self.errors: list[BaseException] = []
        self.outcome: Outcome | None = None
        self.interrupts = Interrupts(fragment.name, claim.stop, self._waits_for)
        self._doing = "compose"
        self._engine: Engine | None = None
        self._observer: Observer | None = None
        self._resources: list[Resource] = []
        self._started: list[Operator] = []
        self._began = self._ended = 0
        self._starved: tuple[Starved, ...] = ()
        self._operators: dict[str, OperatorOutcome] = {}

    def live(self) -> None:
        """Run from beginning to end; collect all errors in `errors`."""
        fragment = self.fragment
        fragment._outcome = None
        try:
            try:
                self.interrupts.held = False
                fragment._compose_graph()
                engine = self._engine = self._assemble()
                self.claim.begin(engine)
                for operator in fragment.graph:
                    if operator._stop_wanted:
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

    def _assemble(self) -> Engine:
        """Create the engine, and what watches the run, if anything was asked for."""
        fragment = self.fragment
        observer = registry.observe(fragment)
        if observer is None:
            engine = assemble(fragment)
            if fragment.count_messages:
                count_messages(engine)
            return engine
        engine = assemble(fragment, observer.make_queue)
        self._observer = engine.observer = engine.streams.observer = observer
        observer.attach(engine)
        return engine

    def _start(self, engine: Engine) -> None:
        """Initialize and start; a stop in the meantime skips the rest."""
        fragment = self.fragment
        if not engine.stopping:
            self._initialize(engine)
            engine.streams.open(fragment.graph)
        for operator in fragment.graph:
            if engine.stopping:
                return
            # Listed before its start: an operator whose start failed half-way must also be stopped.
            self._started.append(operator)
            self._doing = f"start() of operator {operator.name!r}"
            with _phase("start", operator):
                operator.start()
                check_compute(operator)

    def _initialize(self, engine: Engine) -> None:
        fragment = self.fragment
        found: dict[int, Resource] = {
            id(engine.clock): engine.clock,
            id(engine.scheduler): engine.scheduler,
        }
        for operator in fragment.graph:
            found.update((id(resource), resource) for resource in _resources_of(operator))
        for resource in found.values():
            self._doing = f"initialize() of resource {resource.name!r}"
            with _phase("initialize", resource):
                resource.initialize()
            self._resources.append(resource)
        for operator in fragment.graph:
            self._doing = f"initialize() of operator {operator.name!r}"
            with _phase("initialize", operator):
                operator.initialize()
                assert operator._node is not None
                for condition in operator.conditions.values():
                    condition.initialize()

    def _execute(self, engine: Engine) -> None:
        if engine.stopping:
            return
        self._doing = ""
        engine.prime()
        # Workers finish their computes, even if a signal arrives on this thread meanwhile.
        self.interrupts.held = self.interrupts.held or engine.scheduler.workers > 0
        self._began = self._ended = engine.clock.timestamp()
        try:
            engine.scheduler.execute(engine)
        finally:
            self._ended = engine.clock.timestamp()
        if not engine.ended_by and not engine.errors:
            self._starved = find_starved(engine)

    def _waits_for(self) -> str:
        """Return what the run is doing, for the log."""
        if self._doing or self._engine is None:
            return self._doing
        try:
            nodes = self._engine.computing()
        except RuntimeError:  # a worker changed a queue meanwhile
            nodes = []
        computing = [f"{node.name!r} ({type(node.operator).__name__})" for node in nodes]
        return f"compute of {', '.join(computing)}" if computing else "its workers"

    # The end.

    def _tear_down(self, engine: Engine) -> None:
        """Stop and release everything, even after errors."""
        engine.stopping = engine.held = True
        engine.pausing.close()
        for error in engine.errors:
            self._add(error, "and in the same run")
        engine.errors.clear()
        self._attempt("the current stream", engine.streams.restore_current)
        # Wait for the device first: an operator that stops may release memory that its kernels still use.
        self._attempt("the device", lambda: engine.streams.finish(engine.all_nodes))
        for operator in reversed(self._started):
            self._attempt(f"stop() of operator {operator.name!r}", operator.stop, operator)
        # Wait again: work that stop() launched is part of the run.
        self._attempt("the device", lambda: engine.streams.finish(engine.all_nodes))
        if self._observer is not None:
            self._attempt("its observer", self._observer.finish)
        for node in engine.operator_nodes:
            for queue in node.inputs:
                queue.undelivered = len(queue)
        self._attempt("its outcome", lambda: self._operators.update(operators_of(engine)))
        # The graphs before the memory and the streams that they use.
        for segment in engine.segments:
            self._attempt(f"the recordings of segment {segment.segment.name!r}", segment.finish)
        for node in engine.operator_nodes:
            if node.streams.knobs is not None:
                self._attempt(f"the knobs of {node.name!r}", node.streams.knobs.close)
        # Release undelivered messages before the streams: their memory may be freed on one of them.
        for node in engine.all_nodes:
            for queue in node.inputs:
                self._attempt(f"the messages at {node.name!r}", queue.clear)
            self._attempt(f"the metadata of {node.name!r}", node.clear_details)
            self._attempt(f"the frames of {node.name!r}", node.streams.close)
        self._attempt("its streams", engine.streams.close)
        for resource in reversed(self._resources):
            self._attempt(f"release() of resource {resource.name!r}", resource.release, resource)
        self._attempt("its clock", lambda: engine.clock.watch(None))
        for node in engine.all_nodes:
            node.operator._stop_wanted = False
            if node.operator._live is not None:
                node.operator._live.end_run()
            conditions = (*node.conditions, *node.operator.conditions.values())
            for condition in {id(condition): condition for condition in conditions}.values():
                self._attempt(f"condition {condition.name!r}", condition.detach)
        for node in engine.operator_nodes:
            self._attempt(f"the knobs of {node.name!r}", partial(node.operator._knobs.end_run, node.computes))
        engine.inbox.clear()
        self._attempt("its log", lambda: self._report(engine))
        observer = self._observer
        if observer is not None:
            self._attempt("its observer", lambda: observer.close(self.outcome))

    def _attempt(
        self, doing: str, action: Callable[[], object], component: Operator | Resource | None = None
    ) -> None:
        self._doing = doing
        try:
            action()
        except BaseException as error:
            if component is not None:
                note(error, "release" if isinstance(component, Resource) else "stop", component)
            self._add(error, "and while stopping")

    def _add(self, error: BaseException, when: str) -> None:
        """Add an error; any but the first is also added to the notes of the first."""
        if self.errors:
            self.errors[0].add_note(f"{when}: {type(error).__name__}: {message_of(error)}")
        self.errors.append(error)

    def _report(self, engine: Engine) -> None:
        """Create the outcome and log it, with each error that `run` will not raise."""
        import logging

        outcome = self.outcome = self.fragment._outcome = Outcome(
            application=self.fragment.name,
            ended_by=self._ended_by(engine),
            seconds=max(self._ended - self._began, 0) / 1e9,
            operators=self._operators,
            starved=self._starved,
            errors=tuple(map(_record, self.errors)),
            segments=tuple(segment.outcome() for segment in self.fragment.segments),
        )
        logger = logging.getLogger("headrace.run")
        logger.log(getattr(logging, _LEVELS.get(outcome.ended_by, "INFO")), "%s", outcome)
        for segment in outcome.segments:
            logging.getLogger("headrace.capture").info("%s", segment)
        for error in self.errors[1:]:
            logger.error(
                "%r: an error in addition to the one that run() raises\n%s",
                outcome.application,
                traceback_of(error),
            )

    def _ended_by(self, engine: Engine) -> EndedBy:
        if self.interrupts.first is not None or any(isinstance(e, KeyboardInterrupt) for e in self.errors):
            return EndedBy.INTERRUPTED
        if self.errors:
            return EndedBy.FAILED
        if engine.ended_by:
            return EndedBy(engine.ended_by)
        return EndedBy.STARVED if self._starved else EndedBy.FINISHED


def _resources_of(operator: Operator) -> list[Resource]:
    """Return the resources that an operator was given: as such, as parameters, or through its conditions."""
    parameters = [getattr(operator._parameters, name, None) for name in operator.spec.params]
    found = [*operator.resources.values(), *(value for value in parameters if isinstance(value, Resource))]
    for condition in operator.conditions.values():
        for each in (condition, *condition.terms):
            found += each.resources
    return found


_LEVELS = {EndedBy.STARVED: "WARNING", EndedBy.FAILED: "ERROR"}


def _record(error: BaseException) -> ErrorRecord:
    notes: list[str] = getattr(error, "__notes__", [])
    where = next((text for text in notes if text.startswith(("raised in ", "raised by "))), "")
    return ErrorRecord(type(error).__name__, message_of(error), where)


def _what_comes_out(errors: list[BaseException], interrupt: BaseException | None) -> BaseException | None:
    """Return the exception that `run` raises, with the others attached to it, or None."""
    first = interrupt or next(iter(errors), None)
    others = [error for error in errors if error is not first]
    if first is None or not others:
        return first
    if first is interrupt and errors[0] is not interrupt and not _leads_to(errors[0], interrupt):
        first.__context__ = errors[0]
    with suppress(Exception):  # a class may refuse attributes
        first.other_errors = others  # type: ignore[attr-defined]
    return first


def _leads_to(error: BaseException | None, earlier: BaseException) -> bool:
    """Return whether an exception was raised while another was being handled."""
    while error is not None and error is not earlier:
        error = error.__context__
    return error is earlier


class _phase:
    """Adds a note to any exception raised inside, with the operator or resource and its phase."""

    __slots__ = ("_component", "_phase")

    def __init__(self, phase: str, component: Operator | Resource) -> None:
        self._phase = phase
        self._component = component

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            note(error, self._phase, self._component)
