"""CutFlow, FlowCounts: a flow from one part to another, and how many messages each of its ends has seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.core.ports import IOSpec


@dataclass(frozen=True, slots=True)
class CutFlow:
    """A flow from one part to another: what both of its ends have to know.

    Attributes
    ----------
    name
        Its name, which is the same at both ends: ``"edge.camera.out -> server.detector.frame"``.
    source, target
        The names of the parts that it leads from and to.
    outputs, input
        The outputs that send to it, and the input that they send to, with the names of their operators.
    size, policy
        The number of places in the queue, and what it does when it is full.
    keeps_places
        Whether a message keeps its place on the sender's side until its receiver takes it, so that there are `size`
        places in all. If not, the receiver's queue drops messages, and nobody waits for its places.
    room
        The most free places that its senders wait for before they compute.
    is_shared
        Whether operators of other parts, or of its target, add to the same queue and wait for its places.
    is_answer_awaited
        Whether its source may be lost, and so waits for answers to what it has sent before it answers itself.
    """

    name: str
    source: str
    target: str
    outputs: tuple[str, ...]
    input: str
    size: int
    policy: IOSpec.QueuePolicy
    keeps_places: bool
    room: int = 1
    is_shared: bool = False
    is_answer_awaited: bool = False


@dataclass(frozen=True, slots=True)
class FlowCounts:
    """How many messages of a flow one of its ends has seen; the sum of both ends says where each of them is.

    Attributes
    ----------
    sent
        The messages that left the part of the sender.
    waiting
        The messages that were emitted and not sent.
    dropped
        The messages that the sender's queue dropped by its policy.
    lost
        The messages that were sent over a link that failed, and not received, as far as is known.
    arrived
        The messages that reached the queue of their receiver, which counts what becomes of them.
    unanswered
        The messages that were sent and whose credit did not come back: nobody is known to have taken them.
    over_link
        The messages that this end has seen of the current link, which is not the first if a part was restarted.
    repeated
        The messages that were sent again to a part that was restarted.
    """

    sent: int = 0
    waiting: int = 0
    dropped: int = 0
    lost: int = 0
    arrived: int = 0
    unanswered: int = 0
    over_link: int = 0
    repeated: int = 0


def under_way(sender: FlowCounts, receiver: FlowCounts | None) -> int:
    """Return how many messages of a flow were sent and have not arrived, if its receiver is there."""
    return 0 if receiver is None else max(sender.over_link - receiver.over_link, 0)
