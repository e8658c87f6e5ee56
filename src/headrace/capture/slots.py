"""Slots: graphs whose own memory is sent, and the wait for one that nobody uses.

With ``outputs="ring"`` a segment has several graphs of the same frame, each with memory of its own for what it
emits. A graph that was launched is in use until nobody refers to its arrays any more (`tensor.lent_arrays`).
Work of those that received them may still run then. So the next launch is ordered after the streams of all users,
once for all graphs that are found free together.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from headrace.core.condition import PatientCondition
from headrace.tensor.lent_arrays import mark_work

if TYPE_CHECKING:
    from headrace._runtime import ManagedStream
    from headrace.capture.graph import Graph
    from headrace.gpu.allocation import StreamUser

_FEW, _MANY, _BYTES = 4, 16, 1 << 20  # with few, searches for free ones cost more than copying small outputs


class Slots:
    """The graphs of one kind of frame that send their own memory.

    Only the thread that runs the segment, or asks whether it may run, changes it.

    Attributes
    ----------
    made, most, free
        The number of graphs, the most that are made, and those that nobody used at the last check.
    """

    __slots__ = ("_condition", "_events", "_lent", "_own", "_users", "free", "made", "most")

    def __init__(self, condition: SlotAvailable, own: ManagedStream) -> None:
        self.made, self.most = 0, condition.most or _FEW
        self._condition, self._own = condition, own
        self.free: deque[Graph] = deque()
        self._lent: list[Graph] = []
        # Those after whose work the next launch comes, and the events for that.
        self._users: list[StreamUser] = []
        self._events: dict[ManagedStream, Any] = {}
        condition.slots.append(self)

    def add(self, graph: Graph) -> None:
        """Add a graph, which is launched next; the size of what the first one sends tells how many there are."""
        if not (self.made or self._condition.most):
            self.most = min(max(_BYTES // sum([array.size for array in graph.lent] or [1]), _FEW), _MANY)
        self.made += 1
        self._lent.append(graph)

    def forget(self) -> None:
        """Be waited for no more: its graphs are not launched again."""
        if self in self._condition.slots:
            self._condition.slots.remove(self)

    def has_free(self) -> bool:
        """Return whether nobody uses one of the graphs."""
        if self.free:
            return True
        lent, self._lent = self._lent, []
        for graph in lent:
            for array in graph.lent:
                if not array.is_back():
                    self._lent.append(graph)
                    break
            else:
                self.free.append(graph)
                for array in graph.lent:
                    self._users += array.users
                    array.users.clear()
        return bool(self.free)

    def take(self) -> Graph | None:
        """Return a graph that nobody uses, once the stream of replays is ordered after those that did; or None."""
        if not (self.free or self.has_free()):
            return None
        if self._users:
            for event in mark_work(self._users, self._own, self._events):
                self._own.wait(event)
            self._users.clear()
        graph = self.free.popleft()
        self._lent.append(graph)
        return graph

    def let_go(self) -> None:
        """Let every array that comes back be told."""
        for graph in self._lent:
            for array in graph.lent:
                if not array.is_back():
                    array.let_go()

    def tell(self) -> None:
        """Tell that an array came back; called from a finalizer."""
        if self._condition.is_awaited:
            self._condition.tell()


class SlotAvailable(PatientCondition):
    """Lets a segment run when a graph is free, or may be made.

    Which kind of frame comes next is not known. If all graphs of its kind are in use, it runs as without capture.
    To wait could be for ever: whoever holds its frames may wait for one of another kind.
    """

    warning = (
        "headrace.capture",
        (
            "segment %r has waited a second for %s; who holds its messages? It needs a slot for each "
            "message that may wait in a queue, for each operator that works on one or keeps one, and for "
            "the next one"
        ),
    )

    def __init__(self, fragment: Any, most: int | None, *, name: str) -> None:
        super().__init__(fragment, name=name)
        self.slots: list[Slots] = []
        self.is_awaited, self.most = False, most

    def is_there(self) -> bool:
        """Return whether some kind of frame has a graph that nobody uses, or may have another; else await it."""
        self.is_awaited = False
        if self.has_one():
            return True
        self.is_awaited = True  # first: a slot that comes back after the next check is announced
        for slots in self.slots:
            slots.let_go()
        return self.has_one()

    def has_one(self) -> bool:
        """Return whether there is one now."""
        for slots in self.slots:  # without a generator: every frame asks
            if slots.free or slots.made < slots.most or slots.has_free():
                return True
        return not self.slots

    @property
    def starving(self) -> str:
        """What there is too little of."""
        return f"a free slot ({max(slots.made for slots in self.slots)} are in use)"

    def detach(self) -> None:
        """Leave the run."""
        self.slots.clear()
        super().detach()
