"""What the protocols leave unsaid, library by library.

**On which stream an array is made.** CuPy and PyTorch have a current stream, and by it a program says where an
array is made, so they are asked. Every other library is told instead: DLPack's handshake names a stream of ours,
and the library orders that behind its own work.

**How to ask for no order.** The standard says -1; JAX takes every number for a handle, and None for that.
TensorFlow refuses to be told of any stream, and gives what is complete.

**What may be written to.** The arrays of JAX and TensorFlow never change, but both make DLPack's old form, which
cannot say so; older versions of PyArrow too. It is said for them.

**What would be lost.** A masked array exports its data and says nothing of the mask: it is refused.

**How an array is laid out.** A capsule tells it, and is the one way for all; but CuPy's arrays have attributes that
tell the same in half the time, and they are what is converted in every frame. A buffer of a simulated device makes
no capsule, since nothing but that device could read it.
"""

import sys
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from penstock.tensor.description import Description
from penstock.tensor.types import DLDataType, DLDevice, element_named


class Library(NamedTuple):
    """What is known of the library that a type is of."""

    # Gives the current stream of a device, where there is such a thing.
    current_stream: Callable[[int], int] | None = None
    # What is said in place of a stream to have nothing ordered.
    unordered: int | None = -1
    # Whether it may be told of a stream at all.
    takes_stream: bool = True
    # Gives the description of an array, where there is a quicker way than to read it from a capsule.
    describe: Callable[[Any, tuple[int, int]], Description] | None = None
    # Whether its arrays must not be written to, whatever their capsules say.
    is_immutable: bool = False
    # Why its arrays cannot be tensors, and what to do.
    refusal: str | None = None

    def told(self, stream: int | None) -> int | None:
        """Return how the library is told of a stream, or of none (-1)."""
        if not self.takes_stream:
            return None
        return self.unordered if stream == -1 else stream


_MASKED = (
    "it is a masked array, and a tensor has no mask: give array.filled(value), or array.data and "
    "numpy.ma.getmaskarray(array) as two arrays"
)
_of: dict[type, Library] = {}


def library_of(kind: type) -> Library:
    """Return what is known of the library that a type is of."""
    try:
        return _of[kind]
    except KeyError:
        found = _of[kind] = _find(kind)
        return found


def _find(kind: type) -> Library:
    modules = {str(ancestor.__module__) for ancestor in kind.__mro__}
    names = {module.partition(".")[0] for module in modules}
    if any(module.startswith("numpy.ma.") or module == "numpy.ma" for module in modules):
        return Library(refusal=_MASKED)
    if "cupy" in names:
        cupy = sys.modules["cupy"]
        of_cupy = cupy.cuda.get_current_stream
        describe = _describe_cupy if kind is cupy.ndarray else None
        return Library(lambda device: of_cupy(device).ptr, describe=describe)
    if "torch" in names:
        of_torch = sys.modules["torch"].cuda.current_stream
        return Library(lambda device: of_torch(device).cuda_stream)
    if names & {"jax", "jaxlib"}:
        return Library(unordered=None, is_immutable=True)
    if "tensorflow" in names:
        return Library(takes_stream=False, is_immutable=True)
    if "pyarrow" in names:
        return Library(is_immutable=True)
    if "penstock" in names:
        return Library(describe=_describe_simulated)
    return Library()


_elements: dict[Any, DLDataType] = {}
_device = cache(DLDevice)


def _describe_cupy(array: Any, place: tuple[int, int]) -> Description:
    dtype = array.dtype
    element = _elements.get(dtype)
    if element is None:
        element = _elements[dtype] = element_named(dtype.name)
    return (array.data.ptr, array.shape, array.strides, element, _device(*place), False)


def _describe_simulated(buffer: Any, place: tuple[int, int]) -> Description:
    return (buffer.handle, (buffer.size,), (1,), DLDataType(0, 8), _device(*place), False)
