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
from penstock._runtime.capture.details_flow import DetailsFlow
from penstock._runtime.capture.device_arrays import Layout, Unsupported, span_of
from penstock._runtime.capture.device_state import DeviceState, KeptArray
from penstock._runtime.capture.executables import Copy, Executables
from penstock._runtime.capture.graphs import AddressedMemory, kinds_of_nodes, read_bytes
from penstock._runtime.capture.host_state import Attributes, HostState
from penstock._runtime.capture.marks import Marks
from penstock._runtime.capture.private_memory import PrivateMemory
from penstock._runtime.capture.recorded_contexts import RecordedCompute, RefusingMetadata
from penstock._runtime.capture.refusal import Refusal, refusal_of
from penstock._runtime.capture.slots import Slot
from penstock._runtime.capture.stock import Stock
from penstock._runtime.capture.streams import CapturedStreams
from penstock._runtime.capture.structure import Leaves, Signature, flatten, layouts_of, rebuild

if TYPE_CHECKING:
    from collections.abc import Collection

    from penstock._runtime.capture.border import Border
    from penstock._runtime.capture.part import Part
    from penstock._runtime.capture.slots import Slots
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
        The memory of the recording that it is copied to; None if the recording reads the array where it is.
    is_copied_back
        Whether it is copied back after the frame, since the operators change it in place.
    before, size
        The bytes before the address of its first element, and all of them.
    """

    __slots__ = ("address_of", "before", "is_copied_back", "layout", "memory", "size")

    def __init__(self, layout: Layout, stream: gpu.StreamHandle, is_copied: bool) -> None:
        self.layout = layout
        self.is_copied_back = False
        self.address_of = layout.kind.address
        self.before, self.size = layout.kind.extent(layout)
        self.memory = AddressedMemory(stream, self.size) if is_copied else None

    def array(self) -> Any:
        """Return an array on the memory of the recording."""
        assert self.memory is not None
        owner = self.memory.buffer if gpu.backend() == "sim" else self.memory
        return self.layout.kind.at(self.layout, self.memory.address + self.before, owner)


class OutputArray:
    """An array that leaves a recording: where the recording writes it, and what the copies look like.

    Attributes
    ----------
    within
        What it shares memory with, as one array, which is copied in its place; None if it shares none.
    """

    __slots__ = ("address", "address_of", "array", "before", "layout", "size", "within")

    def __init__(self, layout: Layout, array: Any) -> None:
        kind = layout.kind
        self.layout = layout
        self.array = array
        self.before, self.size = kind.extent(layout)
        self.address = kind.address(array) - self.before
        self.address_of = kind.address
        self.within: OutputArray | None = None

    @property
    def span(self) -> tuple[int, int]:
        """The addresses of its first byte, and of the first one behind it."""
        return self.address, self.address + self.size

    def is_like(self, other: OutputArray) -> bool:
        """Return whether another array is the same elements."""
        return self.layout == other.layout and self.address == other.address

    def view(self, other: OutputArray, copied: Any) -> Any:
        """Return what corresponds to another array, which is within this one, on a copy of this one."""
        if other.is_like(self):
            return copied
        begin = self.address_of(copied) - self.before
        address = begin + other.address - self.address + other.before
        return other.layout.kind.at(other.layout, address, copied)


class Output:
    """What a recording emits at one output of one operator.

    Attributes
    ----------
    border
        The output.
    name
        Its name, as the part of the segment names it.
    signature
        What is emitted.
    arrays
        The arrays in it.
    is_array
        Whether it is an array and nothing else.
    """

    __slots__ = ("arrays", "border", "is_array", "name", "signature")

    def __init__(self, border: Border, data: Any) -> None:
        self.border = border
        self.name = border.name
        leaves: Leaves = []
        self.signature = flatten(data, leaves)
        self.is_array = type(self.signature) is Layout
        self.arrays = [
            OutputArray(layout, leaf) for layout, leaf in zip(layouts_of(self.signature), leaves, strict=True)
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
    flow
        How metadata and timestamps pass through it.
    arrays
        The arrays that it may change in place: those that its operators keep, and what it reads where it is.
    replays
        The number of frames that it emitted.
    keeps_inputs
        Whether it reads what it receives where that is, and keeps it.
    copies_back
        Whether it copies back some of what it receives.
    is_chain
        Whether what it emits carries the metadata and the timestamp of the one message that it receives.
    """

    def __init__(
        self,
        stream: ManagedStream,
        inputs: list[Input],
        outputs: list[Output],
        executables: Executables,
        attributes: Attributes,
        flow: DetailsFlow,
        arrays: list[KeptArray],
        kept: list[Any],
        slots: Slots | None,
        marks: Marks | None,
    ) -> None:
        self.flow = flow
        self.arrays = arrays
        self.replays = 0
        self.keeps_inputs = bool(inputs) and not any(input_.memory is not None for input_ in inputs)
        self._copied_inputs = [input_ for input_ in inputs if input_.memory is not None]
        self.copies_back = any(input_.is_copied_back for input_ in inputs)
        self._stream = stream
        self._handle = stream.handle
        self.inputs = inputs
        self.outputs = outputs
        self._executables: Launches = executables
        self._marks = marks
        self.attributes = attributes
        self._kept = kept
        self.left_to_verify = 0
        self.seen_inputs: set[tuple[bytes, ...]] = set()
        self.slot = None if slots is None else Slot(slots, self)
        # What each output emits: new arrays, which may share memory, or those of the recording itself.
        self._shared_stocks = (
            {array: Stock(array.layout, stream.handle) for array in _copied(outputs)}
            if slots is None and any(array.within for output in outputs for array in output.arrays)
            else {}
        )
        self._stocks = [
            (output, [(Stock(array.layout, stream.handle), array) for array in output.arrays])
            for output in (outputs if slots is None and not self._shared_stocks else [])
        ]
        self._lent = [
            (output, [array.layout.kind.aliasing(array.layout, array.array) for array in output.arrays])
            for output in (outputs if slots is not None else [])
        ]
        self.is_chain = len(inputs) == 1 == len(outputs) and flow.is_chain
        # One array in and one out, the usual case, without loops.
        self._single: tuple[Input, Stock, OutputArray] | None = None
        if len(inputs) == 1 == len(self._stocks) and inputs[0].size:
            ((output, stocks),) = self._stocks
            if output.is_array and stocks[0][1].size:
                self._single = (inputs[0], *stocks[0])

    def replay(self, leaves: Leaves) -> list[Any]:
        """Launch the graph on the arrays of a frame, and return what each output emits, in new memory."""
        if self._single is not None:
            input_, stock, array = self._single
            new = stock.arrays.pop() if stock.arrays else stock.take()
            target = array.address_of(new) - array.before
            if self.keeps_inputs:
                self._executables.launch((target,), self._handle)
            else:
                (leaf,) = leaves
                source = input_.address_of(leaf) - input_.before
                addresses = (source, target, source) if self.copies_back else (source, target)
                self._executables.launch(addresses, self._handle)
            return [new]
        return self._replay_any(leaves)

    def _replay_any(self, leaves: Leaves) -> list[Any]:
        addresses: list[int] = []
        if self._copied_inputs:
            for input_, leaf in zip(self._copied_inputs, leaves, strict=True):
                if input_.size:
                    addresses.append(input_.address_of(leaf) - input_.before)
        emitted: list[Any] = []
        if self.slot is not None:
            emitted = self._lend_outputs(self.slot)
        if self._shared_stocks:
            emitted = self._take_sharing(addresses)
        else:
            for output, stocks in self._stocks:
                made: list[Any] = []
                for stock, array in stocks:
                    made.append(stock.take())
                    if array.size:
                        addresses.append(array.address_of(made[-1]) - array.before)
                emitted.append(made[0] if output.is_array else rebuild(output.signature, iter(made)))
        if self.copies_back:
            addresses += [
                input_.address_of(leaf) - input_.before
                for input_, leaf in zip(self._copied_inputs, leaves, strict=True)
                if input_.is_copied_back
            ]
        self._executables.launch(tuple(addresses), self._handle)
        return emitted

    def _take_sharing(self, addresses: list[int]) -> list[Any]:
        """Return what each output emits, where some arrays are on the memory of others; add the addresses."""
        new: dict[OutputArray, Any] = {}
        for array, stock in self._shared_stocks.items():
            new[array] = stock.take()
            if array.size:
                addresses.append(array.address_of(new[array]) - array.before)
        emitted: list[Any] = []
        for output in self.outputs:
            made = [
                new[array] if array.within is None else array.within.view(array, new[array.within])
                for array in output.arrays
            ]
            emitted.append(made[0] if output.is_array else rebuild(output.signature, iter(made)))
        return emitted

    def _lend_outputs(self, slot: Slot) -> list[Any]:
        """Return what each output emits: the memory of the recording itself."""
        owners = slot.lend(self._stream)
        emitted: list[Any] = []
        place = 0
        for output, aliases in self._lent:
            made: list[Any] = []
            for alias in aliases:
                made.append(alias(owners[place]))
                place += 1
            emitted.append(made[0] if output.is_array else rebuild(output.signature, iter(made)))
        return emitted

    def watch(self, replays: Replays) -> None:
        """Let an observer see every launch."""
        self._executables = replays.around_launches(self._executables, self._marks, self._stream)

    def contents(self, leaves: Leaves) -> tuple[bytes, ...]:
        """Return a digest of what is in each array of a frame; wait for the work on them."""
        handle = self._handle
        return tuple(
            [
                hashlib.blake2b(
                    read_bytes(handle, input_.address_of(leaf) - input_.before, input_.size).tobytes(),
                    digest_size=16,
                ).digest()
                for input_, leaf in zip(self.inputs, leaves, strict=True)
            ]
        )

    def close(self) -> None:
        """Release the graphs first, then the memory that they use; the device has finished."""
        self._executables.close()
        self._stocks.clear()
        self._shared_stocks.clear()
        self._lent.clear()
        self._single = self.slot = None  # a slot refers to its recording
        self.outputs.clear()
        self.arrays.clear()
        self._kept.clear()
        for input_ in self._copied_inputs:
            assert input_.memory is not None
            input_.memory.close(self._handle)


