"""Room sharing: several producers emit into one queue, and wait there for room.

A producer reserves its room when it is taken from its ready queue and releases it after its compute, so two
producers never run for the same place. One that finds no room has a blocker and waits in the queue's `RoomLine`.
Room that becomes free is promised to the first in line, which is then put in its ready queue; until it is taken,
those who come later leave the promised places alone. So a step costs the same however many producers there are: it
concerns the producer that runs, and those that there is room for.

To keep a flag for each producer, whether there is room for it, was decided against: with one place, each step
changed the flags of all, and put all of them in the ready queue although one could run (163 µs a step with 400
producers).

A producer waits in one line at a time and holds nothing meanwhile; otherwise two producers of the same two queues
could wait for each other. All of this happens under the engine's lock, if there is one. A queue with a single
producer needs none of it: `Engine.finish` compares its length with one number.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from headrace._runtime.messages.gate import ANY

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace._runtime.messages.queue import Claim, Queue
    from headrace._runtime.scheduling.engine import Engine
    from headrace._runtime.scheduling.node import Node

__all__ = [
    "RoomLine",
    "SharedRoom",
    "leave_room",
    "look_for_room",
    "release",
    "reserve",
    "update_producers",
]


class SharedRoom:
    """A node's part in the sharing of room; set before the run begins.

    Attributes
    ----------
    claims
        The room that it must reserve before it runs, because there are other producers.
    lines
        The lines of all queues that it emits into or receives from and that producers share.
    emptied
        The lines of those that it receives from.
    """

    __slots__ = ("claims", "emptied", "lines")

    def __init__(self) -> None:
        self.claims: list[Claim] = []
        self.lines: list[RoomLine] = []
        self.emptied: list[RoomLine] = []


class RoomLine:
    """The producers that wait for room in one queue.

    The first in line comes first. A producer that needs few places may overtake an earlier one that needs many;
    otherwise a batch that only it can complete would never be complete. But it may not overtake while the queue is
    about to be emptied anyway; otherwise the other would never find room.

    Attributes
    ----------
    queue
        The queue.
    reserved
        The places that running producers may fill.
    promised
        The places for producers that waited and have not been taken since.
    """

    __slots__ = ("_last", "_waiting", "promised", "queue", "reserved")

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.reserved = 0
        self.promised = 0
        # Those that wait, by the number of places that they need, each with its number in line.
        self._waiting: dict[int, deque[tuple[int, Claim]]] = {}
        self._last = 0

    def has_room(self, engine: Engine, claim: Claim) -> bool:
        """Return whether there is room for a producer that comes now."""
        if self._waiting:
            self.promise(engine)
        # All that wait need more than there is.
        return claim.places <= self._free(engine) and not (self._waiting and self._is_emptied(engine))

    def keeps_promise(self, claim: Claim) -> bool:
        """Return whether there is still room for a producer that was promised some.

        A producer that does not wait for room may have taken it, or one that was stepped in a pause.
        """
        return claim.places <= self.queue.limit - len(self.queue) - self.reserved

    def add(self, claim: Claim) -> None:
        """Let a producer wait at the end of the line."""
        claim.node.blockers += 1
        self._last += 1
        self._waiting.setdefault(claim.places, deque()).append((self._last, claim))
        self.queue.gate.close(True)

    def promise(self, engine: Engine) -> None:
        """Promise the room that there is to producers that wait, in their order."""
        while self._waiting:
            first, fitting = self._find(self._free(engine))
            if fitting is None or (first != fitting and self._is_emptied(engine)):
                break
            waiting = self._waiting[fitting]
            claim = waiting.popleft()[1]
            if not waiting:
                del self._waiting[fitting]
            node = claim.node
            node.blockers -= 1
            if not node.blockers:  # otherwise it has ended
                claim.is_promised = True
                self.promised += claim.places
                engine.enqueue_if_ready(node)
        self.queue.gate.close(bool(self._waiting))

    def _find(self, free: int) -> tuple[int | None, int | None]:
        """Return the places that the first in line needs, and those that the first who fits in needs."""
        first: int | None = None
        fitting: int | None = None
        lowest = lowest_fitting = ANY
        for places, waiting in self._waiting.items():
            number = waiting[0][0]
            if number < lowest:
                lowest, first = number, places
            if places <= free and number < lowest_fitting:
                lowest_fitting, fitting = number, places
        return first, fitting

    def _free(self, engine: Engine) -> int:
        """Return how many places are neither filled nor kept for others.

        In a pause, those that were promised room may not be allowed to run, and another may be stepped. So nothing
        is kept for them; they look again when they are taken.
        """
        free = self.queue.limit - len(self.queue) - self.reserved
        return free if engine.pausing.is_paused else free - self.promised

    def _is_emptied(self, engine: Engine) -> bool:
        """Return whether the consumer is about to take messages; in a pause it may not be allowed to."""
        queue = self.queue
        consumer = queue.consumer
        return (
            len(queue) >= queue.min_size
            and not consumer.blockers
            and consumer.evaluated is None
            and not engine.pausing.is_paused
        )


def reserve(engine: Engine, room: SharedRoom) -> bool:
    """Reserve the room that a node may need in the queues that it shares; if there is none, let the node wait.

    The node was taken from its ready queue, and is not `busy` if it has to wait.
    """
    for claim in room.claims:
        line = claim.line
        assert line is not None
        was_promised = claim.is_promised
        if was_promised:
            claim.is_promised = False
            line.promised -= claim.places
        if not (line.keeps_promise(claim) if was_promised else line.has_room(engine, claim)):
            release(engine, room)
            # First: the lines below may wake it at once.
            claim.node.busy = False
            line.add(claim)
            # It was about to run and empty its inputs, but now it is blocked.
            for emptied in room.emptied:
                emptied.promise(engine)
            return False
        claim.running = True
        line.reserved += claim.places
    return True


def release(engine: Engine, room: SharedRoom) -> None:
    """Release what a node reserved or was promised, because it does not run; others may use it."""
    for claim in room.claims:
        line = claim.line
        assert line is not None
        if claim.running:
            claim.running = False
            line.reserved -= claim.places
        elif claim.is_promised:
            claim.is_promised = False
            line.promised -= claim.places
        else:
            continue
        line.promise(engine)


def leave_room(room: SharedRoom) -> None:
    """Release the room that a node reserved for its compute; `Engine.finish` then looks who may use it."""
    for claim in room.claims:
        if claim.running:
            claim.running = False
            assert claim.line is not None
            claim.line.reserved -= claim.places


def look_for_room(engine: Engine, nodes: Iterable[Node]) -> None:
    """Let nodes that are to be stepped in a pause out of their lines, if there is room for them."""
    for node in nodes:
        if node.shared_room is not None:
            for claim in node.shared_room.claims:
                assert claim.line is not None
                claim.line.promise(engine)


def update_producers(engine: Engine, queue: Queue) -> None:
    """Tell the producers of a queue whether there is room."""
    # `Engine.finish` has a copy for a single producer.
    if queue.line is not None:
        queue.line.promise(engine)
        return
    gate = queue.gate
    affordable = len(queue) <= gate.room
    if affordable is gate.affordable:
        return
    gate.affordable = affordable
    gate.producer.blockers += -1 if affordable else 1
    if affordable:
        engine.enqueue_if_ready(gate.producer)
