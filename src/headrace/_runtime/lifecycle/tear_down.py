"""Tear-down: the steps that end a run.

Every step is carried out, whatever the others raise (`run`). So the steps are listed here, in their order, and each
of them is small: a step that raises leaves out only its own rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from headrace._runtime.lifecycle.notes import name_of

if TYPE_CHECKING:
    from headrace._runtime.scheduling.engine import Engine
    from headrace._runtime.scheduling.node import Node
    from headrace.core.condition import Condition
    from headrace.core.operator import Operator
    from headrace.core.protocols import Observer
    from headrace.core.resource import Resource

__all__ = ["Step", "steps_of"]


@dataclass(frozen=True, slots=True)
class Step:
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
    started: Iterable[Operator],
    resources: Iterable[Resource],
    observer: Observer | None,
    account: Callable[[], object],
) -> list[Step]:
    """Return the steps that stop and release everything; `account` counts what each operator did."""
    return [
        Step("the current stream", engine.streams.restore_current),
        # Wait for the device first: an operator that stops may release memory that its kernels still use.
        Step("the device", lambda: engine.streams.finish(engine.all_nodes)),
        *(
            Step(f"stop() of operator {name_of(operator)!r}", operator.stop, "stop", operator)
            for operator in reversed(list(started))
        ),
        # Wait again: work that stop() launched is part of the run.
        Step("the device", lambda: engine.streams.finish(engine.all_nodes)),
        *([] if observer is None else [Step("its observer", observer.finish)]),
        Step("its undelivered messages", partial(_count_undelivered, engine)),
        Step("its outcome", account),
        # Before the memory and the streams that they use.
        *(Step(f"what runs {group.name!r}", group.runner.finish) for group in engine.groups),
        *(
            Step(f"the knobs of {name_of(node)!r}", partial(_close_knobs, node))
            for node in engine.operator_nodes
        ),
        *_release_messages(engine),
        Step("its streams", engine.streams.close),
        *(
            Step(f"release() of resource {name_of(resource)!r}", resource.release, "release", resource)
            for resource in reversed(list(resources))
        ),
        Step("its clock", lambda: engine.clock.unwatch(engine.time_moved)),
        *_detach(engine),
        Step("its announcements", engine.inbox.clear),
    ]


def _count_undelivered(engine: Engine) -> None:
    for node in engine.operator_nodes:
        for queue in node.inputs:
            queue.undelivered = len(queue)


def _close_knobs(node: Node) -> None:
    if node.streams.knobs is not None:
        node.streams.knobs.close()


def _release_messages(engine: Engine) -> list[Step]:
    """Release undelivered messages before the streams: their memory may be freed on one of them."""
    steps = []
    for node in engine.all_nodes:
        name = name_of(node)
        steps += [Step(f"the messages at {name!r}", queue.clear) for queue in node.inputs]
        steps.append(Step(f"the metadata of {name!r}", node.clear_details))
        steps.append(Step(f"the frames of {name!r}", node.streams.close))
    return steps


def _detach(engine: Engine) -> list[Step]:
    """Take operators and conditions out of the run."""
    steps = []
    for node in engine.all_nodes:
        operator, name = node.operator, name_of(node)
        steps.append(Step(f"the state of {name!r}", partial(setattr, operator, "_stop_wanted", False)))
        if operator._live is not None:
            steps.append(
                Step(f"the live parameters of {name!r}", operator._live.end_run, "set_live", operator)
            )
        conditions: dict[int, Condition] = {
            id(condition): condition for condition in (*node.conditions, *operator.conditions.values())
        }
        steps += [
            Step(f"condition {name_of(condition)!r}", condition.detach) for condition in conditions.values()
        ]
    steps += [
        Step(f"the knobs of {name_of(node)!r}", partial(_forget_knobs, node))
        for node in engine.operator_nodes
    ]
    return steps


def _forget_knobs(node: Node) -> None:
    node.operator._knobs.end_run(node.computes)
