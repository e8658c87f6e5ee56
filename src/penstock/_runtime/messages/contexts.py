"""The three objects handed to `compute`, made once for each operator and reused.

`receive` and `emit` are the hot path: a dict look-up by port name, then a popleft or an append in C.
The name may be left out where an operator has one input or one output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import index
from typing import TYPE_CHECKING, Any

from penstock._runtime.messages.batch import Batch
from penstock._runtime.messages.emitted import Emitted
from penstock._runtime.messages.input_port import EMPTY, NOTHING, Inlet
from penstock._runtime.messages.message import Details, Message
from penstock._runtime.streams.owners import PLAIN, add_owners
from penstock.core.errors import PortError, choices
from penstock.tensor import Tensor, TensorError, TensorMap, as_message

if TYPE_CHECKING:
    from penstock._runtime.messages.queue import Queue
    from penstock._runtime.scheduling.node import Node
    from penstock._runtime.streams.managed_stream import ManagedStream
    from penstock._runtime.streams.node_streams import NodeStreams
    from penstock.core.operator import Operator
    from penstock.gpu import StreamHandle

__all__ = ["ExecutionContext", "InputContext", "OutputContext"]

# What is sent as tensors.
_OF_TENSORS = frozenset((dict, Tensor, TensorMap))


class InputContext:
    """What `compute` receives from."""

    __slots__ = ("_is_watched", "_named", "_names", "_node", "_streams", "_tells", "inlets", "notes")

    def __init__(self, node: Node) -> None:
        self._node = node
        self._names = tuple(node.input_queues)
        inputs = node.operator.spec.inputs
        self.inlets = [Inlet(inputs[name], queues) for name, queues in node.input_queues.items()]
        self._named = {inlet.name: inlet for inlet in self.inlets}
        if len(self.inlets) == 1:
            self._named[""] = self.inlets[0]
        # Whether there is more to a receive than to take the message: it tells producers, or is noted for streams.
        self._is_watched = False
        self._tells = False
        self._streams: NodeStreams | None = None
        # What the messages of this compute carried beside data and streams, by port; not their data.
        self.notes: dict[str, list[Details]] = {}

    def tell_at_once(self) -> None:
        """Have producers told of the room that a receive makes at once, not when compute is over.

        With one thread there would be no one to make use of it; with several, it is what lets the next
        message be made while this one is being worked on. Nor is there anyone while this compute has its ready
        queue to itself: producers in that queue are told when it is over, or by the worker that stands by, when it
        turns out to take longer (`Engine.overtake`).
        """
        self._tells = True
        for inlet in self.inlets:
            producers = [claim.node for queue in inlet.queues for claim in queue.claims]
            inlet.serves_others = any(
                producer.ready_queue is not self._node.ready_queue for producer in producers
            )
        self._is_watched = True

    def watch(self, streams: NodeStreams | None) -> None:
        """Have every receive noted, for `streams`; None ends it."""
        self._streams = streams
        self._is_watched = self._tells or streams is not None

    def receive(self, name: str = "", *, kind: str = "") -> Any:
        """Take what waits at an input.

        Gives the emitted object; on a port with a queue longer than one a tuple of all that waits; on an
        ``ANY_SIZE`` port a tuple with one of each connection; None where nothing waits.
        """
        try:
            inlet = self._named[name]
            take = inlet.take
            item = take()
        except IndexError:
            return self._receive_nothing(inlet)
        except KeyError:
            raise self._unknown(name) from None
        if self._is_watched:
            if self._tells:
                ready_queue = self._node.ready_queue
                if ready_queue.quick is not self._node or ready_queue.standby is None or inlet.serves_others:
                    self._tell_room(inlet)
            streams = self._streams
            if streams is None:
                inlet.turn = self._node.remaining
            else:
                if inlet.item is NOTHING:
                    inlet.item = item
                else:
                    inlet.note(item)
                # What carries nothing but a mark is opened here: that is most of what streams carry.
                if type(item) is Message and item.details is None and item.also is None:
                    own = inlet.own
                    if own is not None:
                        trail = item.trail
                        if trail is not None and trail.stream is not own and item.number > trail.passed:
                            own.wait(item.event)
                    if inlet.is_noted:
                        streams.note(inlet, item)
                    data = item.data
                    if type(data) in PLAIN:
                        return data
                    if streams.keeps:
                        add_owners(data, streams.keeper.received)
                    return data if type(data) is not TensorMap else data.copy()  # as `_own`, without the call
                if type(item) not in PLAIN:
                    streams.received(inlet, item)
        else:
            inlet.turn = self._node.remaining
        if type(item) is Message:
            return self._open(inlet, item)
        if type(item) is Batch:
            return self._open_all(inlet, item)
        return _own(item)

    def _receive_nothing(self, inlet: Inlet) -> None:
        """Take note that an input was asked and had nothing."""
        if self._streams is None:
            inlet.note_asked(self._node.remaining)
        elif inlet.item is NOTHING:
            inlet.item = EMPTY

    def _tell_room(self, inlet: Inlet) -> None:
        for queue in inlet.queues:
            if not queue.affordable:
                self._node.engine.tell_room(queue)

    def _open(self, inlet: Inlet, message: Message) -> Any:
        if self._streams is None and (message.trail is not None or message.also is not None):
            self._node.streams.meet(inlet, message)
        details = message.details
        if details is not None:
            node = self._node
            # From here on the node forgets its notes and metadata after each compute.
            node.special = node.gathered = True
            self.notes.setdefault(inlet.name, []).append(details)
            if details.metadata is not None and node.operator.is_metadata_enabled:
                node.metadata.update(details.metadata)
            if details.acq_timestamp is not None:
                node.output.pass_on(details.acq_timestamp)
        return _own(message.data)

    def _open_all(self, inlet: Inlet, batch: Batch) -> tuple[Any, ...]:
        if self._streams is None:
            self._node.streams.meet(inlet, batch)
        return tuple([self._open(inlet, part) if type(part) is Message else _own(part) for part in batch])

    def receive_cuda_stream(
        self, input_port_name: str = "", allocate: bool = True, sync_to_default: bool = False
    ) -> StreamHandle:
        """Order this operator's stream after the work behind what it received at a port, and give the stream.

        Call it after `receive`. It waits on the device, not here; it makes the stream's device current; and
        from now on what the operator emits carries this stream.

        Parameters
        ----------
        input_port_name
            The port; not needed where there is only one.
        allocate
            Take a stream of the operator's own from its pool, the first time. Otherwise, or where the pool has
            none left, the first stream found at the port is used in this compute; where there is none, the
            default stream is, and none is emitted.
        sync_to_default
            Order the default stream after it too.

        Returns
        -------
        StreamHandle
            An int that also has ``__cuda_stream__``, so that every library takes it.
        """
        try:
            inlet = self._named[input_port_name]
        except KeyError:
            raise self._unknown(input_port_name) from None
        handle: StreamHandle = self._node.streams.receive(inlet, allocate, sync_to_default)
        return handle

    def receive_cuda_streams(self, input_port_name: str = "") -> list[StreamHandle | None]:
        """Give the stream of each message received at a port, None where it has none; orders nothing."""
        inlet = self._named.get(input_port_name)
        if inlet is None:
            raise self._unknown(input_port_name)
        return self._node.streams.received_streams(inlet)

    def get_acquisition_timestamp(self, input_port_name: str = "") -> int | None:
        """Give the timestamp of the first message received at a port in this compute, or None."""
        return next(iter(self.get_acquisition_timestamps(input_port_name)), None)

    def get_acquisition_timestamps(self, input_port_name: str = "") -> list[int | None]:
        """Give the timestamps of the messages received at a port in this compute that carried one."""
        inlet = self._named.get(input_port_name)
        if inlet is None:
            raise self._unknown(input_port_name)
        timestamps = [details.acq_timestamp for details in self.notes.get(inlet.name, ())]
        return [timestamp for timestamp in timestamps if timestamp is not None]

    def _unknown(self, name: str) -> PortError:
        operator = self._node.name
        if not name:
            return PortError(f"operator {operator!r} has the inputs {choices(self._names)}: name one")
        return PortError(f"operator {operator!r} has no input {name!r}; it has {choices(self._names, name)}")


def _own(data: Any) -> Any:
    """Give a receiver a map of its own: what it takes out is still there for the others, and is kept alive."""
    return data.copy() if type(data) is TensorMap else data


def _whole(acq_timestamp: Any) -> int:
    """Return a timestamp of any library as an int."""
    try:
        return index(acq_timestamp)
    except TypeError:
        raise TypeError(
            f"an acquisition timestamp is an int of nanoseconds, as time.time_ns() gives, not {acq_timestamp!r}"
        ) from None


class Outlet:
    """An output port: the queues behind it, its stream, if it emits one, and what marks that."""

    __slots__ = ("pending", "queues", "settle", "stamp", "stream")

    def __init__(self, queues: tuple[Queue, ...]) -> None:
        self.queues = queues
        self.stream: ManagedStream | None = None
        # Returns what is sent for an emitted object.
        self.stamp: Callable[[Any], Any] | None = None
        # What was received and the stream is not ordered after yet, and what orders it.
        self.pending: dict[Any, Any] = {}
        self.settle: Callable[[], None] | None = None


class OutputContext:
    """What `compute` emits to."""

    __slots__ = ("_is_chosen", "_metadata", "_names", "_node", "acq_timestamp", "is_detailed", "outlets")

    def __init__(self, node: Node) -> None:
        self._node = node
        self._names = tuple(node.output_queues)
        self.outlets = {name: Outlet(queues) for name, queues in node.output_queues.items()}
        if len(self._names) == 1:
            self.outlets[""] = self.outlets[self._names[0]]
        self._metadata: dict[str, Any] = node.metadata if node.operator.is_metadata_enabled else {}
        # Whether this compute may have metadata or a timestamp to send along: the one thing that emit looks at.
        self.is_detailed = False
        # The timestamp of what is emitted without one: the oldest that was received, unless another was chosen.
        self.acq_timestamp: int | None = None
        self._is_chosen = False

    def pass_on(self, acq_timestamp: int) -> None:
        """Have what is emitted in this compute carry a timestamp that was received, if it is the oldest."""
        if self._is_chosen:
            return
        earlier = self.acq_timestamp
        if earlier is None or acq_timestamp < earlier:
            self.acq_timestamp = acq_timestamp
        self.is_detailed = True

    def choose(self, acq_timestamp: int | None) -> None:
        """Have what is emitted in this compute carry this timestamp, whatever is received."""
        self.acq_timestamp = acq_timestamp
        self._is_chosen = self.is_detailed = True

    def forget(self) -> None:
        """Carry nothing of this compute into the next."""
        self.acq_timestamp = None
        self._is_chosen = self.is_detailed = False

    def emit(self, data: Any, name: str = "", emitter_name: str = "", acq_timestamp: Any = -1) -> None:
        """Send an object to everything connected to an output.

        Parameters
        ----------
        data
            Any object; it is passed on as it is, not copied. Of a dict of arrays a TensorMap is sent: the arrays,
            not copied, as tensors that every library takes.
        name
            The output port; not needed where there is only one.
        emitter_name
            Taken for compatibility.
        acq_timestamp
            When the data was acquired, in nanoseconds, as an int of any library; it travels with the data. Without
            one, the data carries the oldest timestamp of what was received in this compute, if there was any.
            None sends none.
        """
        try:
            outlet = self.outlets[name]
        except KeyError:
            raise self._unknown(name) from None
        stamp = outlet.stamp
        if type(data) in _OF_TENSORS:
            data = self._as_tensors(data, name, outlet)
            if outlet.stream is not None and len(outlet.queues) > 1:
                self._send_apart(data, outlet, acq_timestamp)
                return
        elif stamp is not None:
            if outlet.pending:
                outlet.settle()  # type: ignore[misc]
            data = stamp(data)
        if acq_timestamp != -1 or self.is_detailed:
            data = self._detailed(data, acq_timestamp)
        for queue in outlet.queues:
            if len(queue) < queue.capacity:
                queue.append(data)
            else:
                queue.offer(data)

    def set_cuda_stream(self, stream: StreamHandle | int, output_port_name: str = "") -> None:
        """Have what is emitted at a port from now on carry a stream; call it before `emit`.

        Not needed for the stream of `receive_cuda_stream`. Only streams that penstock manages are taken.
        """
        self._node.streams.set_output(stream, output_port_name)

    def _as_tensors(self, data: Any, name: str, outlet: Outlet) -> Any:
        """Give what is sent for a dict of arrays or a tensor."""
        if outlet.pending:
            assert outlet.settle is not None
            outlet.settle()
        emitted = None if outlet.stream is None else Emitted(outlet.stream)
        port = name or self._names[0]
        try:
            data = as_message(data, emitted, (self._node.name, port))
        except TensorError as error:
            raise TensorError(f"operator {self._node.name!r}, output {port!r}: {error}") from error
        except Exception as error:
            error.add_note(f"raised while emitting at output {port!r} of operator {self._node.name!r}")
            raise
        if outlet.stamp is not None:
            data = outlet.stamp(data)  # after all of it has been put in the stream's order
        if emitted is not None:
            emitted.mark(data)
        return data

    def _send_apart(self, message: Message, outlet: Outlet, acq_timestamp: Any) -> None:
        """Send tensors to several receivers, to each with what it alone knows of the work behind them."""
        if acq_timestamp != -1 or self.is_detailed:
            self._detailed(message, acq_timestamp)
        assert message.emitted is not None
        messages = []
        for _ in outlet.queues:
            emitted = message.emitted.apart()
            other = Message()
            other.data = as_message(message.data, emitted)
            other.trail, other.number, other.event = message.trail, message.number, message.event
            other.also, other.details = message.also, message.details
            emitted.mark(other)
            messages.append(other)
        for queue, other in zip(outlet.queues, messages, strict=True):
            queue.offer(other)

    def _detailed(self, data: Any, acq_timestamp: Any) -> Any:
        """Return a message with a timestamp and metadata, of an object or of a message without them.

        Where there is neither, what was given.
        """
        if acq_timestamp is None:
            timestamp = None
        else:
            timestamp = self.acq_timestamp if acq_timestamp == -1 else _whole(acq_timestamp)
        metadata = self._metadata
        if timestamp is None and not metadata:
            return data
        if type(data) is Message:
            message = data
        else:
            message = Message()
            message.data = data
            message.trail = message.event = message.emitted = message.also = None
            message.number = 0
        message.details = Details(timestamp, dict(metadata) if metadata else None)
        return message

    def _unknown(self, name: str) -> PortError:
        operator = self._node.name
        if not name:
            return PortError(f"operator {operator!r} has the outputs {choices(self._names)}: name one")
        return PortError(f"operator {operator!r} has no output {name!r}; it has {choices(self._names, name)}")


class ExecutionContext:
    """What `compute` may ask about the run it is part of."""

    __slots__ = ("_node", "input", "output")

    def __init__(self, node: Node) -> None:
        self._node = node
        self.input = node.input
        self.output = node.output

    def find_operator(self, op_name: str = "") -> Operator:
        """Give an operator of this fragment by name; this one without a name."""
        operator = self._node.operator
        return operator.fragment.graph.find(op_name) if op_name else operator

    def get_operator_status(self, op_name: str = "") -> Any:
        """Give the scheduling status of an operator; of this one without a name."""
        node = self.find_operator(op_name)._node
        assert node is not None
        return node.status()

    def allocate_cuda_stream(self, stream_name: str = "") -> StreamHandle | None:
        """Give one more stream of the operator's pool, the same for the same name; None if there is none."""
        handle: StreamHandle | None = self._node.streams.allocate(stream_name)
        return handle

    def synchronize_streams(
        self, cuda_streams: Iterable[StreamHandle | int | None], target_cuda_stream: StreamHandle | int | None
    ) -> None:
        """Order a stream after others, on the device; None and the target itself are passed over."""
        self._node.streams.synchronize(cuda_streams, target_cuda_stream)

    def device_from_stream(self, stream: StreamHandle | int) -> int:
        """Give the number of the device of a stream that penstock manages."""
        return self._node.streams.device_of(stream)

    @property
    def is_gpu_available(self) -> bool:
        """Whether there is a device, real or simulated."""
        return self._node.streams.is_gpu_available

    @property
    def acq_timestamp(self) -> Any:
        """The acquisition timestamp, in nanoseconds, of what this compute emits without naming one.

        It is the oldest of those received so far in this compute, or None. Set it to send another.
        """
        return self.output.acq_timestamp

    @acq_timestamp.setter
    def acq_timestamp(self, timestamp: Any) -> None:
        node = self._node
        node.special = node.gathered = True
        self.output.choose(None if timestamp is None else _whole(timestamp))

    @property
    def frames_in_flight(self) -> int:
        """How many frames that this operator received are kept because its streams may still read them."""
        return self._node.streams.frames_in_flight

    @property
    def frames_held(self) -> int:
        """How many frames that this operator received are still held: by it, or by others it passed them on to."""
        return len(self._node.streams.keeper.watched)

    @property
    def timestamp(self) -> int:
        """The time of the run's clock in nanoseconds."""
        return self._node.engine.clock.timestamp()
