"""The codec: a message as a text that describes it and pieces of memory, and back.

The description is JSON: None, bool, int, float and str are themselves, everything else is a list that begins with
the letter of its kind. Pieces of memory are named by their numbers.

| letter | value | what follows |
| --- | --- | --- |
| ``a`` | array of NumPy | piece, dtype, shape, strides (null: row-major) |
| ``t`` | Tensor, or an array of another library | piece, DLPack's element type, shape, strides, device, library |
| ``s`` | scalar of NumPy | piece, dtype |
| ``b``, ``B`` | bytes, bytearray | piece |
| ``l``, ``u`` | list, tuple | items |
| ``d``, ``m`` | dict, TensorMap | keys, values |
| ``c`` | complex | real and imaginary part |
| ``p`` | any other object | piece with its pickle, pieces of its buffers, the tensors in it |

The device of a tensor is null for one of the host, and 1 for one of a device, which is sent from its first byte to
its last, gaps included (`device`).

An array keeps its strides if its elements lie in memory without gaps, in whatever order of the axes; otherwise it
is packed in row-major order. Frames of a flow mostly have the same description, so the last ones are remembered, on
both sides. The metadata and the acquisition time of a message, which change, are a text of their own.

Decided against: one pickle for all. Reading a pickle runs what the sender chose, so it is not for bytes that may be
wrong; and describing an array by its dtype and shape takes a third of the time.

Reading trusts nothing: every number is checked before it is used, by this file or by NumPy, and an object is
unpickled only if that is allowed.
"""

from __future__ import annotations

import ast
import io
import json
import pickle
from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from headrace.core.errors import CrossingError, ProtocolError
from headrace.tensor import DLDataType, Tensor, TensorError, TensorMap, as_tensor
from headrace.tensor.conversion import is_array
from headrace.tensor.description import compute_layout, row_major
from headrace.tensor.errors import type_name
from headrace.tensor.libraries import library_named
from headrace.tensor.pending_work import stream_of
from headrace.tensor.tree import DEEPEST
from headrace.tensor.types import CPU, element_from_dtype, is_of_ml_dtypes

Array = np.ndarray[Any, Any]
Dtype = np.dtype[Any]
# dtype, shape, strides, bytes, and the element type if it is a tensor
Layout = tuple[Dtype, tuple[int, ...], tuple[int, ...], int, DLDataType | None]
ToDevice = Callable[[Array, DLDataType, tuple[int, ...], tuple[int, ...] | None], Tensor | None]

_PLAIN = frozenset((type(None), bool, int, float, str))
_dump = json.JSONEncoder(check_circular=False, separators=(",", ":")).encode
_REMEMBERED = 256
_LONGEST_REMEMBERED = 2048  # bytes of a description
_LONGEST_DTYPE = 4096
_LONGEST_SCALAR = 64  # bytes of a number of NumPy in the description


class Encoded(NamedTuple):
    """A message that is ready to be sent.

    Attributes
    ----------
    description
        What it is.
    extra
        Its acquisition time and metadata; empty if there is neither.
    pieces
        Its memory, as arrays whose elements are sent in row-major order; a `DevicePiece` is on a device.
    is_on_device
        Whether there is such a piece.
    """

    description: bytes
    extra: bytes
    pieces: list[Any]
    is_on_device: bool = False


def encode(
    data: Any,
    acq_timestamp: int | None = None,
    metadata: dict[str, Any] | None = None,
    *,
    allow_pickle: bool = False,
) -> Encoded:
    """Return a message as a description and pieces of memory, which are not copied.

    Raises
    ------
    CrossingError
        If an object in it cannot be sent.
    """
    writer = _Writer(allow_pickle)
    try:
        description = _dump(writer.write(data, 0)).encode()
        extra = b""
        if acq_timestamp is not None or metadata:
            extra = _dump([acq_timestamp, writer.write(metadata, 0) if metadata else None]).encode()
    except CrossingError:
        raise
    except (ValueError, TensorError, BufferError) as error:  # an int of thousands of digits, strange strides
        raise CrossingError(f"a message cannot be sent to another process: {error}") from error
    return Encoded(description, extra, writer.pieces, writer.is_on_device)


