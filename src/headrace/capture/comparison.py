"""Comparison: whether a replay did what an ordinary compute of the same frame does.

Bytes are compared on the device. Only arrays that differ are read, since floating-point results may differ a
little: atomics add in any order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.tensor.array_differences import difference_of_arrays
from headrace.tensor.device_arrays import Layout, layout_of, span_of, with_shared
from headrace.tensor.device_memory import are_equal
from headrace.tensor.structures import Leaves, take_apart

if TYPE_CHECKING:
    from headrace import gpu
    from headrace.tensor.saved_arrays import Saved

__all__ = ["changed_numbers", "compare_messages", "compare_states"]


def compare_messages(where: str, replayed: Any, computed: Any, stream: gpu.StreamHandle) -> str:
    """Return the first difference between two messages, in words, or an empty text; wait for the stream."""
    ours: tuple[list[Any], list[Any]] = ([], [])
    theirs: tuple[list[Any], list[Any]] = ([], [])
    if _shape_of(take_apart(replayed, *ours)) != _shape_of(take_apart(computed, *theirs)):
        return f"{where}: {_text(computed)} in the compute, {_text(replayed)} in the replay"
    for one, two in zip(ours[0], theirs[0], strict=True):
        layout = layout_of(one)
        if layout_of(two).shape != layout.shape:
            return f"{where}: an array of shape {layout_of(two).shape} in the compute, {layout.shape} in the replay"
        difference = difference_of_arrays(layout, span_of(one)[0], layout_of(two), span_of(two)[0], stream)
        if difference:
            return f"{where}: {difference}"
    for one, two in zip(ours[1], theirs[1], strict=True):
        if one is not two and not _is_equal(one, two):
            return f"{where}: {_text(two)} in the compute, {_text(one)} in the replay"
    return ""


def compare_states(replayed: Saved, stream: gpu.StreamHandle) -> str:
    """Return the first difference between what a replay left in arrays and what is in them now."""
    for kept, memory in zip(replayed.kept, replayed.memories, strict=True):
        layout = layout_of(kept.array)
        difference = difference_of_arrays(layout, memory.address, layout, span_of(kept.array)[0], stream)
        if difference:
            return f"{kept.label}: {difference}"
    return ""


def changed_numbers(before: Saved, leaves: Leaves, stream: gpu.StreamHandle) -> set[int]:
    """Return the numbers of the arrays that are not what they were, and of those that share memory with them."""
    changed = [
        kept.array
        for kept, memory in zip(before.kept, before.memories, strict=True)
        if not are_equal(stream, span_of(kept.array)[0], memory.address, memory.size)
    ]
    numbers = [number for number, leaf in enumerate(leaves) if any(leaf is each for each in changed)]
    return with_shared(numbers, leaves)


def _shape_of(structure: Any) -> Any:
    """Return a structure without the layouts of its arrays, which may be other ones of the same elements."""
    if isinstance(structure, Layout):
        return Layout
    if isinstance(structure, tuple):
        return tuple([_shape_of(item) for item in structure])
    return structure


def _is_equal(one: Any, two: Any) -> bool:
    try:
        return bool(one == two) or (one != one and two != two)
    except Exception:  # arrays of the host, say
        return repr(one) == repr(two)


def _text(data: Any) -> str:
    text = repr(data)
    return text if len(text) <= 100 else f"an object of type {type(data).__name__!r}"
