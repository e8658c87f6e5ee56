"""Message: what travels with a piece of data when it carries more than itself.

Most messages are only the object that was emitted, and then a queue holds that object and no Message is
made. One is made where there is something to add: the point on a stream behind which the data is there, a
timestamp, metadata. `receive` tells the two apart by type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.runtime.emitted import Emitted
    from penstock.runtime.trail import Trail

__all__ = ["Details", "Message"]


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
    emitted
        What its tensors know of that mark; None where it has none.
    details
        What else it carries; None where there is nothing else.
    """

    __slots__ = ("data", "details", "emitted", "event", "number", "trail")

    data: Any
    trail: Trail | None
    number: int
    event: Any
    emitted: Emitted | None
    details: Details | None

    @property
    def is_done(self) -> bool:
        """Whether the device is done with all that was submitted before the data was emitted."""
        trail = self.trail
        return trail is None or self.number <= trail.passed or self.event.is_done

    @property
    def acq_timestamp(self) -> int | None:
        """When the data was acquired, in nanoseconds, if that was said."""
        return None if self.details is None else self.details.acq_timestamp

    @property
    def metadata(self) -> dict[str, Any] | None:
        """The metadata that came with it, if any."""
        return None if self.details is None else self.details.metadata


class Details:
    """A timestamp and metadata that travel with a message."""

    __slots__ = ("acq_timestamp", "metadata")

    def __init__(self, acq_timestamp: int | None, metadata: dict[str, Any] | None) -> None:
        self.acq_timestamp = acq_timestamp
        self.metadata = metadata