def encode_array(data: Any, acq_timestamp: int | None) -> tuple[bytes, bytes, Array | Tensor, int] | None:
    """Return description, extra, memory and its length of the usual message: one array of the host, no metadata.

    The memory is a tensor itself if its elements lie in row-major order: it may not have to be looked at.

    It writes what `encode` does, in a fraction of the time. It is None for any other message, and for an array
    whose description is long.
    """
    if type(data) is np.ndarray:
        known = _array_text(data.dtype, data.shape, data.strides)
    elif type(data) is Tensor and data.device.is_host:
        known = _array_text(data.dl_dtype, data.shape, data.strides)
        if known is None or not known[3] or data.stream is not None:
            data = memory_of(data)
    else:
        return None
    if known is None:
        return None
    text, order, length, _ = known
    extra = b"" if acq_timestamp is None else b"[%d,null]" % acq_timestamp
    return text, extra, data if order is None else data.transpose(order), length


def decode_array(description: bytes, extra: bytes, length: int) -> tuple[Layout, int | None] | None:
    """Return how the array of the usual message lies in memory of a length, and the acquisition time.

    It is None for any other message, and for what is wrong, which `decode` raises an error for.
    """
    if extra and not extra.endswith(b",null]"):
        return None
    try:
        if len(description) > _LONGEST_REMEMBERED:
            return None
        layout = _remembered(description)[1]
        if layout is None or layout[3] > length:
            return None
        return layout, int(extra[1:-6]) if extra else None
    except Exception:  # as in `decode`
        return None


def array_at(layout: Layout, memory: Any, offset: int) -> Array:
    """Return the array of the usual message, whose layout was checked when it came for the first time."""
    dtype, shape, strides, _, _ = layout
    try:
        return np.ndarray(shape, dtype, memory, offset, strides)
    except Exception as error:  # what NumPy raises for a shape that cannot be
        raise ProtocolError(f"a frame is damaged: {type(error).__name__}: {error!s:.200}") from error


def as_data(layout: Layout, array: Array, address: int | None = None) -> Any:
    """Return the array of the usual message, at an address, as what was sent: an array of NumPy, or a tensor."""
    _, shape, strides, _, element = layout
    if element is None:
        return array
    if address is None:
        address = array.__array_interface__["data"][0]
    described = (address, shape, strides, element, CPU, False)
    return Tensor._create(described, array, array.view(), None)


def decode(
    description: bytes,
    extra: bytes,
    pieces: Sequence[Any],
    *,
    allow_pickle: bool = False,
    to_device: ToDevice | None = None,
) -> Any:
    """Return data, acquisition time and metadata of a message.

    Parameters
    ----------
    description, extra
        What `encode` wrote.
    pieces
        The memory, as writable arrays of bytes that the arrays of the message keep; or as allocations on a device.
    allow_pickle
        Whether objects are unpickled.
    to_device
        Copies a tensor to the device of this process that was on a device of the sender's and came through the
        host. Without it, it stays on the host.

    Raises
    ------
    ProtocolError
        If this is not a message.
    """
    try:
        reader = _Reader(pieces, allow_pickle, to_device)
        is_long = len(description) > _LONGEST_REMEMBERED
        data: Any = reader.read(json.loads(description) if is_long else _remembered(description)[0])
        if not extra:
            return data, None, None
        if extra.endswith(b",null]"):
            return data, int(extra[1:-6]), None
        acq_timestamp, details = json.loads(extra)
        metadata = reader.read(details)
    except (ProtocolError, CrossingError):
        raise
    except Exception as error:  # what JSON, NumPy and Python raise for values that cannot be
        raise ProtocolError(f"a frame is damaged: {type(error).__name__}: {error!s:.200}") from error
    if not (acq_timestamp is None or type(acq_timestamp) is int) or not isinstance(metadata, dict | None):
        raise ProtocolError("a frame is damaged: it has no such time or metadata")
    return data, acq_timestamp, metadata


