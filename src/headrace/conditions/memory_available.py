"""MemoryAvailableCondition: run when an allocator has memory left.

Whoever holds the memory may be no part of the run, so the run does not end at once when nothing else can run. It
ends if none came back for a second; its outcome and a warning then say what was waited for.
"""

from __future__ import annotations

import logging
from typing import Any, Protocol, cast

from headrace.core.condition import Condition
from headrace.core.parameters import Converted, converted, declared, parameter
from headrace.core.ports import SchedulingStatusType
from headrace.core.resource import Resource
from headrace.core.values import Size, byte_size


class _Store(Protocol):
    def can_reserve(self, size: int) -> bool: ...
    def reserve(self, token: object, size: int) -> bool: ...
    def unreserve(self, token: object) -> bool: ...


class _Allocator(Protocol):
    """What the condition uses of :class:`headrace.resources.Allocator`, which stands above this package."""

    name: str

    def demand(
        self, min_bytes: int | None, min_blocks: int | None, storage_type: Any, who: str
    ) -> tuple[_Store, int]: ...
    def add_waiter(self, waiter: MemoryAvailableCondition) -> None: ...
    def discard_waiter(self, waiter: MemoryAvailableCondition) -> None: ...
    def announce(self) -> None: ...
    def shortage(self, storage_type: Any) -> str: ...


_PATIENCE_NS = 1_000_000_000


@declared(kw_only=False)
class MemoryAvailableCondition(Condition):
    """Lets an operator run when an allocator has memory for it.

    The memory is reserved for the compute that follows: what that compute allocates is there, whoever else uses the
    allocator. The operator is woken when memory comes back, by whichever thread; nothing is polled. If nothing else
    can run and none comes back for a second, the run ends, and its outcome says what was waited for.

    Parameters
    ----------
    allocator
        The allocator that the operator takes its memory from.
    min_bytes
        The memory that one compute needs: a number of bytes, or text such as ``"4MB"``.
    min_blocks
        The same as a number of blocks, for a :class:`headrace.resources.BlockMemoryPool`. Give one of the two.
    storage_type
        The kind of memory, where the allocator serves several; by default the one that it serves by default.
    """

    reserves = True
    waits_for_memory = True
    polled = False
    depends_on_ports = False
    matters_while_blocked = False

    name = "memory_available_condition"
    _resource: Resource | None = parameter(default=None, alias="allocator")
    min_bytes: Converted[Size | None, int | None] = converted(byte_size, default=None, minimum=1)
    min_blocks: int | None = parameter(default=None, minimum=1)
    storage_type: Any = parameter(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        where = f"condition {self.name!r}"
        if not (isinstance(self._resource, Resource) and hasattr(self._resource, "demand")):
            raise TypeError(
                f"{where}: allocator must be an Allocator, such as a BlockMemoryPool, not {self._resource!r}"
            )
        if (self.min_bytes is None) == (self.min_blocks is None):
            given = "neither" if self.min_bytes is None else "both"
            raise ValueError(f"{where} takes min_bytes or min_blocks, and was given {given}")
        self.allocator = self._resource
        self._allocator = cast("_Allocator", self.allocator)
        self._store, self._size = self._allocator.demand(
            self.min_bytes, self.min_blocks, self.storage_type, where
        )
        # Since when there is too little and none came back, and whether some came back since the last check.
        self._since: int | None = None
        self._is_told = False
        self._has_warned = False

    @property
    def resources(self) -> tuple[Resource, ...]:
        """The allocator."""
        return (self.allocator,)

    def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
        """Return READY when there is enough memory; else wait to be told, for a second at least."""
        is_told, self._is_told = self._is_told, False
        # Looked for again where some came back in between: an announcement in a check is not heard.
        if self.is_there() or (self._is_told and self.is_there()):
            self._since = None
            return SchedulingStatusType.READY, None
        if self._since is None or is_told:
            self._since = timestamp
        until = self._since + _PATIENCE_NS
        if timestamp < until:
            return SchedulingStatusType.WAIT_TIME, until
        self._warn()
        return SchedulingStatusType.WAIT, None

    def _warn(self) -> None:
        if not self._has_warned and self._headrace.node is not None:
            self._has_warned = True
            logging.getLogger("headrace.memory").warning(
                "operator %r has waited a second for %s; who holds it? A pool needs a block for each message that "
                "may wait in a queue, for each operator that works on one or keeps one, and for the next one",
                self._headrace.node.name,
                self.starving,
            )

    def is_there(self) -> bool:
        """Return whether there is enough memory; if not, ask to be told when some comes back."""
        if self._store.can_reserve(self._size):
            self._allocator.discard_waiter(self)
            return True
        # Listed first: what comes back after the check is announced.
        self._allocator.add_waiter(self)
        if not self._store.can_reserve(self._size):
            return False
        self._allocator.discard_waiter(self)
        return True

    def reserve(self) -> bool:
        """Reserve the memory for this thread, which runs the operator next."""
        return self._store.reserve(self, self._size)

    def cancel(self) -> None:
        """Release the reservation, and tell the others that wait."""
        if self._store.unreserve(self):
            self._allocator.announce()

    def on_execute(self, timestamp: int) -> None:
        """Release what the compute did not allocate."""
        self.cancel()

    def memory_returned(self) -> None:
        """Ask again, because memory came back; called from any thread, in finalizers too."""
        self._is_told = True
        self.notify_scheduler()

    @property
    def starving(self) -> str:
        """What there is too little of."""
        return f"memory of {self._allocator.name!r} ({self._allocator.shortage(self.storage_type)})"

    def detach(self) -> None:
        """Leave the run."""
        self._since, self._has_warned = None, False
        self._allocator.discard_waiter(self)
        self.cancel()
        super().detach()
