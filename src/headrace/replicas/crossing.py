"""Crossing: what a program and the process of a replica say to each other, over a connected socket.

Objects travel as in every link between processes (`headrace.link.codec`): a pickle, with the memory of arrays
beside it, which is written to the socket from where it is and read into the memory of the new array. Decided
against: the link itself, each end of which gives up the other one when it is silent. A program whose code holds the
interpreter lock for seconds would lose its replicas.

Whoever waits for the other end is asked each second whether to go on. So a process that is frozen is noticed while
it takes nothing, too.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from headrace.core.errors import CrossingError
from headrace.link.codec import decode, encode

PATIENCE = 1.0
"""The seconds after which whoever waits for the other end is asked."""
_COUNT = struct.Struct("<I")


class Crossing:
    """One end of the connection. Any thread may send; one at a time receives.

    Parameters
    ----------
    end
        The socket, which it owns from now on.
    check
        Called after each second in which the other end took nothing, or sent nothing. It may raise.
    """

    def __init__(self, end: socket.socket, check: Callable[[], object] = lambda: None) -> None:
        end.settimeout(PATIENCE)
        self._end = end
        self._check = check
        # Taken again by a finalizer that logs.
        self._sending = threading.RLock()

    def send(self, content: Any) -> None:
        """Send an object; raise CrossingError, and send nothing, if it cannot cross."""
        parts = pack(content)
        sizes = struct.pack(f"<I{len(parts)}Q", len(parts), *(part.nbytes for part in parts))
        with self._sending:
            for part in (sizes, *parts):
                self._write(memoryview(part))

    def receive(self) -> Any:
        """Receive an object.

        Raises
        ------
        EOFError, OSError
            If the other end is gone.
        CrossingError
            If the object cannot be unpickled here; the next one can be received.
        """
        (count,) = _COUNT.unpack(self._read(_COUNT.size))
        sizes = struct.unpack(f"<{count}Q", self._read(8 * count))
        return unpack([self._read(size) for size in sizes])

    def close(self) -> None:
        """Close this end."""
        self._end.close()

    def _write(self, left: memoryview) -> None:
        while left.nbytes:
            left = left[self._wait_for(self._end.send, left) :]

    def _read(self, size: int) -> Any:
        content: Any = np.empty(size, np.uint8)
        left = memoryview(content)
        while left.nbytes:
            count = self._wait_for(self._end.recv_into, left)
            if not count:
                raise EOFError
            left = left[count:]
        return content

    def _wait_for(self, call: Callable[[memoryview], int], part: memoryview) -> int:
        while True:
            with suppress(TimeoutError):
                return call(part)
            self._check()


def pack(content: Any) -> list[Any]:
    """Return an object as arrays of bytes; raise CrossingError if that is not possible."""
    description, pieces, is_on_device = encode(content)
    if is_on_device:
        raise CrossingError(
            "an array in the memory of a GPU does not cross to another process; copy it to the host first, or "
            "leave out on='processes'"
        )
    flat = (np.ascontiguousarray(piece).reshape(-1).view(np.uint8) for piece in pieces)
    return [np.frombuffer(description, np.uint8), *flat]


def unpack(parts: Sequence[Any]) -> Any:
    """Return the object that was packed; raise CrossingError if it cannot be unpickled here."""
    return decode(parts[0], parts[1:])[0]