# Writing.


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


@lru_cache(_REMEMBERED)
def _array_text(
    dtype: Dtype | DLDataType, shape: tuple[int, ...], strides: tuple[int, ...]
) -> tuple[bytes, tuple[int, ...] | None, int, bool] | None:
    """Return the description of a message that is one array or tensor, and how that lies in memory.

    That is the order of its axes, the bytes of its elements, and whether they are in row-major order. None stands
    for an array of objects, and for one whose description is long.
    """
    kept, order = _layout(shape, strides, dtype.itemsize)
    if isinstance(dtype, DLDataType):
        text = _dump(["t", 0, dtype, shape, kept, None, ""]).encode()
    else:
        described = describe_dtype(dtype)
        if described is None:
            return None
        text = _dump(["a", 0, described, shape, kept]).encode()
    if len(text) > _LONGEST_REMEMBERED:
        return None
    return text, order, prod(shape) * dtype.itemsize, strides == row_major(shape, dtype.itemsize)


class _Writer:
    """Writes one message."""

    def __init__(self, allow_pickle: bool) -> None:
        self.pieces: list[Any] = []
        self.is_on_device = False
        self._allow_pickle = allow_pickle

    def add(self, array: Array, order: tuple[int, ...] | None = None) -> int:
        """Add the elements of an array, in the given order of axes; return the number of the piece."""
        self.pieces.append(array if order is None else array.transpose(order))
        return len(self.pieces) - 1

    def write(self, data: Any, depth: int) -> Any:
        """Return the description of an object."""
        kind = type(data)
        if kind in _PLAIN:
            return data
        if kind is Tensor:
            return self._tensor(data, "")
        if kind is np.ndarray:
            described = describe_dtype(data.dtype)
            if described is not None:
                kept, order = _layout(data.shape, data.strides, data.itemsize)
                return ["a", self.add(data, order), described, data.shape, kept]
        if depth >= DEEPEST:
            raise CrossingError(f"a container contains itself, or more than {DEEPEST} are within each other")
        depth += 1
        if kind is dict or kind is TensorMap:
            keys = [self.write(key, depth) for key in data]
            return ["d" if kind is dict else "m", keys, [self.write(value, depth) for value in data.values()]]
        if kind is list or kind is tuple:
            return ["l" if kind is list else "u", *[self.write(item, depth) for item in data]]
        if kind is bytes or kind is bytearray:
            return ["b" if kind is bytes else "B", self.add(np.frombuffer(data, np.uint8))]
        if kind is complex:
            return ["c", data.real, data.imag]
        if isinstance(data, np.generic):
            described = describe_dtype(data.dtype)
            if described is not None:
                # A small one is a part of the description: pieces are counted, and there may be thousands of them.
                if data.nbytes <= _LONGEST_SCALAR:
                    return ["S", data.tobytes()[: data.dtype.itemsize].hex(), described]
                return ["s", self.add(np.asarray(data)), described]
        elif kind is not np.ndarray and is_array(data) and not isinstance(data, np.ndarray):
            return self._tensor(as_tensor(data), kind.__module__.partition(".")[0])
        return self._pickle(data, depth)

    def _tensor(self, tensor: Tensor, library: str) -> Any:
        if not tensor.device.is_host:
            from headrace.link.device import DevicePiece

            self.is_on_device = True
            self.pieces.append(DevicePiece.of(tensor))
            strides = None if tensor.is_contiguous() else tensor.strides
            return ["t", len(self.pieces) - 1, tensor.dl_dtype, tensor.shape, strides, 1, library]
        element, shape = tensor.dl_dtype, tensor.shape
        kept, order = _layout(shape, tensor.strides, element.itemsize)
        return ["t", self.add(memory_of(tensor), order), element, shape, kept, None, library]

    def _pickle(self, data: Any, depth: int) -> Any:
        if not self._allow_pickle:
            raise CrossingError(
                f"an object of the type {type_name(data)} can only be pickled, which this link does not allow; "
                "send tensors, numbers, text, bytes, and lists, tuples and dicts of them"
            )
        stream = io.BytesIO()
        pickler = _Pickler(self, stream, depth)
        try:
            pickler.dump(data)
        except CrossingError:
            raise
        except Exception as error:  # what pickle raises depends on the object
            raise CrossingError(
                f"{_shown(data)} cannot be pickled ({type(error).__name__}: {error})"
            ) from error
        content = self.add(np.frombuffer(stream.getbuffer(), np.uint8))
        buffers = [self.add(np.frombuffer(buffer.raw(), np.uint8)) for buffer in pickler.buffers]
        return ["p", content, buffers, pickler.tensors]


