"""Direct computes: the operators of a segment compute a frame beside the run's queues.

Their messages are handed to them, and taken from them. They get streams, too: streams that capture, or those
on which a replay is computed again. The operators do not know it. What belongs to one frame of the
run, such as its timestamp, is refused.

A frame that is replayed differs from others in its metadata and its timestamp. So the order is noted in which each
operator received and emitted. The same steps are gone through again with metadata and timestamps alone
(`DetailsFlow`): each operator merges what it received by its own policy, and emits what it has by then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeAlias

from headrace import gpu
from headrace._runtime import Details, no_such_port
from headrace.capture.refusal import Refusal, refusal_of
from headrace.core.errors import StreamError
from headrace.core.metadata import NO_CALLS, Calls, MetadataDictionary
from headrace.tensor import Tensor, as_message
from headrace.tensor.structures import HostValueUsed
from headrace.tensor.tensor_map import MAPPINGS

if TYPE_CHECKING:
    from headrace._runtime import Boundary, Group, Node, RunStreams
    from headrace.core.operator import Operator

    Where: TypeAlias = tuple[Node, str]


def compute_directly(
    group: Group,
    streams: DirectStreams,
    received: list[Any],
    kept: list[Any],
    compute: Callable[[Node, DirectCompute, gpu.StreamHandle], None],
    flow: DetailsFlow | None = None,
) -> dict[Boundary, Any]:
    """Let every member of a group compute once; return what leaves, in the order of its emission.

    Parameters
    ----------
    group
        The group.
    streams
        What they compute on.
    received
        The messages at the inputs.
    kept
        Gets what has to live as long as the work.
    compute
        Lets one member compute on a stream: `compute_one`, or what does that in addition.
    flow
        Gets the steps of the members.
    """
    waiting: dict[Node, dict[str, Any]] = {node: {} for node in group.members}
    after: dict[Node, list[gpu.StreamHandle]] = {node: [] for node in group.members}
    for boundary, data in zip(group.inputs, received, strict=True):
        waiting[boundary.node][boundary.port] = data
    leaving_at = {(boundary.node, boundary.port): boundary for boundary in group.outputs}
    emitted: dict[Boundary, Any] = {}
    for node in group.members:
        missing = [name for name in node.operator.spec.every_input if name not in waiting[node]]
        if missing:
            raise Refusal(f"operator {node.name!r} received nothing at {missing[0]!r}")
        direct = DirectCompute(node, streams, waiting[node])
        compute(node, direct, streams.begin(node.operator, after[node] or [streams.origin]))
        if direct.waiting:
            left = next(iter(direct.waiting))
            raise Refusal(f"operator {node.name!r} did not receive what waits at {left!r}")
        kept.append(direct)
        for port, items in direct.emitted.items():
            targets = group.inner.get((node, port), [])
            if len(items) != 1 and (targets or (node, port) in leaving_at):
                raise Refusal(
                    f"operator {node.name!r} emitted {len(items)} messages at {port!r} in one compute; a "
                    "captured operator emits one message at each output for each frame"
                )
            for target, name in targets:
                waiting[target][name] = direct.as_received(items[0], port)
                after[target] += [one for one in streams.of(node.operator) if one not in after[target]]
        for step in direct.steps:
            leaving = None if step.is_received else leaving_at.get((node, step.port))
            if leaving is not None:
                emitted[leaving] = direct.emitted[step.port][0]
        if flow is not None:
            flow.steps.append((node, direct.steps))
    return emitted


def compute_one(node: Node, compute: DirectCompute, handle: gpu.StreamHandle) -> None:
    """Let one operator compute directly; raise Refusal for its errors."""
    operator = node.operator
    metadata, context = operator.metadata, node.context
    usual, context.present = context.present, DirectContext(context.present, compute)
    operator.metadata = RefusingMetadata(compute)
    try:
        with gpu.use_stream(handle):
            operator.compute(compute, compute, context)
    except (Refusal, HostValueUsed):
        raise
    except Exception as error:
        if not compute.refused:
            raise refusal_of(error, node.name) from error
    finally:
        operator.metadata, context.present = metadata, usual
    if compute.refused:  # and the operator has caught the error
        raise Refusal(compute.refused)


class DirectStreams:
    """Streams on which operators compute together, in place of their own.

    Each operator gets a stream of its own slice: a kernel stays on the SMs of the stream that it was recorded on.
    The streams are ordered by events, which become the edges of a graph.

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


class _DirectWork:
    """The work behind tensors that are handed on: the order of the streams is all that is needed."""

    @property
    def stream_handle(self) -> int:
        """The stream, for protocols that have to name one."""
        current = gpu.current_stream()
        return 0 if current is None else int(current)

    def order(self, stream: int) -> None:
        """Do nothing."""


