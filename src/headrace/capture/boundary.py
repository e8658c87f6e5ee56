"""The boundary of a graph: the arrays that enter and leave it, and where they are.

A graph works on fixed addresses. So an array that enters is copied to memory of the graph, and one that leaves is
copied to new memory. Arrays that enter and share memory are copied as one, so that their copies share memory as
well. Arrays that leave and share memory are refused: a receiver might change one and read the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.capture.refusal import Refusal
from headrace.tensor.device_arrays import Layout, Unsupported, groups_of, span_of
from headrace.tensor.device_memory import DeviceMemory
from headrace.tensor.structures import HostValue, Leaves, is_host_value, key_of_value, layouts_of, take_apart

if TYPE_CHECKING:
    from headrace import gpu
    from headrace._runtime import Boundary

_ALIGNED = 256


class Input:
    """An array that enters a graph.

    Attributes
    ----------
    before, size
        The bytes before the address of its first element, and all of them.
    memory, address
        The memory of the graph that it is copied to, and where in it. Arrays that share memory do so here as well.
    copied
        The number of bytes that are copied for it, from its first one on: its own, and those of arrays that share
        memory with it; 0 if they are copied for one of those.
    is_copied_back
        Whether it is copied back after the frame, since the operators change it in place.
    """

    __slots__ = ("address", "address_of", "before", "copied", "is_copied_back", "layout", "memory", "size")

    def __init__(self, layout: Layout, is_copied_back: bool) -> None:
        self.layout = layout
        self.is_copied_back = is_copied_back
        self.address_of = layout.kind.address
        self.before, self.size = layout.kind.extent(layout)
        self.memory: DeviceMemory | None = None
        self.address = 0
        self.copied = 0

    def array(self) -> Any:
        """Return an array on the memory of the graph."""
        assert self.memory is not None
        return self.layout.kind.at(self.layout, self.address + self.before, self.memory)

    def close(self, stream: gpu.StreamHandle) -> None:
        """Free the memory of the graph, unless that is the task of another that shares it."""
        if self.memory is not None and (self.copied or not self.size):
            self.memory.close(stream)


def place_inputs(inputs: list[Input], leaves: Leaves, stream: gpu.StreamHandle) -> None:
    """Allocate memory for the arrays that enter a graph, which they share as the arrays of a frame do."""
    spans = [span_of(leaf) for leaf in leaves]
    for group in groups_of(spans):
        begin = spans[group[0]][0]
        end = max(spans[number][1] for number in group)
        aside = begin % _ALIGNED if len(group) > 1 else 0  # each of them may be aligned in another way
        memory = DeviceMemory(stream, aside + end - begin)
        for number in group:
            inputs[number].memory = memory
            inputs[number].address = memory.address + aside + spans[number][0] - begin
        inputs[group[0]].copied = end - begin


class OutputArray:
    """An array that leaves a graph: where the graph writes it, and what the copies look like."""

    __slots__ = ("address", "address_of", "array", "before", "layout", "size")

    def __init__(self, layout: Layout, array: Any) -> None:
        kind = layout.kind
        self.layout = layout
        self.array = array
        self.before, self.size = kind.extent(layout)
        self.address = kind.address(array) - self.before
        self.address_of = kind.address


class Output:
    """What a graph emits at one output of one operator.

    Attributes
    ----------
    structure, arrays, values
        What is emitted: the arrays, and the values of the host; a `HostValue` stands for one of the frame's own.
    is_array
        Whether it is an array and nothing else.
    """

    __slots__ = ("arrays", "boundary", "is_array", "name", "structure", "values")

    def __init__(self, boundary: Boundary, data: Any) -> None:
        self.boundary = boundary
        self.name = boundary.name
        leaves: Leaves = []
        self.values: Leaves = []
        # A receiver may change its list, and what stands for a value may be inside: each frame has containers anew.
        self.structure = take_apart(data, leaves, self.values, keeps_whole=False)
        self.is_array = type(self.structure) is Layout
        self.arrays = [
            OutputArray(layout, leaf) for layout, leaf in zip(layouts_of(self.structure), leaves, strict=True)
        ]
        for value in self.values:
            if not is_host_value(value):
                key_of_value(value)  # what could not be sent again with every frame is no constant

    def values_for(self, frame: Leaves) -> list[Any]:
        """Return the values that are emitted for a frame with these values of the host."""
        return [frame[HostValue.number_of(value)] if is_host_value(value) else value for value in self.values]


def outputs_of(emitted: dict[Boundary, Any]) -> list[Output]:
    """Return what a graph emits; raise Refusal for what cannot leave it."""
    outputs: list[Output] = []
    for boundary, data in emitted.items():
        try:
            outputs.append(Output(boundary, data))
        except Unsupported as error:
            raise Refusal(f"operator {boundary.node.name!r} emits at {boundary.port!r} {error}") from None
    leaving = [(array, output.boundary) for output in outputs for array in output.arrays]
    for group in groups_of([(array.address, array.address + array.size) for array, _ in leaving]):
        if len(group) > 1:
            boundary = leaving[group[0]][1]
            raise Refusal(
                f"operator {boundary.node.name!r} emits at {boundary.port!r} something on the memory of something "
                "else that leaves the segment; emit one of them, or a copy"
            )
    return outputs
