"""Replaying: a run in which some operators are replaced by the messages that they emitted in an earlier run.

Each is replaced by a `Player`, an operator that emits the messages of a recording.
"""

from __future__ import annotations

import ctypes
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from headrace.core.condition import RecordedTimes
from headrace.core.construction import Inner
from headrace.core.errors import GraphError, choices, noting
from headrace.core.graph import Graph, check_group
from headrace.core.metadata import MetadataPolicy
from headrace.core.operator import InnerOperator, Operator
from headrace.core.ports import SchedulingStatusType
from headrace.observe.recordings.carriers import (
    MessageList,
    MessageSource,
    RecordedMessage,
    RecordedPort,
    matches,
)
from headrace.observe.recordings.snapshots import TensorCopy, TensorMapCopy
from headrace.resources import MemoryStorageType, UnboundedAllocator
from headrace.tensor import DLDataType, Tensor, TensorMap, as_tensor, tree
from headrace.tensor.copies import copy
from headrace.tensor.libraries import library_named

if TYPE_CHECKING:
    from headrace.core.composition import Composition
    from headrace.core.contexts import ExecutionContext, InputContext, OutputContext
    from headrace.core.ports import IOSpec
    from headrace.core.spec import OperatorSpec


class Entry(NamedTuple):
    """A message that is to be played: when, at which output, and its number in the source."""

    time: int
    output: str
    number: int


@dataclass(slots=True, eq=False)
class Playback:
    """What the players of one run share.

    Attributes
    ----------
    source
        The messages.
    is_paced
        Whether messages are played at their recorded times of the run's clock.
    began
        When the first message was due.
    left
        What each player has not played yet, the next message last.
    """

    source: MessageSource
    is_paced: bool
    began: int | None = None
    left: list[list[Entry]] = field(default_factory=list)

    def go_on(self, now: int) -> None:
        """Move all messages that are still to come by the time that the next one is overdue, after a pause."""
        times = [entries[-1].time for entries in self.left if entries]
        if times and self.began is not None:
            self.began = max(self.began, now - min(times))


class InnerPlayer(InnerOperator):
    """The state of a player, which emits what lets others go on as it was recorded."""

    emits_order = False


