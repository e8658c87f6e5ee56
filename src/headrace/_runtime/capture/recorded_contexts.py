"""The contexts of a compute that is being recorded.

An operator that is recorded does not know it. It receives arrays at addresses of the recording, its streams are
streams that capture, and what it emits goes to the next operator of the segment at once. What could not be the same
in a replay is refused here: a value that belongs to this one frame, such as its timestamp.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NoReturn

from headrace import gpu
from headrace._runtime.capture.details_flow import Step
from headrace._runtime.capture.refusal import Refusal
from headrace.core.errors import PortError, StreamError, choices
from headrace.core.metadata import MetadataDictionary
from headrace.tensor import Tensor, TensorMap, as_message

if TYPE_CHECKING:
    from headrace._runtime.capture.streams import CapturedStreams
    from headrace._runtime.scheduling.node import Node

__all__ = ["RecordedCompute", "RefusingMetadata"]

_TENSOR_TYPES = (dict, Tensor, TensorMap)


class _RecordedWork:
    """The work behind tensors inside a recording: the order of the recorded streams is all that is needed."""

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
    """One compute of an operator, while it is recorded; it is both its inputs and its outputs.

    Parameters
    ----------
    node
        The operator's node.
    streams
        The streams of the recording.
    received
        What waits at each input.

    Attributes
    ----------
    emitted
        What was emitted at each output.
    steps
        What was received and emitted, in order.
    """

    def __init__(self, node: Node, streams: CapturedStreams, received: dict[str, Any]) -> None:
        self.node = node
        self.operator = node.operator
        self.emitted: dict[str, list[Any]] = {name: [] for name in node.operator.spec.outputs}
        self.steps: list[Step] = []
        self._streams = streams
        self._waiting = dict(received)
        self._received: set[str] = set()

    @property
    def left(self) -> list[str]:
        """The inputs that it has not received from."""
        return list(self._waiting)

    # The inputs.

    def receive(self, name: str = "", *, kind: str = "") -> Any:
        """Take the message that waits at an input."""
        name = self._name(name, self.operator.spec.inputs, "input")
        self._received.add(name)
        if name in self._waiting:
            self.steps.append(Step(True, name))
        data = self._waiting.pop(name, None)
        return data.copy() if type(data) is TensorMap else data

    def receive_cuda_stream(
        self, input_port_name: str = "", allocate: bool = True, sync_to_default: bool = False
    ) -> gpu.StreamHandle:
        """Return the operator's stream, which is ordered after everything that it received."""
        self._must_have_received(input_port_name, "receive_cuda_stream")
        if sync_to_default:
            self._refuse("orders the default stream (sync_to_default), which cannot be recorded")
        return self._streams.own(self.operator)

    def receive_cuda_streams(self, input_port_name: str = "") -> list[gpu.StreamHandle | None]:
        """Return the streams of the messages at an input, for which the operator's own stands."""
        self._must_have_received(input_port_name, "receive_cuda_streams")
        return [self._streams.own(self.operator)]

    def get_acquisition_timestamp(self, input_port_name: str = "") -> int | None:
        """Refuse: a timestamp belongs to one frame."""
        self._refuse_timestamp()

    def get_acquisition_timestamps(self, input_port_name: str = "") -> list[int | None]:
        """Refuse: a timestamp belongs to one frame."""
        self._refuse_timestamp()

    # The outputs.

    def emit(self, data: Any, name: str = "", emitter_name: str = "", acq_timestamp: Any = -1) -> None:
        """Take what the operator emits."""
        name = self._name(name, self.emitted, "output")
        if acq_timestamp is not None and acq_timestamp != -1:
            self._refuse(
                "emits with a timestamp of its own (acq_timestamp), which would be the same in every frame"
            )
        if acq_timestamp is None:
            self._refuse("emits without the timestamp that it received (acq_timestamp=None)")
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
        """Refuse: the time of the recording would be used for ever."""
        self._refuse(
            "reads the clock (context.timestamp), and the value would be the same in every frame; read it in an "
            "operator before the segment and send it along, or use a knob"
        )

    def _refuse_timestamp(self) -> NoReturn:
        self._refuse(
            "reads the acquisition timestamp, and the value would be the same in every frame; timestamps are "
            "carried past a segment, so read it before or behind"
        )

    # Inside.

    def as_received(self, data: Any, port: str) -> Any:
        """Return what a receiver of an emitted object gets: dicts of arrays are sent as tensors."""
        if type(data) not in _TENSOR_TYPES:
            return data
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
        raise Refusal(f"operator {self.operator.name!r} {what}", self.operator.name)


class RefusingMetadata(MetadataDictionary):
    """Stands for an operator's metadata while it is recorded: what it says belongs to one frame."""

    __slots__ = ("_compute",)

    def __init__(self, compute: RecordedCompute) -> None:
        super().__init__()
        self._compute = compute
        # Code in C looks at the size first, and asks no method of an empty dict.
        dict.__setitem__(self, "recorded", True)

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        self._compute._refuse(
            "uses its metadata, and the entries would be the same in every frame; metadata is carried past a "
            "segment, so read or set it before or behind"
        )

    set = __setitem__ = __getitem__ = __contains__ = __iter__ = __len__ = __delitem__ = _refuse
    get = pop = setdefault = update = keys = items = values = merge = insert = _refuse
    clear = has_key = erase = size = copy = popitem = _refuse
    __or__ = __ror__ = __ior__ = __eq__ = __ne__ = __reversed__ = _refuse
    __hash__ = None  # type: ignore[assignment]
