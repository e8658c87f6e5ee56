"""Verification: whether a replay does what an ordinary run of the same frame does."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from headrace._runtime.capture.device_arrays import Extent, Layout, Unsupported, kind_of
from headrace._runtime.capture.graphs import read_bytes
from headrace._runtime.capture.places import is_equal
from headrace._runtime.capture.sharing import spans_of
from headrace._runtime.messages.envelope import Envelope

if TYPE_CHECKING:
    import numpy as np

    from headrace import gpu
    from headrace._runtime.capture.border_arrays import Output
    from headrace._runtime.capture.device_state import DeviceState
    from headrace._runtime.capture.structure import Leaves

__all__ = ["Contents", "compare", "compare_states", "contents_of_states", "digests_of"]

# How far floating-point results of two runs may be apart: atomics add in any order.
_TOLERANCES = {2: 1e-2, 4: 1e-4, 8: 1e-8}
_LARGE = 64 << 20  # bytes; larger arrays that operators keep are put back, and not compared

Contents = list["tuple[str, np.ndarray[Any, Any]]"]
"""What is in arrays that operators keep, with what a program calls each."""


def compare(
    outputs: list[Output], replayed: list[Any], collected: dict[str, list[Any]], stream: gpu.StreamHandle
) -> str:
    """Return the first difference between a replay and an ordinary run, in words, or an empty text."""
    emitted = {output.name for output in outputs}
    for name, sent in collected.items():
        if sent and name not in emitted:
            return f"{name!r} emitted {len(sent)} messages, and the recording emits none"
    for output, data in zip(outputs, replayed, strict=True):
        sent = collected[output.name]
        if len(sent) != 1:
            return f"{output.name!r} emitted {len(sent)} messages, and the recording emits one"
        message = sent[0]
        if type(message) is Envelope:
            for _, _, event in message.all_fences():
                event.sync()
            message = message.data
        difference = _compare(data, message, output.name, stream)
        if difference:
            return difference
    return ""


def digests_of(leaves: Leaves, extents: list[Extent], stream: gpu.StreamHandle) -> tuple[bytes, ...]:
    """Return a digest of what is in each array of a frame; wait for the stream."""
    return tuple(
        [
            hashlib.blake2b(read_bytes(stream, first, last - first).tobytes(), digest_size=16).digest()
            for first, last in spans_of(leaves, extents)
        ]
    )


def contents_of_states(state: DeviceState, stream: gpu.StreamHandle) -> Contents:
    """Return what is in the arrays that operators keep; wait for the stream."""
    found: Contents = []
    for kept, layout in state.layouts:
        if layout.kind.extent(layout).size <= _LARGE:
            label = f"{kept.label} of operator {kept.operator!r}"
            found.append((label, contents_of(layout, kept.array, stream)))
    return found


def compare_states(replayed: Contents, ordinary: Contents) -> str:
    """Return the first difference between what a replay and an ordinary run left in arrays, or an empty text."""
    for (label, ours), (_, theirs) in zip(replayed, ordinary, strict=True):
        difference = _difference(ours, theirs)
        if difference:
            return f"{label}: {difference}"
    return ""


def contents_of(layout: Layout, array: Any, stream: gpu.StreamHandle) -> np.ndarray[Any, Any]:
    """Return the elements of an array on the host; wait for the stream."""
    import numpy as np

    kind = layout.kind
    before, size = kind.extent(layout)
    data = read_bytes(stream, kind.address(array) - before, size)
    dtype = kind.numpy_dtype(layout)
    if dtype is None:
        return data
    if 0 in layout.shape:
        return np.empty(layout.shape, dtype)
    return np.ndarray(layout.shape, dtype, data, before, layout.strides)


def _compare(ours: Any, theirs: Any, where: str, stream: gpu.StreamHandle) -> str:
    """Compare two messages: their containers, their arrays, and everything else by value."""
    kind, other = kind_of(ours), kind_of(theirs)
    if kind is not None and other is not None:
        try:
            one, two = kind.layout(ours), other.layout(theirs)
        except Unsupported as error:
            return f"{where!r} emitted {error}"
        if one.shape != two.shape:
            return f"{where}: an array of shape {two.shape}, and {one.shape} in the replay"
        difference = _difference(contents_of(one, ours, stream), contents_of(two, theirs, stream))
        return f"{where}: {difference}" if difference else ""
    if isinstance(ours, dict) and isinstance(theirs, dict) and list(ours) == list(theirs):
        pairs = [(f"{where}[{key!r}]", item, theirs[key]) for key, item in ours.items()]
    elif isinstance(ours, (list, tuple)) and type(ours) is type(theirs) and len(ours) == len(theirs):
        pairs = [(f"{where}[{n}]", one, two) for n, (one, two) in enumerate(zip(ours, theirs, strict=True))]
    elif is_equal(ours, theirs):
        return ""
    else:
        return f"{where}: {_text(theirs)} in the ordinary run, {_text(ours)} in the replay"
    return next(filter(None, (_compare(one, two, name, stream) for name, one, two in pairs)), "")


def _text(data: Any) -> str:
    return f"an object of type {type(data).__name__!r}" if len(repr(data)) > 100 else repr(data)


def _difference(ours: np.ndarray[Any, Any], theirs: np.ndarray[Any, Any]) -> str:
    import numpy as np

    if ours.dtype != theirs.dtype:
        return f"elements of type {theirs.dtype}, and {ours.dtype} in the replay"
    same = (ours == theirs) | ((ours != ours) & (theirs != theirs))
    if same.all():
        return ""
    if ours.dtype.kind in "fc":
        part = ours.dtype.itemsize // (2 if ours.dtype.kind == "c" else 1)
        tolerance = _TOLERANCES.get(part, 1e-8)
        scale = float(np.max(np.abs(theirs[np.isfinite(theirs)]), initial=0.0))
        with np.errstate(invalid="ignore", over="ignore"):
            near = np.abs(ours - theirs) <= tolerance * np.maximum(np.abs(theirs), 1e-3 * scale)
            near &= np.isfinite(ours) & np.isfinite(theirs)  # anything is near to infinity
        if (same | near).all():
            return ""
        with np.errstate(invalid="ignore"):
            apart = np.where(same, 0.0, np.abs(ours.astype(np.complex128) - theirs.astype(np.complex128)))
    else:
        apart = (
            np.where(same, 0, 1)
            if ours.dtype.kind not in "iu"
            else np.abs(ours.astype(np.float64) - theirs.astype(np.float64))
        )
    apart = np.nan_to_num(np.asarray(apart, np.float64), nan=np.inf)
    worst = np.unravel_index(int(np.argmax(apart)), apart.shape) if apart.ndim else ()
    place = ", ".join(str(int(number)) for number in worst)
    count = int(apart.size - np.count_nonzero(same))
    return (
        f"{count} of {apart.size} elements, the worst at [{place}]: {theirs[worst]} in the ordinary run, "
        f"{ours[worst]} in the replay"
    )
