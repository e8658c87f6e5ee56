"""Recording: one frame of a segment as a CUDA graph, and its replays.

A recording is made for messages of one signature. Its inputs are copied to memory of its own before each replay,
and its outputs are copied from there to new memory of their library, since the next replay overwrites them. What
was received, emitted and held while it was made lives as long as the recording: a graph keeps nothing alive.
"""

from __future__ import annotations

import contextlib
import hashlib
from typing import TYPE_CHECKING, Any

from penstock import gpu
from penstock._runtime.capture.device_arrays import Layout, Unsupported
from penstock._runtime.capture.executables import Copy, Executables
from penstock._runtime.capture.graphs import AddressedMemory, copy, kinds_of_nodes, read_bytes
from penstock._runtime.capture.host_state import Attributes, HostState
from penstock._runtime.capture.marks import Marks
from penstock._runtime.capture.private_memory import PrivateMemory
from penstock._runtime.capture.recorded_contexts import RecordedCompute, RefusingMetadata
from penstock._runtime.capture.refusal import Refusal, refusal_of
from penstock._runtime.capture.streams import CapturedStreams
from penstock._runtime.capture.structure import Leaves, Signature, flatten, layouts_of, rebuild

if TYPE_CHECKING:
    from penstock._runtime.capture.part import Part
    from penstock._runtime.scheduling.node import Node
    from penstock._runtime.streams.managed_stream import ManagedStream
    from penstock.core.protocols import Launches, Replays

__all__ = ["Recording", "record"]


class Input:
    """An array that enters a recording.

    Attributes
    ----------
    layout
        What it looks like.
    address_of
        Returns the address of the first element of such an array.
    memory
        The memory of the recording that it is copied to.
    before, size
        The bytes before the address of its first element, and all of them.
    """

    __slots__ = ("address_of", "before", "layout", "memory", "size")

    def __init__(self, layout: Layout, stream: gpu.StreamHandle) -> None:
        self.layout = layout
        self.address_of = layout.kind.address
        self.before, self.size = layout.kind.extent(layout)
        self.memory = AddressedMemory(stream, self.size)

    def array(self) -> Any:
        """Return an array on the memory of the recording."""
        owner = self.memory.buffer if gpu.backend() == "sim" else self.memory
        return self.layout.kind.at(self.layout, self.memory.address + self.before, owner)


class OutputArray:
    """An array that leaves a recording: where the recording writes it, and what the copies look like."""

    __slots__ = ("address", "address_of", "before", "layout", "new", "size")

    def __init__(self, layout: Layout, address: int) -> None:
        kind = layout.kind
        self.layout = layout
        self.before, self.size = kind.extent(layout)
        self.address = address - self.before
        self.address_of = kind.address
        self.new = kind.new


class Output:
    """What a recording emits at one output of one operator.

    Attributes
    ----------
    name
        The output, as the part of the segment names it.
    signature
        What is emitted.
    arrays
        The arrays in it.
    is_array
        Whether it is an array and nothing else.
    """

    __slots__ = ("arrays", "is_array", "name", "signature")

    def __init__(self, name: str, data: Any) -> None:
        self.name = name
        leaves: Leaves = []
        self.signature = flatten(data, leaves)
        self.is_array = type(self.signature) is Layout
        self.arrays = [
            OutputArray(layout, layout.kind.address(leaf))
            for layout, leaf in zip(layouts_of(self.signature), leaves, strict=True)
        ]


