"""Awaited: what a node waits for, besides the messages and the room that the states of its queues count.

Each node has one such value, `Node.awaited`, and only `Engine.set_awaited` changes it. Everything that the engine
counts or lists about waiting nodes follows from that change: the events that are outstanding, the timers, the nodes
to poll, the nodes that may run again. So these cannot disagree.

The value is what the last evaluation of the node's conditions found. It holds until something happens that may have
changed it: an announcement, a time, a message, a poll. Each of these leads to another evaluation. While a node has
blockers, only an event counts, because it keeps the run from ending; times and polls begin to count when the last
blocker is gone and the node is evaluated again.

`tests/interleavings` compares the value with a new evaluation wherever one thread hands over to another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.core.condition_types import SchedulingStatusType

if TYPE_CHECKING:
    from headrace.core.condition import Condition

_READY = SchedulingStatusType.READY
_WAIT_EVENT = SchedulingStatusType.WAIT_EVENT


class Awaited:
    """What a node waits for; never changed after it was made.

    Attributes
    ----------
    status
        The combined state of the node's conditions.
    until
        The time that the node waits for, if the state is WAIT_TIME.
    is_polled
        Whether its conditions must be polled.
    conditions
        The conditions that are not READY.
    outstanding
        1 if it waits for an announcement, otherwise 0.
    blocks
        1 if it is a blocker of its node, otherwise 0.
    """

    __slots__ = ("blocks", "conditions", "is_polled", "outstanding", "status", "until")

    def __init__(
        self,
        status: SchedulingStatusType,
        until: int | None = None,
        is_polled: bool = False,
        conditions: tuple[Condition, ...] = (),
        blocks: int = 0,
    ) -> None:
        self.status = status
        self.until = until
        self.is_polled = is_polled
        self.conditions = conditions
        self.outstanding = 1 if status is _WAIT_EVENT else 0
        self.blocks = blocks

    def while_blocked(self) -> Awaited:
        """Return what counts of this while the node has other blockers."""
        if self.blocks:
            return self
        return EVENT if self.outstanding else NOTHING


NOTHING = Awaited(_READY)
"""The node may run as soon as it has no blocker, or is evaluated then."""

EVENT = Awaited(_WAIT_EVENT)
"""The node waits for an announcement and has blockers besides."""

THROTTLED = Awaited(_WAIT_EVENT, blocks=1)
"""The node is too far ahead of the device. Its conditions are evaluated when the device has caught up."""

OVER = Awaited(SchedulingStatusType.NEVER, blocks=1)
"""The node computes no more, and its end has not begun (`ends`)."""

ENDED = Awaited(SchedulingStatusType.NEVER, blocks=1)
"""The node never runs again."""
