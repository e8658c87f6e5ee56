"""Differences between libraries that the protocols do not cover.

**The stream of an array.** CuPy and PyTorch compute an array on their current stream, so that stream is used. For
every other library, DLPack's handshake passes one of headrace's streams, and the library orders that stream after
its own work.

**Requesting no ordering.** The standard uses -1. JAX takes every number for a handle and uses None instead.
TensorFlow accepts no stream and exports only complete data.

**Read-only memory.** The arrays of JAX and TensorFlow are immutable, but both export DLPack's old form, which
cannot express that. So do older versions of PyArrow. Their arrays are treated as read-only here.

**Masks.** A masked array exports its data without the mask, so it is rejected.

**The layout of an array.** A capsule describes it, for every library. CuPy's arrays have attributes that
provide the same in half the time, and they are converted in every frame. A buffer of a simulated device has no
capsule, since only that device could read it.

**Asking again.** An array may export other memory the next time that it is asked, so a tensor takes the first
capsule over and exports that memory itself. NumPy and CuPy export an array's own memory. CuPy's arrays are
asked again. A NumPy array may be reshaped in place, so a view is asked, which only the tensor has.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from headrace.tensor.description import Description
from headrace.tensor.types import DLDataType, DLDevice, element_from_name


class Library(NamedTuple):
    """The properties of the library that a type belongs to."""

    # Returns the current stream of a device, if the library has one.
    current_stream: Callable[[int], int] | None = None
    # The stream argument that requests no ordering.
    unordered: int | None = -1
    # Whether it accepts a stream argument.
    takes_stream: bool = True
    # Returns the description of an array, if there is a faster way than reading a capsule.
    describe: Callable[[Any, tuple[int, int]], Description] | None = None
    # Returns another array on the same memory, if that is fast and each capsule of it is a new one.
    view: Callable[[Any], Any] | None = None
    # Returns what keeps an array's memory alive, if the array may let go of it and get other memory.
    memory_of: Callable[[Any], Any] | None = None
    # Whether its arrays are read-only, regardless of their capsules.
    is_immutable: bool = False
    # Why its arrays cannot be tensors, and what to do instead.
    refusal: str | None = None

    def stream_argument(self, stream: int | None) -> int | None:
        """Return the argument that passes a stream to the library; -1 requests no ordering."""
        if not self.takes_stream:
            return None
        return self.unordered if stream == -1 else stream


_MASKED = (
    "it is a masked array, and a tensor has no mask: use array.filled(value), or array.data and "
    "numpy.ma.getmaskarray(array) as two arrays"
)
_libraries: dict[type, Library] = {}


def library_of(kind: type) -> Library:
    """Return the properties of the library that a type belongs to."""
    try:
        return _libraries[kind]
    except KeyError:
        found = _libraries[kind] = _identify(kind)
        return found


def _identify(kind: type) -> Library:
    modules = {str(ancestor.__module__) for ancestor in kind.__mro__}
    names = {module.partition(".")[0] for module in modules}
    if any(module.startswith("numpy.ma.") or module == "numpy.ma" for module in modules):
        return Library(refusal=_MASKED)
    if "numpy" in names and kind is sys.modules["numpy"].ndarray:
        return Library(view=kind.view)
    if "cupy" in names:
        cupy = sys.modules["cupy"]
        of_cupy = cupy.cuda.get_current_stream
        describe = _describe_cupy if kind is cupy.ndarray else None
        return Library(lambda device: of_cupy(device).ptr, describe=describe)
    if "torch" in names:
        of_torch = sys.modules["torch"].cuda.current_stream
        # `tensor.data = other` exchanges the memory under a capsule, which keeps the tensor alive, not the memory.
        memory_of = getattr(kind, "untyped_storage", None)
        return Library(lambda device: of_torch(device).cuda_stream, memory_of=memory_of)
    if names & {"jax", "jaxlib"}:
        return Library(unordered=None, is_immutable=True)
    if "tensorflow" in names:
        return Library(takes_stream=False, is_immutable=True)
    if "pyarrow" in names:
        return Library(is_immutable=True)
    if "headrace" in names:
        return Library(describe=_describe_simulated)
    return Library()


_elements: dict[Any, DLDataType] = {}
_cached_device = cache(DLDevice)


def _describe_cupy(array: Any, device: tuple[int, int]) -> Description:
    dtype = array.dtype
    element = _elements.get(dtype)
    if element is None:
        element = _elements[dtype] = element_from_name(dtype.name)
    return (array.data.ptr, array.shape, array.strides, element, _cached_device(*device), False)


def _describe_simulated(buffer: Any, device: tuple[int, int]) -> Description:
    return (buffer.handle, (buffer.size,), (1,), DLDataType(0, 8), _cached_device(*device), False)
