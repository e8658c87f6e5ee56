"""The codec: a message as a text that describes it and pieces of memory, and back.

Whatever pickle takes travels: one pickle of the whole message (protocol 5), with the memory of its arrays beside
it. The description of the usual message, one array of the host, is the same for most frames of a flow: it is made
and read once, and then remembered on both sides, which saves half of the time.

An array keeps its strides if its elements lie in memory without gaps, in whatever order of the axes; otherwise it
is packed in row-major order. Arrays of other libraries travel as tensors and arrive as what they were, if their
library is there. What lies on a device is sent from its first byte to its last, gaps included (`device`). Small
arrays, and those of a message that has very many, are a part of the pickle: pieces of memory are counted.

Reading a pickle runs what its sender chose. Both ends of a link have proved who they are before a message is read
(`handshake`): they are processes of one user, or know the token of the run. So nothing here is for data of others.
Recordings are files that people pass on, so they have a format of their own that is read without running anything
(`observe.recordings.payloads`). To use that here would cost what it was given up for: limits on what may travel,
and three times the time for each object.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np

from headrace.brief import brief
from headrace.core.errors import CrossingError
from headrace.link.device import DevicePiece, tensor_in
from headrace.link.protocol import MOST_PLACES
from headrace.tensor import DLDataType, Tensor, TensorError, as_tensor
from headrace.tensor.conversion import is_array
from headrace.tensor.description import compute_layout, row_major, stream_of
from headrace.tensor.libraries import library_named
from headrace.tensor.types import CPU

Array = np.ndarray[Any, Any]
Dtype = np.dtype[Any]
ToDevice = Callable[[Array, DLDataType, tuple[int, ...], tuple[int, ...] | None], Tensor | None]

_REMEMBERED = 256
_IN_PICKLE = 1024  # bytes of an array that is not worth a piece of its own
_MOST_PIECES = MOST_PLACES - 1  # the description may need one
_USUAL = b"a"  # begins the description of a message that is one array; no pickle begins so


class Encoded(NamedTuple):
    """A message that is ready to be sent.

    Attributes
    ----------
    description
        What it is, with all that is no memory of an array.
    pieces
        Its memory, as arrays whose elements are sent in row-major order; a `DevicePiece` is on a device.
    is_on_device
        Whether there is such a piece.
    extra
        What is new in a message whose description is remembered: its acquisition time.
    """

    description: bytes
    pieces: list[Any]
    is_on_device: bool = False
    extra: bytes = b""


def encode(data: Any, acq_timestamp: int | None = None, metadata: dict[str, Any] | None = None) -> Encoded:
    """Return a message as a description and pieces of memory, which are not copied.

    Raises
    ------
    CrossingError
        If an object in it cannot be sent.
    """
    is_tensor = type(data) is Tensor and data.device.is_host
    if not metadata and (is_tensor or (type(data) is np.ndarray and _is_plain(data.dtype))):
        element = data.dl_dtype if is_tensor else data.dtype
        text, order = _array_text(element, data.shape, data.strides)
        memory = memory_of(data) if is_tensor else data
        extra = b"" if acq_timestamp is None else b"%d" % acq_timestamp
        return Encoded(text, [memory if order is None else memory.transpose(order)], False, extra)
    stream, pieces = io.BytesIO(), list[Any]()
    try:
        _Pickler(stream, pieces).dump((data, acq_timestamp, metadata or None))
    except CrossingError:
        raise
    except (TensorError, BufferError) as error:
        raise CrossingError(f"a message cannot be sent to another process: {error}") from error
    except Exception as error:  # what pickle raises depends on the object
        raise CrossingError(
            f"{brief(data)} cannot be pickled ({type(error).__name__}: {error!s:.500})"
        ) from error
    return Encoded(stream.getvalue(), pieces, any(type(piece) is DevicePiece for piece in pieces))


def decode(
    description: Any, pieces: Sequence[Any], to_device: ToDevice | None = None, extra: bytes = b""
) -> tuple[Any, int | None, dict[str, Any] | None]:
    """Return data, acquisition time and metadata of a message.

    Parameters
    ----------
    description, extra
        What `encode` wrote.
    pieces
        The memory, as writable arrays of bytes that the arrays of the message keep; or as allocations on a device.
    to_device
        Copies a tensor to the device of this process that was on a device of the sender's and came through the
        host. Without it, it stays on the host.

    Raises
    ------
    CrossingError
        If it cannot be unpickled here: a class that is not there, or that raises.
    """
    try:
        if bytes(description[:1]) == _USUAL:
            element, shape, strides = _remembered(bytes(description))
            acq_timestamp = int(extra) if extra else None
            if isinstance(element, DLDataType):
                return _tensor_in(pieces, 0, element, shape, strides, ""), acq_timestamp, None
            return _array_in(pieces, 0, element, shape, strides), acq_timestamp, None
        message: tuple[Any, int | None, Any] = _Unpickler(description, pieces, to_device).load()
        return message
    except Exception as error:
        raise CrossingError(
            f"an object that another process sent cannot be unpickled ({type(error).__name__}: {error!s:.500})"
        ) from error


@lru_cache(_REMEMBERED)
def _array_text(
    element: Dtype | DLDataType, shape: tuple[int, ...], strides: tuple[int, ...]
) -> tuple[bytes, tuple[int, ...] | None]:
    """Return the description of a message that is one array or tensor, and the order of its axes in memory."""
    kept, order = _layout(shape, strides, element.itemsize)
    return _USUAL + pickle.dumps((element, shape, kept), 5), order


@lru_cache(_REMEMBERED)
def _remembered(description: bytes) -> tuple[Dtype | DLDataType, tuple[int, ...], tuple[int, ...] | None]:
    """Return the element type of the array of a description, its shape, and its strides if they were kept."""
    found: tuple[Any, tuple[int, ...], Any] = pickle.loads(memoryview(description)[len(_USUAL) :])
    return found


@lru_cache(_REMEMBERED)
def _layout(
    shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int
) -> tuple[tuple[int, ...] | None, tuple[int, ...] | None]:
    """Return the strides to keep, and the order of the axes in memory; None for those of row-major order."""
    if 0 in shape or strides == row_major(shape, itemsize):
        return None, None
    order = tuple(sorted(range(len(shape)), key=lambda axis: -strides[axis]))
    expected = itemsize
    for axis in reversed(order):
        if shape[axis] != 1 and strides[axis] != expected:
            return None, None  # there are gaps: it is packed
        expected *= shape[axis]
    return strides, order


def _is_plain(dtype: Dtype) -> bool:
    """Return whether the elements of an array are bytes of their own."""
    return not dtype.hasobject and dtype.kind != "T"


class _Pickler(pickle.Pickler):
    """Pickles a message; the memory of its arrays lies beside the pickle, which names it by number."""

    def __init__(self, stream: io.BytesIO, pieces: list[Any]) -> None:
        super().__init__(stream, 5)
        self._pieces = pieces

    def reducer_override(self, obj: Any) -> Any:
        """Describe arrays; leave all else to pickle."""
        kind = type(obj)
        if kind is np.ndarray:
            if not _is_plain(obj.dtype):
                return NotImplemented
            kept, order = _layout(obj.shape, obj.strides, obj.itemsize)
            return _array_in, (self._put(obj, order), obj.dtype, obj.shape, kept)
        if kind is Tensor:
            return self._reduce_tensor(obj, "")
        if isinstance(obj, (type, np.ndarray, np.generic)) or not is_array(obj):
            return NotImplemented
        return self._reduce_tensor(as_tensor(obj), f"{kind.__module__.partition('.')[0]}.{kind.__name__}")

    def _reduce_tensor(self, tensor: Tensor, library: str) -> Any:
        element, shape = tensor.dl_dtype, tensor.shape
        if tensor.device.is_host:
            kept, order = _layout(shape, tensor.strides, element.itemsize)
            return _tensor_in, (self._put(memory_of(tensor), order), element, shape, kept, library)
        if len(self._pieces) >= _MOST_PIECES:
            raise CrossingError(
                f"a message has more than {_MOST_PIECES} arrays on a device; send them as one"
            )
        self._pieces.append(DevicePiece.of(tensor))
        strides = None if tensor.is_contiguous() else tensor.strides
        return _device_tensor_in, (len(self._pieces) - 1, element, shape, strides, library)

    def _put(self, memory: Array, order: tuple[int, ...] | None) -> int | bytearray:
        """Return what stands for the elements of an array in the pickle, in the given order of axes."""
        memory = memory if order is None else memory.transpose(order)
        if memory.nbytes < _IN_PICKLE or len(self._pieces) >= _MOST_PIECES:
            return bytearray(memory.tobytes())
        self._pieces.append(memory)
        return len(self._pieces) - 1


class _Unpickler(pickle.Unpickler):
    def __init__(self, description: Any, pieces: Sequence[Any], to_device: ToDevice | None) -> None:
        super().__init__(io.BytesIO(description))
        self._pieces = pieces
        self._to_device = to_device

    def find_class(self, module: str, name: str) -> Any:
        """Find what a pickle names."""
        found = super().find_class(module, name)
        # No methods of this object: in a circle it would keep what it has read.
        if found is _device_tensor_in:
            return partial(found, self._pieces, self._to_device)
        return partial(found, self._pieces) if found is _array_in or found is _tensor_in else found


def _piece(pieces: Sequence[Any], memory: int | bytearray) -> Any:
    return pieces[memory] if isinstance(memory, int) else memory


def _array_in(
    pieces: Sequence[Any], memory: int | bytearray, dtype: Dtype, shape: tuple[int, ...], strides: Any
) -> Array:
    return np.ndarray(shape, dtype, _piece(pieces, memory), 0, strides)  # which checks the bounds


def _tensor_in(
    pieces: Sequence[Any],
    memory: int | bytearray,
    element: DLDataType,
    shape: tuple[int, ...],
    strides: Any,
    library: str,
) -> Any:
    steps = row_major(shape, element.itemsize) if strides is None else strides
    content = _piece(pieces, memory)
    if element.typestr is None:
        held = np.frombuffer(content, np.uint8)
        address = held.__array_interface__["data"][0]
        tensor = Tensor._at((address, shape, steps, element, CPU, False), held)
    else:  # what `as_tensor` does, in a tenth of the time
        array = np.ndarray(shape, element.numpy(), content, 0, steps)
        address = array.__array_interface__["data"][0]
        described = (address, shape, array.strides, element, CPU, False)
        tensor = Tensor._create(described, array, array.view(), None)
    return _of_library(tensor, library)


def _device_tensor_in(
    pieces: Sequence[Any],
    to_device: ToDevice | None,
    number: int,
    element: DLDataType,
    shape: tuple[int, ...],
    strides: tuple[int, ...] | None,
    library: str,
) -> Any:
    """Return a tensor that was on a device and lies there, or came through the host."""
    memory = pieces[number]
    if not isinstance(memory, np.ndarray):
        return _of_library(tensor_in(memory, element, shape, strides), library)
    on_device = None if to_device is None else to_device(memory, element, shape, strides)
    if on_device is not None:
        return _of_library(on_device, library)
    steps, first, _ = compute_layout(shape, strides, 1, element.itemsize)
    address = memory.__array_interface__["data"][0] - first  # it comes from its first byte on
    return Tensor._at((address, shape, steps, element, CPU, False), memory)


def _of_library(tensor: Tensor, library: str) -> Any:
    """Return a tensor as an array of the library that it came from, if that is there.

    `library` is the type of the array, after the name of its package; some types have a library of their own.
    """
    for name in (library, library.partition(".")[0]) if library else ():
        with suppress(ImportError):
            return library_named(name).from_tensor(tensor)
    return tensor  # the program gets what every library takes


def memory_of(tensor: Tensor) -> Array:
    """Return the memory of a tensor that the host can read, when the work on it is done."""
    if tensor.stream is not None:
        stream_of(tensor.stream).sync()
    return np.asarray(_Memory(tensor))


class _Memory:
    """The memory of a tensor as NumPy sees it: elements of the same size without a meaning."""

    __slots__ = ("__array_interface__", "_tensor")

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor
        self.__array_interface__ = {
            "version": 3,
            "shape": tensor.shape,
            "typestr": f"|V{tensor.itemsize}",
            "data": (tensor.data if tensor.size else 0, True),
            "strides": tensor.strides,
        }
