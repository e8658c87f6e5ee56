"""What the protocols leave unsaid, library by library.

**On which stream an array is made.** CuPy and PyTorch have a current stream, and by it a program says where an
array is made, so they are asked. Every other library is told instead: DLPack's handshake names a stream of ours,
and the library orders that behind its own work.

**How to ask for no order.** The standard says -1; JAX knows only None for it.
"""

import sys
from collections.abc import Callable
from typing import NamedTuple


class Library(NamedTuple):
    """What is known of the library that a type is of."""

    # Gives the current stream of a device, where there is such a thing.
    current_stream: Callable[[int], int] | None = None
    # What is said in place of a stream to have nothing ordered.
    unordered: int | None = -1


_of: dict[type, Library] = {}


def library_of(kind: type) -> Library:
    """Return what is known of the library that a type is of."""
    try:
        return _of[kind]
    except KeyError:
        found = _of[kind] = _find(kind)
        return found


def _find(kind: type) -> Library:
    names = {ancestor.__module__.partition(".")[0] for ancestor in kind.__mro__}
    if "cupy" in names:
        of_cupy = sys.modules["cupy"].cuda.get_current_stream
        return Library(lambda device: of_cupy(device).ptr)
    if "torch" in names:
        of_torch = sys.modules["torch"].cuda.current_stream
        return Library(lambda device: of_torch(device).cuda_stream)
    if names & {"jax", "jaxlib"}:
        return Library(unordered=None)
    return Library()
