"""QueueState: whether both ends of a queue may run, as the engine keeps it.

The schedulers use two flags: whether there are enough messages to run the consumer, and whether there is enough
room to run the producers. `Engine.finish` updates both after each `compute` of either end, under the engine's lock
if there are several threads. Updating them in `emit` and `receive` would need a lock in each.

The state is not a part of its queue, because a queue is a deque: what subclasses a built-in type is not compiled,
and compiled code reads and writes the fields of such an object slowly.

**Several producers of one queue.** A producer reserves its room when it is taken from its ready queue and releases
it after its compute, so two producers never run for the same place. One that finds no room has a blocker and waits
in the queue's `RoomLine`. Room that becomes free is promised to the first in line, which is then put in its ready
queue; until it is taken, those who come later leave the promised places alone. So a step costs the same however
many producers there are: it concerns the producer that runs, and those that there is room for.

To keep a flag for each producer, whether there is room for it, was decided against: with one place, each step
would change the flags of all, and put all of them in the ready queue although one can run.

A producer waits in one line at a time and holds nothing meanwhile; otherwise two producers of the same two queues
could wait for each other. All of this happens under the engine's lock, if there is one. A queue with a single
producer needs none of it: `Engine.finish` compares its length with one number.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace._runtime.messages.queue import Queue
    from headrace._runtime.scheduling.node import Node


ANY = 1 << 62
"""More messages than ever wait."""


class RoomRequest:
    """The room that one producer needs in one queue before it runs.

    `is_promised` and `running` are changed under the engine's lock, and are used only if producers share the queue
    (`RoomLine`). The rest is set before the run begins.

    Attributes
    ----------
    places
        The number of messages it may emit into the queue in one compute.
    line
        The line in which the producer waits for room; None if it has the queue to itself.
    is_promised
        Whether places are kept for it because it waited for them.
    running
        Whether it runs now, with its places reserved.
    """

    __slots__ = ("_by_port", "is_promised", "line", "node", "places", "running")

    def __init__(self, node: Node) -> None:
        self.node = node
        self._by_port: dict[str, int] = {}
        self.places = 0
        self.line: RoomLine | None = None
        self.is_promised = False
        self.running = False

    def add(self, port: str, places: int, limit: int) -> None:
        """Require `places` for one output; the largest of several numbers for one output counts."""
        self._by_port[port] = max(self._by_port.get(port, 0), places)
        self.fit(limit)

    def fit(self, limit: int) -> None:
        """Require no more than the queue holds; two outputs into one queue need room for both."""
        self.places = min(sum(self._by_port.values()), limit)

    def forgo(self) -> None:
        """Require nothing any more."""
        self._by_port.clear()
        self.places = 0


class QueueState:
    """The state of a queue.

    `available`, `affordable` and `room` are changed under the engine's lock. `min_size` is changed in the
    consumer's compute (`resume`), `is_awaited_elsewhere` by the producer. The rest is set before the run begins.

    Attributes
    ----------
    queue
        The messages.
    consumer, min_size
        The node that receives them, and the number that it waits for; copied from the queue when the run begins.
    available
        Whether there were enough messages for the consumer at the last update.
    requests
        The room that producers wait for before they run.
    producer, affordable, room
        The only node that waits for room, if there is one, and whether there was room for another of its computes;
        there is none if more than `room` messages wait. Several producers wait in a line (`RoomLine`);
        `affordable` is then whether none of them waits, and `room` has a value for which the comparisons for a
        single producer are never true.
    line
        The line of several producers.
    watched, watchers
        Whether an evaluated (not counted) condition depends on the queue, and the producers that have one.
    is_sole
        Whether its only producer emits into no other queue, and its consumer receives from no other.
    is_awaited_elsewhere
        Whether producers in another process may wait for its places (`headrace.parts`).
    """

    __slots__ = (
        *("affordable", "available", "consumer", "line", "min_size", "producer", "queue", "requests", "room"),
        *("is_awaited_elsewhere", "is_sole", "watched", "watchers"),
    )

    consumer: Node
    producer: Node

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.min_size = 1
        self.available = False
        self.requests: list[RoomRequest] = []
        self.affordable = True
        self.room = ANY
        self.line: RoomLine | None = None
        self.watched = False
        self.watchers: list[Node] = []
        self.is_awaited_elsewhere = False
        self.is_sole = False

    def request_room(self, node: Node, port: str, places: int) -> None:
        """Make a producer wait for `places`, for one of its outputs, before it runs."""
        request = next((request for request in self.requests if request.node is node), None)
        if request is None:
            request = RoomRequest(node)
            self.requests.append(request)
        request.add(port, places, self.queue.limit)
        self._find_room()

    def _find_room(self) -> None:
        self.room = ANY
        if self.requests:
            self.producer = self.requests[-1].node
            if len(self.requests) == 1:
                self.room = self.queue.limit - self.requests[0].places

    def forget(self, node: Node) -> None:
        """Let a producer wait for nothing here: its flows have changed, or it has ended."""
        self.requests = [request for request in self.requests if request.node is not node]
        self.watchers = [watcher for watcher in self.watchers if watcher is not node]

    def start_over(self) -> None:
        """Let nobody wait for room, until the blockers are counted again; nothing computes."""
        self.affordable = True
        self.line = None
        self.requests = [request for request in self.requests if not request.node.retired]
        for request in self.requests:
            request.line = None
            request.is_promised = request.running = False
            request.fit(self.queue.limit)
        self._find_room()

    def begin(self) -> bool:
        """Begin a run, and return whether there are enough messages for the consumer."""
        self.consumer, self.min_size = self.queue.consumer, self.queue.min_size
        self.available = len(self.queue) >= self.min_size
        return self.available

    def find_whether_sole(self) -> None:
        """Find `is_sole`, when the states of all nodes are known."""
        feeders = self.queue.feeders
        self.is_sole = (
            self.line is None
            and len(feeders) == 1
            and len(feeders[0].output_states) == 1
            and len(self.consumer.input_states) == 1
            and feeders[0].ready_queue is self.consumer.ready_queue
        )

    def note_waiting(self) -> None:
        """Note the messages that the consumer was run for without a note (`Engine.finish`)."""
        waiting = len(self.queue)
        if waiting >= self.min_size:
            self.available = True
            self.consumer.blockers -= 1
        if self.affordable and waiting > self.room:
            self.affordable = False
            self.producer.blockers += 1
            self.producer.leave_ready_queue()

    def set_waiting(self, waits: bool) -> None:
        """Record whether any of several producers that share the queue waits for room."""
        self.affordable = not waits
        self.room = -1 if waits else ANY

    def update_producers(self) -> None:
        """Tell the producers whether there is room."""
        if self.line is not None:
            self.line.promise()
            return
        affordable = len(self.queue) <= self.room
        if affordable is self.affordable:
            return
        self.affordable = affordable
        self.producer.blockers += -1 if affordable else 1
        if affordable:
            self.producer.enqueue_if_ready()


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
            if not (line.keeps_promise(request) if was_promised else line.has_room(request)):
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

    def recheck(self) -> None:
        """Let a node that is to be stepped in a pause out of its lines, if there is room for it."""
        for request in self.requests:
            assert request.line is not None
            request.line.promise()
