"""Verification: whether a replay does what an ordinary run of the same frame does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock._runtime.capture.device_arrays import Layout, Unsupported
from penstock._runtime.capture.graphs import read_bytes
from penstock._runtime.capture.structure import Leaves, flatten, layouts_of
from penstock._runtime.messages.message import Message

if TYPE_CHECKING:
    import numpy as np

    from penstock import gpu
    from penstock._runtime.capture.recording import Output

__all__ = ["compare", "contents_of"]

# How far floating-point results of two runs may be apart: atomics add in any order.
_TOLERANCES = {2: 1e-2, 4: 1e-4, 8: 1e-8}


def compare(
    outputs: list[Output], replayed: list[Any], collected: dict[str, list[Any]], stream: gpu.StreamHandle
) -> str:
    """Return the first difference between a replay and an ordinary run, in words, or an empty text."""
    for output, data in zip(outputs, replayed, strict=True):
        sent = collected[output.name]
        if len(sent) != 1:
            return f"{output.name!r} emitted {len(sent)} messages, and the recording emits one"
        message = sent[0]
        if type(message) is Message:
            for _, _, event in message.all_fences():
                event.sync()
            message = message.data
        ours: Leaves = []
        theirs: Leaves = []
        flatten(data, ours)
        try:
            layouts = layouts_of(flatten(message, theirs))
        except Unsupported as error:
            return f"{output.name!r} emitted {error}"
        if len(ours) != len(theirs):
            return f"{output.name!r} emitted {len(theirs)} arrays, and the recording emits {len(ours)}"
        for number, (array, layout, one, two) in enumerate(
            zip(output.arrays, layouts, ours, theirs, strict=True)
        ):
            where = output.name if len(ours) == 1 else f"{output.name}, array {number}"
            difference = _difference(array.layout, one, layout, two, stream)
            if difference:
                return f"{where}: {difference}"
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


def _difference(one: Layout, first: Any, two: Layout, second: Any, stream: gpu.StreamHandle) -> str:
    import numpy as np

    if one.shape != two.shape:
        return f"an array of shape {two.shape}, and {one.shape} in the replay"
    ours, theirs = contents_of(one, first, stream), contents_of(two, second, stream)
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
