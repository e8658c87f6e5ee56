"""Payloads: the data of messages as bytes, and back.

A value is a tag of one byte and what follows it:

| tag | value | what follows |
| --- | --- | --- |
| ``N`` ``T`` ``F`` | None, True, False | |
| ``i`` | int | a length, and that many bytes, little-endian, signed |
| ``f`` ``c`` | float, complex | 8 or 16 bytes, little-endian |
| ``s`` ``b`` | str (UTF-8), bytes | a length, and the bytes |
| ``t`` ``l`` ``d`` | tuple, list, dict | a length, and the values; those of a dict are pairs |
| ``a`` | array of NumPy | ``C`` or ``F`` (row-major or column-major), the dtype as text, the shape, the bytes |
| ``g`` | scalar of NumPy | the same, without a shape |
| ``x`` | tensor | the library as text, DLPack's device type, code, bits and lanes, the shape, the bytes |
| ``m`` | TensorMap | a length, and pairs of text and a tensor |
| ``P`` | anything else | the name of the type as text, and the bytes of its pickle |

Lengths and extents are unsigned LEB128 integers. Text is a length and UTF-8. A shape is a length and its extents.
The same value always has the same bytes.

Reading trusts nothing: every length is compared with the bytes that are there before anything is allocated, and no
code of the file runs. A pickle is loaded only if the caller asks for it.
"""

from __future__ import annotations

import ast
import pickle
import re
import struct
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from headrace.observe.recordings.snapshots import TensorCopy, TensorMapCopy
from headrace.tensor import DLDataType, DLDevice

__all__ = ["Payload", "PayloadError", "decode", "encode", "prepare"]

DEEPEST = 32
"""The number of levels of containers."""
_LONGEST_DTYPE = 1 << 16
_MOST_DIMENSIONS = 64
_PLAIN = frozenset((type(None), bool, int, float, complex, str, bytes))
_CONTAINERS = frozenset((tuple, list, dict))

Payload = list[bytes | bytearray | memoryview]
"""Bytes in several pieces, so that those of arrays are not copied."""


class PayloadError(ValueError):
    """Data that cannot be recorded, or bytes that are no payload."""


class _Pickled:
    """An object that was pickled when it was recorded."""

    __slots__ = ("content", "name")

    def __init__(self, name: str, content: bytes) -> None:
        self.name = name
        self.content = content


def prepare(data: Any, allow_pickle: bool, level: int = 0) -> Any:
    """Return copied data so that it can be encoded later; raise for what cannot be encoded.

    Parameters
    ----------
    data
        The data of a snapshot, whose copies need not be complete.
    allow_pickle
        Whether objects of other types are pickled, which happens here, before they change.

    Raises
    ------
    PayloadError
        If there is an object of another type.
    """
    kind = type(data)
    if kind in _PLAIN or kind is TensorCopy or kind is TensorMapCopy:
        return data
    if kind in _CONTAINERS:
        if level >= DEEPEST:
            raise PayloadError(f"its containers are nested more than {DEEPEST} levels deep")
        if kind is dict:
            return {
                prepare(key, allow_pickle, level + 1): prepare(value, allow_pickle, level + 1)
                for key, value in data.items()
            }
        return kind([prepare(value, allow_pickle, level + 1) for value in data])
    is_array = kind is np.ndarray
    if (is_array or isinstance(data, np.generic)) and _dtype_text(data.dtype) is not None:
        return data
    name = f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")
    if not allow_pickle:
        what = f"an array of the dtype {data.dtype}" if is_array else f"an object of the type {name}"
        raise PayloadError(
            f"{what} can only be recorded by pickle, which whoever replays the file must trust: pass pickle=True"
        )
    try:
        return _Pickled(name, pickle.dumps(data, protocol=4))
    except Exception as error:
        raise PayloadError(f"an object of the type {name} cannot be pickled: {error}") from error


# Writing.


def encode(data: Any) -> Payload:
    """Return the bytes of data that `prepare` returned."""
    parts: Payload = []
    _encode(data, parts)
    return parts


def _encode(data: Any, parts: Payload) -> None:
    kind = type(data)
    if data is None or kind is bool:
        parts.append(b"N" if data is None else b"T" if data else b"F")
    elif kind is int:
        size = data.bit_length() // 8 + 1
        parts += (b"i", _number(size), data.to_bytes(size, "little", signed=True))
    elif kind is float:
        parts.append(struct.pack("<cd", b"f", data))
    elif kind is complex:
        parts.append(struct.pack("<cdd", b"c", data.real, data.imag))
    elif kind is str:
        parts.append(b"s")
        _encode_text(data, parts)
    elif kind is bytes:
        parts += (b"b", _number(len(data)), data)
    elif kind is dict:
        parts += (b"d", _number(len(data)))
        for key, value in data.items():
            _encode(key, parts)
            _encode(value, parts)
    elif kind is tuple or kind is list:
        parts += (b"t" if kind is tuple else b"l", _number(len(data)))
        for value in data:
            _encode(value, parts)
    elif kind is TensorCopy:
        parts.append(b"x")
        _encode_tensor(data, parts)
    elif kind is TensorMapCopy:
        parts += (b"m", _number(len(data)))
        for name, tensor in data.items():
            _encode_text(name, parts)
            _encode_tensor(tensor, parts)
    elif kind is _Pickled:
        parts.append(b"P")
        _encode_text(data.name, parts)
        parts += (_number(len(data.content)), data.content)
    elif kind is np.ndarray:
        is_column_major = data.flags.f_contiguous and not data.flags.c_contiguous
        parts.append(b"aF" if is_column_major else b"aC")
        _encode_text(_dtype_text(data.dtype) or "", parts)
        _encode_shape(data.shape, parts)
        _encode_elements(data.T if is_column_major else data, parts)
    else:
        parts.append(b"g")
        _encode_text(_dtype_text(data.dtype) or "", parts)
        _encode_elements(np.asarray(data), parts)


