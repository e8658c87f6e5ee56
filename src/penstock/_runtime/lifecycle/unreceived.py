"""Operators that compute again and again and leave their messages where they are.

An input that `compute` never receives from keeps its operator ready for ever: it spins, nothing is wrong that could
be raised, and the run does not end. That is looked for once in so many sweeps of a ready queue, and not at every
receive, which would cost more than all else there. An input is then given a `take` that puts the usual one back at
the first message taken; where it is still in place the next time, and the operator has computed since, nothing was
taken.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from penstock.core.condition import ConditionType
from penstock.core.errors import UnreceivedMessageWarning
from penstock.core.function_operator import FunctionOperator

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock._runtime.messages.input_port import Inlet
    from penstock._runtime.scheduling.engine import Engine
    from penstock._runtime.scheduling.node import Node
    from penstock._runtime.scheduling.ready_queue import ReadyQueue

__all__ = ["SWEEPS", "look_for_unreceived"]

SWEEPS = 1023
"""One less than a power of two: how many sweeps go by between two looks."""

# So many computes in a row that leave a message waiting are no accident.
_COMPUTES = 1_000


def look_for_unreceived(engine: Engine, ready_queue: ReadyQueue) -> None:
    """Warn of each input of a ready queue's operators that the operator has stopped to receive from."""
    for node in engine.nodes:
        if node.ready_queue is not ready_queue or node.retired or _goes_on(node):
            continue
        inlets = [inlet for inlet in node.input.inlets if not _is_optional(node, inlet)]
        untaken = [inlet for inlet in inlets if type(inlet.take) is _Untaken]
        for inlet in inlets:
            take = inlet.take
            if not isinstance(take, _Untaken):
                inlet.take = _Untaken(inlet, node.computes)
            elif not all(inlet.queues):
                take.since = node.computes  # nothing waits there
            elif (
                not take.is_told
                and node.computes - take.since >= _COMPUTES
                # An operator that runs for any of several inputs may leave one for long.
                and (len(untaken) == len(inlets) or all(queue.min_size for queue in inlet.queues))
            ):
                take.is_told = True
                _warn(node, inlet, node.computes - take.since)


def _goes_on(node: Node) -> bool:
    """Return whether a node runs without receiving because it has more to emit for its last messages."""
    return isinstance(node.operator, FunctionOperator) and node.operator.has_more


def _is_optional(node: Node, inlet: Inlet) -> bool:
    conditions = node.operator.spec.inputs[inlet.name].conditions
    return not inlet.queues or any(wanted.kind is ConditionType.NONE for wanted in conditions)


def _warn(node: Node, inlet: Inlet, computes: int) -> None:
    warnings.warn(
        f"operator {node.name!r} has computed {computes} times in a row without receiving from its input "
        f"{inlet.name!r}, where messages wait: as long as nobody takes them the operator stays ready and the run "
        f"does not end; call op_input.receive({inlet.name!r}) in compute, or declare the input with "
        ".condition(ConditionType.NONE) if it may be left",
        UnreceivedMessageWarning,
        stacklevel=2,
    )


class _Untaken:
    """Takes the next message as the inlet did before, and then leaves that to the inlet again."""

    __slots__ = ("inlet", "is_told", "since", "take")

    def __init__(self, inlet: Inlet, computes: int) -> None:
        self.inlet = inlet
        self.take: Callable[[], Any] = inlet.take
        self.since = computes
        self.is_told = False

    def __call__(self) -> Any:
        item = self.take()
        self.inlet.take = self.take
        return item
