"""MemoryAvailableCondition: run when an allocator has memory left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, cast

from headrace.core.condition import PatientCondition
from headrace.core.resource import Resource
from headrace.core.values import Size, byte_size, whole_number

if TYPE_CHECKING:
    from headrace.core.composition import Composition


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


class MemoryAvailableCondition(PatientCondition):
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
    warning = (
        "headrace.memory",
        (
            "operator %r has waited a second for %s; who holds it? A pool needs a block for each message "
            "that may wait in a queue, for each operator that works on one or keeps one, and for the next "
            "one"
        ),
    )

    def __init__(
        self,
        fragment: Composition | None = None,
        allocator: Resource | None = None,
        min_bytes: Size | None = None,
        min_blocks: int | None = None,
        *,
        storage_type: Any = None,
        name: str = "memory_available_condition",
    ) -> None:
        super().__init__(fragment, name=name)
        where = f"condition {name!r}"
        if not (isinstance(allocator, Resource) and hasattr(allocator, "demand")):
            raise TypeError(
                f"{where}: allocator must be an Allocator, such as a BlockMemoryPool, not {allocator!r}"
            )
        if (min_bytes is None) == (min_blocks is None):
            given = "neither" if min_bytes is None else "both"
            raise ValueError(f"{where} takes min_bytes or min_blocks, and was given {given}")
        if min_blocks is not None:
            whole_number(min_blocks, f"{where}: min_blocks", 1)
        self.allocator = allocator
        self.min_bytes = None if min_bytes is None else byte_size(min_bytes, f"{where}: min_bytes", 1)
        self.min_blocks = min_blocks
        self.storage_type = storage_type
        self._allocator = cast("_Allocator", allocator)
        self._store, self._size = self._allocator.demand(self.min_bytes, min_blocks, storage_type, where)

    @property
    def resources(self) -> tuple[Resource, ...]:
        """The allocator."""
        return (self.allocator,)

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
        self.tell()

    @property
    def starving(self) -> str:
        """What there is too little of."""
        return f"memory of {self._allocator.name!r} ({self._allocator.shortage(self.storage_type)})"

    def detach(self) -> None:
        """Leave the run."""
        self._allocator.discard_waiter(self)
        self.cancel()
        super().detach()