class Player(Operator):
    """Emits recorded messages, at their times or as fast as they are received.

    Parameters
    ----------
    outputs
        The outputs to declare, by name.
    playback, entries
        The source, and the messages of it to emit.
    replaced
        The operator in whose place it plays, whose resources it takes, so that its tensors are on the same slice.
    """

    _headrace = Inner(InnerPlayer)
    parallel = True  # it reads a file

    def __init__(
        self,
        fragment: Composition,
        outputs: Mapping[str, IOSpec],
        playback: Playback,
        entries: Sequence[Entry],
        *,
        name: str,
        replaced: Operator | None = None,
    ) -> None:
        self._declared = outputs
        self._playback = playback
        self._left = list(entries)[::-1]
        self._next: RecordedMessage | None = None  # the next message, once it is loaded
        playback.left.append(self._left)
        self._allocators: dict[int, UnboundedAllocator] = {}
        resources = () if replaced is None else replaced.resources.values()
        super().__init__(fragment, _Due(fragment, playback, self._left), *resources, name=name)
        self.metadata_policy = MetadataPolicy.UPDATE
        if replaced is not None:
            self.max_in_flight = replaced.max_in_flight
            self.enable_metadata(replaced.is_metadata_enabled)
            pool = getattr(replaced, "cuda_stream_pool", None)
            if pool is not None:
                self.cuda_stream_pool = pool

    def setup(self, spec: OperatorSpec) -> None:
        """Declare the outputs."""
        for name, port in self._declared.items():
            spec.output(name, size=port.size, policy=port.policy).conditions = list(port.conditions)

    def stop(self) -> None:
        """End, and release the memory that nobody uses."""
        self._playback.left.remove(self._left)
        if not self._playback.left:
            self._playback.source.close()
        for allocator in self._allocators.values():
            allocator.release()

    def compute(self, op_input: InputContext, op_output: OutputContext, context: ExecutionContext) -> None:
        """Emit the messages of one recorded compute."""
        message = self._load_next()
        compute = None if message is None else (message.port.operator, message.step)
        while message is not None and (message.port.operator, message.step) == compute:
            output = self._left.pop().output
            self._next = None
            self.metadata.clear()
            self.metadata.update(message.metadata or {})
            data = self._restore(
                message.data, context, partial(op_output.set_cuda_stream, output_port_name=output)
            )
            op_output.emit(data, output, acq_timestamp=message.acq_timestamp)
            message = self._load_next()

    def _load_next(self) -> RecordedMessage | None:
        """Return the next message; None if none is left."""
        if self._next is None and self._left:
            self._next = self._playback.source.load(self._left[-1].number)
        return self._next

    def _restore(self, data: Any, context: ExecutionContext, emit_on: Callable[[Any], None]) -> Any:
        """Return data with tensors in the memory they were recorded from, if there is such memory.

        `emit_on` is called with the stream, if there is one.
        """

        def restored(data: Any) -> Any:
            if type(data) is TensorCopy:
                return _as_recorded(data, self._restore_tensor(data, context, emit_on))
            if type(data) is TensorMapCopy:
                return TensorMap(
                    {name: self._restore_tensor(one, context, emit_on) for name, one in data.items()}
                )
            return data

        return tree.map(restored, data, lambda inside: type(inside) not in (dict, list, tuple))

    def _restore_tensor(
        self, copied: TensorCopy, context: ExecutionContext, emit_on: Callable[[Any], None]
    ) -> Tensor:
        storage, stream = MemoryStorageType.SYSTEM, None
        if copied.device.is_cuda and context.is_gpu_available:
            storage = MemoryStorageType.at(copied.device)
        if storage is MemoryStorageType.SYSTEM and copied.dl_dtype.typestr is not None:
            return as_tensor(np.asarray(copied))
        if storage is MemoryStorageType.DEVICE:
            stream = context.allocate_cuda_stream(f"{self.name}_stream")
            if stream is None:
                raise RuntimeError(
                    f"operator {self.name!r}: its stream pool has no stream left to play device memory on; give "
                    "the pool a larger max_size"
                )
            emit_on(stream)
        tensor = self._allocator(0 if stream is None else stream.stream.device.device_id).allocate_tensor(
            copied.shape, copied.dl_dtype, storage, stream=stream, operator=self.name
        )
        content = np.ascontiguousarray(copied.elements()).reshape(-1).view(np.uint8)
        if stream is None:
            ctypes.memmove(tensor.data, content.ctypes.data, content.size)
        else:  # as bytes, since NumPy does not know every type of elements
            description = (tensor.data, content.shape, (1,), DLDataType(1, 8), tensor.device, False)
            copy(Tensor._create(description, tensor.owner, None, None), content, stream)
        return tensor

    def _allocator(self, device_id: int) -> UnboundedAllocator:
        if device_id not in self._allocators:
            # Without a fragment: a frame that the application keeps would refer to the application through it, and
            # other libraries hide that from the garbage collector.
            self._allocators[device_id] = UnboundedAllocator(
                None, dev_id=device_id, name=f"{self.name}_allocator"
            )
        return self._allocators[device_id]


def _as_recorded(copied: TensorCopy, tensor: Tensor) -> Any:
    """Return a tensor as an array of the library that it was of, if it is installed."""
    if copied.library == "buffer" and hasattr(tensor.owner, "buffer"):
        return tensor.owner.buffer
    try:
        return library_named(copied.library).from_tensor(tensor)
    except ImportError:
        return tensor


class _Due(RecordedTimes):
    """Lets a player run from the time of its next message on."""

    polled = False

    def __init__(self, fragment: Composition, playback: Playback, left: list[Entry]) -> None:
        super().__init__(fragment, name="due")
        self._playback = playback
        self._left = left

    def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
        """Return READY from the time of the next message on, and NEVER when none is left."""
        playback = self._playback
        if playback.began is None:
            playback.began = timestamp
        if not self._left:
            return SchedulingStatusType.NEVER, None
        if not playback.is_paced:
            return SchedulingStatusType.READY, None
        due = playback.began + self._left[-1].time
        return (SchedulingStatusType.READY if timestamp >= due else SchedulingStatusType.WAIT_TIME), due

    def on_resume(self, timestamp: int) -> None:
        """Go on with the next message as if no time had passed."""
        self._playback.go_on(timestamp)


