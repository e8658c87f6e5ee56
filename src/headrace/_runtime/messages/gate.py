"""Gate: what tells both ends of a queue whether they may run.

The schedulers use two flags: whether there are enough messages to run the consumer, and whether there is enough
room to run the producers. `Engine.finish` updates both after each `compute` of either end, under the engine's lock
if there are several threads. Updating them in `emit` and `receive` would need a lock in each.

A gate is not a part of its queue, because a queue is a deque: what subclasses a built-in type is not compiled, and
compiled code reads and writes the fields of such an object slowly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace._runtime.messages.queue import Queue
    from headrace._runtime.scheduling.node import Node

__all__ = ["ANY", "Gate"]

ANY = 1 << 62
"""More messages than ever wait."""


class Gate:
    """The flags of a queue.

    `available`, `affordable` and `room` are changed under the engine's lock. `min_size` is changed in the
    consumer's compute (`resume`). The rest is set before the run begins.

    Attributes
    ----------
    queue
        The messages.
    consumer
        The node that receives them.
    min_size
        The number of messages that the consumer waits for.
    available
        Whether there were enough messages for the consumer at the last update.
    producer, affordable, room
        The node that emits them, if there is one, and whether there was room for another of its computes; there is
        none if more than `room` messages wait. Several producers wait in a line (`room_sharing`); `affordable` is
        then whether none of them waits, and `room` has a value for which the comparisons for a single producer are
        never true.
    watched
        Whether an evaluated (not counted) condition depends on the queue.
    """

    __slots__ = ("affordable", "available", "consumer", "min_size", "producer", "queue", "room", "watched")

    producer: Node

    def __init__(self, queue: Queue, consumer: Node) -> None:
        self.queue = queue
        self.consumer = consumer
        self.min_size = 1
        self.available = False
        self.affordable = True
        self.room = ANY
        self.watched = False

    def close(self, is_closed: bool) -> None:
        """Record whether any of several producers that share the queue waits for room."""
        self.affordable = not is_closed
        self.room = -1 if is_closed else ANY
