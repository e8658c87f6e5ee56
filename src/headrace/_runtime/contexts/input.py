"""Input: the input ports of an operator, and `receive`.

`receive` is the hot path: a look-up by port name in a dict, then a popleft in C. The name may be omitted if an
operator has one input.

The interface that programs see, with its parameters, is described in `core/contexts.py` (`InputContext`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from headrace._runtime.messages.envelope import Details, Envelope, wait_for
from headrace._runtime.messages.ports import (
    EMPTY,
    NOTHING,
    InputPort,
    messages_in,
    no_such_port,
    parts_of,
)
from headrace._runtime.messages.queue import Batch
from headrace._runtime.streams.owners import PLAIN, Watched, add_owners, array_owners
from headrace.core.metadata import NO_CALLS, in_batch
from headrace.core.ports import INPUT_EXEC
from headrace.gpu.allocation import Allocation
from headrace.gpu.allocation import in_use as allocations_in_use
from headrace.tensor.tensor_map import MAPPINGS

if TYPE_CHECKING:
    from headrace._runtime.messages.queue import Queue
    from headrace._runtime.streams.running_operator import RunningOperator
    from headrace.core.errors import PortError
    from headrace.gpu import StreamHandle


in_use: Final = allocations_in_use


class InputContext:
    """The inputs of an operator, as its `compute` uses them; created once and reused.

    Its fields are changed only in the operator's computes, or before the first one.

    Attributes
    ----------
    ports
        The input ports.
    announces
        Whether a receive announces the room that it makes (`announce_room`).
    notes_items
        Whether an operator without a stream notes what it receives, since it may ask for one in this compute.
    details
        The metadata and timestamps of this compute's messages, by port.
    """

    __slots__ = ("_announce", "_by_name", "_node", "announces", "details", "notes_items", "ports")

    def __init__(self, node: RunningOperator) -> None:
        self._node = node
        inputs = node.operator.spec.every_input
        self.ports = [InputPort(inputs[name], queues) for name, queues in node.input_queues.items()]
        self._by_name = {port.name: port for port in self.ports}
        usual = [port for port in self.ports if port.name != INPUT_EXEC]
        if len(usual) == 1:
            self._by_name[""] = usual[0]
        self._announce: Callable[[Any, tuple[Queue, ...]], None] | None = None
        self.announces = self.notes_items = False
        self.details: dict[str, list[Details]] = {}

    def connect(self, name: str, queues: tuple[Queue, ...]) -> None:
        """Receive from other queues at an ``ANY_SIZE`` input."""
        self._by_name[name].connect(queues)

    def announce_room(self, announce: Callable[[Any, tuple[Queue, ...]], None] | None) -> None:
        """Announce the room that a receive makes in queues to producers at once, not when compute is over.

        If this compute takes long, a producer can make the next message meanwhile. None ends this.
        """
        self._announce = announce
        self.announces = announce is not None

    def clear(self) -> None:
        """Clear the metadata and timestamps of one compute's messages."""
        self.details.clear()

    def receive(self, name: str = "", kind: str = "") -> Any:
        """Take the waiting message or messages from an input, and return them.

        Returns the emitted object; on a port with a queue longer than one, a tuple of all waiting messages; on an
        ``ANY_SIZE`` port, a tuple with one message from each connection; None if no message waits.
        """
        if kind:
            return self._receive_as(kind, name)
        try:
            port = self._by_name[name]
            item = port.take()
        except IndexError:
            return self._receive_nothing(port)
        except KeyError:
            self._node.operator.fragment._headrace.report_mistake(self._unknown(name))
            return None
        if self.announces:
            self._announce(self._node, port.queues)  # type: ignore[misc]
        kind_of_item = type(item)
        if port.own is None:
            if kind_of_item is not Envelope and kind_of_item is not Batch and not self.notes_items:
                port.received_in = self._node.remaining
                return item.copy() if kind_of_item in MAPPINGS else item  # `_own_map`, without a call
            if not any(message.has_fences for message in messages_in(item)):
                return self._receive_without_stream(port, item)
            self._node.streams.open()
        if port.item is NOTHING:
            port.item = item
        else:
            port.add(item)
        return self._open_all(port, item) if kind_of_item is Batch else self._open(port, item)

    def _receive_without_stream(self, port: InputPort, item: Any) -> Any:
        """Return received data while no device is in use."""
        port.received_in = self._node.remaining
        if self.notes_items:
            port.add(item)
        return self._open_all(port, item) if type(item) is Batch else self._open(port, item)

    def _open(self, port: InputPort, item: Any, is_part: bool = False) -> Any:
        """Order the operator's stream after a message, and return its data; of a batch, the details are known."""
        own = port.own
        if type(item) is not Envelope:
            return _own_map(item) if own is None else self._keep(port, item, None)
        fences = item.fences
        if (
            fences is not None
            and own is not None
            and item.number > fences.completed
            and fences.stream is not own
        ):
            own.wait(item.event)
        if item.sent is not None:
            item.sent.note_received(self._node)
        if item.extra is not None or item.work is not None:
            self._open_rest(port, item, not is_part)
        return _own_map(item.data) if own is None else self._keep(port, item.data, item)

    def _keep(self, port: InputPort, data: Any, message: Envelope | None) -> Any:
        """Keep received data alive for the operator's stream, and return it; of a map, the receiver's own copy."""
        found = array_owners.get(type(data))
        if found is None:
            return self._keep_other(port, data)
        owner_of, memory_of = found
        frames = port.frames
        try:
            if in_use:
                record = None if message is None else message.record
                owner = record if type(record) is Allocation else memory_of(data)
                if type(owner) is Allocation:
                    frames.unsorted.append(owner)
                    return data
            else:
                owner = owner_of(data)
        except Exception:  # a sparse tensor has none
            add_owners(data, frames.unsorted)
            return data
        if port.is_shared and message is not None:
            record = message.record
            if type(record) is not Watched:
                record = message.record = Watched(owner)
            frames.shared.append(record)
        else:
            frames.received.append(owner)
        return data

    def _keep_other(self, port: InputPort, data: Any) -> Any:
        """Keep data that is no array of a type that is known; that of an array is known afterwards."""
        kind = type(data)
        if kind in PLAIN:
            return data
        add_owners(data, port.frames.unsorted if in_use else port.frames.received)
        return data.copy() if kind in MAPPINGS else data

    def keep(self, port: InputPort, item: Any) -> None:
        """Keep what was taken from an input elsewhere, and order the operator's stream after it."""
        if type(item) is Batch:
            for part in item:
                self.keep(port, part)
        elif type(item) is Envelope:
            assert port.own is not None
            if item.sent is not None:
                item.sent.note_received(self._node)
            wait_for(item, port.own)
            if item.work is not None:
                item.work.note_ordered(port.own)
            self._keep(port, item.data, item)
            if item.metadata:
                self._keep_other(port, item.metadata)
        else:
            self._keep(port, item, None)

    def _receive_as(self, kind: str, name: str) -> Any:
        """Receive one message, or a tuple of all that wait, whatever the input declares."""
        port = self._port(name)
        usual = port.take
        port.take = port.taking(kind, self._node.name)
        try:
            return self.receive(name)
        finally:
            port.take = usual

    def take_messages(self) -> list[tuple[str, int, Any]]:
        """Take what one compute would receive, as it is in the queues.

        Returns the input and the message of each; those of an ``ANY_SIZE`` input are numbered, others have a 0.
        """
        taken: list[tuple[str, int, Any]] = []
        for port in self.ports:
            try:
                item = port.take()
            except IndexError:
                continue
            is_receivers = len(port.queues) > 1
            taken += [
                (port.name, place if is_receivers else 0, part) for place, part in enumerate(parts_of(item))
            ]
        return taken

    def _receive_nothing(self, port: InputPort) -> None:
        """Record that `receive` found nothing at an input."""
        if port.own is None:
            port.empty_in = self._node.remaining
        elif port.item is NOTHING:
            port.item = EMPTY

    def _open_rest(self, port: InputPort, message: Envelope, has_metadata: bool) -> None:
        """Store the timestamp and the metadata of a message, and order the stream after what few messages have.

        Without `has_metadata`, that and the calls are stored already.
        """
        own = port.own
        if own is not None:
            if message.more_fences is not None:
                wait_for(message, own)
            if message.work is not None:
                message.work.note_ordered(own)
        details = message.details
        if details is None:
            return
        node = self._node
        node.expect_details()
        self.details.setdefault(port.name, []).append(details)
        if details.metadata is not None:
            if has_metadata and node.operator.is_metadata_enabled:
                node.operator.metadata.receive(port.name, details.metadata)
            if own is not None:
                self._keep_other(port, details.metadata)
        if details.acq_timestamp is not None:
            node.output.pass_on(details.acq_timestamp)
        if has_metadata and details.calls:
            node.output.pass_calls_on(details.calls)

    def _open_all(self, port: InputPort, batch: Batch) -> Any:
        operator = self._node.operator
        if operator.is_metadata_enabled:
            each = [part.metadata if type(part) is Envelope else None for part in batch]
            if any(each):
                operator.metadata.receive_batch(port.name, each)
        self._pass_calls_on(port, batch)
        found = tuple([self._open(port, part, is_part=True) for part in batch])
        return found if port.form is None else port.form(found)

    def _pass_calls_on(self, port: InputPort, batch: Batch) -> None:
        """Answer the calls of several messages; those of a batch each with its own part of what is emitted."""
        details = [part.details if type(part) is Envelope else None for part in batch]
        each = [NO_CALLS if some is None else some.calls for some in details]
        if not any(each):
            return
        self._node.expect_details()
        if self._node.operator.spec.every_input[port.name].is_receivers:
            for calls in each:
                self._node.output.pass_calls_on(calls)
        else:
            self._node.output.pass_calls_on(in_batch(each))

    def receive_cuda_stream(
        self, input_port_name: str = "", allocate: bool = True, sync_to_default: bool = False
    ) -> StreamHandle:
        """Order this operator's stream after what it received at a port, and return the stream."""
        handle: StreamHandle = self._node.streams.own_handle(self._port(input_port_name), sync_to_default)
        return handle

    def has_ended(self, name: str = "") -> bool:
        """Return whether all operators that send to an input have ended."""
        queues = self._node.input_queues[self._port(name).name]
        return bool(queues) and all(queue.has_ended for queue in queues)

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
        return no_such_port(self._node.name, "input", name, self._node.input_queues)


def _own_map(data: Any) -> Any:
    """Return the receiver's own copy of a map: removing an entry must not affect other receivers."""
    return data.copy() if type(data) in MAPPINGS else data
