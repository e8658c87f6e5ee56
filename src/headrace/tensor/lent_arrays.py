"""LentArray: an array on memory that stays, which is sent again as soon as nobody uses it any more.

A new array costs its library more than all the rest of a small message costs. So the array itself is sent again,
where its library allows that (`DeviceLibrary.links`). It is *back* when nothing else refers to it, nor to what lies
between it and its memory; then no slice and no export is left either. Python's reference counts tell, and they are
read only when the memory is needed again. If a receiver has changed the shape of the array in place, or left a weak
reference to it, the next one gets another array.

Work of the receivers may still run when an array is back. So its memory is an allocation
(`headrace.gpu.allocation`), to which each receiver adds its streams (`users`). Whoever writes the memory again is
ordered after them.

Reference counts differ in compiled code where a variable holds what is counted. So none does here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from sys import getrefcount
from typing import TYPE_CHECKING, Any
from weakref import getweakrefcount

from headrace import gpu
from headrace.gpu.allocation import Allocation
from headrace.tensor.device_arrays import new_array

if TYPE_CHECKING:
    from headrace.gpu.allocation import StreamUser
    from headrace.tensor.device_arrays import Layout

_BATCH, _MOST, _MOST_BYTES = 8, 48, 8 << 20


class LentArray:
    """An array that is lent to its receivers again and again; the pool and the block of its allocation.

    Parameters
    ----------
    layout, array
        What it looks like, and an array on its memory, which keeps the memory.

    Attributes
    ----------
    address, size
        Its memory.
    users
        Those that have received it; whoever writes the memory again empties the list.
    allocation
        Its allocation, while it is lent as the same array again and again.
    """

    __slots__ = (
        *("_alone", "_count", "_is_gone", "_kept", "_links", "_links_of", "_make", "_state", "_state_of"),
        *("address", "allocation", "size", "users"),
    )

    def __init__(self, layout: Layout, array: Any) -> None:
        kind = layout.kind
        before, self.size = kind.extent(layout)
        self.address = kind.address(array) - before
        self.users: list[StreamUser] = []
        self._kept = array
        self._make, self._links_of, self._state_of = kind.aliasing(layout, array), kind.links, kind.state
        # The allocation, the array and what lies between them, as far as they last; the sum of their reference
        # counts while they are not lent, and the array's own; what can be changed of the array; and whether only
        # others hold the allocation.
        self._links: list[Any] = []
        self.allocation: Allocation | None = None
        self._count = self._alone = 0
        self._state: Any = None
        self._is_gone = False

    def lend(self) -> Any:
        """Return the array; it is back."""
        links = self._links
        if len(links) > 1:
            if self._state_of(links[1]) == self._state:
                return links[1]
            self._drop_links()
        if not links:
            self.allocation = Allocation(self, self, self.size, self.users)
            links.append(self.allocation)
            self._count = sum(map(getrefcount, links))
            array = self._make(links[0])
            links += self._links_of(array)
            if len(links) == 1:
                return array
            array = None  # or it would count
            self._state = self._state_of(links[1])
            self._count, self._alone = sum(map(getrefcount, links)), getrefcount(links[1])
            return links[1]
        return self._make(links[0])

    def is_back(self) -> bool:
        """Return whether nobody refers to the array that was lent, or to its memory."""
        links = self._links
        # No count is ever less than it was at first, so their sum tells as well.
        if sum(map(getrefcount, links)) != self._count:
            return False
        # A weak reference could lead to the next message; or it was one until another thread made it a strong one.
        if len(links) > 1 and (getweakrefcount(links[1]) or getrefcount(links[1]) != self._alone):
            # So it is let go of, and is back with the end of its allocation.
            self._is_gone = True
            self._count = -1  # which no sum is
            self._drop_links()
            return not self._is_gone
        return True

    def give_back(self, block: Any, users: list[StreamUser]) -> None:
        """Note that nobody refers to the allocation any more; called from a finalizer."""
        if self._is_gone:
            self._is_gone = False
            self._count = 0

    def collect(self) -> None:
        """Do nothing: the work of the users is waited for when the memory is used again."""

    def close(self) -> None:
        """Keep nothing any more; what was lent keeps its memory itself."""
        self._drop_links()

    def _drop_links(self) -> None:
        """Refer to the allocation no more, also not by a pointer to it among what can be changed of the array."""
        self._state = self.allocation = None
        self._links.clear()

    def memory_bytes(self) -> Any:
        """Return its bytes, where the device is simulated."""
        return self.view(self.size, self._kept).__simulated_memory__()

    def view(self, size: int, owner: object) -> Any:
        """Return a buffer on its first bytes that keeps its owner and frees nothing."""
        buffer: Any = gpu.Buffer
        return buffer.from_handle(self.address, size, owner=owner)


class OutputArrays:
    """Arrays of one layout for what a stream writes: small ones are sent again when nobody uses them; or new ones.

    Whenever one is taken, another one is looked at, so that no frame takes much longer than others. Those that are
    back are collected a few at a time: first the work that used them is marked on its streams, and only the next
    time the writing stream is ordered after these marks. They have passed by then, as a rule, so that the stream
    does not wait for readers of later arrays.

    Parameters
    ----------
    layout
        What they look like.
    own
        The stream (`ManagedStream`) that writes them.
    """

    __slots__ = (
        *("_back", "_events", "_layout", "_left", "_lent", "_made", "_marked", "_marks", "_most", "_own"),
        "_ready",
    )

    def __init__(self, layout: Layout, own: Any) -> None:
        self._layout = layout
        self._own = own
        is_small = _MOST * layout.kind.extent(layout).size <= _MOST_BYTES
        self._most = _MOST if layout.kind.lasts and is_small else 0
        # If there is no memory for one, that shows while the segment is recorded.
        new_array(layout, own.handle)
        # Those that can be lent, that are lent, that are back, and that were back before; the marks after the work
        # on these.
        self._ready: list[LentArray] = []
        self._lent: deque[LentArray] = deque()
        self._back: list[LentArray] = []
        self._marked: list[LentArray] = []
        self._marks: list[Any] = []
        self._events: dict[Any, Any] = {}
        # The number of those that were made, and how many new arrays are sent before the next check.
        self._made = self._left = 0

    def take(self) -> Any:
        """Return an array that nobody uses."""
        lent = self._lent
        if lent:
            oldest = lent.popleft()
            (self._back if oldest.is_back() else lent).append(oldest)
        if not self._ready:
            if not self._left:
                self._collect()
            if not self._ready:
                self._left = (self._left or _BATCH) - 1
                return new_array(self._layout, self._own.handle)
        one = self._ready.pop()
        lent.append(one)
        return one.lend()

    def _collect(self) -> None:
        for event in self._marks:
            self._own.wait(event)
        self._ready, self._marked, self._back = self._marked, self._back, []
        users: list[StreamUser] = []
        for each in self._marked:
            users += each.users
            each.users.clear()
        self._marks = mark_work(users, self._own, self._events)
        if not self._ready and self._made < self._most:
            new = [new_array(self._layout, self._own.handle) for _ in range(_BATCH)]
            self._ready = [LentArray(self._layout, array) for array in new]
            self._made += _BATCH

    def retire(self) -> list[LentArray]:
        """Order the stream after the work on those that are back; return the others, whose memory has to stay."""
        held = [each for each in self._lent if not each.is_back()]
        back = [*self._back, *(each for each in self._lent if each not in held)]
        users = [user for each in back for user in each.users]
        for event in (*self._marks, *mark_work(users, self._own, {})):
            self._own.wait(event)
        return held

    def close(self) -> None:
        """Keep nothing any more."""
        for each in (*self._ready, *self._lent, *self._back, *self._marked):
            each.close()


def mark_work(users: Iterable[StreamUser], own: Any, events: dict[Any, Any]) -> list[Any]:
    """Record an event on each stream of some users except one; the events are kept by stream, and returned."""
    marks = []
    # The same operator has used most arrays.
    for stream in dict.fromkeys([stream for user in dict.fromkeys(users) for stream in user.streams()]):
        if stream is not own:
            event = events.get(stream)
            if event is None:
                event = events[stream] = stream.create_event()
            stream.record(event)
            marks.append(event)
    return marks
