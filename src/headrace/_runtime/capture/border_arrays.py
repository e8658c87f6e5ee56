"""What enters and leaves a recording: its arrays, and where they are.

Arrays that share memory are copied as one, so that what is copied from them shares memory as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace import gpu
from headrace._runtime.capture.device_arrays import Extent, Layout, Unsupported
from headrace._runtime.capture.graphs import AddressedMemory
from headrace._runtime.capture.refusal import Refusal
from headrace._runtime.capture.sharing import groups_of, spans_of
from headrace._runtime.capture.structure import Leaves, flatten, layouts_of

if TYPE_CHECKING:
    from headrace._runtime.capture.border import Border

__all__ = ["Input", "Output", "OutputArray", "copied_arrays", "find_views", "outputs_of", "place_inputs"]

_ALIGNED = 256


class Input:
    """An array that enters a recording.

    Attributes
    ----------
    layout
        What it looks like.
    address_of
        Returns the address of the first element of such an array.
    before, size
        The bytes before the address of its first element, and all of them.
    memory, address
        The memory of the recording that it is copied to, and where in it; None if the recording reads the array
        where it is. Arrays that share memory do so here as well.
    copied
        The number of bytes that are copied for it, from its first one on: its own, and those of arrays that share
        memory with it; 0 if they are copied for one of those.
    is_copied_back
        Whether it is copied back after the frame, since the operators change it in place.
    """

    __slots__ = ("address", "address_of", "before", "copied", "is_copied_back", "layout", "memory", "size")

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.is_copied_back = False
        self.address_of = layout.kind.address
        self.before, self.size = layout.kind.extent(layout)
        self.memory: AddressedMemory | None = None
        self.address = 0
        self.copied = 0

    def array(self) -> Any:
        """Return an array on the memory of the recording."""
        assert self.memory is not None
        return self.layout.kind.at(self.layout, self.address + self.before, self.memory)

    def close(self, stream: gpu.StreamHandle) -> None:
        """Free the memory of the recording, unless that is the task of another that shares it."""
        if self.memory is not None and (self.copied or not self.size):
            self.memory.close(stream)


def place_inputs(inputs: list[Input], leaves: Leaves, stream: gpu.StreamHandle) -> None:
    """Make memory for the arrays that enter a recording, which they share as the arrays of a frame do."""
    spans = spans_of(leaves, [Extent(input_.before, input_.size) for input_ in inputs])
    for group in groups_of(spans):
        begin = spans[group[0]][0]
        end = max(spans[number][1] for number in group)
        aside = begin % _ALIGNED if len(group) > 1 else 0  # each of them may be aligned in another way
        memory = AddressedMemory(stream, aside + end - begin)
        for number in group:
            inputs[number].memory = memory
            inputs[number].address = memory.address + aside + spans[number][0] - begin
        inputs[group[0]].copied = end - begin


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


def outputs_of(emitted: dict[Border, Any]) -> list[Output]:
    """Return what a recording emits; raise Refusal for what cannot leave it."""
    outputs: list[Output] = []
    for border, data in emitted.items():
        try:
            outputs.append(Output(border, data))
        except Unsupported as error:
            raise Refusal(
                f"operator {border.node.name!r} emits at {border.port!r} {error}", border.node.name
            ) from None
    return outputs


def copied_arrays(outputs: list[Output]) -> list[OutputArray]:
    """Return the arrays that are copied; those that share memory are copied as one."""
    return list(dict.fromkeys([array.within or array for output in outputs for array in output.arrays]))


def find_views(outputs: list[Output]) -> None:
    """Find arrays that share memory, so that what is copied from them does as well."""
    found = [(array, output.border) for output in outputs for array in output.arrays]
    for numbers in groups_of([array.span for array, _ in found]):
        if len(numbers) == 1:
            continue
        group = [found[number][0] for number in numbers]
        border = found[numbers[0]][1]
        begin, end = group[0].address, max(array.span[1] for array in group)
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
