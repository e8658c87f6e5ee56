"""Tear-down: the steps that end a run.

Every step is carried out, whatever the others raise (`run`). So the steps are listed here, in their order, and each
of them is small: a step that raises leaves out only its own rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from headrace._runtime.scheduling.notes import name_of
from headrace.core.condition_types import OperatorStatus

if TYPE_CHECKING:
    from headrace._runtime.observer import Observer
    from headrace._runtime.scheduling.engine import Engine
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
