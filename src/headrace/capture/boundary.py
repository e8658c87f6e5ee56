"""The boundary of a graph: the arrays that enter and leave it, and where they are.

A graph works on fixed addresses. So an array that enters is copied to memory of the graph, and one that leaves is
copied to new memory. Arrays that share memory are copied as one, so that their copies share memory as well.
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
    """An array that leaves a graph: where the graph writes it, and what the copies look like.

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
    return outputs


def copied_arrays(outputs: list[Output]) -> list[OutputArray]:
    """Return the arrays that are copied; those that share memory are copied as one."""
    return list(dict.fromkeys([array.within or array for output in outputs for array in output.arrays]))


def find_views(outputs: list[Output]) -> None:
    """Find arrays that share memory, so that what is copied from them does as well."""
    found = [(array, output.boundary) for output in outputs for array in output.arrays]
    for numbers in groups_of([array.span for array, _ in found]):
        if len(numbers) == 1:
            continue
        group = [found[number][0] for number in numbers]
        boundary = found[numbers[0]][1]
        begin, end = group[0].address, max(array.span[1] for array in group)
        whole = next((array for array in group if array.span == (begin, end)), None)
        whole = whole or _joined(group, begin, end)
        others = [array for array in group if array is not whole]
        if whole is None or not all(array.layout.kind.has_views or array.is_like(whole) for array in others):
            raise Refusal(
                f"operator {boundary.node.name!r} emits at {boundary.port!r} something on the memory of something "
                "else that leaves the segment; emit one of them, or a copy"
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