class Recording:
    """A recorded frame.

    Attributes
    ----------
    left_to_verify
        The number of replays that are still to be compared with ordinary runs.
    attributes
        The attributes of the operators when it was made.
    outputs
        What it emits.
    unconnected
        The number of messages that each output emits which leads nowhere.
    replayed
        The number of replays whose results were emitted.
    """

    def __init__(
        self,
        stream: ManagedStream,
        inputs: list[Input],
        outputs: list[Output],
        executables: Executables,
        attributes: Attributes,
        kept: list[Any],
        unconnected: dict[tuple[Node, str], int],
        marks: Marks | None,
    ) -> None:
        self._stream = stream
        self._handle = stream.handle
        self.inputs = inputs
        self.outputs = outputs
        self._executables: Launches = executables
        self._marks = marks
        self.attributes = attributes
        self._kept = kept
        self.unconnected = unconnected
        self.replayed = 0
        self.left_to_verify = 0
        self.seen_inputs: set[bytes] = set()
        kinds = {array.layout.kind for output in outputs for array in output.arrays}
        self._currents = [current for kind in kinds if (current := kind.current(stream.handle)) is not None]

    def replay(self, leaves: Leaves) -> list[Any]:
        """Launch the graph on the arrays of a frame, and return what each output emits, in new memory."""
        addresses: list[int] = []
        for input_, leaf in zip(self.inputs, leaves, strict=True):
            addresses.append(input_.address_of(leaf) - input_.before)
        currents = self._currents
        if not currents:
            emitted = self._make_outputs(addresses)
        elif len(currents) == 1:
            with currents[0]:
                emitted = self._make_outputs(addresses)
        else:
            with currents[0], currents[1]:
                emitted = self._make_outputs(addresses)
        self._executables.launch(tuple(addresses), self._stream.stream)
        return emitted

    def _make_outputs(self, addresses: list[int]) -> list[Any]:
        """Return what each output emits, and add the addresses of its arrays."""
        handle = self._handle
        emitted: list[Any] = []
        for output in self.outputs:
            made: list[Any] = []
            for array in output.arrays:
                new = array.new(array.layout, handle)
                addresses.append(array.address_of(new) - array.before)
                made.append(new)
            emitted.append(made[0] if output.is_array else rebuild(output.signature, iter(made)))
        return emitted

    def watch(self, replays: Replays) -> None:
        """Let an observer see every launch."""
        self._executables = replays.around_launches(self._executables, self._marks, self._stream)

    def contents(self, leaves: Leaves) -> bytes:
        """Return a digest of what is in the arrays of a frame; wait for the work on them."""
        digest = hashlib.blake2b(digest_size=16)
        handle = self._handle
        for input_, leaf in zip(self.inputs, leaves, strict=True):
            address = input_.address_of(leaf) - input_.before
            digest.update(read_bytes(handle, address, input_.size).tobytes())
        return digest.digest()

    def close(self) -> None:
        """Release the graphs first, then the memory that they use; the device has finished."""
        self._executables.close()
        self._kept.clear()
        for input_ in self.inputs:
            input_.memory.close(self._handle)


def record(part: Part, signatures: dict[str, Signature], leaves: Leaves) -> Recording:
    """Record one frame of a part, whose arrays are `leaves`; raise Refusal if that is not possible.

    Nothing is launched: the frame itself has to be replayed, or run as usual.
    """
    own = part.own
    members = part.members
    states = [HostState(node.operator) for node in members]
    inputs: dict[str, list[Input]] = {}
    received: dict[str, Any] = {}
    device_id = own.device_id
    with gpu.on_device(device_id):
        for name, signature in signatures.items():
            inputs[name] = [Input(layout, own.handle) for layout in layouts_of(signature)]
            received[name] = rebuild(signature, iter([input_.array() for input_ in inputs[name]]))
        all_inputs = [input_ for group in inputs.values() for input_ in group]
        memory = PrivateMemory(device_id, own.handle.is_simulated)
        kept: list[Any] = [memory, received, states]
        streams = CapturedStreams(part.streams_of_run, members[0].operator)
        try:
            return _capture(part, own, streams, memory, received, all_inputs, leaves, kept, states)
        except BaseException:
            for state in states:
                state.restore()
            for input_ in all_inputs:
                input_.memory.close(own.handle)
            raise
        finally:
            streams.close()


def _capture(
    part: Part,
    own: ManagedStream,
    streams: CapturedStreams,
    memory: PrivateMemory,
    received: dict[str, Any],
    inputs: list[Input],
    leaves: Leaves,
    kept: list[Any],
    states: list[HostState],
) -> Recording:
    origin = streams.origin
    marks = None if part.replays is None or not part.replays.wants_gpu_times else Marks(part.inner)
    builder = origin.stream.create_graph_builder()
    # Where outputs go while the graph is recorded; no launch writes there.
    targets: list[AddressedMemory] = []
    copies = [
        Copy(input_.address_of(leaf) - input_.before, input_.memory.address, input_.size, True)
        for input_, leaf in zip(inputs, leaves, strict=True)
    ]
    try:
        builder.begin_building("relaxed")
        for each in copies:
            copy(origin, each.fixed, each.recorded, each.size)
        with memory:
            emitted, unconnected = _record_members(part, streams, received, kept, marks)
        streams.join()
        outputs = _outputs(part, emitted)
        for output in outputs:
            for array in output.arrays:
                target = AddressedMemory(own.handle, array.size)
                targets.append(target)
                copies.append(Copy(target.address, array.address, array.size, False))
                copy(origin, target.address, array.address, array.size)
        builder.end_building()
        definition = builder.graph_definition
        _check_nodes(part, kinds_of_nodes(definition))
        for state, node in zip(states, part.members, strict=True):
            what = state.changed()
            if what:
                raise Refusal(
                    f"operator {node.name!r} changes {what} in compute, and compute is not called in a replay; "
                    "keep state on the device, in arrays that are changed in place, or leave the operator out",
                    node.name,
                )
        moved = [each for each in copies if each.size]
        executables = Executables(definition, moved, gpu.GraphCompleteOptions())
    except BaseException as error:
        with contextlib.suppress(Exception):  # an invalidated capture ends with an error
            builder.close()
        if isinstance(error, Refusal) or not isinstance(error, Exception):
            raise
        raise refusal_of(error, "", None) from error
    finally:
        for target in targets:
            target.close(own.handle)
    builder.close()
    attributes = Attributes([node.operator for node in part.members], part.knob_names())
    return Recording(own, inputs, outputs, executables, attributes, kept, unconnected, marks)


