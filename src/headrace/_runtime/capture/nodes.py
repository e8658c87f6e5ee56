"""What stands for a segment, or a part of it, where the runtime expects an operator or a queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace._runtime.messages.queue import Queue
from headrace.core.operator import Operator

if TYPE_CHECKING:
    from headrace.core.fragment import Fragment

__all__ = ["Collector", "PartOperator"]


class PartOperator(Operator):
    """Stands for several operators: a segment, or a part of one that is recorded.

    It declares the ports at which messages enter and leave, named ``operator.port``.
    """

    def __init__(self, fragment: Fragment, name: str, inputs: list[str], outputs: list[str]) -> None:
        self._names = (inputs, outputs)
        super().__init__(fragment, name=name)

    def setup(self, spec: Any) -> None:
        """Declare the ports."""
        inputs, outputs = self._names
        for name in inputs:
            spec.input(name)
        for name in outputs:
            spec.output(name)

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        """Do nothing: the run replaces it."""


class Collector(Queue):
    """Stands between an output and a queue, and notes every message; with capacity 0, `offer` gets each.

    It has no gate: nothing is scheduled by it, and the cycle of references would keep the messages alive.

    Attributes
    ----------
    seen
        The messages.
    """

    __slots__ = ("_behind", "seen")

    def __init__(self, behind: Queue) -> None:
        super().__init__(None, behind.port, 0, behind.policy)
        self._behind = behind
        self.seen: list[Any] = []

    def offer(self, item: Any) -> None:
        """Note a message, and pass it on."""
        self.seen.append(item)
        behind = self._behind
        if len(behind) < behind.capacity:
            behind.append(item)
        else:
            behind.offer(item)