def _shown(data: Any) -> str:
    """Return an object as Python shows it, shortened; of one that cannot be shown, its type."""
    try:
        shown = repr(data)
    except Exception:
        return f"an object of the type {type_name(data)}"
    return shown if len(shown) < 200 else shown[:200] + "..."


class _Pickler(pickle.Pickler):
    """Pickles an object, with its buffers and tensors beside the pickle."""

    def __init__(self, writer: _Writer, stream: io.BytesIO, depth: int) -> None:
        self.buffers: list[pickle.PickleBuffer] = []
        self.tensors: list[Any] = []
        self._writer = writer
        self._depth = depth
        super().__init__(stream, 5, buffer_callback=self.buffers.append)

    def persistent_id(self, obj: Any) -> int | None:
        """Describe a tensor, which pickle cannot, outside of the pickle."""
        if type(obj) is not Tensor:
            return None
        self.tensors.append(self._writer.write(obj, self._depth))
        return len(self.tensors) - 1


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


@lru_cache(_REMEMBERED)
def describe_dtype(dtype: Dtype) -> Any:
    """Return the description of a dtype, or None if its elements are not bytes of their own."""
    if dtype.hasobject or dtype.kind == "T":
        return None
    if is_of_ml_dtypes(dtype):
        try:
            return element_from_dtype(dtype)
        except TensorError:
            return None
    try:
        if dtype.names is None and dtype.subdtype is None:
            text = dtype.str
        else:
            text = repr(np.lib.format.dtype_to_descr(dtype))
        return text if len(text) <= _LONGEST_DTYPE and _read_dtype(text) == dtype else None
    except (ProtocolError, ValueError):  # fields that overlap, or are in another order than in memory
        return None


# Reading.


@lru_cache(_REMEMBERED)
def _remembered(description: bytes) -> tuple[Any, Layout | None]:
    """Return the tree of a description and, if the message is one array, how that lies in its memory."""
    tree = json.loads(description)
    if type(tree) is not list or len(tree) not in (5, 7) or tree[1] != 0:
        return tree, None
    if tree[0] == "t" and tree[5:] == [None, ""]:
        element, extents, steps, first, end = _read_layout(
            tuple(tree[2]), tuple(tree[3]), None if tree[4] is None else tuple(tree[4])
        )
        if first < 0 or element.typestr is None:
            return tree, None
        dtype = element.numpy()
        return tree, (dtype, extents, steps, max(end, prod(extents) * dtype.itemsize), element)
    if tree[0] != "a" or len(tree) != 5:
        return tree, None
    dtype = _dtype_of(tree[2])
    shape, given = tuple(tree[3]), None if tree[4] is None else tuple(tree[4])
    steps, first, end = compute_layout(shape, given, 1, dtype.itemsize)
    if first < 0 or not all(type(number) is int for number in (*shape, *steps)):
        raise ProtocolError(
            f"a frame is damaged: there is no shape {shape!r:.200} with strides {given!r:.200}"
        )
    # Strides of 0 make the two ends differ.
    return tree, (dtype, shape, steps, max(end, prod(shape) * dtype.itemsize), None)


