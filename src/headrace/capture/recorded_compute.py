"""One compute of an operator outside of the run's queues: while it is recorded, or computed to be compared.

The operator does not know it. It receives what it is given, on streams that capture or that are used for comparisons,
and what it emits goes to the next operator of the segment at once. What belongs to one frame, such as its timestamp,
is refused: it is carried past a replay, and a graph could only know that of the recorded frame.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NoReturn

from headrace import gpu
from headrace._runtime import ExecutionContext
from headrace.capture.details import Step
from headrace.capture.messages import HostValue
from headrace.capture.refusal import Refusal
from headrace.core.errors import PortError, StreamError, choices
from headrace.core.metadata import MetadataDictionary
from headrace.tensor import Tensor, TensorMap, as_message

if TYPE_CHECKING:
    from headrace._runtime import Node, RunStreams
    from headrace.core.operator import Operator

__all__ = ["MemberContext", "RecordedCompute", "RefusingMetadata", "SegmentStreams"]

_TENSOR_TYPES = (dict, Tensor, TensorMap)


class SegmentStreams:
    """Streams on which the operators of a segment compute together, in place of their own.

    Each operator gets a stream of its own slice: a kernel stays on the SMs of the stream that it was recorded on. The
    streams are ordered by events, which become the edges of a graph.

    Attributes
    ----------
    origin
        The stream that the others begin after and are joined to.
    """

    def __init__(self, run: RunStreams, first: Operator, is_captured: bool) -> None:
        self._run = run
        self._is_captured = is_captured
        self._made: list[Any] = []
        self.origin = self._make(first)
        self._of: dict[Operator, dict[str | None, gpu.StreamHandle]] = {}
        self._after: dict[Operator, list[gpu.StreamHandle]] = {}

    def begin(self, operator: Operator, after: list[gpu.StreamHandle]) -> gpu.StreamHandle:
        """Return the stream of an operator, which is ordered after others."""
        self._after[operator] = after
        known = self._of.setdefault(operator, {})
        for name in known or (None,):
            self._order_after(operator, name)
        return known[None]

    def own(self, operator: Operator) -> gpu.StreamHandle:
        """Return the operator's own stream."""
        return self._of[operator][None]

    def named(self, operator: Operator, name: str) -> gpu.StreamHandle:
        """Return the operator's stream of a name; it is ordered after what the operator received."""
        if name not in self._of[operator]:
            self._order_after(operator, name)
        return self._of[operator][name]

    def of(self, operator: Operator) -> list[gpu.StreamHandle]:
        """Return all streams of an operator."""
        return list(self._of[operator].values())

    def join(self) -> None:
        """Order the first stream after all others."""
        for streams in self._of.values():
            for stream in streams.values():
                self.order(stream, self.origin)

    def order(self, earlier: gpu.StreamHandle, later: gpu.StreamHandle) -> None:
        """Order a stream after another."""
        later.stream.wait(earlier.stream.record())

    def check(self, stream: Any, operator: Operator, caller: str) -> gpu.StreamHandle:
        """Return the stream of a handle; raise if it is not one of the operator's."""
        for streams in self._of.values():
            for known in streams.values():
                if stream == known:
                    return known
        raise StreamError(
            f"operator {operator.name!r}: {caller} takes a stream that headrace manages (from receive_cuda_stream, "
            f"receive_cuda_streams or allocate_cuda_stream), not {stream!r}"
        )

    def close(self) -> None:
        """Close the streams; they have finished."""
        for stream in self._made:
            stream.close()
        self._made.clear()

    def _order_after(self, operator: Operator, name: str | None) -> None:
        streams = self._of[operator]
        if name not in streams:
            streams[name] = self._make(operator)
        for earlier in self._after[operator]:
            self.order(earlier, streams[name])

    def _make(self, operator: Operator) -> gpu.StreamHandle:
        stream = self._run.make_stream(operator, self._is_captured)
        self._made.append(stream)
        return gpu.StreamHandle(stream)


class _RecordedWork:
    """The work behind tensors inside a segment: the order of its streams is all that is needed."""

    @property
    def stream_handle(self) -> int:
        """The stream, for protocols that have to name one."""
        current = gpu.current_stream()
        return 0 if current is None else int(current)

    @property
    def stream(self) -> int | None:
        """None: nobody needs to wait."""
        return None

    def order(self, stream: int) -> None:
        """Do nothing."""