def record(
    part: Part,
    signatures: dict[str, Signature],
    leaves: Leaves,
    slots: Slots | None = None,
    is_copied: bool = True,
    changed: Collection[int] = (),
) -> Recording:
    """Record one frame of a part, whose arrays are `leaves`; raise Refusal if that is not possible.

    With `slots`, the recording sends its own memory, and is one of these.
    Unless `is_copied`, it reads the arrays where they are, and keeps them. Those that are `changed`, by their
    number, are copied back.

    Nothing is launched: the frame itself has to be replayed, or run as usual.
    """
    try:
        return _record(part, signatures, leaves, slots, is_copied, changed)
    except Refusal:
        raise
    except Exception as error:
        raise refusal_of(error, "") from error


def _record(
    part: Part,
    signatures: dict[str, Signature],
    leaves: Leaves,
    slots: Slots | None,
    is_copied: bool,
    changed: Collection[int],
) -> Recording:
    own = part.own
    members = part.members
    states = [HostState(node.operator) for node in members]
    for node, state in zip(members, states, strict=True):
        name, kind = state.opaque
        if name:
            raise Refusal(
                f"operator {node.name!r} uses {name} of type {kind!r}, which moves on with every compute; compute "
                "is not called in a replay, so leave the operator out, or send the values from one before it",
                node.name,
            )
        setting = sorted(_SETTING & state.names)
        if setting:
            raise Refusal(
                f"operator {node.name!r} calls {setting[0]} in compute, and compute is not called in a replay; set "
                "values in an operator outside of the segment",
                node.name,
            )
    inputs: dict[str, list[Input]] = {}
    received: dict[str, Any] = {}
    device_id = own.device_id
    for border, signature in zip(part.inputs, signatures.values(), strict=True):
        for layout in layouts_of(signature):
            if layout.device_id != device_id:
                raise Refusal(
                    f"operator {border.node.name!r} receives at {border.port!r} an array on device "
                    f"{layout.device_id}, and the segment is on device {device_id}; copy it before the segment",
                    border.node.name,
                )
    next_leaves = iter(leaves)
    with gpu.on_device(device_id):
        for name, signature in signatures.items():
            inputs[name] = [Input(layout, own.handle, is_copied) for layout in layouts_of(signature)]
            arrays = [input_.array() for input_ in inputs[name]] if is_copied else next_leaves
            received[name] = rebuild(signature, iter(arrays))
        all_inputs = [input_ for group in inputs.values() for input_ in group]
        for number in changed if is_copied else ():
            all_inputs[number].is_copied_back = True
        memory = PrivateMemory(device_id, own.handle.is_simulated)
        kept: list[Any] = [memory, received, states]
        arrays = [
            KeptArray(node.name, label, array)
            for node, state in zip(members, states, strict=True)
            for label, array in state.arrays
            if not part.is_knob(array)
        ]
        if not is_copied:
            arrays += [KeptArray(members[0].name, "what it received", leaf) for leaf in leaves]
        # Work that is not recorded, because it is on a stream of its own, is done at once: it is undone below.
        saved = DeviceState(arrays, own.handle)
        saved.synchronize()
        streams = CapturedStreams(part.streams_of_run, members[0].operator)
        try:
            return _capture(part, own, streams, memory, received, all_inputs, kept, states, arrays, slots)
        except BaseException:
            ignored = part.knob_names()
            for state, node in zip(states, members, strict=True):
                state.restore(ignored.get(node.name, set()))
            for input_ in all_inputs:
                if input_.memory is not None:
                    input_.memory.close(own.handle)
            raise
        finally:
            streams.close()
            saved.restore()
            saved.synchronize()
            saved.close()


