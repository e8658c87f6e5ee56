"""Recording: the operators of a segment compute one frame while their streams are captured.

Nothing reaches the device meanwhile, so the frame has to be replayed afterwards, or computed as usual. A graph uses
the same addresses in every launch. So everything that the operators allocate meanwhile comes from pools of the
graph alone (`headrace.tensor.device_arrays`), and lives as long as the graph.
"""

from __future__ import annotations

import contextlib
import gc
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

from headrace import gpu
from headrace.capture.boundary import Input, copied_arrays, find_views, outputs_of, place_inputs
from headrace.capture.direct_compute import (
    DetailsFlow,
    DirectCompute,
    DirectStreams,
    compute_directly,
    compute_one,
)
from headrace.capture.graph import Graph
from headrace.capture.refusal import Refusal, refusal_of
from headrace.capture.state import HostAttributes
from headrace.gpu.capture import captured_nodes, graph_builder
from headrace.gpu.executables import AddressTable, Executables
from headrace.tensor.device_arrays import PrivateMemory, span_of
from headrace.tensor.structures import HostValueUsed, Leaves, layouts_of, rebuild, take_apart

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace._runtime import Group, ManagedStream, Node, Replays
    from headrace.capture.cache import Entry, Frame
    from headrace.capture.state import DeviceState


def record(
    group: Group,
    own: ManagedStream,
    state: DeviceState,
    frame: Frame,
    values: Leaves,
    entry: Entry,
    replays: Replays | None,
    is_settled: bool,
) -> Graph:
    """Record one frame of a group as a graph of an entry; raise Refusal if that is not possible.

    `values` are those of the host, with something that stands for each that the operators may only pass on. The
    arrays that are changed in place, as the entry knows, are copied back. Nothing is launched.

    `is_settled` says that the last compute was for such a frame, so that operators that keep something for a kind
    of frame have it; what they change on the host is an effect then.
    """
    for boundary, structure in zip(group.inputs, frame.structures, strict=True):
        for layout in layouts_of(structure):
            if layout.device_id != own.device_id:
                raise Refusal(
                    f"operator {boundary.node.name!r} receives at {boundary.port!r} an array on device "
                    f"{layout.device_id}, and the segment is on device {own.device_id}; copy it before the segment"
                )
    layouts = [layout for structure in frame.structures for layout in layouts_of(structure)]
    inputs = [Input(layout, number in entry.copied_back) for number, layout in enumerate(layouts)]
    spans = None if replays is None else replays.new_spans(group.inner)
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(gpu.on_device(own.device_id))
            place_inputs(inputs, frame.leaves, own.handle)
            arrays, others = iter([input_.array() for input_ in inputs]), iter(values)
            received = [rebuild(structure, arrays, others) for structure in frame.structures]
            streams = DirectStreams(group.node.streams.run, group.members[0].operator, is_captured=True)
            stack.callback(streams.close)
            stack.callback(state.restore)
            attributes = HostAttributes(group.operators)
            stack.callback(attributes.put_back)
            stack.enter_context(_without_collection())
            graph = _capture(group, own, state, frame, streams, received, inputs, spans)
            changed = attributes.changed() if is_settled else None
            if changed is not None:
                graph.close()
                inputs.clear()
                operator, name = changed
                raise Refusal(
                    f"operator {operator.name!r} changes `self.{name}` in compute, an effect on the host, which a "
                    f"replay would leave out; declare an array on the device as state (spec.state({name!r})), "
                    "count on the device, or do it outside of the segment"
                )
        except BaseException as error:
            for input_ in inputs:
                input_.close(own.handle)
            if isinstance(error, (Refusal, HostValueUsed)) or not isinstance(error, Exception):
                raise
            raise refusal_of(error, "") from error
    if replays is not None:
        graph.watch(replays, spans)
    return graph


# For each frame that is recorded now, whether garbage was collected before: threads record at the same time.
_RECORDED: list[bool] = []
_CHANGING = threading.Lock()


@contextlib.contextmanager
def _without_collection() -> Iterator[None]:
    """Leave garbage alone: what a library does when memory is freed may be refused while a stream captures."""
    with _CHANGING:
        _RECORDED.append(gc.isenabled())
        gc.disable()
    try:
        yield
    finally:
        with _CHANGING:
            # That of the first is kept for the last.
            was_enabled = _RECORDED.pop(_RECORDED.index(min(_RECORDED)))
            if was_enabled and not _RECORDED:
                gc.enable()


