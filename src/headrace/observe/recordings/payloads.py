"""Payloads: the data of messages as bytes, and back.

A payload has two parts: a *tree* in JSON, and *data*, the bytes of all arrays one after the other. In the tree,
None, bool, int, float, str, list and dict are themselves. Everything else is an object with one key, which begins
with $:

| key | value | what follows |
| --- | --- | --- |
| ``$float`` | a float that is not finite | its 8 bytes, little-endian, in hexadecimal |
| ``$complex`` | complex | its real and imaginary part |
| ``$tuple`` | tuple | a list |
| ``$dict`` | a dict with other keys than text, or with a key that begins with $ | a list of pairs |
| ``$bytes`` | bytes | ``[at, size]`` |
| ``$array`` | array of NumPy | ``[at, dtype, shape, order]``; ``C`` is row-major, ``F`` column-major |
| ``$scalar`` | scalar of NumPy | ``[at, dtype]`` |
| ``$tensor`` | tensor | ``[at, [code, bits, lanes], shape, device type, library]``, in DLPack's numbers |
| ``$tensors`` | TensorMap | an object of ``$tensor`` by name |
| ``$pickle`` | any other object | ``[at, size, name of the type]`` |

``at`` is the offset in the data. The elements of an array are in row-major order, and in column-major order with
``F``. A dtype is a text of NumPy, or DLPack's numbers of a type that NumPy does not define itself. Blocks lie in
the data in the order of the tree, without gaps. The same value always has the same bytes.

The two parts are laid out as in the Common Data Representation (CDR), little-endian, of the ROS 2 message
``string tree, uint8[] data``. A message with one array that is an image is laid out as ``sensor_msgs/msg/Image``,
which viewers draw: its ``frame_id`` is the tree, and its ``data`` is the data. So a reader of ROS 2 messages shows
every payload.

Reading trusts nothing: every offset and length is compared with the bytes that are there before anything is
allocated, and no code of the file runs. A pickle is loaded only if the caller asks for it.
"""

from __future__ import annotations

import ast
import json
import math
import pickle
import struct
from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

import numpy as np

from headrace.observe.recordings.snapshots import TensorCopy, TensorMapCopy
from headrace.tensor import DLDataType, DLDevice, TensorError
from headrace.tensor.types import element_from_dtype, is_of_ml_dtypes

DEEPEST = 33
"""The number of levels of containers, with the one that holds the parts of a message."""
_LONGEST_DTYPE = 1 << 16
_JSON = frozenset((type(None), bool, int, str))
_PLAIN = _JSON | {float, complex, bytes, TensorCopy, TensorMapCopy}
_CONTAINERS = frozenset((tuple, list, dict, TensorMapCopy))
_dump = json.JSONEncoder(ensure_ascii=False, check_circular=False, separators=(",", ":")).encode
_HEAD = b"\0\1\0\0"  # CDR, little-endian
_ENCODINGS = {  # of images, by the type of their elements and the number of their channels
    ("|u1",): "mono8",
    ("|u1", 1): "mono8",
    ("|u1", 3): "rgb8",
    ("|u1", 4): "rgba8",
    ("<u2",): "mono16",
    ("<f4",): "32FC1",
}

Payload = list[bytes | bytearray | memoryview]
"""Bytes in several pieces, so that arrays are not copied."""


class PayloadError(ValueError):
    """Data that cannot be recorded, or bytes that are no payload."""


class Pickled(NamedTuple):
    """An object that was pickled when it was recorded."""

    name: str
    content: bytes


def check_leaf(data: Any, allow_pickle: bool) -> Any:
    """Return an object of a message that is no container so that it can be encoded later.

    Parameters
    ----------
    data
        The object, whose copies need not be complete.
    allow_pickle
        Whether objects of other types are pickled, which happens here, before they change.

    Raises
    ------
    PayloadError
        If the object is of another type.
    """
    kind = type(data)
    if kind in _PLAIN:
        return data
    is_array = kind is np.ndarray
    if (is_array or isinstance(data, np.generic)) and _describe_dtype(data.dtype) is not None:
        return data
    if kind in _CONTAINERS:
        raise _too_deep()
    name = type_name(data)
    if not allow_pickle:
        what = f"an array of the dtype {data.dtype}" if is_array else f"an object of the type {name}"
        raise PayloadError(
            f"{what} can only be recorded by pickle, which whoever plays the file must trust: pass pickle=True"
        )
    try:
        return Pickled(name, pickle.dumps(data, protocol=4))
    except Exception as error:
        raise PayloadError(f"an object of the type {name} cannot be pickled: {error}") from error