def _encode_tensor(tensor: TensorCopy, parts: Payload) -> None:
    _encode_text(tensor.library, parts)
    element = tensor.dl_dtype
    parts.append(
        b"".join(
            map(_number, (tensor.device.device_type, element.code, element.bits, element.lanes)),
        )
    )
    _encode_shape(tensor.shape, parts)
    _encode_elements(tensor.elements(), parts)


def _encode_shape(shape: tuple[int, ...], parts: Payload) -> None:
    parts.append(b"".join(map(_number, (len(shape), *shape))))


def _encode_elements(array: np.ndarray, parts: Payload) -> None:
    """Add the bytes of all elements, in row-major order."""
    parts.append(_number(array.nbytes))
    if array.nbytes:
        flat = np.ascontiguousarray(array).reshape(-1)
        parts.append(flat.view(np.uint8).data)


def _encode_text(text: str, parts: Payload) -> None:
    content = text.encode("utf-8", "surrogatepass")
    parts += (_number(len(content)), content)


def _number(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def _dtype_text(dtype: np.dtype[Any]) -> str | None:
    """Return the text of a dtype, or None if its elements are not bytes of their own."""
    if dtype.hasobject or dtype.kind == "T":
        return None
    if dtype.type.__module__.partition(".")[0] == "ml_dtypes":
        return f"ml_dtypes.{dtype.name}"
    if dtype.names is None:
        return dtype.str
    text = repr(np.lib.format.dtype_to_descr(dtype))
    return text if len(text) <= _LONGEST_DTYPE and _parse_dtype(text) == dtype else None


# Reading.


def decode(content: bytes | bytearray | memoryview, allow_pickle: bool = False) -> Any:
    """Return the value of a payload, with a `TensorCopy` for each tensor.

    Raises
    ------
    PayloadError
        If the bytes are no payload, or hold a pickle that is not allowed.
    """
    reader = _Reader(memoryview(content), allow_pickle)
    try:
        value = reader.value(0)
    except PayloadError:
        raise
    except Exception as error:  # what NumPy and Python raise for values that cannot be
        raise PayloadError(f"the payload is damaged: {type(error).__name__}: {error}") from error
    if reader.left:
        raise PayloadError(f"the payload is damaged: {reader.left} bytes follow its end")
    return value


class _Reader:
    """Reads values from bytes that may be anything."""

    def __init__(self, content: memoryview, allow_pickle: bool) -> None:
        self._content = content
        self._at = 0
        self._allow_pickle = allow_pickle

    @property
    def left(self) -> int:
        return len(self._content) - self._at

    def value(self, level: int) -> Any:
        tag = bytes(self._take(1))
        if tag in _CONSTANTS:
            return _CONSTANTS[tag]
        read = _READERS.get(tag)
        if read is None:
            raise PayloadError(f"the payload is damaged: there is no tag {tag!r}")
        if level > DEEPEST:
            raise PayloadError(f"the payload is nested more than {DEEPEST} levels deep")
        return read(self, level + 1)

    def _take(self, size: int) -> memoryview:
        if size > self.left:
            raise PayloadError(f"the payload is damaged: it ends {size - self.left} bytes too early")
        self._at += size
        return self._content[self._at - size : self._at]

    def _number(self) -> int:
        value = shift = 0
        while True:
            (byte,) = self._take(1)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > 63:
                raise PayloadError("the payload is damaged: a length is larger than any file")

    def _count(self) -> int:
        """Read the number of values that follow, each of which has at least one byte."""
        count = self._number()
        if count > self.left:
            raise PayloadError(f"the payload is damaged: {count} values cannot be in {self.left} bytes")
        return count

    def _text(self) -> str:
        return bytes(self._take(self._number())).decode("utf-8", "surrogatepass")

    def _int(self, level: int) -> int:
        return int.from_bytes(self._take(self._number()), "little", signed=True)

    def _float(self, level: int) -> float:
        (value,) = struct.unpack("<d", self._take(8))
        return float(value)

    def _complex(self, level: int) -> complex:
        return complex(*struct.unpack("<dd", self._take(16)))

    def _str(self, level: int) -> str:
        return self._text()

    def _bytes(self, level: int) -> bytes:
        return bytes(self._take(self._number()))

    def _tuple(self, level: int) -> tuple[Any, ...]:
        return tuple(self._list(level))

    def _list(self, level: int) -> list[Any]:
        return [self.value(level) for _ in range(self._count())]

    def _dict(self, level: int) -> dict[Any, Any]:
        found = {}
        for _ in range(self._count()):
            key = self.value(level)
            found[key] = self.value(level)
        return found

    def _shape(self) -> tuple[int, ...]:
        count = self._number()
        if count > _MOST_DIMENSIONS:
            raise PayloadError(f"the payload is damaged: an array has {count} dimensions")
        return tuple([self._number() for _ in range(count)])

    def _elements(self, shape: tuple[int, ...], itemsize: int) -> memoryview:
        size = self._number()
        if prod(shape) * itemsize != size:
            raise PayloadError(f"the payload is damaged: an array of the shape {shape} has {size} bytes")
        return self._take(size)

    def _array(self, level: int) -> np.ndarray:
        order = bytes(self._take(1))
        if order not in (b"C", b"F"):
            raise PayloadError(f"the payload is damaged: an array has the order {order!r}")
        dtype = _parse_dtype(self._text())
        shape = self._shape()
        content = self._elements(shape, dtype.itemsize)
        array: np.ndarray = np.ndarray(
            shape, dtype, order="C" if order == b"C" else "F"
        )  # np.empty changes "S0"
        _fill(array.T if order == b"F" else array, content)
        return array

    def _scalar(self, level: int) -> Any:
        array: np.ndarray = np.ndarray((), _parse_dtype(self._text()))
        _fill(array, self._elements((), array.dtype.itemsize))
        return array[()]

    def _tensor(self, level: int) -> TensorCopy:
        library = self._text()
        device_type, code, bits, lanes = (self._number() for _ in range(4))
        if max(code, bits, lanes) > 0xFFFF:
            raise PayloadError("the payload is damaged: a tensor has an impossible element type")
        element = DLDataType(code, bits, lanes)
        shape = self._shape()
        content = self._elements(shape, element.itemsize)
        array = np.empty(shape, f"V{element.itemsize}")
        _fill(array, content)
        device = DLDevice(device_type, 0)
        return TensorCopy(array, 0, shape, array.strides, element, device, library)

    def _tensor_map(self, level: int) -> TensorMapCopy:
        return TensorMapCopy([(self._text(), self._tensor(level)) for _ in range(self._count())])

    def _pickle(self, level: int) -> Any:
        name = self._text()
        content = self._take(self._number())
        if not self._allow_pickle:
            raise PayloadError(
                f"it holds a pickled {name!r:.100}, and loading a pickle runs code of the file; pass pickle=True "
                "if you trust where the file comes from"
            )
        return pickle.loads(content)


_CONSTANTS: dict[bytes, Any] = {b"N": None, b"T": True, b"F": False}
_READERS: dict[bytes, Callable[[_Reader, int], Any]] = {
    b"i": _Reader._int,
    b"f": _Reader._float,
    b"c": _Reader._complex,
    b"s": _Reader._str,
    b"b": _Reader._bytes,
    b"t": _Reader._tuple,
    b"l": _Reader._list,
    b"d": _Reader._dict,
    b"a": _Reader._array,
    b"g": _Reader._scalar,
    b"x": _Reader._tensor,
    b"m": _Reader._tensor_map,
    b"P": _Reader._pickle,
}


def _fill(array: np.ndarray, content: memoryview) -> None:
    """Copy bytes to a row-major array."""
    if content.nbytes:
        array.reshape(-1).view(np.uint8)[...] = np.frombuffer(content, np.uint8)


_SIMPLE_DTYPE = re.compile(r"[<>|=]?[?bBhHiIlLqQefdgFDGSUVmMucO][0-9]*(\[[0-9A-Za-z]{1,20}\])?")


def _parse_dtype(text: str) -> np.dtype[Any]:
    """Return the dtype of a text from a file."""
    if len(text) > _LONGEST_DTYPE:
        raise PayloadError("the payload is damaged: the text of a dtype is too long")
    if text.startswith("ml_dtypes."):
        name = text.removeprefix("ml_dtypes.")
        try:
            import ml_dtypes
        except ImportError as error:
            raise PayloadError(
                f"an array has the dtype {name}, which the package ml_dtypes defines"
            ) from error
        found = getattr(ml_dtypes, name, None) if name.isidentifier() and name[0] != "_" else None
        if not isinstance(found, type):
            raise PayloadError(f"the payload is damaged: ml_dtypes has no dtype {name!r:.100}")
        return np.dtype(found)
    if text.startswith("["):
        dtype = np.lib.format.descr_to_dtype(ast.literal_eval(text))
    elif _SIMPLE_DTYPE.fullmatch(text):
        dtype = np.dtype(text)
    else:
        raise PayloadError(f"the payload is damaged: there is no dtype {text!r:.100}")
    if dtype.hasobject or dtype.kind == "T":
        raise PayloadError(f"the payload is damaged: elements of the dtype {dtype} are not in a file")
    return dtype