def _capture(
    group: Group,
    own: ManagedStream,
    state: DeviceState,
    frame: Frame,
    streams: DirectStreams,
    received: list[Any],
    inputs: list[Input],
    spans: Any,
) -> Graph:
    origin = streams.origin
    memory = PrivateMemory(own.device_id, own.handle.backend.runs_cuda)
    kept: list[Any] = [memory, received]
    flow = DetailsFlow(group.inner)
    addresses = AddressTable(own.handle)
    builder = graph_builder(origin)
    try:
        builder.begin_building("relaxed")
        addresses.begin(origin)
        first = captured_nodes(origin.stream)
        copied = [input_ for input_ in inputs if input_.copied]
        for each in copied:
            addresses.copy(origin, each.address, each.copied, enters=True)
        if spans is not None:
            spans.begin(origin)
        with memory:
            emitted = compute_directly(group, streams, received, kept, partial(_record_one, spans), flow)
        streams.join()
        outputs = outputs_of(emitted)
        kept += [array for node in group.members for array in vars(node.operator).values()]
        find_views(outputs)
        for array in copied_arrays(outputs):
            if array.size:
                addresses.copy(origin, array.address, array.size, enters=False)
        for each in copied:
            if each.is_copied_back:
                addresses.copy(origin, each.address, each.copied, enters=False)
        state.end_recording(origin, kept)
        builder.end_building()
        definition = builder.graph_definition
        _check_nodes([type(node).__name__ for node in definition.nodes()], first)
        addresses.open(own.handle)
        executables = Executables(definition, addresses)
        graph = Graph(own, frame.structures, inputs, outputs, executables, flow, kept)
    except BaseException:
        with contextlib.suppress(Exception):  # an invalidated capture ends with an error
            builder.close()
        with contextlib.suppress(Exception):
            addresses.close()
        raise
    builder.close()
    return graph


def _record_one(spans: Any, node: Node, compute: DirectCompute, handle: gpu.StreamHandle) -> None:
    """Let one operator compute on a stream that captures; raise Refusal if nothing of it was captured."""
    had = [*compute.waiting.values(), *vars(node.operator).values()]
    before = captured_nodes(handle.stream)
    compute_one(node, compute, handle)
    try:
        is_idle = captured_nodes(handle.stream) == before
    except Exception as error:
        raise Refusal(
            f"operator {node.name!r} did something that cannot be captured, and ignored the error; move it to an "
            f"operator before or behind the segment ({error})"
        ) from error
    if is_idle and not _only_passes_on(compute, had):
        raise Refusal(
            f"operator {node.name!r} launched nothing on its stream, so a replay would leave it out; it works on "
            "the host or on a stream of its own: leave it out of the segment, or use receive_cuda_stream"
        )
    if spans is not None:
        spans.end(node, compute.streams.of(node.operator))


def _only_passes_on(compute: DirectCompute, had: list[Any]) -> bool:
    """Return whether an operator emitted something, and no arrays but those that it received or keeps."""
    inside: Leaves = []
    outside: Leaves = []
    take_apart(had, inside, [])
    take_apart([item for items in compute.emitted.values() for item in items], outside, [])
    spans = [span_of(array) for array in inside]
    return any(compute.emitted.values()) and all(
        any(first <= begin and end <= last for first, last in spans) for begin, end in map(span_of, outside)
    )


def _check_nodes(kinds: list[str], first: int) -> None:
    """Raise Refusal for nodes that cannot be replayed, or if there are none but the first ones."""
    if len(kinds) == first:
        raise Refusal("nothing was recorded; the operators work on the host or on streams of their own")
    for kind, why in _REFUSED_NODES.items():
        if kind in kinds:
            raise Refusal(why)


_REFUSED_NODES = {
    "AllocNode": (
        "memory was allocated in the order of a stream, which becomes an allocation in the graph; allocate in "
        "start, or with CuPy's or PyTorch's usual pools"
    ),
    "FreeNode": "memory was freed in the order of a stream, which becomes a part of the graph; free it in stop",
    "HostCallbackNode": "a function of the host was launched, which would be called with what it knew in the graph",
}
