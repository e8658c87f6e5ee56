"""The ports of an operator in a run: the queues behind them, and how messages are taken from them and sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headrace._runtime.messages.envelope import Envelope
from headrace._runtime.messages.queue import Batch
from headrace.core.errors import KindError, PortError, choices
from headrace.core.ports import ConditionType, IOSpec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace._runtime.messages.fences import ManagedStream
    from headrace._runtime.messages.queue import Queue

NOTHING: Final = object()
"""The `item` of an input at which nothing was received."""
EMPTY: Final = Batch()
"""The `item` of an input at which `receive` found no message."""

_POP = IOSpec.QueuePolicy.POP
_LATEST = IOSpec.QueuePolicy.LATEST


class InputPort:
    """An input port: how it takes the next message, and what this compute took.

    Its fields are changed only in the operator's computes, or before the first one.

    Attributes
    ----------
    queues, reader
        The queues that messages come from, and how they are taken from there.
    take
        Returns the next message, or raises IndexError when there is none: `reader.next_message`, or what was put
        around it.
    item
        What was received in this compute, or `NOTHING`; used only if the operator has a stream.
    received_in, empty_in
        Otherwise: the last compute that received something here, and the last that found nothing.
    own
        The operator's stream, which is ordered after each message as it is received; None while it has none.
    frames, is_shared
        Where the owners of received memory are kept for that stream (`streams.lifetimes`), and whether the messages
        also go to other receivers, so that all of them keep one record of the owner.
    is_optional
        Whether the operator runs without messages here.
    form
        What makes the result of `receive` from several messages, if it is not a tuple.
    """

    __slots__ = (
        *("empty_in", "form", "frames", "is_optional", "is_shared", "item", "name", "own"),
        *("queues", "reader", "received_in", "take"),
    )

    def __init__(self, port: IOSpec, queues: tuple[Queue, ...]) -> None:
        self.name = port.name
        self.queues = queues
        self.is_optional = any(wanted.kind is ConditionType.NONE for wanted in port.conditions)
        self.reader = Reader(port, queues)
        self.take: Callable[[], Any] = self.reader.next_message
        self.item: Any = NOTHING
        self.received_in: int | None = None
        self.empty_in: int | None = None
        self.own: ManagedStream | None = None
        self.frames: Any = None
        self.is_shared = False
        self.form: Callable[[tuple[Any, ...]], Any] | None = None

    def connect(self, queues: tuple[Queue, ...]) -> None:
        """Receive from other queues; of an ``ANY_SIZE`` input, whose `take` reads all."""
        self.queues = queues
        self.reader.connect(queues)

    def bring(self, function: Callable[[Any], Any]) -> None:
        """From now on, receive what a function returns for each message."""
        is_own = self.take == self.reader.next_message
        self.reader.bring(function)
        if is_own:
            self.take = self.reader.next_message

    def take_one_at_a_time(self, first: Iterable[Queue]) -> None:
        """From now on, take one message of one queue, each in its turn; those of `first` come before the others."""
        self.take = self.reader.take_one_at_a_time(first)

    def take_only_done(self) -> None:
        """From now on, take only messages whose work the device has finished; the others stay in their queues."""
        self.take = self.reader.take_only_done()

    def taking(self, kind: str, operator: str) -> Callable[[], Any]:
        """Return what takes one message (``"single"``) or all that wait (``"multi"``)."""
        where = f"operator {operator!r}, input {self.name!r}"
        if kind not in ("single", "multi"):
            raise KindError(f"{where}: the kind of a receive is 'single' or 'multi', not {kind!r}")
        if not self.reader.is_receivers:
            return self.reader.take_waiting if kind == "multi" else self.reader.take_first
        if kind == "single":
            raise KindError(f"{where} takes the messages of any number of flows, so kind='single' is unclear")
        return self.take

    def add(self, item: Any) -> None:
        """Add a received item to those that this compute received before."""
        earlier = self.item
        if earlier is not NOTHING:
            item = Batch([*parts_of(earlier), *parts_of(item)])
        self.item = item

    def recall(self, turn: int) -> None:
        """Reconstruct the item of a compute that was not watched: `count` objects without a stream."""
        if self.item is NOTHING:
            if self.received_in == turn:
                self.item = Batch([None] * self.reader.count)
            elif self.empty_in == turn:
                self.item = EMPTY


class Reader:
    """How messages are taken from the queues of an input.

    Attributes
    ----------
    next_message
        Takes the next message or messages.
    is_receivers
        Whether a receive takes one message from each of any number of queues.
    count
        The number of messages taken the last time.
    """

    __slots__ = (
        "_bring",
        "_first",
        "_queues",
        "_take_one",
        "_takes",
        "count",
        "is_receivers",
        "next_message",
    )

    def __init__(self, port: IOSpec, queues: tuple[Queue, ...]) -> None:
        self.is_receivers = port.is_receivers
        self.count = 1
        self._queues = queues
        self._bring: Callable[[Any], Any] | None = None
        self._take_one = _taking
        self._takes = [(queue, _taking(queue)) for queue in queues]
        # How many of these come before the others, if one message is taken at a time.
        self._first = 0
        self.next_message: Callable[[], Any]
        if port.is_receivers:
            self.next_message = self._take_each
        elif port.gives_tuple:
            self.next_message = self.take_waiting
        else:
            self.next_message = self.take_first

    @property
    def take_first(self) -> Callable[[], Any]:
        """What takes one message of the only queue."""
        return self._takes[0][1]

    def connect(self, queues: tuple[Queue, ...]) -> None:
        """Take from other queues."""
        self._queues = queues
        self._first = 0
        self._make_takes()

    def bring(self, function: Callable[[Any], Any]) -> None:
        """From now on, return what a function returns for each message."""
        is_first = bool(self._takes) and self.next_message == self.take_first
        self._bring = function
        self._takes = [(queue, self._bringing(take)) for queue, take in self._takes]
        if is_first:
            self.next_message = self.take_first

    def _make_takes(self) -> None:
        self._takes = [(queue, self._bringing(self._take_one(queue))) for queue in self._queues]

    def _bringing(self, take: Callable[[], Any]) -> Callable[[], Any]:
        function = self._bring
        return take if function is None else lambda: function(take())

    def take_waiting(self) -> Batch:
        """Take all messages that wait in the only queue; raise IndexError if there is none."""
        ((queue, take_one),) = self._takes
        only_done = self._take_one is _taking_done
        # A full queue that drops its oldest message has one too many for a moment.
        count = 1 if queue.policy is _LATEST else min(len(queue), queue.limit)
        taken = Batch()
        try:
            for _ in range(count):
                if taken and only_done and _is_unfinished(queue.peek()):
                    break  # only for the first one there may be a wait
                taken.append(take_one())
        except IndexError:  # the work of the next one is not done, or the newest one has not come yet
            pass
        self.count = len(taken)
        if not taken:
            raise IndexError
        return taken

    def take_one_at_a_time(self, first: Iterable[Queue]) -> Callable[[], Any]:
        """From now on, take one message of one queue, each in its turn; return what does so."""
        self._takes.sort(key=lambda each: each[0] not in first)
        self._first = sum(queue in first for queue in self._queues)
        self.next_message = self._take_next
        return self.next_message

    def _take_next(self) -> Any:
        for place, (queue, take_one) in enumerate(self._takes):
            if queue.has_message:
                if place >= self._first:
                    self._takes.append(self._takes.pop(place))
                return take_one()
        raise IndexError

    def take_only_done(self) -> Callable[[], Any]:
        """From now on, take only messages whose work the device has finished; return what does so.

        A full queue that drops its oldest message may have dropped a finished one after the operator became ready.
        If only an unfinished message is left, it is waited for here.
        """
        self._take_one = _taking_done
        self._make_takes()
        if not self.is_receivers and self.next_message != self.take_waiting:
            self.next_message = self.take_first
        return self.next_message

    def _take_each(self) -> Batch:
        taken = Batch()
        for queue, take_one in self._takes:
            if queue.has_message:
                try:
                    taken.append(take_one())
                except IndexError:  # its work is not done
                    continue
        self.count = len(taken)
        return taken


class OutputPort:
    """An output port: the queues behind it, and the stream that it emits, if any.

    `NodeStreams` sets `stream`, `stamp` and `stamp_tensors`, in the operator's computes or between two of them.

    Attributes
    ----------
    queues, only
        The queues that receive emitted messages; and the only one, if there is one. `connect` changes both.
    stream
        The stream whose fences the messages carry; None while the operator has none.
    stamp
        Returns the message to send for an emitted object; None if it is sent as it is.
    stamp_tensors
        The same for tensors, which always carry a fence.
    """

    __slots__ = ("only", "queues", "stamp", "stamp_tensors", "stream")

    def __init__(self, queues: tuple[Queue, ...]) -> None:
        self.connect(queues)
        self.stream: ManagedStream | None = None
        self.stamp: Callable[[Any], Any] | None = None
        self.stamp_tensors: Callable[[Any], Any] | None = None

    def connect(self, queues: tuple[Queue, ...]) -> None:
        """Send to other queues from now on."""
        self.queues = queues
        self.only: Queue | None = queues[0] if len(queues) == 1 else None


def messages_in(item: Any) -> Iterator[Envelope]:
    """Yield the messages in an item received at a port; plain objects are left out."""
    for part in parts_of(item):
        if type(part) is Envelope:
            yield part


def has_other_receivers(port: InputPort) -> bool:
    """Return whether messages that come to an input also go to others."""
    return any(
        queue in queues and len(queues) > 1
        for queue in port.queues
        for feeder in queue.feeders
        for queues in feeder.output_queues.values()
    )


def no_such_port(operator: str, kind: str, name: str, names: Iterable[str]) -> PortError:
    """Return the error for a name that no input or output has, or that was left out where there are several."""
    if not name:
        return PortError(f"operator {operator!r} has the {kind}s {choices(names)}: name one")
    return PortError(f"operator {operator!r} has no {kind} {name!r}; it has {choices(names, name)}")


def _taking(queue: Queue) -> Callable[[], Any]:
    """Return the function that takes one message from a queue: popleft, unless a producer may pop as well."""
    if queue.policy is _LATEST:
        return queue.take_latest
    return queue.popleft if queue.is_fixed and queue.policy is not _POP else queue.take


def _taking_done(queue: Queue) -> Callable[[], Any]:
    """Return the function that takes one message whose work the device has finished."""
    return partial(_pop_done, queue)


def parts_of(item: Any) -> Any:
    """Return what was received as a sequence: the items of a batch, or one item."""
    return item if type(item) is Batch else (item,)


def _pop_done(queue: Queue) -> Any:
    """Take the first message of a queue if the device has finished its work; otherwise raise IndexError."""
    if queue.policy is not _LATEST:
        first = queue[0]
        if _is_unfinished(first) and queue.policy is not _POP:
            raise IndexError
    taken = _taking(queue)()  # possibly a newer message, if the first was dropped meanwhile
    if _is_unfinished(taken):
        for _, _, event in taken.all_fences():
            event.sync()
    return taken


def _is_unfinished(item: Any) -> bool:
    return type(item) is Envelope and not item.is_done
