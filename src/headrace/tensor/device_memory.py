"""Memory of a device by its address, real or simulated: allocated, copied, read and compared; messages, too.

Replays are compared with computes of the same frame. Bytes are compared on the device. Only arrays that differ are
read, since floating-point results may differ a little: atomics add in any order.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace import gpu
from headrace.tensor.device_arrays import Layout, layout_of, span_of, with_shared
from headrace.tensor.structures import Leaves, take_apart

if TYPE_CHECKING:
    import numpy as np

    from headrace import gpu


class DeviceMemory:
    """Memory of a device, allocated in the order of a stream.

    Attributes
    ----------
    address, size
        Where it is.
    """

    __slots__ = ("_buffer", "address", "size")

    def __init__(self, stream: gpu.StreamHandle, size: int) -> None:
        self._buffer = stream.device.allocate(max(size, 1), stream=stream.stream)
        self.address = int(self._buffer.handle)
        self.size = size

    @property
    def buffer(self) -> Any:
        """The buffer of cuda.core, or of the simulated device."""
        return self._buffer

    def __simulated_memory__(self) -> Any:
        """Return the bytes, for a simulated kernel."""
        return self._buffer._open()

    def close(self, stream: gpu.StreamHandle) -> None:
        """Free it, in the order of a stream."""
        self._buffer.close(stream.stream)


def copy(stream: gpu.StreamHandle, target: int, source: int, size: int) -> None:
    """Copy bytes from one address of a device to another, on a stream."""
    if size:
        stream.backend.copy(stream, target, source, size)


def read_bytes(stream: gpu.StreamHandle, address: int, size: int) -> np.ndarray[Any, Any]:
    """Return the bytes at an address of a device, once a stream has passed its work; wait for that."""
    import numpy as np

    found = np.empty(size, np.uint8)
    if size:
        stream.backend.copy(stream, found, address, size)
        stream.stream.sync()
    return found


_SOURCE = Path(__file__).with_suffix(".cu").read_text()
_differs = gpu.kernel("headrace_differs", source=_SOURCE, seconds=0.0)  # simulated memory is compared here
_THREADS, _MOST_BLOCKS = 256, 1024


def are_equal(stream: gpu.StreamHandle, one: int, two: int, size: int) -> bool:
    """Return whether the bytes at two addresses are the same; wait for the stream.

    They are compared on the device, so that large arrays need not be copied to the host.
    """
    if not size or one == two:
        return True
    if not stream.backend.runs_cuda:
        return bool((read_bytes(stream, one, size) == read_bytes(stream, two, size)).all())
    names = stream.backend.names
    flag = DeviceMemory(stream, 4)
    try:
        flag.buffer.fill(0, stream=stream.stream)
        blocks = min(-(-size // _THREADS), _MOST_BLOCKS)
        config = names.LaunchConfig(grid=blocks, block=_THREADS)
        names.launch(stream.stream, config, _differs.on(stream.device), flag.address, one, two, size)
        return not read_bytes(stream, flag.address, 4).any()
    finally:
        flag.close(stream)


class KeptArray(NamedTuple):
    """An array, and what a program calls it."""

    label: str
    array: Any


class Saved:
    """Copies of arrays, made in the order of a stream.

    Attributes
    ----------
    kept, memories
        The arrays, and the memory that holds a copy of each.
    """

    def __init__(self, arrays: Iterable[KeptArray], stream: gpu.StreamHandle) -> None:
        self._stream = stream
        self.kept: list[KeptArray] = []
        self.memories: list[DeviceMemory] = []
        seen: set[tuple[int, int]] = set()
        try:
            for each in arrays:
                begin, end = span_of(each.array)
                if end > begin and (begin, end) not in seen:
                    seen.add((begin, end))
                    self.memories.append(DeviceMemory(stream, end - begin))
                    self.kept.append(each)
                    copy(stream, self.memories[-1].address, begin, end - begin)
        except BaseException:
            self.close()
            raise

    def restore(self) -> None:
        """Put back what was in the arrays, in the order of the stream."""
        for each, memory in zip(self.kept, self.memories, strict=True):
            copy(self._stream, span_of(each.array)[0], memory.address, memory.size)

    def close(self) -> None:
        """Free the copies, in the order of the stream."""
        while self.memories:
            self.memories.pop().close(self._stream)


# How far results of floats of two, four and eight bytes may be apart.
_TOLERANCES = {2: 1e-2, 4: 1e-4, 8: 1e-8}


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
        difference = _difference_of_arrays(layout, span_of(one)[0], layout_of(two), span_of(two)[0], stream)
        if difference:
            return f"{where}: {difference}"
    for one, two in zip(ours[1], theirs[1], strict=True):
        if one is not two and not _is_equal(one, two):
            return f"{where}: {_text(two)} in the compute, {_text(one)} in the replay"
    return ""


def compare_saved(replayed: Saved, stream: gpu.StreamHandle) -> str:
    """Return the first difference between what a replay left in arrays and what is in them now."""
    for kept, memory in zip(replayed.kept, replayed.memories, strict=True):
        layout = layout_of(kept.array)
        difference = _difference_of_arrays(layout, memory.address, layout, span_of(kept.array)[0], stream)
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


def _difference_of_arrays(
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
