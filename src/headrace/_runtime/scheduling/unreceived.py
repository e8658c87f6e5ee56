"""Operators that compute repeatedly without receiving their messages.

If `compute` never receives from an input, its operator stays ready forever: it spins, nothing raises, and the run
does not end. A check at every receive would cost more than the receive itself, so the check runs only once in
1024 sweeps of a ready queue. It replaces the `take` of an input with one that restores the original at the
first message taken. If the replacement is still in place at the next check, and the operator has computed since, no
message was taken.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from headrace.core.errors import UnreceivedMessageWarning
from headrace.core.function import FunctionOperator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from headrace._runtime.messages.ports import InputPort
    from headrace._runtime.scheduling.node import Node
    from headrace._runtime.scheduling.ready_queue import ReadyQueue
    from headrace.core.operator import Operator

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