_DIRECT = _DirectWork()


class DirectCompute:
    """One compute of an operator; it is both its inputs and its outputs.

    Attributes
    ----------
    emitted
        What was emitted at each output.
    steps
        What was received and emitted, in order.
    waiting
        What waits at each input and was not received.
    refused
        What was refused, in words; the operator may have caught the error.
    """

    def __init__(self, node: Node, streams: DirectStreams, received: dict[str, Any]) -> None:
        self.operator = node.operator
        self.emitted: dict[str, list[Any]] = {name: [] for name in node.operator.spec.every_output}
        self.steps: list[Step] = []
        self.waiting = dict(received)
        self.streams = streams
        self.refused = ""
        self._received: set[str] = set()

    # The inputs.

    def receive(self, name: str = "", *, kind: str = "") -> Any:
        """Take the message that waits at an input."""
        name = self._name(name, self.operator.spec.every_input, "input")
        self._received.add(name)
        if name in self.waiting:
            self.steps.append(Step(True, name))
        data = self.waiting.pop(name, None)
        data = data.copy() if type(data) in MAPPINGS else data
        return (data,) if kind == "multi" and data is not None else data

    def receive_cuda_stream(
        self, input_port_name: str = "", allocate: bool = True, sync_to_default: bool = False
    ) -> gpu.StreamHandle:
        """Return the operator's stream, which is ordered after everything that it received."""
        self._must_have_received(input_port_name, "receive_cuda_stream")
        if sync_to_default:
            self.refuse("orders the default stream (sync_to_default), which cannot be captured")
        return self.streams.own(self.operator)

    def has_ended(self, name: str = "") -> bool:
        """Refuse: the answer for the recorded frame would be used for ever."""
        self.refuse(
            "asks whether an input has ended (op_input.has_ended), and the answer would be the same in every "
            "frame; ask in end, or leave the operator out of the segment"
        )

    def receive_cuda_streams(self, input_port_name: str = "") -> list[gpu.StreamHandle | None]:
        """Return the streams of the messages at an input, for which the operator's own stands."""
        self._must_have_received(input_port_name, "receive_cuda_streams")
        return [self.streams.own(self.operator)]

    def get_acquisition_timestamp(self, input_port_name: str = "") -> int | None:
        """Refuse: a timestamp belongs to one frame."""
        self.refuse_timestamp()

    def get_acquisition_timestamps(self, input_port_name: str = "") -> list[int | None]:
        """Refuse: a timestamp belongs to one frame."""
        self.refuse_timestamp()

    # The outputs.

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
        """Take what the operator emits."""
        if after is not None:
            self.refuse(
                "emits after an event (after=), which would be that of the recorded frame in every frame"
            )
        name = self._name(name, self.emitted, "output")
        if acq_timestamp is None:
            self.refuse("emits without the timestamp that it received (acq_timestamp=None)")
        if acq_timestamp != -1:
            self.refuse(
                "emits with a timestamp of its own (acq_timestamp), which would be the same in every frame"
            )
        self.emitted[name].append(data)
        self.steps.append(Step(False, name))

    def set_cuda_stream(self, stream: Any, output_port_name: str = "") -> None:
        """Check the stream: everything that is recorded comes before what is emitted."""
        self._name(output_port_name, self.emitted, "output")
        self.streams.check(stream, self.operator, "set_cuda_stream")

    # The context of the run.

    def allocate_cuda_stream(self, stream_name: str = "") -> gpu.StreamHandle | None:
        """Return the operator's stream of a name."""
        return self.streams.named(self.operator, stream_name)

    def synchronize_streams(self, cuda_streams: Iterable[Any], target_cuda_stream: Any) -> None:
        """Order a stream after others."""
        if target_cuda_stream is None:
            raise StreamError(f"operator {self.operator.name!r}: synchronize_streams needs a target stream")
        target = self.streams.check(target_cuda_stream, self.operator, "synchronize_streams")
        for stream in cuda_streams:
            if stream is not None and stream != target:
                self.streams.order(self.streams.check(stream, self.operator, "synchronize_streams"), target)

    def refuse_timestamp(self) -> NoReturn:
        """Refuse: a timestamp belongs to one frame."""
        self.refuse(
            "reads the acquisition timestamp, and the value would be the same in every frame; timestamps are "
            "carried past a segment, so read it before or behind"
        )

    def refuse_metadata(self) -> NoReturn:
        """Refuse: metadata belongs to one frame."""
        self.refuse(
            "uses its metadata, and the entries would be the same in every frame; metadata is carried past a "
            "segment, so read or set it before or behind"
        )

    # Inside.

    def as_received(self, data: Any, port: str) -> Any:
        """Return what a receiver of an emitted object gets."""
        if type(data) is dict:
            data = self.operator.convert_dict(data)
        if type(data) is not Tensor and type(data) not in MAPPINGS:
            return data
        return as_message(data, _DIRECT, (self.operator.name, port))

    def _must_have_received(self, name: str, caller: str) -> None:
        name = self._name(name, self.operator.spec.every_input, "input")
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
        raise no_such_port(self.operator.name, kind, name, names)

    def refuse(self, what: str) -> NoReturn:
        """Refuse what the operator does."""
        self.refused = self.refused or f"operator {self.operator.name!r} {what}"
        raise Refusal(self.refused)


