"""Input: the input ports of an operator, and `receive`.

`receive` is the hot path: a look-up by port name in a dict, then a popleft in C. The name may be omitted if an
operator has one input.

The interface that programs see, with its parameters, is described in `core/contexts.py` (`InputContext`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from headrace._runtime.messages.batch import Batch
from headrace._runtime.messages.message import Details, Message
from headrace._runtime.streams.owners import PLAIN, add_owners
from headrace.core.errors import PortError, choices
from headrace.core.ports import IOSpec
from headrace.tensor import TensorMap

if TYPE_CHECKING:
    from headrace._runtime.messages.queue import Queue
    from headrace._runtime.scheduling.node import Node
    from headrace._runtime.streams.keeper import Keeper
    from headrace._runtime.streams.managed_stream import ManagedStream
    from headrace._runtime.streams.node_streams import NodeStreams
    from headrace.gpu import StreamHandle

__all__ = ["EMPTY", "NOTHING", "InputContext", "InputPort", "messages_in", "taking"]

NOTHING = object()
"""The `item` of an input at which nothing was received."""
EMPTY = Batch()
"""The `item` of an input at which `receive` found no message."""

_POP = IOSpec.QueuePolicy.POP


class InputContext:
    """The inputs of an operator, as its `compute` uses them; created once and reused.

    Its fields are changed only in the operator's computes, or before the first one.

    Attributes
    ----------
    ports
        The input ports.
    details
        The metadata and timestamps of this compute's messages, by port.
    """

    __slots__ = (
        "_announces_room",
        "_by_name",
        "_is_watched",
        "_keeper",
        "_node",
        "_streams",
        "details",
        "ports",
    )

    def __init__(self, node: Node) -> None:
        self._node = node
        inputs = node.operator.spec.inputs
        self.ports = [InputPort(inputs[name], queues) for name, queues in node.input_queues.items()]
        self._by_name = {port.name: port for port in self.ports}
        if len(self.ports) == 1:
            self._by_name[""] = self.ports[0]
        # Whether a receive does more than take the message: it announces the room to producers, or passes the
        # message to the streams.
        self._is_watched = False
        self._announces_room = False
        self._streams: NodeStreams | None = None
        self._keeper: Keeper  # that of `_streams`, where there is one
        self.details: dict[str, list[Details]] = {}

    def announce_room(self) -> None:
        """Announce the room that a receive makes to producers at once, not when compute is over.

        With one thread, no producer could use the room. With several, a producer can make the next message while
        this one is being processed. It is not needed while this compute has its ready queue to itself: producers in
        that queue are notified when the compute is over or, if it takes longer than expected, by the worker on
        standby (`Engine.overtake`).
        """
        self._announces_room = True
        for port in self.ports:
            producers = [claim.node for queue in port.queues for claim in queue.claims]
            port.serves_others = any(
                producer.ready_queue is not self._node.ready_queue for producer in producers
            )
        self._is_watched = True

    def watch(self, streams: NodeStreams | None) -> None:
        """Pass every received message to `streams`; None ends this."""
        self._streams = streams
        if streams is not None:
            self._keeper = streams.lifetimes.keeper
        self._is_watched = self._announces_room or streams is not None

    def receive(self, name: str = "", *, kind: str = "") -> Any:
        """Take the waiting message or messages from an input, and return them.

        Returns the emitted object; on a port with a queue longer than one, a tuple of all waiting messages; on an
        ``ANY_SIZE`` port, a tuple with one message from each connection; None if no message waits.
        """
        try:
            port = self._by_name[name]
            take = port.take
            item = take()
        except IndexError:
            return self._receive_nothing(port)
        except KeyError:
            raise self._unknown(name) from None
        if self._is_watched:
            if self._announces_room:
                ready_queue = self._node.ready_queue
                if ready_queue.quick is not self._node or ready_queue.standby is None or port.serves_others:
                    self._announce_room(port)
            streams = self._streams
            if streams is None:
                port.received_in = self._node.remaining
            else:
                if port.item is NOTHING:
                    port.item = item
                else:
                    port.add(item)
                # A copy of `NodeStreams.received`, `wait_for` and `_open` for a message with one fence and nothing
                # else: most messages between operators that use streams are of this kind.
                if type(item) is Message and item.details is None and item.more_fences is None:
                    own = port.own
                    if own is not None:
                        fences = item.fences
                        if fences is not None and fences.stream is not own and item.number > fences.completed:
                            own.wait(item.event)
                    if port.is_noted:
                        streams.note(port, item)
                    data = item.data
                    if type(data) in PLAIN:
                        return data
                    keeper = self._keeper
                    if keeper.is_on:
                        add_owners(data, keeper.received)
                    return data if type(data) is not TensorMap else data.copy()
                if type(item) not in PLAIN:
                    streams.received(port, item)
        else:
            port.received_in = self._node.remaining
        if type(item) is Message:
            return self._open(port, item)
        if type(item) is Batch:
            return self._open_all(port, item)
        return _own_map(item)

    def _receive_nothing(self, port: InputPort) -> None:
        """Record that `receive` found nothing at an input."""
        if self._streams is None:
            port.empty_in = self._node.remaining
        elif port.item is NOTHING:
            port.item = EMPTY

    def _announce_room(self, port: InputPort) -> None:
        for queue in port.queues:
            if not queue.gate.affordable:
                self._node.engine.announce_room(queue)

    def _open(self, port: InputPort, message: Message) -> Any:
        """Return the data of a message, and store its metadata and timestamp."""
        # `receive` has a copy for a message without details.
        if self._streams is None and message.has_fences:
            self._node.streams.received_unwatched(port, message)
        details = message.details
        if details is not None:
            node = self._node
            # From here on the node clears details and metadata after each compute.
            node.has_extra_work = node.has_details = True
            self.details.setdefault(port.name, []).append(details)
            if details.metadata is not None and node.operator.is_metadata_enabled:
                node.operator.metadata.update(details.metadata)
            if details.acq_timestamp is not None:
                node.output.pass_on(details.acq_timestamp)
        return _own_map(message.data)

    def _open_all(self, port: InputPort, batch: Batch) -> tuple[Any, ...]:
        if self._streams is None:
            self._node.streams.received_unwatched(port, batch)
        return tuple([self._open(port, part) if type(part) is Message else _own_map(part) for part in batch])

    def receive_cuda_stream(
        self, input_port_name: str = "", allocate: bool = True, sync_to_default: bool = False
    ) -> StreamHandle:
        """Order this operator's stream after what it received at a port, and return the stream."""
        try:
            port = self._by_name[input_port_name]
        except KeyError:
            raise self._unknown(input_port_name) from None
        handle: StreamHandle = self._node.streams.receive(port, allocate, sync_to_default)
        return handle

    def receive_cuda_streams(self, input_port_name: str = "") -> list[StreamHandle | None]:
        """Return the stream of each message received at a port, or None; order nothing."""
        return self._node.streams.received_streams(self._port(input_port_name))

    def get_acquisition_timestamp(self, input_port_name: str = "") -> int | None:
        """Return the timestamp of the first message received at a port in this compute, or None."""
        return next(iter(self.get_acquisition_timestamps(input_port_name)), None)

    def get_acquisition_timestamps(self, input_port_name: str = "") -> list[int | None]:
        """Return the timestamps of the messages received at a port in this compute that carried one."""
        port = self._port(input_port_name)
        timestamps = [details.acq_timestamp for details in self.details.get(port.name, ())]
        return [timestamp for timestamp in timestamps if timestamp is not None]

    def _port(self, name: str) -> InputPort:
        port = self._by_name.get(name)
        if port is None:
            raise self._unknown(name)
        return port

    def _unknown(self, name: str) -> PortError:
        operator, names = self._node.name, [port.name for port in self.ports]
        if not name:
            return PortError(f"operator {operator!r} has the inputs {choices(names)}: name one")
        return PortError(f"operator {operator!r} has no input {name!r}; it has {choices(names, name)}")


