"""How two arrays of a device differ.

Bytes are compared on the device. Only arrays that differ are read, since floating-point results may differ a
little: atomics add in any order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.tensor.device_arrays import Layout
from headrace.tensor.device_memory import are_equal, read_bytes

if TYPE_CHECKING:
    import numpy as np

    from headrace import gpu

__all__ = ["difference_of_arrays"]

# How far results of floats of two, four and eight bytes may be apart.
_TOLERANCES = {2: 1e-2, 4: 1e-4, 8: 1e-8}


def difference_of_arrays(
    ours: Layout, our_address: int, theirs: Layout, address: int, stream: gpu.StreamHandle
) -> str:
    """Return how two arrays at addresses of a device differ, in words, or an empty text; wait for the stream.

    The first is what a replay left, and the second what a compute did.
    """
    size = ours.kind.extent(ours).size
    if ours == theirs and not ours.has_gaps and are_equal(stream, our_address, address, size):
        return ""
    return _difference_of_numbers(_contents(ours, our_address, stream), _contents(theirs, address, stream))


def _contents(layout: Layout, address: int, stream: gpu.StreamHandle) -> np.ndarray[Any, Any]:
    """Return the elements of an array of the device; bytes where NumPy has no such type."""
    import numpy as np

    before, size = layout.kind.extent(layout)
    data = read_bytes(stream, address, size)
    dtype = layout.kind.numpy_dtype(layout)
    if dtype is None:
        return data
    return np.ndarray(layout.shape, dtype, data, before, layout.strides) if size else np.empty(0, dtype)


def _difference_of_numbers(ours: np.ndarray[Any, Any], theirs: np.ndarray[Any, Any]) -> str:
    import numpy as np

    if ours.dtype != theirs.dtype:
        return f"elements of type {theirs.dtype} in the compute, {ours.dtype} in the replay"
    same = (ours == theirs) | ((ours != ours) & (theirs != theirs))
    apart = np.where(same, 0.0, 1.0)
    with np.errstate(invalid="ignore", over="ignore"):
        if ours.dtype.kind in "fc":
            part = ours.dtype.itemsize // (2 if ours.dtype.kind == "c" else 1)
            scale = float(np.max(np.abs(theirs[np.isfinite(theirs)]), initial=0.0))
            limit = _TOLERANCES.get(part, 1e-8) * np.maximum(np.abs(theirs), 1e-3 * scale)
            near = np.abs(ours - theirs) <= limit
            same |= near & np.isfinite(ours) & np.isfinite(theirs)  # anything is near to infinity
        if ours.dtype.kind in "fciu":
            apart = np.where(same, 0.0, np.abs(ours.astype(np.complex128) - theirs.astype(np.complex128)))
    if same.all():
        return ""
    apart = np.nan_to_num(apart, nan=np.inf)
    worst = np.unravel_index(int(np.argmax(apart)), apart.shape) if apart.ndim else ()
    place = ", ".join(str(int(number)) for number in worst)
    count = int(apart.size - np.count_nonzero(same))
    return (
        f"{count} of {apart.size} elements, the worst at [{place}]: {theirs[worst]} in the compute, {ours[worst]} "
        "in the replay"
    )