def _record_members(
    part: Part, streams: CapturedStreams, received: dict[str, Any], kept: list[Any], marks: Marks | None
) -> tuple[dict[str, Any], dict[tuple[Node, str], int]]:
    """Let every operator compute once on captured streams.

    Returns what leaves the part, and how many messages each output emitted that leads nowhere.
    """
    waiting: dict[Node, dict[str, Any]] = {node: {} for node in part.members}
    after: dict[Node, list[gpu.StreamHandle]] = {node: [] for node in part.members}
    for border in part.inputs:
        waiting[border.node][border.port] = received[border.name]
    emitted: dict[str, Any] = {}
    unconnected: dict[tuple[Node, str], int] = {}
    if marks is not None:
        marks.begin(streams.origin)
    for node in part.members:
        missing = [name for name in node.operator.spec.inputs if name not in waiting[node]]
        if missing:
            raise Refusal(f"operator {node.name!r} received nothing at {missing[0]!r} in the recorded frame")
        compute = RecordedCompute(node, streams, waiting[node])
        handle = streams.begin(node.operator, after[node] or [streams.origin])
        before = gpu.captured_nodes(handle.stream)
        _compute(node, compute, handle)
        if gpu.captured_nodes(handle.stream) == before and not part.may_be_idle(node):
            raise Refusal(
                f"operator {node.name!r} launched nothing on its stream, so a replay would leave it out; it works "
                "on the host or on a stream of its own: leave it out of the segment, or use receive_cuda_stream",
                node.name,
            )
        if compute.left:
            raise Refusal(
                f"operator {node.name!r} did not receive what waits at {compute.left[0]!r}", node.name
            )
        kept.append(compute)
        ends = streams.of(node.operator)
        if marks is not None:
            marks.end(node, ends)
        for port, items in compute.emitted.items():
            targets = part.inner.get((node, port), [])
            leaving = part.output_at.get((node, port))
            if len(items) != 1 and (targets or leaving is not None):
                raise Refusal(
                    f"operator {node.name!r} emitted {len(items)} messages at {port!r} in one compute; a recorded "
                    "operator emits one",
                    node.name,
                )
            for target, name in targets:
                waiting[target][name] = compute.as_received(items[0], port)
                after[target] += [stream for stream in ends if stream not in after[target]]
            if leaving is not None:
                emitted[leaving.name] = items[0]
            elif not targets:
                unconnected[node, port] = len(items)
    return emitted, unconnected


def _compute(node: Node, compute: RecordedCompute, handle: gpu.StreamHandle) -> None:
    operator = node.operator
    metadata = operator.metadata
    context: Any = node.context
    context.record(compute)
    operator.metadata = RefusingMetadata(compute)
    try:
        with gpu.use_stream(handle):
            operator.compute(compute, compute, context)
    except Refusal:
        raise
    except Exception as error:
        raise refusal_of(error, node.name, operator.compute) from error
    finally:
        operator.metadata = metadata
        context.record(None)


def _check_nodes(part: Part, kinds: list[str]) -> None:
    names = ", ".join(node.name for node in part.members)
    if not kinds:
        raise Refusal(f"nothing of {names} was recorded; they work on the host or on streams of their own")
    for kind, why in _REFUSED_NODES.items():
        if kind in kinds:
            raise Refusal(f"{names}: {why}")


_REFUSED_NODES = {
    "AllocNode": (
        "memory was allocated in the order of a stream, which becomes an allocation in the graph; allocate in "
        "start, or with CuPy's or PyTorch's usual pools"
    ),
    "FreeNode": "memory was freed in the order of a stream, which becomes a part of the graph; free it in stop",
    "HostCallbackNode": "a function of the host was launched, which would be called with what it knew in "
    "the recording",
}


def _outputs(part: Part, emitted: dict[str, Any]) -> list[Output]:
    outputs: list[Output] = []
    for border in part.outputs:
        if border.name not in emitted:
            continue
        try:
            outputs.append(Output(border.name, emitted[border.name]))
        except Unsupported as error:
            raise Refusal(
                f"operator {border.node.name!r} emits at {border.port!r} {error}", border.node.name
            ) from None
    return outputs
