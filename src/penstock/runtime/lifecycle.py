"""The life of a run: compose, assemble, initialize, start, execute, stop, whatever happens on the way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.runtime.assembly import assemble

if TYPE_CHECKING:
    from penstock.core.fragment import Fragment
    from penstock.core.operator import Operator
    from penstock.core.resource import Resource
    from penstock.runtime.engine import Engine

__all__ = ["run"]


def run(fragment: Fragment) -> None:
    """Run a fragment to its end; an exception of an operator comes out as itself, with a note."""
    if fragment._engine is not None:
        raise RuntimeError(f"{fragment.name!r} is running already")
    try:
        fragment.compose_graph()
        engine = assemble(fragment)
        fragment._engine = engine
        if fragment._stop_wanted:
            engine.request_stop()
    finally:
        fragment._starting = fragment._stop_wanted = False
    resources: list[Resource] = []
    started: list[Operator] = []
    failure: BaseException | None = None
    try:
        _initialize(fragment, engine, resources)
        engine.streams.open(fragment.graph)
        for operator in fragment.graph:
            # Listed first: an operator whose start failed half-way has something to stop.
            started.append(operator)
            with _phase("start", operator):
                operator.start()
        engine.prime()
        engine.scheduler.execute(engine)
        failure, engine.error = engine.error, None
    except BaseException as error:
        failure = error
    finally:
        engine.stopping = True
    # The device first: an operator that stops may let go of what its kernels still use.
    failure = _settle(engine, failure)
    failure = _stop(started, failure)
    # Again: what was launched in stop() is part of the run.
    failure = _settle(engine, failure)
    failure = _close(fragment, engine, resources, failure)
    if failure is not None:
        try:
            raise failure
        finally:
            # The traceback holds this frame: without this, the frame would hold the exception in turn.
            del failure


def _initialize(fragment: Fragment, engine: Engine, resources: list[Resource]) -> None:
    found: dict[int, Resource] = {id(engine.clock): engine.clock, id(engine.scheduler): engine.scheduler}
    for operator in fragment.graph:
        found.update((id(resource), resource) for resource in operator.resources.values())
    for resource in found.values():
        resource.initialize()
        resources.append(resource)
    for operator in fragment.graph:
        with _phase("initialize", operator):
            operator.initialize()
            assert operator._node is not None
            for condition in operator.conditions.values():
                condition.initialize()


def _settle(engine: Engine, failure: BaseException | None) -> BaseException | None:
    try:
        engine.streams.finish(engine.nodes)
    except BaseException as error:
        failure = _also(failure, error)
    return failure


def _stop(started: list[Operator], failure: BaseException | None) -> BaseException | None:
    for operator in reversed(started):
        try:
            with _phase("stop", operator):
                operator.stop()
        except BaseException as error:
            failure = _also(failure, error)
    return failure


def _close(
    fragment: Fragment, engine: Engine, resources: list[Resource], failure: BaseException | None
) -> BaseException | None:
    # What nobody received goes first: it may be memory that is freed on one of the streams.
    for node in engine.nodes:
        for queue in node.inputs:
            queue.undelivered = len(queue)
            queue.clear()
        node.forget()
        node.streams.forget()
    releases = (resource.release for resource in reversed(resources))
    for action in (*engine.at_end, engine.streams.close, *releases):
        try:
            action()
        except BaseException as error:
            failure = _also(failure, error)
    engine.clock.watch(None)
    for node in engine.nodes:
        for condition in (*node.asked, *node.operator.conditions.values()):
            condition.detach()
    engine.inbox.clear()
    fragment._engine = None
    return failure


def _also(first: BaseException | None, second: BaseException) -> BaseException:
    if first is None:
        return second
    first.add_note(f"and while stopping: {type(second).__name__}: {second}")
    return first


class _phase:
    """Names the operator and what it was doing in a note on whatever is raised inside."""

    __slots__ = ("_operator", "_phase")

    def __init__(self, phase: str, operator: Operator) -> None:
        self._phase = phase
        self._operator = operator

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            note(error, self._phase, self._operator)


def note(error: BaseException, phase: str, operator: Operator) -> None:
    """Say on an exception which operator raised it, and in which phase."""
    error.add_note(f"raised in {phase} of operator {operator.name!r} ({type(operator).__name__})")
