"""IOSpec: one port of an operator, its queue and the condition on it; Input and Output: such a port for `@op`."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self, TypeAlias

from headrace.core.errors import GraphError


class SchedulingStatusType(enum.Enum):
    """The state of a condition, or of an operator as a whole."""

    NEVER = 0
    READY = 1
    WAIT = 2
    WAIT_TIME = 3
    WAIT_EVENT = 4


class OperatorStatus(enum.Enum):
    """What an operator does in a run: see :meth:`ExecutionContext.get_operator_status`."""

    NOT_STARTED = 0
    """Its `start` has not been called, or its `stop` has returned."""
    START_PENDING = 1
    """It is in its `start`."""
    STARTED = 2
    """It has started and not computed yet."""
    TICK_PENDING = 3
    """Never used: an operator that could run is IDLE until a worker takes it."""
    TICKING = 4
    """It is in its `compute`, or in its `end`."""
    IDLE = 5
    """It waits between two computes, or has ended."""
    STOP_PENDING = 6
    """It is in its `stop`."""

    def __int__(self) -> int:
        return self.value


class ConditionType(enum.Enum):
    """The conditions that a port can select by name: see :meth:`IOSpec.condition`."""

    NONE = 0
    MESSAGE_AVAILABLE = 1
    DOWNSTREAM_MESSAGE_AFFORDABLE = 2
    COUNT = 3
    BOOLEAN = 4
    PERIODIC = 5
    ASYNCHRONOUS = 6
    EXPIRING_MESSAGE_AVAILABLE = 7
    MULTI_MESSAGE_AVAILABLE = 8
    MULTI_MESSAGE_AVAILABLE_TIMEOUT = 9
    JOIN = 10


def port_names(names: object, what: str) -> tuple[str, ...]:
    """Return one name of a port, or several, as a tuple; raise for anything else. `what` begins the error."""
    if isinstance(names, str):
        return (names,)
    listed = tuple(names) if isinstance(names, Iterable) else (names,)
    for name in listed:
        if not isinstance(name, str):
            raise TypeError(f"{what} must be names of ports, such as ['left', 'right'], not {names!r}")
    return listed


class _IOType(enum.Enum):
    INPUT = 0
    OUTPUT = 1


INPUT_EXEC = "__input_exec__"
"""The input of an operator that runs after each compute of others (`headrace.core.execution`)."""
OUTPUT_EXEC = "__output_exec__"
"""The output that tells others that a compute is over."""


class _QueuePolicy(enum.Enum):
    """What a full queue does with another message."""

    POP = 0
    REJECT = 1
    FAULT = 2
    LATEST = 3
    """It holds the newest message only, which may be received again and again. Neither end waits for the other."""

    def __int__(self) -> int:
        return int(self.value)

    def __str__(self) -> str:
        return f"QueuePolicy.{self.name}"


_QueuePolicy.__name__ = "QueuePolicy"  # as it is shown


@dataclass(frozen=True, slots=True)
class _IOSize:
    """The length of a queue, or one of the two special values."""

    size: int = 1

    def __int__(self) -> int:
        return self.size

    def __repr__(self) -> str:
        return {-1: "ANY_SIZE", 0: "PRECEDING_COUNT"}.get(self.size, f"IOSize({self.size})")


@dataclass(slots=True)
class PortCondition:
    """A condition that `setup` puts on one port or on several, by its type."""

    kind: ConditionType
    arguments: dict[str, Any] = field(default_factory=dict)
    ports: tuple[str, ...] = ()


class IOSpec:
    """One input or output of an operator, as :meth:`OperatorSpec.input` and ``output`` declare it."""

    IOType: TypeAlias = _IOType
    QueuePolicy: TypeAlias = _QueuePolicy
    IOSize: TypeAlias = _IOSize
    ANY_SIZE: ClassVar[_IOSize] = _IOSize(-1)
    """One queue for each connection; `receive` returns a tuple with one message of each."""
    PRECEDING_COUNT: ClassVar[_IOSize] = _IOSize(0)
    """One queue, whose length is the number of connections."""
    SIZE_ONE: ClassVar[_IOSize] = _IOSize(1)

    __slots__ = ("_policy", "_size", "capacity", "conditions", "io_type", "name")

    def __init__(
        self,
        name: str,
        io_type: _IOType,
        size: int | _IOSize = 1,
        policy: _QueuePolicy | None = None,
    ) -> None:
        self.name = name
        self.io_type = io_type
        self.size = size
        self.policy = policy
        self.conditions: list[PortCondition] = []
        # The number of messages that may wait at an input, if that is more than `size`.
        self.capacity = 0

    def condition(self, kind: ConditionType, **arguments: Any) -> Self:
        """Put a condition on this port in place of the default one; ``ConditionType.NONE`` for none."""
        if not isinstance(kind, ConditionType):
            raise TypeError(f"port {self.name!r}: condition takes a ConditionType, not {kind!r}")
        self.conditions.append(PortCondition(kind, arguments, (self.name,)))
        return self

    @property
    def size(self) -> int:
        """The length of the queue (-1: one queue for each connection; 0: the number of connections)."""
        return self._size

    @size.setter
    def size(self, size: int | _IOSize) -> None:
        length = size.size if isinstance(size, _IOSize) else size
        kind = self.io_type.name.lower()
        if isinstance(length, bool) or not isinstance(length, int) or length < -1:
            raise GraphError(
                f"{kind} {self.name!r}: size must be a positive int, IOSpec.ANY_SIZE or "
                f"IOSpec.PRECEDING_COUNT, not {size!r}"
            )
        if self.io_type is _IOType.OUTPUT and length < 1:
            raise GraphError(f"output {self.name!r}: size must be a positive int, not {size!r}")
        self._size = length

    @property
    def policy(self) -> _QueuePolicy | None:
        """What a full queue does; FAULT unless set.

        On an output it is the policy of every connected queue whose input and flow set none.
        """
        return self._policy

    @policy.setter
    def policy(self, policy: _QueuePolicy | None) -> None:
        if policy is not None and not isinstance(policy, _QueuePolicy):
            raise GraphError(
                f"{self.io_type.name.lower()} {self.name!r}: policy must be an IOSpec.QueuePolicy "
                f"(POP, REJECT, FAULT or LATEST), not {policy!r}"
            )
        self._policy = policy

    queue_size = size
    queue_policy = policy

    @property
    def is_execution(self) -> bool:
        """Whether it orders computes, and carries no data (`Connectable.then`)."""
        return self.name in (INPUT_EXEC, OUTPUT_EXEC)

    @property
    def is_receivers(self) -> bool:
        """Whether each connection has its own queue."""
        return self.size == -1

    @property
    def gives_tuple(self) -> bool:
        """Whether `receive` returns a tuple of messages rather than one."""
        return self.size != 1 and self.io_type is _IOType.INPUT

    def __repr__(self) -> str:
        return f"<{self.io_type.name.lower()} {self.name!r} size={_IOSize(self.size)!r}>"


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
        ``LATEST`` keeps the newest message to be received any number of times.
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
