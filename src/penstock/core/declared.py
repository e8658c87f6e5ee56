"""Input and Output: what is said of a port where no `setup` says it, as for a function with `@op`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from penstock.core.condition import ConditionType
from penstock.core.ports import IOSpec

__all__ = ["Declared", "Input", "Output"]

D = TypeVar("D", bound="Declared")


class Declared:
    """What :class:`Input` and :class:`Output` have in common."""

    io_type = IOSpec.IOType.INPUT

    def __init__(
        self, *, size: int | IOSpec.IOSize | None = None, policy: IOSpec.QueuePolicy | None = None
    ) -> None:
        # Made only to be checked: what is wrong is said where it is written.
        IOSpec("of @op", self.io_type, 1 if size is None else size, policy)
        self.size = size
        self.policy = policy
        self.conditions: list[tuple[ConditionType, dict[str, Any]]] = []

    def condition(self: D, kind: ConditionType, **arguments: Any) -> D:
        """Put a condition on the port in place of the default one; ``ConditionType.NONE`` for none."""
        if not isinstance(kind, ConditionType):
            raise TypeError(f"{type(self).__name__}.condition takes a ConditionType, not {kind!r}")
        self.conditions.append((kind, arguments))
        return self

    def declare(
        self, add: Callable[..., IOSpec], name: str, default_size: int | IOSpec.IOSize = IOSpec.SIZE_ONE
    ) -> None:
        """Declare the port by a spec's `input` or `output`."""
        port = add(name, size=default_size if self.size is None else self.size, policy=self.policy)
        for kind, arguments in self.conditions:
            port.condition(kind, **arguments)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(size={self.size!r}, policy={self.policy!r})"


class Input(Declared):
    """Says of an input what :meth:`OperatorSpec.input` says: ``@op(inputs={"frame": Input(size=4)})``.

    Parameters
    ----------
    size
        The length of its queue. With more than one, the function is given a tuple of what waits, and runs when the
        queue is full unless a condition says otherwise.
    policy
        What a full queue does: ``POP`` drops the oldest message, ``REJECT`` the new one; ``FAULT`` raises an error.
    """


class Output(Declared):
    """Says of an output what :meth:`OperatorSpec.output` says: ``@op(outputs={"out": Output(size=2)})``.

    Parameters
    ----------
    size
        How many messages one call may emit here: the operator waits for as much room.
    policy
        What the connected queues do when full, where neither the input nor ``add_flow`` says it.
    """

    io_type = IOSpec.IOType.OUTPUT