def _own_map(data: Any) -> Any:
    """Return the receiver's own copy of a map: removing an entry must not affect other receivers or lifetimes."""
    return data.copy() if type(data) is TensorMap else data


class InputPort:
    """An input port: how it takes the next message, and what this compute took.

    Its fields are changed only in the operator's computes, or before the first one.

    Attributes
    ----------
    take
        Returns the next message, or raises IndexError when there is none.
    item
        What was received in this compute, or `NOTHING`; used only if the operator's streams are watched.
    received_in, empty_in
        If they are not watched: the last compute that received something here, and the last that found nothing.
    own
        The stream that is ordered after each message as it is received; None until the operator requests it.
    is_noted
        Whether `NodeStreams.note` must also handle each message.
    count
        The number of messages taken the last time.
    serves_others
        Whether other workers than the consumer's run any of its producers.
    """

    __slots__ = (
        "_is_receivers",
        "_takes",
        "count",
        "empty_in",
        "is_noted",
        "item",
        "name",
        "own",
        "queues",
        "received_in",
        "serves_others",
        "take",
    )

    def __init__(self, port: IOSpec, queues: tuple[Queue, ...]) -> None:
        self.name = port.name
        self.queues = queues
        self._is_receivers = port.is_receivers
        self._takes = [(queue, taking(queue)) for queue in queues]
        self.take: Callable[[], Any]
        if port.is_receivers:
            self.take = self._take_each
        elif port.gives_tuple:
            self.take = self._take_all
        else:
            self.take = taking(queues[0])
        self.item: Any = NOTHING
        self.received_in: int | None = None
        self.empty_in: int | None = None
        self.own: ManagedStream | None = None
        self.is_noted = True
        self.count = 1
        self.serves_others = False

    def add(self, item: Any) -> None:
        """Add a received item to those that this compute received before."""
        earlier = self.item
        if earlier is not NOTHING:
            item = Batch([*_parts(earlier), *_parts(item)])
        self.item = item

    def recall(self, turn: int) -> None:
        """Reconstruct the item of a compute that was not watched: `count` objects without a stream."""
        if self.item is NOTHING:
            if self.received_in == turn:
                self.item = Batch([None] * self.count)
            elif self.empty_in == turn:
                self.item = EMPTY

    def take_only_done(self) -> None:
        """From now on, take only messages whose work the device has finished; the others stay in their queues.

        A full queue that drops its oldest message may have dropped a finished one after the operator became ready.
        If only an unfinished message is left, it is waited for here.
        """
        if self._is_receivers:
            self.take = self._take_each_done
        elif self.take == self._take_all:
            self.take = self._take_all_done
        else:
            self.take = self._take_done

    def _take_each(self) -> Batch:
        taken = Batch([take_one() for queue, take_one in self._takes if queue])
        self.count = len(taken)
        return taken

    def _take_all(self) -> Batch:
        taken = Batch(self.queues[0].take_all())
        self.count = len(taken)
        if not taken:
            raise IndexError
        return taken

    def _take_done(self) -> Any:
        (queue,) = self.queues
        return _pop_done(queue, waits=True)

    def _take_each_done(self) -> Batch:
        taken = Batch()
        for queue in self.queues:
            if queue:
                try:
                    taken.append(_pop_done(queue, waits=True))
                except IndexError:
                    continue
        self.count = len(taken)
        return taken

    def _take_all_done(self) -> Batch:
        (queue,) = self.queues
        taken = Batch()
        try:
            for _ in range(len(queue)):
                taken.append(_pop_done(queue, waits=not taken))
        except IndexError:
            pass
        self.count = len(taken)
        if not taken:
            raise IndexError
        return taken


def messages_in(item: Any) -> Iterator[Message | None]:
    """Yield the messages in an item received at a port, and None for each plain object."""
    for part in () if item is NOTHING else _parts(item):
        yield part if type(part) is Message else None


def taking(queue: Queue) -> Callable[[], Any]:
    """Return the function that takes one message from a queue: popleft, unless a producer may pop as well."""
    return queue.popleft if queue.policy is not _POP else queue.take


def _parts(item: Any) -> Any:
    return item if type(item) is Batch else (item,)


def _pop_done(queue: Queue, waits: bool) -> Any:
    """Take the first message of a queue if the device has finished its work; otherwise raise IndexError."""
    first = queue[0]
    if _is_unfinished(first) and not (waits and queue.policy is _POP):
        raise IndexError
    taken = taking(queue)()  # possibly a newer message, if the first was dropped meanwhile
    if _is_unfinished(taken):
        for _, _, event in taken.all_fences():
            event.sync()
    return taken


def _is_unfinished(item: Any) -> bool:
    return type(item) is Message and not item.is_done