@lru_cache(_REMEMBERED)
def _read_dtype(text: str) -> Dtype:
    if len(text) > _LONGEST_DTYPE:
        raise ProtocolError("a frame is damaged: the text of a dtype is too long")
    is_record = text.startswith("[")
    dtype: Dtype = np.lib.format.descr_to_dtype(ast.literal_eval(text)) if is_record else np.dtype(text)
    if dtype.hasobject or dtype.kind == "T":
        raise ProtocolError(f"a frame is damaged: elements of the dtype {dtype} do not travel")
    return dtype


def _dtype_of(described: Any) -> Dtype:
    return _read_dtype(described) if type(described) is str else _read_element(*described).numpy()


@lru_cache(_REMEMBERED)
def _read_element(code: int, bits: int, lanes: int) -> DLDataType:
    if not (0 <= code <= 255 and 1 <= bits <= 255 and 1 <= lanes <= 65535):
        raise ProtocolError(f"a frame is damaged: there is no element type {code}, {bits}, {lanes}")
    return DLDataType(code, bits, lanes)


@lru_cache(_REMEMBERED)
def _read_layout(
    element: tuple[int, int, int], shape: tuple[int, ...], strides: tuple[int, ...] | None
) -> tuple[DLDataType, tuple[int, ...], tuple[int, ...], int, int]:
    """Return the element type, the shape and the strides of a tensor, and where its bytes begin and end."""
    kind = _read_element(*element)
    if not all(type(number) is int for number in (*shape, *(strides or ()))):
        raise ProtocolError(
            f"a frame is damaged: there is no shape {shape!r:.200} with strides {strides!r:.200}"
        )
    steps, first, end = compute_layout(shape, strides, 1, kind.itemsize)
    return (
        kind,
        shape,
        steps,
        first,
        max(end, first + prod(shape) * kind.itemsize),
    )  # which strides of 0 make differ


