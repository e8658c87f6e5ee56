"""The bytes of an entity, as the Holoscan SDK's recorder writes them. Little endian, without padding.

The format is kept for compatibility: programs exchange these files with the SDK, and no library reads them.

A recording is a pair of files. ``.gxf_index`` has 24 bytes for each entity: the time it was logged at (nanoseconds
since the epoch), its size and its offset in the other file. ``.gxf_entities`` has the entities one after another:

======================  =====  ============================================================================
part                    bytes  fields
======================  =====  ============================================================================
entity header              40  serialized size (0), checksum (0), sequence number, flags (0), component
                               count, reserved (0)
component header           32  serialized size (0), type identifier (two words), length of the name
name                           UTF-8
tensor header             116  storage type, element type, bytes per element, rank, 8 dims (unused: 1), 8
                               strides in bytes (unused: 0)
data                           the elements
timestamp                  16  where the message has one: a last component, named "timestamp", with the times of
                               publishing (0) and of acquisition
======================  =====  ============================================================================

The sizes in the headers are written as 0, so a component of an unknown type cannot be skipped. Tensors and
timestamps are known.

The Holoscan SDK (4.6) writes a tensor of rank 0 without its value, and cannot read one with a value. So a scalar is
written as a tensor of one element whose stride is 0: the SDK reads it as such, and this reader as a scalar.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, TypeAlias

import numpy as np

from headrace.video import VideoFileError

INDEX_ENTRY = struct.Struct("<QQQ")
_ENTITY = struct.Struct("<QIQIQQ")
_COMPONENT = struct.Struct("<QQQQ")
_TENSOR = struct.Struct("<iiQI8i8Q")
_TIMESTAMP = struct.Struct("<qq")

_TENSOR_ID = (0x377501D69ABF447C, 0xA6170114D4F33AB8)
_TIMESTAMP_ID = (0xD1095B105C904BBC, 0xBC89601134CB4E03)
_TIMESTAMP_NAME = b"timestamp"
_ELEMENT_TYPES = {
    number: np.dtype(name)
    for number, name in enumerate(
        ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64"), 1
    )
}
_NUMBERS = {dtype: number for number, dtype in _ELEMENT_TYPES.items()}
_MAX_RANK = 8
SYSTEM = 2
_STORAGE_TYPES = range(4)
# Far more than any message has; a larger number is not the header of an entity. What the reader refuses, the writer
# does not write.
_MAX_COMPONENTS = 1024
_MAX_NAME = 4096
_MAX_EXTENT = (1 << 31) - 1

Read: TypeAlias = Callable[[int, int], Any]
"""Returns a buffer of bytes of a file, from an offset on; a shorter one at its end."""


@dataclass(slots=True)
class Entity:
    """One recorded message: its tensors by name, and its times.

    Attributes
    ----------
    tensors
        The tensors, as NumPy arrays, by name.
    log_time
        When it was recorded, in nanoseconds since the epoch.
    sequence_number
        Its number in the recording.
    storage_types
        The memory that each tensor was in: 0 pinned host, 1 device, 2 system, 3 managed.
    acq_timestamp
        When its data was acquired, in nanoseconds; None where the recording does not say.
    """

    tensors: dict[str, np.ndarray[Any, Any]]
    log_time: int
    sequence_number: int = 0
    storage_types: dict[str, int] = field(default_factory=dict)
    acq_timestamp: int | None = None


def encode_entity(
    tensors: Mapping[str, Any],
    sequence_number: int,
    storage_types: Mapping[str, int] | None = None,
    acq_timestamp: int | None = None,
) -> list[Any]:
    """Return the bytes of an entity as a list of buffers, in order; the arrays are not copied if contiguous.

    Raises
    ------
    TypeError, ValueError
        For what an entity file cannot hold, or its readers refuse.
    """
    count = len(tensors) + (acq_timestamp is not None)
    if count > _MAX_COMPONENTS:
        room = _MAX_COMPONENTS - (acq_timestamp is not None)
        raise ValueError(
            f"a message has {len(tensors)} tensors; one entity holds up to {room}. Join them, or record them as "
            "several messages"
        )
    if acq_timestamp is not None and not -(1 << 63) <= acq_timestamp < 1 << 63:
        raise ValueError(f"the acquisition timestamp {acq_timestamp} does not fit into 64 bits")
    parts: list[Any] = [_ENTITY.pack(0, 0, sequence_number, 0, count, 0)]
    for name, value in tensors.items():
        array = np.asarray(value)
        number = _NUMBERS.get(array.dtype)
        if number is None:
            known = ", ".join(dtype.name for dtype in _NUMBERS)
            raise TypeError(
                f"tensor {name!r} has elements of type {array.dtype}, which an entity file cannot hold; it holds "
                f"{known}. Convert it with astype first"
            )
        if array.ndim > _MAX_RANK:
            raise ValueError(
                f"tensor {name!r} has {array.ndim} dimensions; an entity file holds up to {_MAX_RANK}. "
                "Reshape it first"
            )
        if max(array.shape, default=0) > _MAX_EXTENT:
            raise ValueError(
                f"tensor {name!r} has the shape {array.shape}; an entity file holds extents up to {_MAX_EXTENT}"
            )
        storage = SYSTEM if storage_types is None else storage_types.get(name, SYSTEM)
        if storage not in _STORAGE_TYPES:
            raise ValueError(f"tensor {name!r} has the storage type {storage!r}; it must be 0, 1, 2 or 3")
        # ascontiguousarray would turn rank 0 into rank 1.
        array = array if array.flags.c_contiguous else np.ascontiguousarray(array)
        encoded = _encode_name(name)
        shape = array.shape or (1,)
        strides = _contiguous_strides(array.shape, array.itemsize) or (0,)
        unused = _MAX_RANK - len(shape)
        header = [storage, number, array.itemsize, len(shape), *shape, *[1] * unused, *strides, *[0] * unused]
        parts += [_COMPONENT.pack(0, *_TENSOR_ID, len(encoded)), encoded, _TENSOR.pack(*header)]
        if array.size:
            parts.append(array.reshape(-1).view(np.uint8).data)
    if acq_timestamp is not None:
        # The first of its two times, that of publishing, is 0 in the files of the SDK.
        parts.append(_COMPONENT.pack(0, *_TIMESTAMP_ID, len(_TIMESTAMP_NAME)))
        parts.append(_TIMESTAMP_NAME + _TIMESTAMP.pack(0, acq_timestamp))
    return parts


def _encode_name(name: str) -> bytes:
    try:
        encoded = name.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"the name of tensor {name!r:.100} cannot be written in UTF-8: {error}") from error
    if len(encoded) > _MAX_NAME:
        raise ValueError(
            f"the name of a tensor has {len(encoded)} bytes, {name!r:.40}...; an entity file holds names of up to "
            f"{_MAX_NAME}. Give it a shorter name"
        )
    return encoded


def parse_entity(read: Read, offset: int, limit: int, where: str, wanted: bool = True) -> tuple[Entity, int]:
    """Return the entity at an offset of a file, and the offset behind it.

    Parameters
    ----------
    read
        Reads from the file.
    offset, limit
        Where the entity begins, and the end of what may belong to it.
    where
        The file and the entity, for errors.
    wanted
        Whether to read the data; otherwise the arrays are empty, and only their place is checked.
    """
    cursor = _Cursor(read, offset, limit, where)
    _, _, sequence, _, count, _ = cursor.unpack(_ENTITY, "the header of an entity")
    if count > _MAX_COMPONENTS:
        raise cursor.error(f"found an entity of {count} components; expected at most {_MAX_COMPONENTS}")
    entity = Entity({}, 0, sequence)
    for number in range(count):
        what = f"component {number + 1} of {count}"
        _, high, low, name_size = cursor.unpack(_COMPONENT, f"the header of {what}")
        if name_size > _MAX_NAME:
            raise cursor.error(f"found a name of {name_size} bytes for {what}; expected at most {_MAX_NAME}")
        name = cursor.text(name_size, f"the name of {what}")
        if (high, low) == _TENSOR_ID:
            if name in entity.tensors:
                raise cursor.error(f"found a second tensor named {name!r}; expected different names")
            entity.tensors[name] = _parse_tensor(
                cursor, f"tensor {name!r}", entity.storage_types, name, wanted
            )
        elif (high, low) == _TIMESTAMP_ID:
            _, entity.acq_timestamp = cursor.unpack(_TIMESTAMP, f"the times of {what}")
        else:
            raise cursor.error(
                f"found a component of type {high:#018x} {low:#018x} ({what}, named {name!r}); expected a tensor "
                f"({_TENSOR_ID[0]:#018x} {_TENSOR_ID[1]:#018x}) or a timestamp"
            )
    return entity, cursor.at


def _parse_tensor(
    cursor: _Cursor, what: str, storage_types: dict[str, int], name: str, wanted: bool
) -> np.ndarray[Any, Any]:
    storage, element, itemsize, rank, *rest = cursor.unpack(_TENSOR, f"the header of {what}")
    dtype = _ELEMENT_TYPES.get(element)
    if dtype is None:
        known = ", ".join(f"{number} {one.name}" for number, one in _ELEMENT_TYPES.items())
        raise cursor.error(f"found the element type {element} for {what}; expected one of {known}")
    if itemsize != dtype.itemsize:
        raise cursor.error(
            f"found {itemsize} bytes per element for {what} of {dtype}; expected {dtype.itemsize}"
        )
    if rank > _MAX_RANK:
        raise cursor.error(f"found the rank {rank} for {what}; expected 0 to {_MAX_RANK}")
    if storage not in _STORAGE_TYPES:
        raise cursor.error(f"found the storage type {storage} for {what}; expected 0 to 3")
    shape, strides = tuple(rest[:rank]), tuple(rest[_MAX_RANK : _MAX_RANK + rank])
    if rank == 0 and rest[0] == 0:
        shape, strides = (0,), (itemsize,)  # a scalar of the Holoscan SDK, which it writes without its value
    elif shape == (1,) and strides == (0,):
        shape = strides = ()  # a scalar of ours
    if any(extent < 0 for extent in shape):
        raise cursor.error(f"found the dimensions {shape} for {what}; expected none below 0")
    storage_types[name] = storage
    size = prod(shape) * itemsize
    if size and not any(strides):
        strides = _contiguous_strides(shape, itemsize)  # left out by the writer
    # A stride that is never taken may be anything, and NumPy takes none that is larger than memory.
    strides = tuple(stride if extent > 1 else 0 for extent, stride in zip(shape, strides, strict=True))
    span = itemsize + sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True))
    if size and span > size:
        raise cursor.error(
            f"found the strides {strides} for {what} of shape {shape}, which span {span} bytes; expected at most "
            f"its {size} bytes of data"
        )
    if not wanted:
        cursor.at += cursor.checked(size, f"the data of {what}")
        return np.empty(0, dtype)
    data = cursor.take(size, f"the data of {what}")
    if not size:
        return np.empty(shape, dtype)
    array = np.ndarray(shape, dtype, data, strides=strides)
    return array if array.flags.c_contiguous else np.ascontiguousarray(array)


def _contiguous_strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    # NumPy's strides of an array without elements, or of a dimension of length 1, may be anything.
    return tuple(itemsize * prod(shape[axis + 1 :]) for axis in range(len(shape)))


@dataclass(slots=True)
class _Cursor:
    """A place in a file of entities."""

    read: Read
    at: int
    limit: int
    where: str

    def take(self, size: int, what: str) -> Any:
        data = self.read(self.at, self.checked(size, what))
        if len(data) < size:
            raise self.error(f"expected {what} ({size} bytes), found the end of the file after {len(data)}")
        self.at += size
        return data

    def checked(self, size: int, what: str) -> int:
        left = self.limit - self.at
        if size > left:
            raise self.error(f"expected {what} ({size} bytes), found the end after {left}")
        return size

    def unpack(self, layout: struct.Struct, what: str) -> tuple[Any, ...]:
        return layout.unpack(self.take(layout.size, what))

    def text(self, size: int, what: str) -> str:
        data = bytes(self.take(size, what))
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise self.error(f"expected {what} in UTF-8, found {data[:40]!r}") from error

    def error(self, text: str) -> VideoFileError:
        return VideoFileError(f"{self.where}, byte {self.at}: {text}")