_RECORDED = _RecordedWork()


class RecordedCompute:
    """One compute of an operator; it is both its inputs and its outputs.

    Attributes
    ----------
    emitted
        What was emitted at each output.
    steps
        What was received and emitted, in order.
    waiting
        What waits at each input and was not received.
    """

    def __init__(self, node: Node, streams: SegmentStreams, received: dict[str, Any]) -> None:
        self.operator = node.operator
        self.emitted: dict[str, list[Any]] = {name: [] for name in node.operator.spec.outputs}
        self.steps: list[Step] = []
        self.waiting = dict(received)
        self._streams = streams
        self._received: set[str] = set()

    # The inputs.

    def receive(self, name: str = "", *, kind: str = "") -> Any:
        """Take the message that waits at an input."""
        name = self._name(name, self.operator.spec.inputs, "input")
        self._received.add(name)
        if name in self.waiting:
            self.steps.append(Step(True, name))
        data = self.waiting.pop(name, None)
        return data.copy() if type(data) is TensorMap else data

    def receive_cuda_stream(
        self, input_port_name: str = "", allocate: bool = True, sync_to_default: bool = False
    ) -> gpu.StreamHandle:
        """Return the operator's stream, which is ordered after everything that it received."""
        self._must_have_received(input_port_name, "receive_cuda_stream")
        if sync_to_default:
            self._refuse("orders the default stream (sync_to_default), which cannot be captured")
        return self._streams.own(self.operator)

    def receive_cuda_streams(self, input_port_name: str = "") -> list[gpu.StreamHandle | None]:
        """Return the streams of the messages at an input, for which the operator's own stands."""
        self._must_have_received(input_port_name, "receive_cuda_streams")
        return [self._streams.own(self.operator)]

    def get_acquisition_timestamp(self, input_port_name: str = "") -> int | None:
        """Refuse: a timestamp belongs to one frame."""
        self.refuse_timestamp()

    def get_acquisition_timestamps(self, input_port_name: str = "") -> list[int | None]:
        """Refuse: a timestamp belongs to one frame."""
        self.refuse_timestamp()

    # The outputs.

    def emit(self, data: Any, name: str = "", emitter_name: str = "", acq_timestamp: Any = -1) -> None:
        """Take what the operator emits."""
        name = self._name(name, self.emitted, "output")
        if acq_timestamp is None:
            self._refuse("emits without the timestamp that it received (acq_timestamp=None)")
        if acq_timestamp != -1:
            self._refuse(
                "emits with a timestamp of its own (acq_timestamp), which would be the same in every frame"
            )
        self.emitted[name].append(data)
        self.steps.append(Step(False, name))

    def set_cuda_stream(self, stream: Any, output_port_name: str = "") -> None:
        """Check the stream: everything that is recorded comes before what is emitted."""
        self._name(output_port_name, self.emitted, "output")
        self._streams.check(stream, self.operator, "set_cuda_stream")

    # The context of the run.

    def allocate_cuda_stream(self, stream_name: str = "") -> gpu.StreamHandle | None:
        """Return the operator's stream of a name."""
        return self._streams.named(self.operator, stream_name)

    def synchronize_streams(self, cuda_streams: Iterable[Any], target_cuda_stream: Any) -> None:
        """Order a stream after others."""
        if target_cuda_stream is None:
            raise StreamError(f"operator {self.operator.name!r}: synchronize_streams needs a target stream")
        target = self._streams.check(target_cuda_stream, self.operator, "synchronize_streams")
        for stream in cuda_streams:
            if stream is not None and stream != target:
                self._streams.order(self._streams.check(stream, self.operator, "synchronize_streams"), target)

    def refuse_clock(self) -> NoReturn:
        """Refuse: the time of the recorded frame would be used for ever."""
        self._refuse(
            "reads the clock (context.timestamp), and the value would be the same in every frame; read it in an "
            "operator before the segment and send it along, or use a knob"
        )

    def refuse_timestamp(self) -> NoReturn:
        """Refuse: a timestamp belongs to one frame."""
        self._refuse(
            "reads the acquisition timestamp, and the value would be the same in every frame; timestamps are "
            "carried past a segment, so read it before or behind"
        )

    def refuse_metadata(self) -> NoReturn:
        """Refuse: metadata belongs to one frame."""
        self._refuse(
            "uses its metadata, and the entries would be the same in every frame; metadata is carried past a "
            "segment, so read or set it before or behind"
        )

    # Inside.

    def as_received(self, data: Any, port: str) -> Any:
        """Return what a receiver of an emitted object gets: dicts of arrays are sent as tensors."""
        if type(data) not in _TENSOR_TYPES:
            return data
        if type(data) is dict and any(type(item) is HostValue for item in data.values()):
            return data  # as a dict with any other value that is no array
        return as_message(data, _RECORDED, (self.operator.name, port))

    def _must_have_received(self, name: str, caller: str) -> None:
        name = self._name(name, self.operator.spec.inputs, "input")
        if name not in self._received:
            raise StreamError(
                f"operator {self.operator.name!r}: {caller}({name!r}) before receive({name!r}); receive first, "
                "because the streams arrive with the messages"
            )

    def _name(self, name: str, ports: Iterable[str], kind: str) -> str:
        names = list(ports)
        if name in names:
            return name
        if not name and len(names) == 1:
            return names[0]
        raise PortError(
            f"operator {self.operator.name!r} has no {kind} {name!r}; it has {choices(names, name)}"
            if name
            else f"operator {self.operator.name!r} has the {kind}s {choices(names)}: name one"
        )

    def _refuse(self, what: str) -> NoReturn:
        raise Refusal(f"operator {self.operator.name!r} {what}")


