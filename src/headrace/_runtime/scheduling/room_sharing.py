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

from headrace._runtime.scheduling.queue_state import ANY

if TYPE_CHECKING:
    from headrace._runtime.scheduling.node import Node
    from headrace._runtime.scheduling.queue_state import QueueState, RoomRequest


class RoomLine:
    """The producers that wait for room in one queue.

    The first in line comes first. A producer that needs few places may overtake an earlier one that needs many;
    otherwise a batch that only it can complete would never be complete. But it may not overtake while the queue is
    about to be emptied anyway; otherwise the other would never find room.

    Attributes
    ----------
    state
        The state of the queue.
    reserved
        The places that running producers may fill.
    promised
        The places for producers that waited and have not been taken since.
    """

    __slots__ = ("_last", "_queue", "_waiting", "promised", "reserved", "state")

    def __init__(self, state: QueueState) -> None:
        self.state = state
        self._queue = state.queue
        self.reserved = 0
        self.promised = 0
        # The waiting producers, by the number of places that they need, each with its number in line.
        self._waiting: dict[int, deque[tuple[int, RoomRequest]]] = {}
        self._last = 0

    def has_room(self, request: RoomRequest) -> bool:
        """Return whether there is room for a producer that comes now."""
        if self._waiting:
            self.promise()
        # All that wait need more than there is.
        return request.places <= self._free() and not (self._waiting and self._is_emptied())

    def keeps_promise(self, request: RoomRequest) -> bool:
        """Return whether there is still room for a producer that was promised some.

        A producer that does not wait for room may have taken it, or one that was stepped in a pause.
        """
        return request.places <= self._queue.limit - len(self._queue) - self.reserved

    def add(self, request: RoomRequest) -> None:
        """Let a producer wait at the end of the line."""
        request.node.blockers += 1
        self._last += 1
        self._waiting.setdefault(request.places, deque()).append((self._last, request))
        self.state.set_waiting(True)

    def promise(self) -> None:
        """Promise the room that there is to producers that wait, in their order."""
        while self._waiting:
            first, fitting = self._find(self._free())
            if fitting is None or (first != fitting and self._is_emptied()):
                break
            waiting = self._waiting[fitting]
            request = waiting.popleft()[1]
            if not waiting:
                del self._waiting[fitting]
            node = request.node
            node.blockers -= 1
            if not node.blockers:  # otherwise it has ended
                request.is_promised = True
                self.promised += request.places
                node.enqueue_if_ready()
        self.state.set_waiting(bool(self._waiting))

    def forgo(self, node: Node) -> None:
        """Let a producer run without room: its end emits into a queue that nobody receives from any more."""
        for request in self.state.requests:
            if request.node is not node:
                continue
            waiting = self._waiting.get(request.places, deque())
            for entry in [entry for entry in waiting if entry[1] is request]:
                waiting.remove(entry)
                node.blockers -= 1
            if not waiting:
                self._waiting.pop(request.places, None)
            if request.is_promised:
                request.is_promised = False
                self.promised -= request.places
            request.forgo()
        self.state.set_waiting(bool(self._waiting))

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

    def _free(self) -> int:
        """Return how many places are neither filled nor kept for others.

        In a pause, those that were promised room may not be allowed to run, and another may be stepped. So nothing
        is kept for them; they look again when they are taken.
        """
        free = self._queue.limit - len(self._queue) - self.reserved
        return free - self.promised if self.state.consumer.engine.gate.is_open else free

    def _is_emptied(self) -> bool:
        """Return whether the consumer is about to take messages; in a pause it may not be allowed to."""
        consumer = self.state.consumer
        is_ready = len(self._queue) >= self.state.min_size and not consumer.blockers
        return is_ready and consumer.evaluated is None and consumer.engine.gate.is_open


class SharedRoom:
    """A node's part in the sharing of room; set before the run begins.

    Attributes
    ----------
    requests
        The room that it must reserve before it runs, because there are other producers.
    lines
        The lines of all queues that it emits into or receives from and that producers share.
    emptied
        The lines of those that it receives from.
    """

    __slots__ = ("emptied", "lines", "requests")

    def __init__(self) -> None:
        self.requests: list[RoomRequest] = []
        self.lines: list[RoomLine] = []
        self.emptied: list[RoomLine] = []

    def reserve(self) -> bool:
        """Reserve the room that the node may need in the queues that it shares; without room, let it wait.

        The node was taken from its ready queue, and is not `busy` if it has to wait.
        """
        for request in self.requests:
            line = request.line
            assert line is not None
            was_promised = request.is_promised
            if was_promised:
                request.is_promised = False
                line.promised -= request.places
            if not (
                line.keeps_promise(request)
                if was_promised
                else line.has_room(
                    request,
                )
            ):
                self.release()
                # First: the lines below may wake it at once.
                request.node.busy = False
                line.add(request)
                # It was about to run and empty its inputs, but now it is blocked.
                for emptied in self.emptied:
                    emptied.promise()
                return False
            request.running = True
            line.reserved += request.places
        return True

    def release(self) -> None:
        """Release what the node reserved or was promised, because it does not run; others may use it."""
        for request in self.requests:
            line = request.line
            assert line is not None
            if request.running:
                request.running = False
                line.reserved -= request.places
            elif request.is_promised:
                request.is_promised = False
                line.promised -= request.places
            else:
                continue
            line.promise()

    def leave(self) -> None:
        """Release the room that the node reserved for its compute; `Engine.finish` then looks who may use it."""
        for request in self.requests:
            if request.running:
                request.running = False
                assert request.line is not None
                request.line.reserved -= request.places

    def look_again(self) -> None:
        """Let a node that is to be stepped in a pause out of its lines, if there is room for it."""
        for request in self.requests:
            assert request.line is not None
            request.line.promise()