_PACES = ("recorded", "fast")
Source: TypeAlias = str | os.PathLike[str] | Sequence[RecordedMessage] | MessageSource


def replay(
    fragment: Composition,
    source: Source,
    pace: str = "recorded",
    *,
    ports: Iterable[str] | None = None,
    pickle: bool = False,
    strict: bool = True,
) -> None:
    """Play a recording in every later run of a fragment.

    Each operator whose outputs were recorded is replaced by a player, which emits the recorded messages with their
    timestamps and metadata at the same outputs, in the same order. The operator itself does not run, nor does any
    operator that only feeds replaced ones. All others run as always.

    Tensors that were on a device are placed on the device again, or on the host if there is none.

    Parameters
    ----------
    fragment
        The application or fragment; its graph must have the recorded operators.
    source
        The recording, which :class:`PortRecorder` made; or the messages themselves, in a list or in another source.
    pace
        ``"recorded"``: each message at its time of the run's clock, counted from the first message; ``"fast"``: as
        soon as there is room.
    ports
        Patterns of the recorded ports to play, such as ``"camera.out"``; all outputs unless given.
    pickle
        Whether pickled objects in the file are loaded. That runs code which the file names, so the file must be
        trusted.
    strict
        Whether a damaged file is an error. Otherwise it is played up to the damage, with a warning.

    Raises
    ------
    RecordingError
        If the file is not a recording, or is damaged.
    GraphError
        At the beginning of the run, if the graph does not have the recorded outputs.
    """
    fragment._headrace.replay = Replay(source, pace, ports, pickle, strict)


@dataclass(eq=False)
class Replay:
    """The replay of a recording in the runs of a fragment; takes the arguments of :func:`replay`."""

    source: Source
    pace: str = "recorded"
    ports: Iterable[str] | None = None
    pickle: bool = False
    strict: bool = True

    def __post_init__(self) -> None:
        if self.pace not in _PACES:
            raise ValueError(f"the pace of a replay must be one of {choices(_PACES)}, not {self.pace!r}")
        if self.ports is not None:
            self.ports = [self.ports] if isinstance(self.ports, str) else list(self.ports)
        self._played(self._open(warns=False))  # an error here and not in the run; a warning when it runs

    def prepare(self, fragment: Composition) -> set[str]:
        """Replace the recorded operators in the graph that `compose` has made.

        Returns the names of the operators that are left out, because they only feed replaced ones.
        """
        source = self._open()
        graph = fragment.graph
        outputs = self._outputs(source, graph)
        entries: defaultdict[str, list[Entry]] = defaultdict(list)
        played = {(operator.name, name) for operator, recorded in outputs.items() for name in recorded}
        for number, (port, time) in enumerate(source.outline()):
            if port.is_output and (port.operator, port.port) in played:
                entries[port.operator].append(Entry(time, port.port, number))
        playback = Playback(source, self.pace == "recorded")
        players: dict[Operator, Operator] = {}
        for operator, recorded in outputs.items():
            # An output that emitted nothing, and that nobody listens to, is no reason to replace an operator.
            is_connected = any(flow.output in recorded for flow in operator._headrace.outgoing)
            if is_connected or operator.name in entries or not recorded:
                self._check_outputs(operator, source, recorded)
                player = players[operator] = Player(
                    operator.fragment,
                    operator.spec.every_output,
                    playback,
                    entries[operator.name],
                    name=operator.name,
                    replaced=operator,
                )
                player.name = operator.name  # which has that of its fragment already
        names = {operator.name for operator in graph}
        _rewire(fragment, players)
        return names - {operator.name for operator in fragment.graph}

    def _open(self, warns: bool = True) -> MessageSource:
        source = self.source
        if isinstance(source, (str, os.PathLike)):
            from headrace.observe.recordings.recording import Recording  # needs mcap

            return Recording(source, pickle=self.pickle, strict=self.strict, _warns=warns)
        return source if isinstance(source, MessageSource) else MessageList(source)

    def _played(self, source: MessageSource) -> list[RecordedPort]:
        patterns = self.ports
        outputs = [port for port in source.ports if port.is_output]
        played = [
            port
            for port in outputs
            if patterns is None or any(matches(one, port.operator, port.port) for one in patterns)
        ]
        if not played:
            has = f"the outputs {choices([port.name for port in outputs])}" if outputs else "no outputs"
            wanted = "" if patterns is None else f" named {', '.join(patterns)}"
            raise GraphError(f"the {source.name} has nothing{wanted} to play: it has {has}")
        return played

    def _outputs(self, source: MessageSource, graph: Graph) -> dict[Operator, set[str]]:
        """Return the operators whose messages are played, and their recorded outputs.

        What moves between the parts of a replicated operator is played as what that operator sends.
        """
        outputs: defaultdict[Operator, set[str]] = defaultdict(set)
        played = self._played(source)
        for port in played:
            with noting(f"raised for the {source.name}, which has messages of {port.operator!r}"):
                operator = graph.find(port.operator)
            declared = operator._headrace.declared
            if declared is operator:
                outputs[operator].add(port.port)
            elif declared._headrace.replication.collector is not None:  # else it sends nothing
                sender = declared._headrace.sender
                outputs[sender] |= {
                    each.port for each in source.ports if each.is_output and each.operator == sender.name
                }
        if not outputs:
            raise GraphError(f"the {source.name} has nothing to play: {played[0].operator!r} has no output")
        return outputs

    def _check_outputs(self, operator: Operator, source: MessageSource, recorded: set[str]) -> None:
        where = f"operator {operator.name!r} cannot be replaced by the {source.name}"
        if operator._headrace.dynamic_flows is not None:
            raise GraphError(
                f"{where}: it chooses in the run which flows its messages take, which is not recorded; play the "
                "operators before it, by ports=, and let it run"
            )
        for name in recorded:
            if name not in operator.spec.every_output:
                raise GraphError(
                    f"{where}: it has no output {name!r}; it has {choices(operator.spec.every_output, name)}"
                )
        for flow in operator._headrace.outgoing:
            if flow.output not in recorded:
                raise GraphError(
                    f"{where}: its output {flow.output!r} is connected and was not recorded; record it, too"
                )


