"""Recording a frame: its operators compute while their streams are captured.

Nothing reaches the device meanwhile, so the frame has to be replayed afterwards, or run as usual. If it cannot be
recorded, everything that the computes have changed on the host is put back, and `Refusal` says why.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from headrace import gpu
from headrace._runtime.capture.border_arrays import Input, copied_arrays, find_views, outputs_of, place_inputs
from headrace._runtime.capture.details_flow import DetailsFlow
from headrace._runtime.capture.device_arrays import Unsupported, span_of
from headrace._runtime.capture.device_state import DeviceState, KeptArray
from headrace._runtime.capture.executables import Copy, Executables
from headrace._runtime.capture.graphs import kinds_of_nodes
from headrace._runtime.capture.host_state import Attributes, HostState, too_much
from headrace._runtime.capture.marks import Marks
from headrace._runtime.capture.private_memory import PrivateMemory
from headrace._runtime.capture.recorded_contexts import RecordedCompute, RefusingMetadata
from headrace._runtime.capture.recording import Recording
from headrace._runtime.capture.refusal import Refusal, refusal_of
from headrace._runtime.capture.streams import CapturedStreams
from headrace._runtime.capture.structure import Leaves, Signature, flatten, layouts_of, rebuild

if TYPE_CHECKING:
    from collections.abc import Collection

    from headrace._runtime.capture.border import Border
    from headrace._runtime.capture.part import Part
    from headrace._runtime.capture.slots import Slots
    from headrace._runtime.messages.managed_stream import ManagedStream
    from headrace._runtime.scheduling.node import Node

__all__ = ["record"]


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
        if state.excess:
            raise Refusal(too_much(node.name, state.excess), node.name)
        setting = sorted(_SETTING & state.names)
        if setting:
            raise Refusal(
                f"operator {node.name!r} calls {setting[0]} in compute, and compute is not called in a replay; set "
                "values in an operator outside of the segment",
                node.name,
            )
    device_id = own.device_id
    for border, signature in zip(part.inputs, signatures.values(), strict=True):
        for layout in layouts_of(signature):
            if layout.device_id != device_id:
                raise Refusal(
                    f"operator {border.node.name!r} receives at {border.port!r} an array on device "
                    f"{layout.device_id}, and the segment is on device {device_id}; copy it before the segment",
                    border.node.name,
                )
    with gpu.on_device(device_id):
        all_inputs = [Input(layout) for signature in signatures.values() for layout in layouts_of(signature)]
        if is_copied:
            place_inputs(all_inputs, leaves, own.handle)
        arrays_in = iter([input_.array() for input_ in all_inputs] if is_copied else leaves)
        received = {name: rebuild(signature, arrays_in) for name, signature in signatures.items()}
        for number in changed if is_copied else ():
            all_inputs[number].is_copied_back = True
        memory = PrivateMemory(device_id, own.handle.backend.runs_cuda)
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
                input_.close(own.handle)
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
    copies: list[Copy] = []
    builder = origin.stream.create_graph_builder()
    try:
        builder.begin_building("relaxed")
        copies += [
            Copy(origin, input_.address, input_.copied, enters=True) for input_ in inputs if input_.copied
        ]
        with memory:
            emitted, flow = _record_members(part, streams, received, kept, marks)
        streams.join()
        outputs = outputs_of(emitted)
        if slots is None:
            find_views(outputs)
            copies += [
                Copy(origin, array.address, array.size, enters=False)
                for array in copied_arrays(outputs)
                if array.size
            ]
        copies += [
            Copy(origin, input_.address, input_.copied, enters=False)
            for input_ in inputs
            if input_.copied and input_.is_copied_back
        ]
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
        attributes = Attributes(states, knobs)
        recording = Recording(own, inputs, outputs, executables, attributes, flow, arrays, kept, slots, marks)
    except BaseException as error:
        with contextlib.suppress(Exception):  # an invalidated capture ends with an error
            builder.close()
        if isinstance(error, Refusal) or not isinstance(error, Exception):
            raise
        raise refusal_of(error, "") from error
    builder.close()
    return recording


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
