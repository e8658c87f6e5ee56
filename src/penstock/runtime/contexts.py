"""The three objects handed to `compute`, made once for each operator and reused.

`receive` and `emit` are the hot path: a dict look-up by port name, then a popleft or an append in C.
The name may be left out where an operator has one input or one output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from penstock.core.errors import PortError, choices
from penstock.runtime.emitted import Emitted
from penstock.runtime.message import Message
from penstock.tensor import Tensor, TensorError, TensorMap, as_message

if TYPE_CHECKING:
    from penstock.core.operator import Operator
    from penstock.gpu import StreamHandle
    from penstock.runtime.managed_stream import ManagedStream, Mark
    from penstock.runtime.node import Node
    from penstock.runtime.queue import Queue
    from penstock.runtime.streams import NodeStreams

__all__ = ["ExecutionContext", "InputContext", "OutputContext"]

# What is sent as tensors.
_OF_TENSORS = frozenset((dict, Tensor, TensorMap))


class InputContext:
    """What `compute` receives from."""

    __slots__ = ("_names", "_node", "_own", "_sources", "_streams", "_take", "notes")

    def __init__(self, node: Node) -> None:
        self._node = node
        self._names = tuple(node.input_queues)
        # For each port a callable that gives the next message or raises IndexError when there is none.
        self._sources: dict[str, Callable[[], Any]] = {}
        for name, port in node.operator.spec.inputs.items():
            queues = node.input_queues[name]
            if port.is_receivers:
                self._sources[name] = _each(queues)
            elif port.gives_tuple:
                self._sources[name] = _all(queues[0])
            else:
                self._sources[name] = queues[0].popleft
        self._streams: NodeStreams | None = None
        self._own: ManagedStream | None = None
        self._take: dict[str, Callable[[], Any]] = {}
        self._connect()
        # The messages of this compute that carried more than their data, by port.
        self.notes: dict[str, list[Message]] = {}

    def tell_at_once(self) -> None:
        """Have producers told of the room that a receive makes at once, not when compute is over.

        With one thread there would be no one to make use of it; with several, it is what lets the next
        message be made while this one is being worked on.
        """
        node = self._node
        for name, queues in node.input_queues.items():
            self._sources[name] = _telling(self._sources[name], queues, node.engine.tell_room)
        self._connect()

    def watch(self, streams: NodeStreams | None, own: ManagedStream | None = None) -> None:
        """Have every receive noted in `streams.received`, and `own` ordered after it at once; None ends it."""
        self._streams = streams
        self._own = own
        self._connect()

    def _connect(self) -> None:
        streams = self._streams
        for name, source in self._sources.items():
            self._take[name] = source if streams is None else _noting(source, name, streams, self._own)
        if len(self._sources) == 1:
            self._take[""] = self._take[self._names[0]]

    def receive(self, name: str = "", *, kind: str = "") -> Any:
        """Take what waits at an input.

        Gives the emitted object; on a port with a queue longer than one a tuple of all that waits; on an
        ``ANY_SIZE`` port a tuple with one of each connection; None where nothing waits.
        """
        try:
            item = self._take[name]()
        except IndexError:
            return None
        except KeyError:
            raise self._unknown(name) from None
        if type(item) is Message:
            return self._open(name, item)
        if type(item) is Batch:
            return tuple([self._open(name, part) if type(part) is Message else _own(part) for part in item])
        return item.copy() if type(item) is TensorMap else item

    def _open(self, name: str, message: Message) -> Any:
        node = self._node
        # From here on the node forgets its notes and metadata after each compute.
        node.special = node.gathered = True
        self.notes.setdefault(name or self._names[0], []).append(message)
        if message.metadata is not None and node.operator.is_metadata_enabled:
            node.metadata.update(message.metadata)
        return _own(message.data)

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
            none left, the first stream found at the port is used; where there is none, the default stream is,
            and none is emitted.
        sync_to_default
            Order the default stream after it too.

        Returns
        -------
        StreamHandle
            An int that also has ``__cuda_stream__``, so that every library takes it.
        """
        streams = self._streams or self._node.streams
        handle: StreamHandle = streams.receive(input_port_name, allocate, sync_to_default)
        return handle

    def receive_cuda_streams(self, input_port_name: str = "") -> list[StreamHandle | None]:
        """Give the stream of each message received at a port, None where it has none; orders nothing."""
        return self._node.streams.received_streams(input_port_name)

    def get_acquisition_timestamp(self, input_port_name: str = "") -> int | None:
        """Give the timestamp of the first message received at a port in this compute, or None."""
        return next(iter(self.get_acquisition_timestamps(input_port_name)), None)

    def get_acquisition_timestamps(self, input_port_name: str = "") -> list[int | None]:
        """Give the timestamps of the messages received at a port in this compute that carried one."""
        name = input_port_name or (self._names[0] if len(self._names) == 1 else "")
        if name not in self._take:
            raise self._unknown(name)
        return [
            message.acq_timestamp for message in self.notes.get(name, ()) if message.acq_timestamp is not None
        ]

    def _unknown(self, name: str) -> PortError:
        operator = self._node.name
        if not name:
            return PortError(f"operator {operator!r} has the inputs {choices(self._names)}: name one")
        return PortError(f"operator {operator!r} has no input {name!r}; it has {choices(self._names)}")