def _capture(
    part: Part,
    own: ManagedStream,
    streams: CapturedStreams,
    memory: PrivateMemory,
    received: dict[str, Any],
    inputs: list[Input],
    kept: list[Any],
    states: list[HostState],
    arrays: list[KeptArray],
    slots: Slots | None,
) -> Recording:
    origin = streams.origin
    marks = None if part.replays is None or not part.replays.wants_gpu_times else Marks(part.inner)
    copies = [
        Copy(input_.layout, input_.memory.address, True, own.handle)
        for input_ in inputs
        if input_.memory is not None and input_.size
    ]
    kept.append(copies)
    builder = origin.stream.create_graph_builder()
    try:
        builder.begin_building("relaxed")
        for each in copies:
            each.record(origin)
        with memory:
            emitted, flow = _record_members(part, streams, received, kept, marks)
        streams.join()
        outputs = _outputs(emitted)
        if slots is None:
            _find_views(outputs)
        for array in _copied(outputs) if slots is None else ():
            if array.size:
                copies.append(Copy(array.layout, array.address, False, own.handle))
                copies[-1].record(origin)
        for input_ in inputs:
            if input_.is_copied_back:
                assert input_.memory is not None
                copies.append(Copy(input_.layout, input_.memory.address, False, own.handle))
                copies[-1].record(origin)
        builder.end_building()
        definition = builder.graph_definition
        _check_nodes(part, kinds_of_nodes(definition))
        knobs = part.knob_names()
        for state, node in zip(states, part.members, strict=True):
            what = state.changed(knobs.get(node.name, set()))
            if what:
                raise Refusal(
                    f"operator {node.name!r} changes {what} in compute, and compute is not called in a replay; "
                    "keep state on the device, in arrays that are changed in place, or leave the operator out",
                    node.name,
                )
        executables = Executables(definition, copies, gpu.GraphCompleteOptions())
    except BaseException as error:
        with contextlib.suppress(Exception):  # an invalidated capture ends with an error
            builder.close()
        if isinstance(error, Refusal) or not isinstance(error, Exception):
            raise
        raise refusal_of(error, "") from error
    builder.close()
    attributes = Attributes(states, knobs)
    return Recording(own, inputs, outputs, executables, attributes, flow, arrays, kept, slots, marks)


