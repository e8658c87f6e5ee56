"""Output: the output ports of an operator, and `emit`.

`emit` is the hot path: a look-up by port name in a dict, then an append in C. The name may be omitted if an
operator has one output.

The interface that programs see, with its parameters, is described in `core/contexts.py` (`OutputContext`).
"""

from __future__ import annotations

from collections.abc import Callable
from operator import index
from typing import TYPE_CHECKING, Any, Final

from headrace._runtime.messages.envelope import Details, Envelope, make_envelope
from headrace._runtime.messages.fences import EmittedWork
from headrace._runtime.messages.ports import OutputPort, no_such_port
from headrace.core.errors import add_note
from headrace.core.metadata import NO_CALLS, Calls
from headrace.core.ports import OUTPUT_EXEC
from headrace.tensor import Tensor, TensorError, TensorMap, as_message

if TYPE_CHECKING:
    from headrace._runtime.messages.queue import Queue
    from headrace._runtime.streams.running_operator import RunningOperator
    from headrace.gpu import StreamHandle

# The types that are sent as tensors, and all types that are not sent as they are. Final, as in other files that are
# compiled: compiled code would look up the name of a variable in a dict, which took a tenth of a compute.
_TENSOR_TYPES: Final = frozenset((Tensor, TensorMap))
_CHANGED_TYPES: Final = frozenset((dict, Tensor, TensorMap))


class OutputContext:
    """The outputs of an operator, as its `compute` uses them; created once and reused.

    Its fields are changed only in the operator's computes, or before the first one.

    Attributes
    ----------
    ports
        The output ports, by name; a single port is also listed under "".
    has_details
        Whether this compute may have metadata or a timestamp to send: the only flag that emit checks.
    acq_timestamp
        The timestamp of messages emitted without an explicit one: the oldest received timestamp, unless `choose`
        set another.
    calls
        The calls that messages of this compute answer: those of everything received so far.
    """

    __slots__ = (
        *("_convert_dict", "_is_chosen", "_metadata", "_node"),
        *("acq_timestamp", "calls", "has_details", "ports"),
    )

    def __init__(self, node: RunningOperator) -> None:
        self._node = node
        self.ports = {name: OutputPort(queues) for name, queues in node.output_queues.items()}
        operator = node.operator
        usual = [name for name in self.ports if name not in (operator.spec.dead_letter, OUTPUT_EXEC)]
        if len(usual) == 1:
            self.ports[""] = self.ports[usual[0]]
        self._convert_dict: Callable[[dict[Any, Any]], Any] = operator.convert_dict
        self._metadata: dict[str, Any] = operator.metadata if operator.is_metadata_enabled else {}
        self.has_details = False
        self.acq_timestamp: int | None = None
        self.calls: Calls = NO_CALLS
        self._is_chosen = False

    def pass_on(self, acq_timestamp: int) -> None:
        """Send a received timestamp with the messages of this compute, if it is the oldest."""
        if self._is_chosen or not self._node.operator.fragment.passes_acquisition_times_on:
            return
        earlier = self.acq_timestamp
        if earlier is None or acq_timestamp < earlier:
            self.acq_timestamp = acq_timestamp
        self.has_details = True

    def pass_calls_on(self, calls: Calls) -> None:
        """Answer the calls of a received message with the messages of this compute."""
        self.calls = {**self.calls, **calls} if self.calls else calls
        self.has_details = True

    def choose(self, acq_timestamp: int | None) -> None:
        """Send this timestamp with the messages of this compute, regardless of received timestamps."""
        self.acq_timestamp = acq_timestamp
        self._is_chosen = self.has_details = True

    def clear(self) -> None:
        """Clear the timestamp and the calls, so that the next compute starts without them."""
        self.acq_timestamp = None
        self.calls = NO_CALLS
        self._is_chosen = self.has_details = False

    def emit(
        self,
        data: Any,
        name: str = "",
        emitter_name: str = "",
        acq_timestamp: Any = -1,
        *,
        after: Any = None,
        constant: bool = False,
    ) -> None:
        """Send an object to everything connected to an output."""
        try:
            port = self.ports[name]
        except KeyError:
            error = no_such_port(self._node.name, "output", name, self._node.output_queues)
            self._node.operator.fragment._headrace.report_mistake(error)
            return
        if after is not None or constant:
            self._node.streams.prepare_emit(data, after, constant)
        stamp = port.stamp
        if type(data) in _CHANGED_TYPES:
            if type(data) is dict:
                data = self._convert_dict(data)
            if type(data) in _TENSOR_TYPES or (type(data) is dict and Tensor in map(type, data.values())):
                data = self._as_tensors(data, name, port)
                stamp = None
        if stamp is not None:
            data = stamp(data)
        queue = port.only
        if acq_timestamp != -1 or self.has_details:
            data = self._with_details(data, acq_timestamp)
        if queue is not None:  # an iterator over one takes 80 ns longer
            if len(queue) < queue.capacity:
                queue.append(data)
            else:
                queue.offer(data)
            return
        for queue in port.queues:
            if len(queue) < queue.capacity:
                queue.append(data)
            else:
                queue.offer(data)

    def set_cuda_stream(self, stream: StreamHandle | int, output_port_name: str = "") -> None:
        """Attach a stream to all messages emitted at a port from now on; call it before `emit`.

        It is not needed for the operator's own stream. Only streams that headrace manages are accepted.
        """
        self._node.streams.set_output(stream, output_port_name)

    def _as_tensors(self, data: Any, name: str, port: OutputPort) -> Any:
        """Return the message to send for tensors: one, a TensorMap, or a dict with tensors in it."""
        work = None if port.stream is None else EmittedWork(port.stream)
        name = name or next(each for each, other in self.ports.items() if other is port)
        try:
            data = as_message(data, work, (self._node.name, name))
        except TensorError as error:
            raise TensorError(f"operator {self._node.name!r}, output {name!r}: {error}") from error
        except Exception as error:
            add_note(error, f"raised while emitting at output {name!r} of operator {self._node.name!r}")
            raise
        if port.stamp_tensors is not None:
            data = port.stamp_tensors(data)  # only after all tensors have been ordered on the stream
        if work is not None:
            work.attach(data)
        return data

    def pass_message(self, message: Any, name: str) -> None:
        """Send a message as it came from a queue, with its fences, timestamp and metadata."""
        self.pass_to(message, self.ports[name].queues)

    def pass_to(self, message: Any, queues: tuple[Queue, ...]) -> None:
        """Put a message into queues as it is."""
        for queue in queues:
            queue.offer(message)

    def _with_details(self, data: Any, acq_timestamp: Any) -> Any:
        """Return a message with a timestamp, metadata and calls, or `data` itself if there are none."""
        if acq_timestamp is None:
            timestamp = None
        else:
            timestamp = self.acq_timestamp if acq_timestamp == -1 else whole_timestamp(acq_timestamp)
        metadata, calls = self._metadata, self.calls
        if timestamp is None and not metadata and not calls:
            return data
        details = Details(timestamp, dict(metadata) if metadata else None, calls)
        if type(data) is not Envelope:
            return make_envelope(data, details)
        data.add_details(details)
        return data


def whole_timestamp(acq_timestamp: Any) -> int:
    """Return a timestamp of any library as an int."""
    try:
        return index(acq_timestamp)
    except TypeError:
        raise TypeError(
            f"an acquisition timestamp must be an int of nanoseconds, as from time.time_ns(), not {acq_timestamp!r}"
        ) from None
