"""Crossing: objects on their way to another process and back.

Objects are pickled, with the memory of arrays beside the pickle (protocol 5): it is written to the pipe from where
it is and read into the memory of the new array. Decided against: shared memory, which saves a copy, and which a
process that is killed leaves behind.

Memory of a device does not cross: another process has another context.
"""

from __future__ import annotations

import io
import os
import pickle
from multiprocessing.connection import Connection
from typing import Any

from headrace.brief import brief
from headrace.core.errors import CrossingError

_ON_HOST = (1, 3)  # kDLCPU and kDLCUDAHost, as DLPack numbers them


def send(connection: Connection, content: Any) -> None:
    """Send an object; raise CrossingError, and send nothing, if it cannot cross."""
    buffers: list[pickle.PickleBuffer] = []
    data = pack(content, buffers)
    memory = [buffer.raw() for buffer in buffers]
    connection.send([part.nbytes for part in memory])
    connection.send_bytes(data)
    for part in memory:
        _write(connection, part)


def receive(connection: Connection) -> Any:
    """Receive an object; raise EOFError if the other process has ended."""
    sizes = connection.recv()
    data = connection.recv_bytes()
    buffers = [bytearray(size) for size in sizes]
    for buffer in buffers:
        _read(connection, memoryview(buffer))
    return pickle.loads(data, buffers=buffers)


# By the system's calls: `Connection.recv_bytes_into` collects all pieces and copies them then.


def _write(connection: Connection, left: memoryview) -> None:
    while left.nbytes:
        left = left[os.write(connection.fileno(), left) :]


def _read(connection: Connection, left: memoryview) -> None:
    while left.nbytes:
        count = os.readv(connection.fileno(), [left])
        if not count:
            raise EOFError
        left = left[count:]


def pack(content: Any, buffers: list[pickle.PickleBuffer] | None = None) -> bytes:
    """Pickle an object; raise CrossingError if that is not possible."""
    stream = io.BytesIO()
    try:
        _Pickler(stream, buffers).dump(content)
    except CrossingError:
        raise
    except Exception as error:  # what pickle raises depends on the object
        raise CrossingError(
            f"{brief(content)} cannot be pickled ({type(error).__name__}: {error})"
        ) from error
    return stream.getvalue()


class _Pickler(pickle.Pickler):
    def __init__(self, stream: io.BytesIO, buffers: list[pickle.PickleBuffer] | None) -> None:
        super().__init__(stream, 5, buffer_callback=None if buffers is None else buffers.append)

    def reducer_override(self, obj: Any) -> Any:
        """Refuse memory of a device."""
        if isinstance(obj, type) or not hasattr(type(obj), "__dlpack_device__"):
            return NotImplemented
        device = tuple(map(int, obj.__dlpack_device__()))
        if device[0] not in _ON_HOST:
            raise CrossingError(
                f"a {type(obj).__name__} in the memory of a GPU does not cross to another process; copy it to the "
                "host first, or leave out on='processes'"
            )
        return NotImplemented