def _record_members(
    part: Part, streams: CapturedStreams, received: dict[str, Any], kept: list[Any], marks: Marks | None
) -> tuple[dict[Border, Any], DetailsFlow]:
    """Let every operator compute once on captured streams; return what leaves the part, in this order."""
    waiting: dict[Node, dict[str, Any]] = {node: {} for node in part.members}
    after: dict[Node, list[gpu.StreamHandle]] = {node: [] for node in part.members}
    for border in part.inputs:
        waiting[border.node][border.port] = received[border.name]
    emitted: dict[Border, Any] = {}
    flow = DetailsFlow()
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
        try:
            is_idle = gpu.captured_nodes(handle.stream) == before
        except Exception as error:
            raise Refusal(
                f"operator {node.name!r} did something that cannot be recorded, and ignored the error; move it to "
                f"an operator before or behind the segment ({error})",
                node.name,
            ) from error
        if is_idle and not (part.compares and _only_passes_on(compute, waiting[node])):
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
        for step in compute.steps:
            leaving = None if step.is_received else part.output_at.get((node, step.port))
            if leaving is not None:
                emitted[leaving] = compute.emitted[step.port][0]
        flow.add(node, compute.steps, part.inner)
    return emitted, flow


def _only_passes_on(compute: RecordedCompute, received: dict[str, Any]) -> bool:
    """Return whether an operator emitted something, and no arrays but those that it received."""
    inside: Leaves = []
    outside: Leaves = []
    try:
        flatten(list(received.values()), inside)
        flatten([item for items in compute.emitted.values() for item in items], outside)
    except Unsupported:
        return False
    spans = [span_of(array) for array in inside]
    return any(compute.emitted.values()) and all(
        any(first <= begin and end <= last for first, last in spans) for begin, end in map(span_of, outside)
    )


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
        raise refusal_of(error, node.name) from error
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


