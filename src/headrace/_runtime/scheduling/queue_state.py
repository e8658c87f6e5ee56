"""QueueState: whether both ends of a queue may run, as the engine keeps it.

The schedulers use two flags: whether there are enough messages to run the consumer, and whether there is enough
room to run the producers. `Engine.finish` updates both after each `compute` of either end, under the engine's lock
if there are several threads. Updating them in `emit` and `receive` would need a lock in each.

The state is not a part of its queue, because a queue is a deque: what subclasses a built-in type is not compiled,
and compiled code reads and writes the fields of such an object slowly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace._runtime.messages.queue import Queue
    from headrace._runtime.scheduling.node import Node
    from headrace._runtime.scheduling.room_sharing import RoomLine

ANY = 1 << 62
"""More messages than ever wait."""


class RoomRequest:
    """The room that one producer needs in one queue before it runs.

    `is_promised` and `running` are changed under the engine's lock, and are used only if producers share the queue
    (`room_sharing`). The rest is set before the run begins.

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
        there is none if more than `room` messages wait. Several producers wait in a line (`room_sharing`);
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
