"""Knobs: the scalars on the device that an operator asks for, and how they follow what they are set to.

A knob is a few bytes of device memory at one address for the whole run. Kernels read it, also those of a recorded
graph. Its value comes from the host: from an attribute of the operator, or from `Operator.set_knob`.

**When a value is read.** When a compute of the operator begins, and when a segment begins to replay a frame. The
operator's compute is wrapped from its first knob on; other operators cost nothing. If nothing was set since the
last time, the check is one comparison of identities for each knob.

Decided against: reading the value when compute calls `context.knob`. An operator may keep the tensor and never call
again, and two knobs of a compute could be from two moments.

**How it is written.** By fills of four bytes on a stream (`Backend.write_words`). A fill carries its value in the
command, so no memory of the host has to live until the device gets there, and nothing waits. Fills come after all
work that reads the earlier value and before all work that reads the new one: in an ordinary run, on the operator's
own stream, with events to and from its other streams; in replays, on the stream that the graphs are launched on. An
operator that has no stream of headrace's is expected to work on the default stream.

Decided against: stream memory operations (`cuStreamWriteValue32`), which take longer on an H200; one copy of all
values from pinned memory, which must not be written again before the device has read it.

A stream that the operator uses for the first time waits for the last write (`order`).
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace import gpu
from headrace.core.errors import ParameterError, StreamError
from headrace.core.live_values import KnobType
from headrace.core.parameters import holder_of
from headrace.tensor import DLDevice, DLDeviceType, Tensor
from headrace.tensor.device_arrays import Unsupported, span_of
from headrace.tensor.device_memory import DeviceMemory
from headrace.tensor.types import element_from_name

if TYPE_CHECKING:
    from headrace._runtime.messages.fences import ManagedStream
    from headrace._runtime.streams.node_streams import NodeStreams

_WORD = 4

Change: TypeAlias = "tuple[Knob, Any, tuple[int, ...]]"
"""A knob, its new value, and the words of that."""


class Knob:
    """One scalar of an operator.

    Attributes
    ----------
    name, type
        What the operator calls it, and its element type.
    asked
        The dtype and the initial value as the operator last asked for them.
    initial
        The value until another is set.
    is_of_class
        Whether the operator's class has an attribute of that name, such as a property.
    tensor, memory
        What the operator gets, and the memory.
    value, words
        The value that was written last, and its bytes as words.
    """

    __slots__ = (
        *("_unpack", "asked", "initial", "is_of_class", "memory", "name", "tensor", "type", "value", "words"),
    )

    def __init__(
        self, name: str, kind: KnobType, asked: tuple[Any, Any], is_of_class: bool, stream: ManagedStream
    ) -> None:
        self.name = name
        self.is_of_class = is_of_class
        self.type = kind
        self.asked = asked
        self.initial: Any = 0 if asked[1] is None else asked[1]
        self.memory = DeviceMemory(stream.handle, max(kind.size, _WORD))
        device = DLDevice(DLDeviceType.CUDA, stream.device_id)
        element = element_from_name(kind.name)
        self.tensor = Tensor._at((self.memory.address, (), (), element, device, False), self.memory)
        self.value: Any = None
        self.words: tuple[int, ...] = ()
        self._unpack = Struct(f"={self.memory.size // _WORD}I").unpack

    def words_of(self, data: bytes) -> tuple[int, ...]:
        """Return the bytes of a value as words."""
        return self._unpack(data.ljust(_WORD, b"\0"))


def write_knobs(changes: list[Change], stream: ManagedStream) -> None:
    """Write new values of knobs on a stream; words that stay as they are are left alone."""
    words: list[tuple[int, int]] = []
    for knob, value, new in changes:
        address, old = knob.memory.address, knob.words
        for number, word in enumerate(new):
            if not old or word != old[number]:
                words.append((address + _WORD * number, word))
        knob.value, knob.words = value, new
    stream.handle.backend.write_words(stream.handle, words)


class Knobs:
    """The knobs of one operator in a run.

    All fields are changed in the operator's computes, or by its segment between them.
    """

    __slots__ = (
        "_all",
        "_attributes",
        "_event",
        "_given",
        "_known",
        "_operator",
        "_parameters",
        "_streams",
        "_values",
    )

    def __init__(self, streams: NodeStreams) -> None:
        self._streams = streams
        self._operator = streams.node.operator
        self._parameters: object = holder_of(self._operator)
        self._attributes: dict[str, Any] = vars(self._operator)
        self._values = self._operator._headrace.knobs
        self._given = self._values.given
        self._known: dict[str, Knob] = {}
        self._all: tuple[Knob, ...] = ()
        # The event after the last write, for streams that the operator uses later.
        self._event: Any = None

    @property
    def names(self) -> set[str]:
        """The names of the knobs."""
        return set(self._known)

    def has(self, array: Any) -> bool:
        """Return whether an array is one of the knobs, as the tensor or as a library made it of the tensor."""
        try:
            begin, end = span_of(array)
        except Unsupported:  # an array of the host
            return False
        return any(begin <= knob.memory.address < end for knob in self._all)

    # In compute.

    def get(self, name: str, dtype: Any, value: Any) -> Tensor:
        """Return a knob, which is created by the first call."""
        knob = self._known.get(name) if isinstance(name, str) else None
        if knob is None:
            return self._create(name, dtype, value)
        if dtype is not knob.asked[0] or value is not knob.asked[1]:
            self._check_again(knob, dtype, value)
        return knob.tensor

    def _create(self, name: str, dtype: Any, value: Any) -> Tensor:
        where = f"operator {self._operator.name!r}"
        if not isinstance(name, str) or not name:
            raise ParameterError(f"{where}: the name of a knob must be a non-empty str, not {name!r}")
        if not self._streams.is_gpu_available:
            raise StreamError(
                f"{where}: knob {name!r} needs the memory of a device, and there is none; HEADRACE_DEVICE=sim "
                "simulates one"
            )
        kind = self._type(name, dtype)
        if value is not None:
            self._encode(name, kind, value, "value=")
        writer = self._writer()
        self._make_current()
        operator = self._operator
        is_of_class = hasattr(type(operator), name)
        if operator.is_function:  # its methods are not its parameters
            is_of_class = is_of_class and hasattr(self._parameters, name)
        knob = Knob(name, kind, (dtype, value), is_of_class, writer)
        now = self._first_value_of(knob)
        self._write(writer, [(knob, now, self._words_of(knob, now))])
        if not self._known:
            self._wrap_compute()
        self._known[name] = knob
        self._all = (*self._all, knob)
        self._values.types[name] = kind
        return knob.tensor

    def _wrap_compute(self) -> None:
        live = self._operator._headrace.live_state
        if live is None:
            self._streams.begin_with(self.begin)
        else:
            live.begin = self.begin  # after the changes of live parameters, which knobs follow

    def begin(self) -> None:
        """Begin a compute: write what was set since the last one."""
        changes = self.changes()
        if changes:
            self._make_current()
            self._write(self._writer(), changes)

    def order(self, stream: ManagedStream) -> None:
        """Order a stream that the operator uses for the first time after the last write."""
        if self._event is not None:
            stream.wait(self._event)

    # In a segment. Its stream and those of its operators are ordered by the segment itself.

    def begin_replays(self, stream: ManagedStream) -> None:
        """Order a stream, on which recordings are replayed from now on, after ordinary runs."""
        if not self._streams.used:
            stream.wait(self._default().now())

    def end_replays(self, stream: ManagedStream) -> None:
        """Order ordinary runs after the replays on a stream."""
        self._record(stream)
        if not self._streams.used:
            self.order(self._default())

    def close(self) -> None:
        """Free the memory; the device has finished, and recordings that use it are gone."""
        knobs, self._all = self._all, ()
        self._known.clear()
        with gpu.on_device(self._streams.device_id):
            for knob in knobs:
                knob.memory.buffer.close()

    # Values.

    @property
    def are_polled(self) -> bool:
        """Whether a knob may change without raising the version of the operator: one that follows a property."""
        return any(knob.is_of_class for knob in self._all)

    def changes(self) -> list[Change]:
        """Return the knobs whose values have changed, with the new values; this is all that most computes run."""
        if not self._values.are_known:
            self._values.know_names()
        found: list[Change] = []
        for knob in self._all:
            value = self._value_of(knob)
            if value is not knob.value:
                found.append((knob, value, self._words_of(knob, value)))
        return found

    def _words_of(self, knob: Knob, value: Any) -> tuple[int, ...]:
        try:
            return knob.words_of(knob.type.encode(value))
        except ValueError:
            origin = self._origin(knob)
        return knob.words_of(self._encode(knob.name, knob.type, value, origin))  # raises with its name

    def _attribute(self, knob: Knob) -> Any:
        # A look into the dict is faster than `getattr` of what is not there, which raises an error inside.
        return getattr(self._parameters, knob.name) if knob.is_of_class else self._attributes.get(knob.name)

    def _value_of(self, knob: Knob) -> Any:
        value = self._attribute(knob)
        return self._given.get(knob.name, knob.initial) if value is None else value

    def _first_value_of(self, knob: Knob) -> Any:
        """Return the value of a knob when this compute began, though others may have changed it since."""
        first = self._streams.first_values
        if first is None or knob.is_of_class or knob.name in self._operator._headrace.live_parameters:
            return self._value_of(knob)
        attributes, given = first
        value = attributes.get(knob.name)
        return given.get(knob.name, knob.initial) if value is None else value

    def _origin(self, knob: Knob) -> str:
        if self._attribute(knob) is not None:
            return f"its attribute {knob.name!r}"
        return "set_knob" if knob.name in self._given else "value="

    def _type(self, name: str, dtype: Any) -> KnobType:
        try:
            return KnobType(dtype)
        except ValueError as error:
            raise ParameterError(f"knob {name!r} of operator {self._operator.name!r}: {error}") from None

    def _encode(self, name: str, kind: KnobType, value: Any, origin: str) -> bytes:
        try:
            return kind.encode(value)
        except ValueError as error:
            raise ParameterError(
                f"knob {name!r} of operator {self._operator.name!r} ({origin}): {error}"
            ) from None

    def _check_again(self, knob: Knob, dtype: Any, value: Any) -> None:
        """Raise if an operator asks for something else than before."""
        where = f"knob {knob.name!r} of operator {self._operator.name!r}"
        kind = self._type(knob.name, dtype)
        if kind.dtype != knob.type.dtype:
            raise ParameterError(
                f"{where} is {knob.type.name}, and now compute asks for {kind.name}; ask for one dtype, or use two "
                "knobs with different names"
            )
        initial = 0 if value is None else value
        first = self._encode(knob.name, kind, knob.initial, "value=")
        if self._encode(knob.name, kind, initial, "value=") != first:
            raise ParameterError(
                f"{where} has value={knob.initial!r}, and compute asks for value={initial!r} now; it is the value "
                f"until another is set, by set_knob({knob.name!r}, ...) or by an attribute {knob.name!r}"
            )
        knob.asked = (dtype, value)

    # Streams.

    def _write(self, writer: ManagedStream, changes: list[Change]) -> None:
        """Write values on a stream, between the work of all streams before and after."""
        # The writer itself is one of them, or the default stream if there are none.
        readers = [stream for stream in self._streams.used if stream is not writer]
        for stream in readers:
            writer.wait(stream.now())
        write_knobs(changes, writer)
        self._record(writer)
        for stream in readers:
            self.order(stream)

    def _record(self, writer: ManagedStream) -> None:
        if self._event is None:
            self._event = writer.create_event()
        writer.record(self._event)

    def _writer(self) -> ManagedStream:
        """Return the operator's stream, or else the default stream."""
        used = self._streams.used
        if not used:
            return self._default()
        return used[0]

    def _default(self) -> ManagedStream:
        run = self._streams.run
        default = run.default_stream(self._streams.device_id)
        run.manage(default)  # the run does not end before its work
        return default

    def _make_current(self) -> None:
        self._streams.make_current(self._streams.device_id)
