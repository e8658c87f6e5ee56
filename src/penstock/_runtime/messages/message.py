"""Message: what travels with a piece of data when it carries more than itself.

Most messages are only the object that was emitted, and then a queue holds that object and no Message is
made. One is made where there is something to add: the point on a stream behind which the data is there, a
timestamp, metadata. `receive` tells the two apart by type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from penstock._runtime.messages.emitted import Emitted
    from penstock._runtime.streams.fences import Trail

__all__ = ["Details", "Mark", "Message", "is_passed"]

Mark: TypeAlias = "tuple[Trail, int, Any]"
"""A point on a stream: the trail, the number of the mark, and its event."""


class Message:
    """An emitted object and what travels with it.

    There is no `__init__`: who makes one fills it in (`Trail.message`, `OutputContext`). That is half the
    cost, and one is made in every step of every operator that uses streams.

    Attributes
    ----------
    data
        The emitted object.
    trail, number, event
        The mark that was left when it was emitted, which a receiver is to be ordered after: whose it is, which
        one, and the event behind it. `trail` is None where the data came with no stream.
    also
        Further marks that a receiver is to be ordered after; None where there are none, which is the rule.
    emitted
        What its tensors know of that mark; None where it has none.
    details
        What else it carries; None where there is nothing else.
    """

    __slots__ = ("also", "data", "details", "emitted", "event", "number", "trail")

    data: Any
    trail: Trail | None
    number: int
    event: Any
    emitted: Emitted | None
    also: tuple[Mark, ...] | None
    details: Details | None

    @property
    def is_done(self) -> bool:
        """Whether the device is done with all that was submitted before the data was emitted."""
        if self.trail is None and self.also is None:
            return True
        return all(is_passed(trail, number, event) for trail, number, event in self.marks())

    def marks(self) -> list[Mark]:
        """Return everything that a receiver is to be ordered after."""
        marks: list[Mark] = [] if self.trail is None else [(self.trail, self.number, self.event)]
        if self.also is not None:
            marks += self.also
        return marks

    @property
    def acq_timestamp(self) -> int | None:
        """When the data was acquired, in nanoseconds, if that was said."""
        return None if self.details is None else self.details.acq_timestamp

    @property
    def metadata(self) -> dict[str, Any] | None:
        """The metadata that came with it, if any."""
        return None if self.details is None else self.details.metadata


def is_passed(trail: Trail, number: int, event: Any) -> bool:
    """Return whether the device has passed a mark."""
    # Asked again at the end: its event may be recorded for another mark in between, and then this one is passed.
    return number <= trail.passed or event.is_done or number <= trail.passed


class Details:
    """A timestamp and metadata that travel with a message."""

    __slots__ = ("acq_timestamp", "metadata")

    def __init__(self, acq_timestamp: int | None, metadata: dict[str, Any] | None) -> None:
        self.acq_timestamp = acq_timestamp
        self.metadata = metadata