class _Reader:
    """Reads one message."""

    def __init__(self, pieces: Sequence[Any], allow_pickle: bool, to_device: ToDevice | None) -> None:
        self._pieces = pieces
        self._to_device = to_device
        self._allow_pickle = allow_pickle

    def read(self, node: Any) -> Any:
        """Return the object of a description."""
        if type(node) is not list:
            if type(node) is dict:
                raise ProtocolError("a frame is damaged: there are no objects of JSON in a description")
            return node
        return _READ[node[0]](self, *node[1:])

    def _piece(self, number: Any) -> Any:
        if type(number) is not int or not 0 <= number < len(self._pieces):
            raise ProtocolError(f"a frame is damaged: it has no piece of memory {number!r:.50}")
        return self._pieces[number]

    def _on_host(self, number: Any) -> Array:
        memory = self._piece(number)
        if not isinstance(memory, np.ndarray):
            raise ProtocolError("a frame is damaged: an array of the host lies on a device")
        return memory

    def _scalar(self, text: Any, dtype: Any) -> Any:
        kind, content = _dtype_of(dtype), bytearray.fromhex(text)
        if len(content) != kind.itemsize:
            raise ProtocolError(f"a frame is damaged: a number of {kind} has {len(content)} bytes")
        return np.ndarray((), kind, content)[()]

    def _array(self, piece: Any, dtype: Any, shape: Any, strides: Any) -> Array:
        memory = self._on_host(piece)
        if min(shape, default=0) < 0:  # which NumPy would replace
            raise ProtocolError(f"a frame is damaged: there is no shape {shape!r:.200}")
        array = np.ndarray(tuple(shape), _dtype_of(dtype), memory, 0, strides)  # which checks the bounds
        if array.nbytes > memory.nbytes:  # by strides of 0
            raise ProtocolError(
                f"a frame is damaged: an array of {array.nbytes} bytes lies in {memory.nbytes}"
            )
        return array

    def _tensor(self, piece: Any, element: Any, shape: Any, strides: Any, device: Any, library: Any) -> Any:
        kind, extents, steps, first, end = _read_layout(
            tuple(element), tuple(shape), None if strides is None else tuple(strides)
        )
        if device:
            on_device = self._tensor_on_device(self._piece(piece), kind, extents, strides)
            if on_device is not None:
                return _of_library(on_device, library)
        memory = self._on_host(piece)
        base = -first if device else 0  # what was on a device comes from its first byte on
        if first + base < 0 or end + base > memory.nbytes:
            raise ProtocolError(f"a frame is damaged: a tensor of {end + base} bytes lies in {memory.nbytes}")
        address = memory.__array_interface__["data"][0] + base
        described = (address, extents, steps, kind, CPU, False)
        if kind.typestr is None:
            tensor = Tensor._at(described, memory)
        else:  # what `as_tensor` does, in a tenth of the time
            array = np.ndarray(extents, kind.numpy(), memory, base, steps)
            tensor = Tensor._create(described, array, array.view(), None)
        return tensor if device else _of_library(tensor, library)

    def _tensor_on_device(
        self, memory: Any, kind: DLDataType, shape: tuple[int, ...], strides: Any
    ) -> Tensor | None:
        from headrace.link.device import tensor_in

        steps = None if strides is None else tuple(strides)
        if isinstance(memory, np.ndarray):
            return None if self._to_device is None else self._to_device(memory, kind, shape, steps)
        return tensor_in(memory, kind, shape, steps)

    def _dict(self, keys: Any, values: Any) -> dict[Any, Any]:
        return dict(zip(map(self.read, keys), map(self.read, values), strict=True))

    def _tensor_map(self, keys: Any, values: Any) -> TensorMap:
        return TensorMap(self._dict(keys, values))

    def _unpickle(self, content: Any, buffers: Any, tensors: Any) -> Any:
        if not self._allow_pickle:
            raise ProtocolError("a frame has a pickled object, which this link does not allow")
        kept = [self.read(tensor) for tensor in tensors]
        memory = [self._on_host(buffer) for buffer in buffers]
        unpickler = _Unpickler(io.BytesIO(self._on_host(content).data), kept, memory)
        try:
            return unpickler.load()
        except Exception as error:  # a class that is not there, or that raises
            raise CrossingError(
                f"an object that another process sent cannot be unpickled ({type(error).__name__}: {error})"
            ) from error


def _of_library(tensor: Tensor, library: Any) -> Any:
    """Return a tensor as an array of the library that it came from, if that is there."""
    if not library:
        return tensor
    try:
        return library_named(str(library)).from_tensor(tensor)
    except ImportError:  # the program gets what every library takes
        return tensor


class _Unpickler(pickle.Unpickler):
    def __init__(self, stream: io.BytesIO, tensors: list[Any], buffers: list[Array]) -> None:
        super().__init__(stream, buffers=buffers)
        self._tensors = tensors

    def persistent_load(self, pid: Any) -> Any:
        return self._tensors[pid]


_READ: dict[str, Callable[..., Any]] = {
    "a": _Reader._array,
    "t": _Reader._tensor,
    "s": lambda reader, piece, dtype: reader._array(piece, dtype, (), None)[()],
    "S": _Reader._scalar,
    "b": lambda reader, piece: reader._on_host(piece).tobytes(),
    "B": lambda reader, piece: bytearray(reader._on_host(piece)),
    "l": lambda reader, *items: [reader.read(item) for item in items],
    "u": lambda reader, *items: tuple([reader.read(item) for item in items]),
    "d": _Reader._dict,
    "m": _Reader._tensor_map,
    "c": lambda reader, real, imaginary: complex(real, imaginary),
    "p": _Reader._unpickle,
}
