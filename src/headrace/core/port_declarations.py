"""Input and Output: the declaration of a port without `setup`, as for a function with `@op`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from headrace.core.condition_types import ConditionType
from headrace.core.ports import IOSpec

D = TypeVar("D", bound="PortDeclaration")


class PortDeclaration:
    """The base of :class:`Input` and :class:`Output`."""

    io_type = IOSpec.IOType.INPUT

    def __init__(
        self, *, size: int | IOSpec.IOSize | None = None, policy: IOSpec.QueuePolicy | None = None
    ) -> None:
        # Created only for its checks, so that an error points to the line with the mistake.
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
        """Declare the port with a spec's `input` or `output`."""
        port = add(name, size=default_size if self.size is None else self.size, policy=self.policy)
        for kind, arguments in self.conditions:
            port.condition(kind, **arguments)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(size={self.size!r}, policy={self.policy!r})"


class Input(PortDeclaration):
    """The declaration of an input, as in :meth:`OperatorSpec.input`: ``@op(inputs={"frame": Input(size=4)})``.

    Parameters
    ----------
    size
        The length of its queue. If it is more than one, the function receives a tuple of all waiting messages, and
        runs when the queue is full, unless a condition is declared.
    policy
        What a full queue does: ``POP`` drops the oldest message, ``REJECT`` the new one; ``FAULT`` raises an error.
    """


class Output(PortDeclaration):
    """The declaration of an output, as in :meth:`OperatorSpec.output`: ``@op(outputs={"out": Output(size=2)})``.

    Parameters
    ----------
    size
        The number of messages that one call may emit here; the operator waits for room for as many.
    policy
        What the connected queues do when full, unless the input or ``add_flow`` sets it.
    """

    io_type = IOSpec.IOType.OUTPUT