class MemberContext(ExecutionContext):
    """The context of an operator of a segment: that of the run or, while it is recorded, that of the recording."""

    __slots__ = ("recorded",)

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self.recorded: RecordedCompute | None = None

    def record(self, compute: RecordedCompute | None) -> None:
        """Stand for the context of a compute that is recorded, or again for that of the run."""
        self.recorded = compute
        self.input = self._node.input if compute is None else compute
        self.output = self._node.output if compute is None else compute

    def allocate_cuda_stream(self, stream_name: str = "") -> gpu.StreamHandle | None:
        """Return the operator's stream of this name."""
        if self.recorded is not None:
            return self.recorded.allocate_cuda_stream(stream_name)
        return super().allocate_cuda_stream(stream_name)

    def synchronize_streams(self, cuda_streams: Iterable[Any], target_cuda_stream: Any) -> None:
        """Order a stream after others, on the device."""
        if self.recorded is not None:
            self.recorded.synchronize_streams(cuda_streams, target_cuda_stream)
        else:
            super().synchronize_streams(cuda_streams, target_cuda_stream)

    def device_from_stream(self, stream: Any) -> int:
        """Return the number of the device of a stream that headrace manages."""
        if self.recorded is not None:
            return int(stream.device.device_id)
        return super().device_from_stream(stream)

    @property
    def acq_timestamp(self) -> Any:
        """The acquisition timestamp of messages that this compute emits."""
        if self.recorded is not None:
            self.recorded.refuse_timestamp()
        return super().acq_timestamp

    @acq_timestamp.setter
    def acq_timestamp(self, timestamp: Any) -> None:
        if self.recorded is not None:
            self.recorded.refuse_timestamp()
        self._choose_timestamp(timestamp)

    @property
    def timestamp(self) -> int:
        """The time of the run's clock in nanoseconds."""
        if self.recorded is not None:
            self.recorded.refuse_clock()
        return super().timestamp


class RefusingMetadata(MetadataDictionary):
    """Stands for an operator's metadata while it is recorded."""

    __slots__ = ("_compute",)

    def __init__(self, compute: RecordedCompute) -> None:
        super().__init__()
        self._compute = compute
        # Code in C looks at the size first, and asks no method of an empty dict.
        dict.__setitem__(self, "recorded", True)

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        self._compute.refuse_metadata()

    set = __setitem__ = __getitem__ = __contains__ = __iter__ = __len__ = __delitem__ = _refuse
    get = pop = setdefault = update = keys = items = values = merge = insert = _refuse
    clear = has_key = erase = size = copy = popitem = _refuse
    __or__ = __ror__ = __ior__ = __eq__ = __ne__ = __reversed__ = _refuse
    __hash__ = None  # type: ignore[assignment]
