"""Random graphs of operators that can be recorded, with random segments.

Every operator emits one message for each frame at each of its outputs. Operators are of many kinds: they write to
new memory or change what they received, keep an array on the device, use several streams, or launch nothing. A
segment is what is connected among some operators that follow one another in the order of the graph: no message can
leave it and come back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from headrace.core import MetadataPolicy
from tests.gpu.segment_programs import (
    COUNT,
    Blend,
    Sink,
    Source,
    Stage,
    Work,
    affine,
    blend,
    gather,
    launch,
)

ONE_INPUT = ("stage", "in place", "sum", "streams", "pass on", "split", "twice")


@dataclass(frozen=True)
class Node:
    """An operator: its kind, where it receives from (numbers of operators and of their outputs), and a number."""

    kind: str
    inputs: tuple[tuple[int, int], ...]
    value: int


@dataclass(frozen=True)
class Graph:
    """A graph, with sources first, and its segments as numbers of operators."""

    nodes: tuple[Node, ...]
    segments: tuple[tuple[int, ...], ...]
    frames: int
    counts: tuple[int, ...]
    details: bool | str
    late: int
    options: tuple[tuple[str, Any], ...]

    def compose(self, app: Any) -> None:
        """Add everything to an application."""
        made: list[Any] = []
        for number, node in enumerate(self.nodes):
            operator = _make(app, self, node, f"{node.kind} {number}")
            operator.metadata_policy = MetadataPolicy.REJECT if number % 2 else MetadataPolicy.UPDATE
            made.append(operator)
            names = list(operator.spec.inputs)
            for name, (source, output) in zip(names, node.inputs, strict=True):
                port = list(made[source].spec.outputs)[output]
                app.add_flow(made[source], operator, {(port, name)})
        for number, operator in enumerate(made):
            for output, port in enumerate(operator.spec.outputs):
                if not _readers(self, number, output):
                    sink = Sink(app, late=self.late, name=f"sink {number} {output}")
                    app.add_flow(operator, sink, {(port, "in")})
        for number, members in enumerate(self.segments):
            app.capture(*[made[member] for member in members], name=f"segment {number}", **dict(self.options))


@st.composite
def graphs(draw: st.DrawFn, frames: int = 14) -> Graph:
    """Draw a graph and its segments."""
    # One that launches nothing is recorded only if it is compared.
    kinds = ONE_INPUT
    nodes = [Node("source", (), 0) for _ in range(draw(st.integers(1, 2)))]
    first = len(nodes)
    for number in range(draw(st.integers(2, 8))):
        outputs = [(index, k) for index, node in enumerate(nodes) for k in range(_outputs(node))]
        is_joined = len(outputs) > 1 and draw(st.integers(0, 3)) == 0
        if is_joined:
            inputs = tuple(draw(st.lists(st.sampled_from(outputs), min_size=2, max_size=2, unique=True)))
            kind = "blend"
        else:
            # Of the latest outputs rather, so that there are chains.
            inputs = (draw(st.sampled_from(outputs[-3:])),)
            kind = draw(st.sampled_from(kinds))
        if kind == "in place" and (
            nodes[inputs[0][0]].kind == "pass on" or any(inputs[0] in node.inputs for node in nodes)
        ):
            kind = "stage"  # somebody else reads it
        nodes.append(Node(kind, inputs, draw(st.integers(1, 5)) + number))
    # What is changed in place has no other reader.
    for index, node in enumerate(nodes):
        if node.kind == "in place" and sum(node.inputs[0] in other.inputs for other in nodes) > 1:
            nodes[index] = Node("stage", node.inputs, node.value)
    return Graph(
        tuple(nodes),
        tuple(_draw_segments(draw, nodes, first)),
        frames,
        draw(st.sampled_from([(COUNT,), (COUNT, 2 * COUNT), (COUNT,) * 9 + (3 * COUNT, COUNT)])),
        draw(st.sampled_from([False, True, "timestamps"])),
        draw(st.integers(0, 3)),
        tuple(
            draw(
                st.fixed_dictionaries(
                    {
                        "warmup": st.integers(1, 3),
                        "check_every": st.sampled_from([None, 0, 0.002, 1.0]),
                        "shapes": st.integers(1, 3),
                    }
                )
            ).items()
        ),
    )


def _draw_segments(draw: st.DrawFn, nodes: list[Node], first: int) -> list[tuple[int, ...]]:
    found: list[tuple[int, ...]] = []
    begin = first
    while begin < len(nodes):
        end = draw(st.integers(begin + 1, len(nodes)))
        if draw(st.booleans()):
            found += _connected(nodes, range(begin, end))
        begin = end
    return found


def _connected(nodes: list[Node], members: range) -> list[tuple[int, ...]]:
    """Return the connected parts of some operators."""
    parts: list[set[int]] = []
    for member in members:
        joined = {member, *(source for source, _ in nodes[member].inputs if source in members)}
        others = [part for part in parts if not part & joined]
        for part in parts:
            if part & joined:
                joined |= part
        parts = [*others, joined]
    return [tuple(sorted(part)) for part in parts]


def _outputs(node: Node) -> int:
    return 2 if node.kind == "split" else 1


def _readers(graph: Graph, number: int, output: int) -> int:
    return sum((number, output) in node.inputs for node in graph.nodes)


def _make(app: Any, graph: Graph, node: Node, name: str) -> Any:
    if node.kind == "source":
        return Source(
            app, frames=graph.frames, counts=graph.counts * graph.frames, details=graph.details, name=name
        )
    if node.kind == "blend":
        return Blend(app, name=name)
    if node.kind == "stage":
        return Stage(app, times=node.value, plus=node.value + 1, name=name)
    outputs = ("a", "b") if node.kind == "split" else ("out",)
    begin = _begin_sum if node.kind == "sum" else lambda self: None
    made = Work(app, body=_BODIES[node.kind], outputs=outputs, begin=begin, name=name)
    made.value = node.value
    return made


def _received(op_input: Any) -> tuple[Any, Any]:
    frame = op_input.receive("in")
    return frame, op_input.receive_cuda_stream("in")


def _in_place(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
    frame, stream = _received(op_input)
    launch(stream, affine, frame, frame, frame.shape[0], self.value, 1)
    op_output.emit(frame, "out")


def _begin_sum(self: Any) -> None:
    stream = self._headrace.node.streams.run.default_stream().handle
    self.total = self.new(stream)
    launch(stream, affine, self.total, self.total, COUNT, 0, self.value)
    stream.stream.sync()


def _sum(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
    frame, stream = _received(op_input)
    launch(stream, gather, self.total, frame, COUNT)
    result = self.new(stream, frame)
    launch(stream, affine, result, frame, frame.shape[0], 1, 0)
    launch(stream, affine, result, self.total, COUNT, 1, 0)
    op_output.emit(result, "out")


def _streams(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
    frame, stream = _received(op_input)
    other = context.allocate_cuda_stream("other")
    context.synchronize_streams([stream], other)
    one, two = self.new(stream, frame), self.new(other, frame)
    launch(stream, affine, one, frame, frame.shape[0], self.value, 0)
    launch(other, affine, two, frame, frame.shape[0], 1, self.value)
    context.synchronize_streams([other], stream)
    result = self.new(stream, frame)
    launch(stream, blend, result, one, two, frame.shape[0])
    op_output.emit(result, "out")


def _pass_on(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
    op_output.emit(op_input.receive("in"), "out")


def _split(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
    frame, stream = _received(op_input)
    for port, times in (("b", self.value), ("a", self.value + 1)):
        result = self.new(stream, frame)
        launch(stream, affine, result, frame, frame.shape[0], times, 2)
        op_output.emit(result, port)


def _twice(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
    frame, stream = _received(op_input)
    between, result = self.new(stream, frame), self.new(stream, frame)
    launch(stream, affine, between, frame, frame.shape[0], self.value, 1)
    launch(stream, affine, result, between, frame.shape[0], 2, self.value)
    op_output.emit(result, "out")


_BODIES = {
    "in place": _in_place,
    "sum": _sum,
    "streams": _streams,
    "pass on": _pass_on,
    "split": _split,
    "twice": _twice,
}
