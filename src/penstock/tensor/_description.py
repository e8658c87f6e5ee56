"""What a protocol says of a tensor, before there is one."""

from functools import lru_cache

from penstock.tensor._types import DLDataType, DLDevice

# Address, shape, strides in bytes, element type, device, and whether it must not be written to. A plain tuple,
# since one is made for every conversion.
Description = tuple[int, tuple[int, ...], tuple[int, ...], DLDataType, DLDevice, bool]


@lru_cache(maxsize=1024)
def row_major(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Return the strides of a C-contiguous tensor."""
    strides = []
    for extent in reversed(shape):
        strides.append(itemsize)
        itemsize *= max(extent, 1)
    return tuple(reversed(strides))
