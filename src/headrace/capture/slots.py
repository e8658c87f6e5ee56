"""Slots: graphs whose own memory is sent, and the wait for one that nobody uses.

With ``outputs="ring"`` a segment has several graphs of the same frame, each with memory of its own for what it
emits. A graph that was launched is in use until the last array on its memory is gone. Work of those that received
it may still run then. So the memory is an allocation like that of headrace's own pools: it knows the streams of its
users, and the next launch is ordered after them (`headrace.gpu.allocation`).
"""

from __future__ import annotations

import itertools
from collections import deque
from typing import TYPE_CHECKING, Any

from headrace import gpu
from headrace.core.patient_condition import PatientCondition
from headrace.gpu.allocation import Allocation

if TYPE_CHECKING:
    from headrace._runtime import ManagedStream
    from headrace.capture.boundary import OutputArray
    from headrace.capture.graph import Graph
    from headrace.gpu.allocation import StreamUser


class _Block:
    """The memory of one array of a slot, as an allocation refers to it."""

    __slots__ = ("_array", "address", "size", "slot")

    def __init__(self, slot: Slot, array: OutputArray) -> None:
        self.slot = slot
        self.address = array.address
        self.size = array.size
        self._array = array

    def memory_bytes(self) -> Any:
        """Return its bytes, where the device is simulated."""
        return self.view(self.size, self._array).__simulated_memory__()

    def view(self, size: int, owner: object) -> Any:
        """Return a buffer on its first bytes that keeps its owner and frees nothing."""
        buffer: Any = gpu.Buffer
        return buffer.from_handle(self.address, size, owner=owner)


class Slot:
    """A graph whose own memory is sent; it keeps the graph, and the arrays that were sent keep it."""

    __slots__ = ("_blocks", "_count", "_make", "_returned", "_slots", "_users", "graph")

    def __init__(self, slots: Slots, graph: Graph, arrays: list[OutputArray]) -> None:
        self.graph = graph
        self._slots = slots
        self._blocks = [_Block(self, array) for array in arrays]
        self._make = [array.layout.kind.aliasing(array.layout, array.array) for array in arrays]
        self._count = len(arrays)
        # The last of those that come back knows it: `next` is atomic.
        self._returned = itertools.count(1)
        # Who used the memory of each array, and when it came back.
        self._users: deque[tuple[int, list[StreamUser]]] = deque()

    def lend(self, own: ManagedStream) -> list[Any]:
        """Order a stream after the work of all that used the memory, and return the arrays."""
        users = self._users
        while users:
            self._slots.order(own, *users.popleft())
        if not self._count:  # nothing is lent
            self._slots.give_back(self)
        if self._count == 1:  # as usual
            block = self._blocks[0]
            return [self._make[0](Allocation(self, block, block.size, []))]
        return [
            make(Allocation(self, block, block.size, []))
            for make, block in zip(self._make, self._blocks, strict=True)
        ]

    def give_back(self, block: Any, users: list[StreamUser]) -> None:
        """Take back the memory of one array; called from a finalizer, so it takes no lock."""
        if users:
            self._users.append((next(self._slots.moments), users))
        if next(self._returned) % self._count == 0:
            self._slots.give_back(self)

    def collect(self) -> None:
        """Do nothing: the work of the users is waited for when the memory is used again."""


class Slots:
    """The graphs of one kind of frame that send their own memory.

    Attributes
    ----------
    made
        The number of graphs.
    free
        Those that nobody uses. Any thread appends; the thread that runs the segment takes.
    moments
        Numbers the moments at which memory comes back and streams are ordered.
    """

    __slots__ = ("_condition", "_events", "_ordered", "free", "made", "moments")

    def __init__(self, condition: SlotAvailable) -> None:
        self.made = 0
        self.free: deque[Slot] = deque()
        self.moments = itertools.count()
        self._condition = condition
        # When the stream of replays was ordered after each user, and the events for that.
        self._ordered: dict[StreamUser, int] = {}
        self._events: dict[ManagedStream, Any] = {}
        condition.slots.append(self)

    def forget(self) -> None:
        """Be waited for no more: its graphs are not launched again."""
        if self in self._condition.slots:
            self._condition.slots.remove(self)

    def give_back(self, slot: Slot) -> None:
        """Take back a slot; called from a finalizer."""
        self.free.append(slot)
        if self._condition.is_awaited:
            self._condition.tell()

    def order(self, own: ManagedStream, returned: int, users: list[StreamUser]) -> None:
        """Order a stream after users of memory that was returned at a moment.

        Their work of that time may be covered: the stream waits for all that they had submitted when it was last
        ordered after them, for another slot.
        """
        for user in users:
            if self._ordered.get(user, -1) > returned:
                continue
            self._ordered[user] = next(self.moments)
            for stream in user.streams():
                if stream is not own:
                    event = self._events.get(stream)
                    if event is None:
                        event = self._events[stream] = stream.create_event()
                    stream.record(event)
                    own.wait(event)


class SlotAvailable(PatientCondition):
    """Lets a segment run when a graph is free, or may be made; before the first is made, it always may.

    Which kind of frame comes next is not known. If all graphs of its kind are in use, it runs as without capture:
    to wait for one could be to wait for ever, since whoever holds its frames may wait for one of another kind.
    """

    warning = (
        "headrace.capture",
        (
            "segment %r has waited a second for %s; who holds its messages? It needs a slot for each "
            "message that may wait in a queue, for each operator that works on one or keeps one, and for "
            "the next one"
        ),
    )

    def __init__(self, fragment: Any, most: int, *, name: str) -> None:
        super().__init__(fragment, name=name)
        self.slots: list[Slots] = []
        self.is_awaited = False
        self._most = most

    def is_there(self) -> bool:
        """Return whether some kind of frame has a graph that nobody uses, or may have another; else await it."""
        self.is_awaited = False
        if self.has_one():
            return True
        self.is_awaited = True  # first: a slot that comes back after the next look is announced
        return self.has_one()

    def has_one(self) -> bool:
        """Return whether there is one now."""
        for slots in self.slots:  # without a generator: every frame asks
            if slots.free or slots.made < self._most:
                return True
        return not self.slots

    @property
    def starving(self) -> str:
        """What there is too little of."""
        return f"a free slot ({self._most} are in use)"

    def detach(self) -> None:
        """Leave the run."""
        self.slots.clear()
        super().detach()
