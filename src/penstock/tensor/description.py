"""What a protocol says of a tensor, before there is one, and what every tensor must satisfy.

Whatever a protocol says is checked here before anything believes it: a consumer that is handed a shape or a stride
that cannot be may end the process instead of raising. The shapes of a pipeline repeat, so what was found for one is
remembered.
"""

from functools import lru_cache

from penstock.tensor.errors import TensorError
from penstock.tensor.types import DLDataType, DLDevice

# Address, shape, strides in bytes, element type, device, and whether it must not be written to. A plain tuple,
# since one is made for every conversion.
Description = tuple[int, tuple[int, ...], tuple[int, ...], DLDataType, DLDevice, bool]

# Strides in bytes, then the offsets of the first byte and of the end of the last, relative to the address.
Layout = tuple[tuple[int, ...], int, int]

MAX_DIMENSIONS = 64  # NumPy's limit
END_OF_MEMORY = 1 << 63  # no address and no size reaches it


@lru_cache(maxsize=1024)
def row_major(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Return the strides of a C-contiguous tensor."""
    strides = []
    for extent in reversed(shape):
        strides.append(itemsize)
        itemsize *= max(extent, 1)
    return tuple(reversed(strides))


@lru_cache(maxsize=1024)
def lay_out(shape: tuple[int, ...], steps: tuple[int, ...] | None, unit: int, itemsize: int) -> Layout:
    """Return the layout of a tensor; `steps` are in units of so many bytes, None is row-major.

    Raises
    ------
    TensorError
        If no tensor can have that shape and those strides.
    """
    if len(shape) > MAX_DIMENSIONS:
        raise TensorError(f"it has {len(shape)} dimensions; a tensor has at most {MAX_DIMENSIONS}")
    size = itemsize
    for extent in shape:
        if extent < 0:
            raise TensorError(f"its shape is {shape}; an extent is 0 or more")
        size *= extent or 1
    if size >= END_OF_MEMORY:
        raise TensorError(f"its shape is {shape}; that is more than memory can be")
    strides = row_major(shape, itemsize) if steps is None else tuple([step * unit for step in steps])
    if len(strides) != len(shape):
        raise TensorError(
            f"it has {len(shape)} dimensions and {len(strides)} strides; each dimension has one"
        )
    if 0 in shape:
        return strides, 0, 0
    first, end = 0, itemsize
    for extent, stride in zip(shape, strides, strict=True):
        reach = (extent - 1) * stride
        if reach < 0:
            first += reach
        else:
            end += reach
    if end - first >= END_OF_MEMORY:
        raise TensorError(
            f"its strides are {strides} bytes; with the shape {shape} they reach beyond any memory"
        )
    return strides, first, end


def nowhere(data: int, first: int, end: int) -> TensorError:
    """Return the error of elements that would lie where no memory can be."""
    if not data:
        return TensorError("its address is 0, and it has elements; only an empty one may have no address")
    return TensorError(
        f"its elements would lie from {data + first:#x} to {data + end:#x}, which is no memory"
    )