# Methods of operators that change values for later frames.
_SETTING = {"set_knob", "set_live"}

_REFUSED_NODES = {
    "AllocNode": (
        "memory was allocated in the order of a stream, which becomes an allocation in the graph; allocate in "
        "start, or with CuPy's or PyTorch's usual pools"
    ),
    "FreeNode": "memory was freed in the order of a stream, which becomes a part of the graph; free it in stop",
    "HostCallbackNode": "a function of the host was launched, which would be called with what it knew in "
    "the recording",
}


def _outputs(emitted: dict[Border, Any]) -> list[Output]:
    outputs: list[Output] = []
    for border, data in emitted.items():
        try:
            outputs.append(Output(border, data))
        except Unsupported as error:
            raise Refusal(
                f"operator {border.node.name!r} emits at {border.port!r} {error}", border.node.name
            ) from None
    return outputs


def _copied(outputs: list[Output]) -> list[OutputArray]:
    """Return the arrays that are copied; those that share memory are copied as one."""
    return list(dict.fromkeys([array.within or array for output in outputs for array in output.arrays]))


def _find_views(outputs: list[Output]) -> None:
    """Find arrays that share memory, so that what is copied from them does as well."""
    found = sorted(
        [(array.span, array, output.border) for output in outputs for array in output.arrays if array.size],
        key=lambda one: one[0],
    )
    while found:
        (begin, end), _, border = found[0]
        group: list[OutputArray] = []
        while found and found[0][0][0] < end:
            span, array, _ = found.pop(0)
            end = max(end, span[1])
            group.append(array)
        if len(group) == 1:
            continue
        whole = next((array for array in group if array.span == (begin, end)), None) or _joined(
            group, begin, end
        )
        others = [array for array in group if array is not whole]
        if whole is None or not all(array.layout.kind.has_views or array.is_like(whole) for array in others):
            raise Refusal(
                f"operator {border.node.name!r} emits at {border.port!r} something on the memory of something "
                "else that leaves the segment; emit one of them, or a copy",
                border.node.name,
            )
        for array in others:
            array.within = whole


def _joined(arrays: list[OutputArray], begin: int, end: int) -> OutputArray | None:
    """Return an array of all bytes from one address to another, of the library of one of these arrays."""
    for array in arrays:
        kind, _, _, dtype, device_id = array.layout
        size = kind.itemsize(array.layout)
        if kind.has_views and (end - begin) % size == 0:
            layout = Layout(kind, ((end - begin) // size,), (size,), dtype, device_id)
            return OutputArray(layout, kind.at(layout, begin, arrays))
    return None