class MemberContext:
    """The context of an operator of a segment, which may keep it: at present that of the run, or another one."""

    def __init__(self, context: Any) -> None:
        self.present = context

    def __getattr__(self, name: str) -> Any:
        return getattr(self.present, name)

    @property
    def acq_timestamp(self) -> Any:
        """The acquisition timestamp of messages that this compute emits."""
        return self.present.acq_timestamp

    @acq_timestamp.setter
    def acq_timestamp(self, timestamp: Any) -> None:
        self.present.acq_timestamp = timestamp


class DirectContext:
    """Stands for the context of the run in a direct compute; what does not differ is that of the run."""

    def __init__(self, context: Any, compute: DirectCompute) -> None:
        self._context = context
        self._compute = compute
        self.input = self.output = compute
        self.allocate_cuda_stream = compute.allocate_cuda_stream
        self.synchronize_streams = compute.synchronize_streams

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def device_from_stream(self, stream: Any) -> int:
        """Return the number of the device of a stream that headrace manages."""
        return int(stream.device.device_id)

    @property
    def acq_timestamp(self) -> NoReturn:
        """Refuse: a timestamp belongs to one frame."""
        self._compute.refuse_timestamp()

    @acq_timestamp.setter
    def acq_timestamp(self, timestamp: Any) -> None:
        self._compute.refuse_timestamp()

    @property
    def timestamp(self) -> NoReturn:
        """Refuse: the time of the recorded frame would be used for ever."""
        self._compute.refuse(
            "reads the clock (context.timestamp), and the value would be the same in every frame; read it in an "
            "operator before the segment and send it along, or use a knob"
        )


class RefusingMetadata(MetadataDictionary):
    """Stands for an operator's metadata in a direct compute."""

    __slots__ = ("_compute",)

    def __init__(self, compute: DirectCompute) -> None:
        super().__init__()
        self._compute = compute
        # Code in C looks at the size first, and asks no method of an empty dict.
        dict.__setitem__(self, "direct", True)

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        self._compute.refuse_metadata()

    set = __setitem__ = __getitem__ = __contains__ = __iter__ = __len__ = __delitem__ = _refuse
    get = pop = setdefault = update = keys = items = values = merge = insert = _refuse
    clear = has_key = erase = size = copy = popitem = swap = type_dict = _refuse
    __or__ = __ror__ = __ior__ = __eq__ = __ne__ = __reversed__ = _refuse
    __hash__ = None  # type: ignore[assignment]


class Step(NamedTuple):
    """A message that an operator received or emitted at one of its ports."""

    is_received: bool
    port: str


class DetailsFlow:
    """The steps of the operators of a group, in their order.

    Parameters
    ----------
    inner
        The inputs inside the group that the messages of each output go to.
    """

    def __init__(self, inner: dict[Where, list[Where]]) -> None:
        self.steps: list[tuple[Node, list[Step]]] = []
        self._inner = inner

    def carry(self, entered: dict[Where, Details]) -> dict[Where, Details]:
        """Return what the messages of every output carry, for what the messages at the inputs carry."""
        waiting = dict(entered)
        emitted: dict[Where, Details] = {}
        for node, steps in self.steps:
            operator = node.operator
            metadata = MetadataDictionary(operator.metadata_policy, operator.name)
            metadata.is_joined = operator.metadata.is_joined
            timestamp: int | None = None
            calls: Calls = NO_CALLS
            for is_received, port in steps:
                if not is_received:
                    if timestamp is not None or metadata or calls:
                        details = Details(timestamp, dict(metadata) if metadata else None, calls)
                        emitted[node, port] = details
                        waiting.update(dict.fromkeys(self._inner.get((node, port), ()), details))
                    continue
                received = waiting.get((node, port))
                if received is None:
                    continue
                if received.metadata is not None and operator.is_metadata_enabled:
                    metadata.receive(port, received.metadata)
                latest = received.acq_timestamp
                if latest is not None and (timestamp is None or latest < timestamp):
                    timestamp = latest
                if received.calls:
                    calls = {**calls, **received.calls}
        return emitted
