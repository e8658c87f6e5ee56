"""Input and Output: the declaration of a port without `setup`, as for a function with `@op`."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from headrace.core.ports import IOSpec


class PortDeclaration(IOSpec):
    """The base of :class:`Input` and :class:`Output`: a port that has no name yet."""

    _type: ClassVar = IOSpec.IOType.INPUT

    def __init__(
        self, *, size: int | IOSpec.IOSize | None = None, policy: IOSpec.QueuePolicy | None = None
    ) -> None:
        super().__init__("of @op", self._type, 1 if size is None else size, policy)
        self.given_size = size

    def declare(self, add: Callable[..., IOSpec], name: str, default_size: IOSpec.IOSize) -> None:
        """Declare the port with a spec's `input` or `output`."""
        port = add(name, size=default_size if self.given_size is None else self.size, policy=self.policy)
        for condition in self.conditions:
            port.condition(condition.kind, **condition.arguments)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(size={self.given_size!r}, policy={self.policy!r})"


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

    _type = IOSpec.IOType.OUTPUT