def type_name(data: Any) -> str:
    """Return the name of the type of an object, with its module unless that is ``builtins``."""
    kind = type(data)
    return f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")


# Writing.


def encode(data: Any, allow_pickle: bool = False) -> bytes:
    """Return the bytes of data: numbers, text, bytes, arrays, copies of tensors, and containers of these.

    Raises
    ------
    PayloadError
        If there is an object of another type, unless `allow_pickle` is set.
    """
    return b"".join(pack(data, allow_pickle)[1])


def pack(data: Any, allow_pickle: bool = False, time: int | None = None) -> tuple[bool, Payload]:
    """Return whether data is laid out as an image of a time, which only happens if there is one, and its bytes."""
    blocks = _Blocks(allow_pickle)
    try:
        tree = _dump(blocks.tree(data))
    except ValueError as error:  # an int of thousands of digits
        raise error if isinstance(error, PayloadError) else PayloadError(str(error)) from None
    if blocks.size >= 1 << 32:
        raise PayloadError(f"its arrays have {blocks.size} bytes, and a message has at most {(1 << 32) - 1}")
    head = bytearray(_HEAD)
    encoding = None if time is None else blocks.encoding()
    if time is None or encoding is None:
        _put_text(head, tree)
    else:
        height, width, *_ = blocks.shapes[0]
        _put_numbers(head, time // 10**9 & 0x7FFFFFFF, time % 10**9)
        _put_text(head, tree)
        _put_numbers(head, height, width)
        _put_text(head, encoding)
        head.append(0)  # little-endian
        _put_numbers(head, blocks.size // height)
    _put_numbers(head, blocks.size)
    return encoding is not None, [head, *blocks.parts]


def _put_numbers(head: bytearray, *values: int) -> None:
    if len(head) % 4:
        head += bytes(-len(head) % 4)
    for value in values:
        head += value.to_bytes(4, "little")


def _put_text(head: bytearray, text: str) -> None:
    content = text.encode("utf-8", "surrogatepass") + b"\0"
    _put_numbers(head, len(content))
    head += content


class _Blocks:
    """The bytes of a payload, and the tree that describes them."""

    def __init__(self, allow_pickle: bool) -> None:
        self.parts: Payload = []
        self.size = 0
        self.shapes: list[tuple[int, ...]] = []
        self._typestr: Any = None
        """The element type of the last array, if its elements are in row-major order."""
        self._allow_pickle = allow_pickle

    def encoding(self) -> str | None:
        """Return the name of the pixels if all data is one image."""
        shape = self.shapes[0] if len(self.shapes) == len(self.parts) == 1 else ()
        if len(shape) not in (2, 3) or type(self._typestr) is not str:
            return None
        return _ENCODINGS.get((self._typestr, *shape[2:]))

    def tree(self, data: Any, level: int = 0) -> Any:
        """Return the tree of data, and add its bytes."""
        kind = type(data)
        if kind in _JSON:
            return data
        if kind is float:
            return data if math.isfinite(data) else {"$float": struct.pack("<d", data).hex()}
        if kind is complex:
            return {"$complex": [self.tree(data.real), self.tree(data.imag)]}
        if kind is bytes:
            return {"$bytes": [self._add(data), len(data)]}
        if kind is np.ndarray or isinstance(data, np.generic):
            dtype = _describe_dtype(data.dtype)
            if dtype is not None:
                return self._array(data, dtype)
        if kind is TensorCopy:
            at = self._add_elements(data.elements(), data.dl_dtype.typestr)
            return {"$tensor": [at, [*data.dl_dtype], data.shape, int(data.device.device_type), data.library]}
        if kind is Pickled:
            return {"$pickle": [self._add(data.content), len(data.content), data.name]}
        if kind not in _CONTAINERS:
            return self.tree(check_leaf(data, self._allow_pickle))
        if level >= DEEPEST:
            raise _too_deep()
        if kind is list or kind is tuple:
            values = [self.tree(value, level + 1) for value in data]
            return values if kind is list else {"$tuple": values}
        if all([type(key) is str and key[:1] != "$" for key in data]):  # noqa: C419 (faster for a few keys)
            named = {key: self.tree(value, level + 1) for key, value in data.items()}
        else:
            named = {"$dict": [[self.tree(value, level + 1) for value in pair] for pair in data.items()]}
        return named if kind is dict else {"$tensors": named}

    def _array(self, data: Any, dtype: Any) -> Any:
        if not isinstance(data, np.ndarray):
            return {"$scalar": [self._add_elements(np.asarray(data)), dtype]}
        if data.flags.f_contiguous and not data.flags.c_contiguous:
            return {"$array": [self._add_elements(data.T), dtype, data.shape, "F"]}
        return {"$array": [self._add_elements(data, dtype), dtype, data.shape, "C"]}

    def _add(self, content: bytes | memoryview) -> int:
        at = self.size
        if len(content):
            self.parts.append(content)
            self.size += len(content)
        return at

    def _add_elements(self, array: np.ndarray, typestr: Any = None) -> int:
        """Add the bytes of all elements, in row-major order."""
        if not array.nbytes:
            return self.size
        self.shapes.append(array.shape)
        self._typestr = typestr
        return self._add(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def _too_deep() -> PayloadError:
    return PayloadError(f"its containers are nested more than {DEEPEST - 1} levels deep")


def _describe_dtype(dtype: np.dtype[Any]) -> Any:
    """Return the description of a dtype, or None if its elements are not bytes of their own."""
    if dtype.hasobject or dtype.kind == "T":
        return None
    if is_of_ml_dtypes(dtype):
        try:
            return [*element_from_dtype(dtype)]
        except TensorError:
            return None
    if dtype.names is None:
        return dtype.str
    text = repr(np.lib.format.dtype_to_descr(dtype))
    return text if len(text) <= _LONGEST_DTYPE and _parse_dtype(text) == dtype else None


# Reading.


def decode(
    content: bytes | bytearray | memoryview, allow_pickle: bool = False, *, is_image: bool = False
) -> Any:
    """Return the data of a payload, with a `TensorCopy` for each tensor.

    Raises
    ------
    PayloadError
        If the bytes are no payload, or hold a pickle that is not allowed.
    """
    try:
        tree, data = _split(memoryview(content), is_image)
        reader = _Reader(data, allow_pickle)
        value = json.loads(tree, object_hook=reader.read)
    except PayloadError:
        raise
    except Exception as error:  # what JSON, NumPy and Python raise for values that cannot be
        raise PayloadError(f"the payload is damaged: {type(error).__name__}: {error!s:.200}") from error
    if reader.at != len(data):
        raise PayloadError(f"the payload is damaged: it has {len(data)} bytes and names {reader.at}")
    return value


def _split(content: memoryview, is_image: bool) -> tuple[str, memoryview]:
    """Return the tree and the data of a payload that may be any bytes."""
    tree, at = _text_at(content, 12 if is_image else 4)
    if is_image:
        _, at = _text_at(content, -(-at // 4) * 4 + 8)
        at += 5 + -(at + 1) % 4  # the byte order, and the length of a row
    at += -at % 4
    (size,) = struct.unpack_from("<I", content, at)
    data = content[at + 4 :]
    if content[:4] != _HEAD or size != len(data):
        raise PayloadError(f"the payload is damaged: {len(data)} of its {size} bytes are there")
    return tree, data


class _Reader:
    """Reads the objects of a tree, in their order, from data that may be any bytes."""

    def __init__(self, data: memoryview, allow_pickle: bool) -> None:
        self._data = data
        self._allow_pickle = allow_pickle
        self.at = 0
        """The number of bytes of the data that were read."""

    def read(self, found: dict[str, Any]) -> Any:
        """Return the value of an object, whose own values were read before."""
        key = next(iter(found)) if len(found) == 1 else ""
        if key[:1] != "$":
            return found
        if key not in _READERS:
            raise PayloadError(f"the payload is damaged: there is no {key!r:.100}")
        return _READERS[key](self, found[key])

    def _take(self, at: int, size: int) -> memoryview:
        """Return a block, which begins where the last one ended."""
        if at != self.at or not 0 <= size <= len(self._data) - at:
            raise PayloadError(f"the payload is damaged: there is no block of {size} bytes at {at}")
        self.at += size
        return self._data[at : self.at]

    def _elements(self, at: int, shape: list[int], dtype: np.dtype[Any]) -> np.ndarray:
        """Return a block as a row-major array of its own."""
        content = self._take(at, prod(shape) * dtype.itemsize)
        array: np.ndarray = np.ndarray(shape, dtype)  # np.empty changes "S0"
        if content:
            array.reshape(-1).view(np.uint8)[...] = np.frombuffer(content, np.uint8)
        return array

    def _array(self, described: Any) -> np.ndarray:
        at, dtype, shape, order = described
        if order not in ("C", "F"):
            raise PayloadError(f"the payload is damaged: an array has the order {order!r:.100}")
        if order == "C":
            return self._elements(at, shape, _parse_dtype(dtype))
        return self._elements(at, shape[::-1], _parse_dtype(dtype)).T

    def _tensor(self, described: Any) -> TensorCopy:
        at, element, shape, device_type, library = described
        dtype = _element(element)
        array = self._elements(at, shape, np.dtype(f"V{dtype.itemsize}"))
        return TensorCopy(array, dtype, DLDevice(int(device_type), 0), str(library))

    def _tensors(self, found: Any) -> TensorMapCopy:
        tensors = TensorMapCopy(found)
        if not all(type(name) is str and type(one) is TensorCopy for name, one in tensors.items()):
            raise PayloadError("the payload is damaged: a TensorMap has other values than tensors")
        return tensors

    def _pickle(self, described: Any) -> Any:
        at, size, name = described
        content = self._take(at, size)
        if not self._allow_pickle:
            raise PayloadError(
                f"it holds a pickled {name!r:.100}, and loading a pickle runs code of the file; pass pickle=True "
                "if you trust where the file comes from"
            )
        return pickle.loads(content)


_READERS: dict[str, Callable[[_Reader, Any], Any]] = {
    "$float": lambda _, text: struct.unpack("<d", bytes.fromhex(text))[0],
    "$complex": lambda _, parts: complex(*parts),
    "$tuple": lambda _, values: tuple(values),
    "$dict": lambda _, pairs: dict(pairs),
    "$bytes": lambda reader, place: bytes(reader._take(*place)),
    "$array": _Reader._array,
    "$scalar": lambda reader, place: reader._elements(place[0], [], _parse_dtype(place[1]))[()],
    "$tensor": _Reader._tensor,
    "$tensors": _Reader._tensors,
    "$pickle": _Reader._pickle,
}


def _text_at(content: memoryview, at: int) -> tuple[str, int]:
    """Return a text of the CDR, and where it ends."""
    (size,) = struct.unpack_from("<I", content, at)
    end = at + 4 + size
    if not size or end > len(content):
        raise PayloadError(f"the payload is damaged: a text of {size} bytes is not in it")
    return str(content[at + 4 : end - 1], "utf-8", "surrogatepass"), end


def _parse_dtype(described: Any) -> np.dtype[Any]:
    """Return the dtype of a description from a file."""
    if type(described) is list:
        try:
            return _element(described).numpy()
        except TensorError as error:  # which names the package that defines the type
            raise PayloadError(str(error)) from error
    if len(described) > _LONGEST_DTYPE:
        raise PayloadError("the payload is damaged: the text of a dtype is too long")
    if described.startswith("["):
        dtype = np.lib.format.descr_to_dtype(ast.literal_eval(described))
    else:
        dtype = np.dtype(described)
    if dtype.hasobject or dtype.kind == "T":
        raise PayloadError(f"the payload is damaged: elements of the dtype {dtype} are not in a file")
    return dtype


def _element(described: Any) -> DLDataType:
    if not all(type(number) is int and 0 <= number <= 0xFFFF for number in described):
        raise PayloadError("the payload is damaged: a tensor has an impossible element type")
    return DLDataType(*described)