def _rewire(fragment: Composition, players: dict[Operator, Operator]) -> None:
    """Put players in the place of operators, and leave out the operators that only feed them."""
    graph = fragment.graph
    gone = set(players)
    idle = set(players)
    while idle:
        idle = {
            operator
            for operator in set(graph) - gone
            if operator._headrace.outgoing
            and all(flow.target in gone for flow in operator._headrace.outgoing)
        }
        gone |= idle
    flows = {
        flow: replace(flow, source=players.get(flow.source, flow.source))
        for flow in graph.flows
        if flow.target not in gone
    }
    rewired = Graph()
    rewired.subgraphs = graph.subgraphs
    for operator in graph:
        left = players.get(operator) or (None if operator in gone else operator)
        if left is not None:
            left._headrace.outgoing = [flows[flow] for flow in operator._headrace.outgoing if flow in flows]
            left._headrace.incoming = [flows[flow] for flow in operator._headrace.incoming if flow in flows]
            rewired.add(left)
    rewired.flows = list(flows.values())
    fragment._headrace.graph = rewired
    for pool in fragment._headrace.thread_pools:
        for assignment in pool.assignments:
            assignment.operator = players.get(assignment.operator, assignment.operator)
        pool.assignments = [one for one in pool.assignments if one.operator in rewired]
    fragment._headrace.segments = [
        segment for segment in fragment._headrace.segments if _is_left(segment, rewired)
    ]


def _is_left(segment: Any, graph: Graph) -> bool:
    """Leave operators that are not in the graph any more out of a segment; return whether it can be captured."""
    left = tuple(operator for operator in segment.operators if operator in graph)
    if left == segment.operators:
        return True
    segment.state, segment.reason = "off", "a recording is played in place of its operators"
    if not left:
        return False
    try:
        check_group(segment.name, left)
    except GraphError:  # what is left is in two pieces
        return False
    segment.operators = left
    return True