class OutputContext:
    """What `compute` emits to."""

    __slots__ = ("_metadata", "_names", "_node", "_queues", "marks")

    def __init__(self, node: Node) -> None:
        self._node = node
        self._names = tuple(node.output_queues)
        self._queues: dict[str, tuple[Queue, ...]] = dict(node.output_queues)
        if len(self._names) == 1:
            self._queues[""] = self._queues[self._names[0]]
        self._metadata: dict[str, Any] = node.metadata if node.operator.is_metadata_enabled else {}
        # For each port that emits a stream, what marks that stream; "" where there is one port.
        self.marks: dict[str, Callable[[], Mark | None]] = {}

    def emit(self, data: Any, name: str = "", emitter_name: str = "", acq_timestamp: int = -1) -> None:
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
            When the data was acquired, in nanoseconds; travels with it.
        """
        mark = None
        if self.marks:
            leave_mark = self.marks.get(name)
            if leave_mark is not None:
                mark = leave_mark()
        if type(data) in _OF_TENSORS:
            data = self._as_tensors(data, name, mark)
        if acq_timestamp != -1 or self._metadata:
            data = self._stamped(data, mark, acq_timestamp)
        elif mark is not None:
            data = Message(data, mark)
        try:
            queues = self._queues[name]
        except KeyError:
            raise self._unknown(name) from None
        for queue in queues:
            if len(queue) < queue.capacity:
                queue.append(data)
            else:
                queue.offer(data)

    def set_cuda_stream(self, stream: int, output_port_name: str = "") -> None:
        """Have what is emitted at a port from now on carry a stream; call it before `emit`.

        Not needed for the stream of `receive_cuda_stream`. Only streams that penstock manages are taken.
        """
        self._node.streams.set_output(stream, output_port_name)

    def _as_tensors(self, data: Any, name: str, mark: Mark | None) -> Any:
        try:
            return as_message(data, None if mark is None else Emitted(mark))
        except TensorError as error:
            if name not in self._queues:
                raise self._unknown(name) from None
            port = name or self._names[0]
            raise TensorError(f"operator {self._node.name!r}, output {port!r}: {error}") from error

    def _stamped(self, data: Any, mark: Mark | None, acq_timestamp: int) -> Message:
        message = Message(data, mark)
        if acq_timestamp != -1:
            message.acq_timestamp = acq_timestamp
            message.is_plain = False
        if self._metadata:
            message.metadata = dict(self._metadata)
            message.is_plain = False
        return message

    def _unknown(self, name: str) -> PortError:
        operator = self._node.name
        if not name:
            return PortError(f"operator {operator!r} has the outputs {choices(self._names)}: name one")
        return PortError(f"operator {operator!r} has no output {name!r}; it has {choices(self._names)}")


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

    def synchronize_streams(self, cuda_streams: Iterable[int | None], target_cuda_stream: int) -> None:
        """Order a stream after others, on the device; None and the target itself are passed over."""
        self._node.streams.synchronize(cuda_streams, target_cuda_stream)

    def device_from_stream(self, stream: int) -> int:
        """Give the number of the device of a stream that penstock manages."""
        return self._node.streams.device_of(stream)

    @property
    def is_gpu_available(self) -> bool:
        """Whether there is a device, real or simulated."""
        return self._node.streams.is_gpu_available

    @property
    def timestamp(self) -> int:
        """The time of the run's clock in nanoseconds."""
        return self._node.engine.clock.timestamp()


class Batch(list[Any]):
    """Several messages taken at once; a type of its own so that an emitted list is not mistaken for it."""

    __slots__ = ()


def _own(data: Any) -> Any:
    """Give a receiver a map of its own: what it takes out is still there for the others, and is kept alive."""
    return data.copy() if type(data) is TensorMap else data


def _noting(
    take: Callable[[], Any], name: str, streams: NodeStreams, own: ManagedStream | None
) -> Callable[[], Any]:
    def take_and_note() -> Any:
        try:
            item = take()
        except IndexError:
            streams.received.setdefault(name, None)
            raise
        received = streams.received
        if name in received:
            streams.note_again(name, item)
        else:
            received[name] = item
        # What carries nothing but a mark, which has been noted, is opened here: that is most of what streams carry.
        return item.data if type(item) is Message and item.is_plain else item

    def take_note_and_order() -> Any:
        item = take_and_note()
        streams.order(name)
        return item

    return take_and_note if own is None else take_note_and_order


def _telling(
    take: Callable[[], Any], queues: tuple[Queue, ...], tell_room: Callable[[Queue], None]
) -> Callable[[], Any]:
    def take_and_tell() -> Any:
        item = take()
        for queue in queues:
            if not queue.affordable:
                tell_room(queue)
        return item

    return take_and_tell


def _each(queues: tuple[Queue, ...]) -> Callable[[], Batch]:
    def take() -> Batch:
        return Batch([queue.popleft() for queue in queues if queue])

    return take


def _all(queue: Queue) -> Callable[[], Batch]:
    def take() -> Batch:
        waiting = len(queue)
        if not waiting:
            raise IndexError
        return Batch([queue.popleft() for _ in range(waiting)])

    return take
