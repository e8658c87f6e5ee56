"""Room sharing: several producers wait for room in one queue.

A producer reserves room before a compute and releases it afterwards, so that two producers never run for the same
place. All of this happens under the engine's lock, if there is one. A queue with a single producer needs none of
it: `Engine.finish` compares its length with one number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace._runtime.messages.queue import Claim, Queue
    from headrace._runtime.scheduling.engine import Engine

__all__ = ["SharedRoom", "reserve", "share_room", "unreserve", "update_producers"]


class SharedRoom:
    """A node's part in the sharing of room; set before the run begins.

    Attributes
    ----------
    claims
        The room that it must reserve before it runs, because other producers use the same queues.
    queues
        The queues of its inputs and outputs for which several producers wait.
    """

    __slots__ = ("claims", "queues")

    def __init__(self) -> None:
        self.claims: list[Claim] = []
        self.queues: list[Queue] = []


def reserve(engine: Engine, room: SharedRoom) -> None:
    """Reserve the room that a node may need in the queues that it shares."""
    for claim in room.claims:
        claim.running = True
        claim.queue.reserved += claim.places
        share_room(engine, claim.queue)


def unreserve(room: SharedRoom) -> None:
    """Release the room that a node reserved, and let others go first next time; `finish` notifies them."""
    for claim in room.claims:
        claim.running = False
        claims = claim.queue.claims
        claim.queue.reserved -= claim.places
        claims.remove(claim)
        claims.append(claim)


def update_producers(engine: Engine, queue: Queue) -> None:
    """Update the flags that tell the producers of a queue whether there is room."""
    # `Engine.finish` has a copy for a single producer.
    if len(queue.claims) > 1:
        share_room(engine, queue)
        return
    gate = queue.gate
    affordable = len(queue) <= gate.room
    if affordable is gate.affordable:
        return
    gate.affordable = affordable
    gate.producer.blockers += -1 if affordable else 1
    if affordable:
        engine.enqueue_if_ready(gate.producer)


def share_room(engine: Engine, queue: Queue) -> None:
    """Update, for each of several producers, whether there is room for it in addition to the running ones.

    The producer that ran least recently comes first. A producer that needs few places may overtake an earlier one
    that needs many; otherwise a batch that only it can complete would never be complete. But it may not overtake
    while the queue is about to be emptied anyway; otherwise the other would never find room.
    """
    waiting = len(queue)
    consumer = queue.consumer
    is_emptied = waiting >= queue.min_size and not consumer.blockers and consumer.evaluated is None
    free = queue.limit - waiting - queue.reserved
    is_closed = False
    for claim in queue.claims:
        node = claim.node
        if claim.running or node.retired:
            continue
        affordable = claim.places <= free
        if affordable is not claim.affordable:
            claim.affordable = affordable
            if affordable:
                node.blockers -= 1
                engine.enqueue_if_ready(node)
            else:
                node.blockers += 1
                if node.blockers == 1 and node.shared_room is not None:
                    # It was about to run and empty its inputs, but now it is blocked.
                    for other in node.shared_room.queues:
                        if other.consumer is node:
                            share_room(engine, other)
        if not affordable:
            is_closed = True
            if is_emptied and node.blockers == 1:
                free = 0
    queue.gate.close(is_closed)
