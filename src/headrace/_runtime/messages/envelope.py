"""Envelope: an emitted object together with fences, a timestamp or metadata.

Most messages are only the emitted object. A queue then holds that object, and no Envelope is created. An Envelope
is created only to add something: fences that a receiver must be ordered after, a timestamp, metadata. `receive`
distinguishes the two by type.

Every Envelope is created in this file, or in `fences` with a fence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.core.errors import UnansweredError
from headrace.core.metadata import NO_CALLS, Calls

if TYPE_CHECKING:
    from headrace._runtime.messages.fences import EmittedWork, Fences, ManagedStream

Fence: TypeAlias = "tuple[Fences, int, Any]"
"""A point on a stream: the timeline of fences, the number of the fence, and its event."""


class Envelope:
    """An emitted object and the fences, timestamp and metadata that travel with it.

    Functions create and fill in an envelope, which then belongs to its receiver. It has no `__init__`,
    which would double the cost: every step of every operator that uses streams creates one.

    Attributes
    ----------
    data
        The emitted object.
    fences, number, event
        The fence that was inserted when the object was emitted; a receiver must be ordered after it. `fences` is
        None if the data came without a stream.
    work
        The same work, as the message's tensors present it to other libraries; None if there are no such tensors.
    extra
        What few messages have: further fences, a timestamp, metadata. None if there is nothing of it.
    sent
        What notes who has received the data, if its sender asks for that (`streams.resends`).
    record
        What keeps the data alive, if several receivers share the message (`streams.lifetimes`); or the allocation
        that the data, an array, is on, if its sender knows that.
    """

    __slots__ = ("data", "event", "extra", "fences", "number", "record", "sent", "work")

    data: Any
    fences: Fences | None
    number: int
    event: Any
    work: EmittedWork | None
    extra: Extra | None
    record: Any
    sent: Any

    @property
    def details(self) -> Details | None:
        """The timestamp and metadata; None if there are none."""
        return None if self.extra is None else self.extra.details

    @property
    def more_fences(self) -> tuple[Fence, ...] | None:
        """Further fences that a receiver must be ordered after; usually None."""
        return None if self.extra is None else self.extra.more_fences

    def add_details(self, details: Details) -> None:
        """Send a timestamp and metadata along."""
        self.extra = Extra(details, self.more_fences)

    def set_more_fences(self, fences: tuple[Fence, ...]) -> None:
        """Replace the further fences; there may be none."""
        if fences or self.extra is not None:
            self.extra = Extra(self.details, fences or None)

    @property
    def has_fences(self) -> bool:
        """Whether there is work that a receiver must be ordered after."""
        extra = self.extra
        return self.fences is not None or (extra is not None and extra.more_fences is not None)

    def all_fences(self) -> list[Fence]:
        """Return every fence that a receiver must be ordered after."""
        found: list[Fence] = [] if self.fences is None else [(self.fences, self.number, self.event)]
        more = self.more_fences
        if more is not None:
            found += more
        return found

    @property
    def is_done(self) -> bool:
        """Whether the device has finished all work submitted before the data was emitted."""
        return not self.has_fences or all(
            fences.is_complete(number, event) for fences, number, event in self.all_fences()
        )

    @property
    def acq_timestamp(self) -> int | None:
        """When the data was acquired, in nanoseconds, or None."""
        details = self.details
        return None if details is None else details.acq_timestamp

    @property
    def metadata(self) -> dict[str, Any] | None:
        """The metadata of the message, if any."""
        details = self.details
        return None if details is None else details.metadata


class Extra:
    """What few messages have: a timestamp and metadata, and fences on further streams."""

    __slots__ = ("details", "more_fences")

    def __init__(self, details: Details | None, more_fences: tuple[Fence, ...] | None) -> None:
        self.details = details
        self.more_fences = more_fences


class Details:
    """A timestamp and metadata that travel with a message, and the calls that it answers."""

    __slots__ = ("acq_timestamp", "calls", "metadata")

    def __init__(
        self, acq_timestamp: int | None, metadata: dict[str, Any] | None, calls: Calls = NO_CALLS
    ) -> None:
        self.acq_timestamp = acq_timestamp
        self.metadata = metadata
        self.calls = calls


def make_envelope(data: Any, details: Details | None = None) -> Envelope:
    """Return a message without a fence."""
    message = Envelope()
    message.data = data
    message.fences = message.event = message.work = message.record = message.sent = None
    message.number = 0
    message.extra = None if details is None else Extra(details, None)
    return message


def open_message(message: Any) -> tuple[Any, int | None, dict[str, Any] | None]:
    """Return what of a message goes to another process: its data, timestamp and metadata, but not its fences."""
    if type(message) is not Envelope:
        return message, None, None
    extra = message.extra
    details = None if extra is None else extra.details
    if details is None:
        return message.data, None, None
    for call in details.calls:
        call.fail(
            UnansweredError("the message of the call went to another process, from which no answer comes")
        )
    return message.data, details.acq_timestamp, details.metadata


def seal_message(
    data: Any, acq_timestamp: int | None, metadata: dict[str, Any] | None, calls: Calls = NO_CALLS
) -> Any:
    """Return a message for a queue, whose work is complete."""
    if acq_timestamp is None and not (metadata or calls):
        return data
    return make_envelope(data, Details(acq_timestamp, metadata, calls))


def copy_envelope(message: Envelope, data: Any) -> Envelope:
    """Return a copy of a message with other data and without its work."""
    copied = make_envelope(data)
    copied.fences, copied.number, copied.event = message.fences, message.number, message.event
    copied.extra = message.extra  # which is replaced, never changed
    copied.sent = message.sent
    return copied


def wait_for(message: Envelope, stream: ManagedStream) -> None:
    """Make a stream wait for the work behind a message, except its own work."""
    for fences, number, event in message.all_fences():
        if fences.stream is not stream and number > fences.completed:
            stream.wait(event)
