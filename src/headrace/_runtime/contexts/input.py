"""Input: the input ports of an operator, and `receive`.

`receive` is the hot path: a look-up by port name in a dict, then a popleft in C. The name may be omitted if an
operator has one input.

The interface that programs see, with its parameters, is described in `core/contexts.py` (`InputContext`).
"""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final

from headrace._runtime.messages.envelope import Details, Envelope
from headrace._runtime.messages.ports import AT_START, EMPTY, NOTHING, InputPort, no_such_port, parts_of
from headrace._runtime.messages.queue import Batch
from headrace._runtime.streams.owners import PLAIN, add_owners, array_owners
from headrace._runtime.streams.watch import Watched
from headrace.core.ports import INPUT_EXEC
from headrace.gpu.allocation import Allocation
from headrace.gpu.allocation import in_use as allocations_in_use
from headrace.tensor.libraries import reused_in_order
from headrace.tensor.tensor_map import MAPPINGS

if TYPE_CHECKING:
    from headrace._runtime.messages.queue import Queue
    from headrace._runtime.streams.node_streams import NodeStreams
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
    details
        The metadata and timestamps of this compute's messages, by port.
    usual_on, is_usual
        The thread on which the operator's device is current, if `receive_cuda_stream` has no more to do there than
        to order the stream; otherwise -1. And whether there is no other thread.
    """

    __slots__ = (
        *("_announce", "_by_name", "_is_watched", "_node", "_pending", "_streams"),
        *("announces", "details", "is_usual", "ports", "usual_on"),
    )

    def __init__(self, node: RunningOperator) -> None:
        self._node = node
        inputs = node.operator.spec.every_input
        self.ports = [InputPort(inputs[name], queues) for name, queues in node.input_queues.items()]
        self._by_name = {port.name: port for port in self.ports}
        usual = [port for port in self.ports if port.name != INPUT_EXEC]
        if len(usual) == 1:
            self._by_name[""] = usual[0]
        # Whether a receive does more than take the message: it announces the room to producers, or passes the
        # message to the streams.
        self._is_watched = False
        self._announce: Callable[[Any, tuple[Queue, ...]], None] | None = None
        self.announces = False
        self._streams: NodeStreams | None = None
        self.details: dict[str, list[Details]] = {}
        self.usual_on = -1
        self.is_usual = False
        # The received fences that the streams may not be ordered after yet, always in the same dict.
        self._pending: dict[Any, Any] = {}

    def connect(self, name: str, queues: tuple[Queue, ...]) -> None:
        """Receive from other queues at an ``ANY_SIZE`` input."""
        self._by_name[name].connect(queues)

    def announce_room(self, announce: Callable[[Any, tuple[Queue, ...]], None] | None) -> None:
        """Announce the room that a receive makes in queues to producers at once, not when compute is over.

        If this compute takes long, a producer can make the next message meanwhile. None ends this.
        """
        self._announce = announce
        self.announces = announce is not None
        self._is_watched = announce is not None or self._streams is not None
        for port in self.ports:
            port.find_whether_steady(self.announces)

    def watch(self, streams: NodeStreams | None) -> None:
        """Pass every received message to `streams`; None ends this."""
        self._streams = streams
        if streams is not None:
            self._pending = streams.order.pending
        self._is_watched = self._announce is not None or streams is not None

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
            if port.log is None:
                item = port.take()
            elif port.take is port.noted:
                receipt = port.log
                item = receipt.take_item()
                rows, log = receipt.receipts, receipt.log
                rows.append(AT_START)
                rows.append(log.number)
                if log.is_timing:
                    log.timer.receive(item, port)
            else:
                item = port.take()
        except IndexError:
            return self._receive_nothing(port)
        except KeyError:
            self._node.operator.fragment._report_mistake(self._unknown(name))
            return None
        if self._is_watched:
            if port.is_in_order:
                port.received_in = self._node.remaining
                if type(item) is port.kind and not (in_use or self.announces):
                    # The usual message between operators that share a stream.
                    try:
                        owner = port.owner_of(item)
                        is_reused = reused_in_order.get(type(owner))
                        if is_reused is not None and is_reused(owner):
                            return item
                    except Exception:  # a sparse tensor has no owner
                        pass
                return self._receive_in_order(port, item)
            steady = port.steady
            if steady is not None and port.item is NOTHING and not in_use:
                # A copy of `NodeStreams.received` for the usual messages: an array with a fence between operators
                # that handle streams, and an array alone between those that share a stream. Without it, a compute
                # of `benchmarks.gpu_chain` takes 6 % more bytecodes, and one on a shared stream 3 %.
                # The type is read twice: compiled code would not know that of `item` by a variable.
                if type(item) is Envelope:
                    if item.extra is None:
                        data = item.data
                        if type(data) is port.kind:
                            fences = item.fences
                            if (
                                fences is not None
                                and item.number > fences.completed
                                and fences.stream is not port.own
                            ):
                                port.own.wait(item.event)  # type: ignore[union-attr]
                            port.item = item
                            try:
                                steady.append(port.owner_of(data))
                            except Exception:  # a sparse tensor has no owner
                                add_owners(data, port.unsorted)
                            return data
                elif type(item) is port.kind:
                    port.item = item
                    try:
                        steady.append(port.owner_of(item))
                    except Exception:
                        add_owners(item, port.unsorted)
                    return item
            if self.announces:
                self._announce(self._node, port.queues)  # type: ignore[misc]
            # A copy of `NodeStreams.received`, `wait_for` and `_open` for an array with at most one fence: most
            # messages between operators that use streams are of this kind. `kind` is the last one's type. Without
            # it, a compute of a chain of seven takes 30 % more instructions of Python.
            kept = port.kept
            if kept is not None:
                if port.item is NOTHING:
                    port.item = item
                else:
                    port.add(item)
                if type(item) is Envelope:
                    if item.extra is None:
                        own = port.own
                        fences = item.fences
                        if fences is not None and item.number > fences.completed and fences.stream is not own:
                            own.wait(item.event)  # type: ignore[union-attr]
                        data = item.data
                        if type(data) is port.kind:
                            try:
                                record = item.record
                                if in_use:
                                    owner = record if type(record) is Allocation else port.memory_of(data)
                                    if type(owner) is Allocation:
                                        port.unsorted.append(owner)
                                        return data
                                else:
                                    owner = port.owner_of(data)
                                if port.shared is None:
                                    kept.append(owner)
                                else:
                                    if record is None:
                                        record = item.record = Watched(owner)
                                    port.shared.append(record)
                            except Exception:  # a sparse tensor has no owner
                                add_owners(data, port.unsorted)
                            return data
                        if item.work is not None:
                            self._streams.note_work(item.work, own)  # type: ignore[union-attr, arg-type]
                        return self.keep(port, data, kept)
                elif type(item) is not Batch:
                    return self.keep(port, item, kept)
                self._streams.received(port, item)  # type: ignore[union-attr]
            elif self._streams is None:
                port.received_in = self._node.remaining
            else:
                if port.item is NOTHING:
                    port.item = item
                else:
                    port.add(item)
                if type(item) not in PLAIN:
                    self._streams.received(port, item)
        else:
            port.received_in = self._node.remaining
        if type(item) is Envelope:
            return self._open(port, item)
        if type(item) is Batch:
            return self._open_all(port, item)
        return _own_map(item)

    def _receive_in_order(self, port: InputPort, item: Any) -> Any:
        """Receive an item, and keep what is not used again in the order of the operator's stream."""
        if self.announces:
            self._announce(self._node, port.queues)  # type: ignore[misc]
        kind = type(item)
        if kind in PLAIN:
            return item
        self._streams.received(port, item)  # type: ignore[union-attr]
        if kind is Envelope:
            return self._open(port, item)
        if kind is Batch:
            return self._open_all(port, item)
        if kind in array_owners and kind is not port.kind:
            port.kind, (port.owner_of, port.memory_of) = kind, array_owners[kind]
        return _own_map(item)

    def keep(self, port: InputPort, data: Any, kept: list[Any]) -> Any:
        """Keep a received object alive, and return it; of a map, return the receiver's own copy."""
        kind = type(data)
        if kind is port.kind:
            try:
                owner = port.memory_of(data) if in_use else port.owner_of(data)
                (port.unsorted if in_use and type(owner) is Allocation else kept).append(owner)
            except Exception:
                add_owners(data, port.unsorted)
            return data
        if kind in PLAIN:
            return data
        add_owners(data, port.unsorted if in_use else kept)
        if kind in array_owners:
            port.kind, (port.owner_of, port.memory_of) = kind, array_owners[kind]
        return data.copy() if kind in MAPPINGS else data

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
        if self._streams is None or port.is_in_order:
            port.empty_in = self._node.remaining
        elif port.item is NOTHING:
            port.item = EMPTY

    def _open(self, port: InputPort, message: Envelope, has_metadata: bool = True) -> Any:
        """Return the data of a message, and store its timestamp, and its metadata unless that is stored already."""
        # `receive` has a copy for a message without details.
        if self._streams is None and message.has_fences:
            self._node.streams.received_unwatched(port, message)
        details = message.details
        if details is not None:
            node = self._node
            node.expect_details()
            self.details.setdefault(port.name, []).append(details)
            if has_metadata and details.metadata is not None and node.operator.is_metadata_enabled:
                node.operator.metadata.receive(port.name, details.metadata)
            if details.acq_timestamp is not None:
                node.output.pass_on(details.acq_timestamp)
        return _own_map(message.data)

    def _open_all(self, port: InputPort, batch: Batch) -> Any:
        if self._streams is None:
            self._node.streams.received_unwatched(port, batch)
        operator = self._node.operator
        if operator.is_metadata_enabled:
            each = [part.metadata if type(part) is Envelope else None for part in batch]
            if any(each):
                operator.metadata.receive_batch(port.name, each)
        found = tuple(
            [self._open(port, part, False) if type(part) is Envelope else _own_map(part) for part in batch]
        )
        return found if port.form is None else port.form(found)

    def receive_cuda_stream(
        self, input_port_name: str = "", allocate: bool = True, sync_to_default: bool = False
    ) -> StreamHandle:
        """Order this operator's stream after what it received at a port, and return the stream."""
        try:
            port = self._by_name[input_port_name]
        except KeyError:
            raise self._unknown(input_port_name) from None
        item = port.item
        if (
            type(item) is Envelope
            and item.work is None
            and (self.is_usual or get_ident() == self.usual_on)
            and port.own is not None
            and not (self._pending or sync_to_default)
        ):  # a copy of `NodeStreams.receive`, for most messages: without it, 5 % more instructions
            return port.own.handle
        handle: StreamHandle = self._node.streams.receive(port, allocate, sync_to_default)
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
