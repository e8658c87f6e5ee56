"""Message: what travels with a piece of data when it carries more than itself.

Most messages are only the object that was emitted. A queue then holds that object, and no Message is made. One is
made where there is something to add: fences that a receiver must be ordered after, a timestamp, metadata. `receive`
tells the two apart by type.

Every Message is made in this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from penstock._runtime.streams.fences import is_complete

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock._runtime.messages.emitted_work import EmittedWork
    from penstock._runtime.streams.fences import Fences

__all__ = ["Details", "Fence", "Message", "copy_message", "fenced_message", "make_message", "stamping"]

Fence: TypeAlias = "tuple[Fences, int, Any]"
"""A point on a stream: the timeline of fences, the number of the fence, and its event."""


class Message:
    """An emitted object and what travels with it.

    A message is filled in when it is made, by the functions below, and then belongs to its receiver. It has no
    `__init__`: that is half the cost, and one is made in every step of every operator that uses streams.

    Attributes
    ----------
    data
        The emitted object.
    fences, number, event
        The fence that was inserted when the object was emitted, which a receiver must be ordered after. `fences` is
        None where the data came with no stream.
    more_fences
        Further fences that a receiver must be ordered after; None where there are none, which is the rule.
    work
        The same work, as its tensors present it to other libraries; None where there are no such tensors.
    details
        What else it carries; None where there is nothing else.
    """

    __slots__ = ("data", "details", "event", "fences", "more_fences", "number", "work")

    data: Any
    fences: Fences | None
    number: int
    event: Any
    work: EmittedWork | None
    more_fences: tuple[Fence, ...] | None
    details: Details | None

    @property
    def has_fences(self) -> bool:
        """Whether there is work that a receiver must be ordered after."""
        return self.fences is not None or self.more_fences is not None

    def all_fences(self) -> list[Fence]:
        """Return every fence that a receiver must be ordered after."""
        found: list[Fence] = [] if self.fences is None else [(self.fences, self.number, self.event)]
        if self.more_fences is not None:
            found += self.more_fences
        return found

    @property
    def is_done(self) -> bool:
        """Whether the device is done with all that was submitted before the data was emitted."""
        return not self.has_fences or all(is_complete(*fence) for fence in self.all_fences())

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


def make_message(data: Any, details: Details | None = None) -> Message:
    """Return a message without a fence."""
    message = Message()
    message.data = data
    message.fences = message.event = message.work = message.more_fences = None
    message.number = 0
    message.details = details
    return message


def fenced_message(data: Any, first: Fence | None, more: tuple[Fence, ...]) -> Message:
    """Return a message that carries fences; `first` is that of the stream it was emitted on, if any."""
    # `stamping` has a copy for one fence.
    message = make_message(data)
    if first is not None:
        message.fences, message.number, message.event = first
    message.more_fences = more or None
    return message


def copy_message(message: Message, data: Any) -> Message:
    """Return a message with other data that carries what another one carries, except its work."""
    copied = make_message(data, message.details)
    copied.fences, copied.number, copied.event = message.fences, message.number, message.event
    copied.more_fences = message.more_fences
    return copied


def stamping(fences: Fences) -> Callable[[Any], Message]:
    """Return a function that inserts a fence after the work so far and returns a message that carries it."""
    insert = fences.insert

    def stamp(data: Any) -> Message:
        # A copy of `fenced_message`, without the calls: this is in every step of every operator that uses streams.
        event = insert()
        message = Message()
        message.data = data
        message.fences = fences
        message.event = event
        message.number = fences.last
        message.work = None
        message.more_fences = None
        message.details = None
        return message

    return stamp
