"""System: descriptors, epolls and connections in memory, which the link's loop gets in place of the system's own.

An epoll is as that of Linux: each keeps a list of what is ready. Something that arrives is put on the lists of the
epolls in the order of their registrations, up to the first that a thread waits at, because all registrations of
links are exclusive. A descriptor stays on a list until a wait finds nothing to read there. Numbers are used again,
the lowest first, so that a number that is kept too long is that of another file.
"""

from __future__ import annotations

import errno
import os
import select
from collections import deque
from collections.abc import Sequence
from typing import Any

from headrace.link.carrier import CarrierClosed, Received
from headrace.link.protocol import HEADER_SIZE, unpack_header

from .controller import Controller
from .faults import Fault, Kind

__all__ = ["End", "System"]

_FAR = 60.0  # seconds; a thread that waits longer waits for ever, so that a run that is stuck is found to be


class System:
    """Stands in for the modules `os` and `select`; what is not replaced here comes from the real ones."""

    def __init__(self, control: Controller) -> None:
        self.control = control
        self.files: dict[int, _File] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(select if hasattr(select, name) else os, name)

    def open(self, file: _File) -> int:
        """Return the number of a file: the lowest that is free."""
        number = next(number for number in range(3, 1000) if number not in self.files)
        self.files[number] = file
        return number

    @property
    def epolls(self) -> list[_Epoll]:
        """Those that are open."""
        return [file for file in self.files.values() if isinstance(file, _Epoll)]

    def find(self, number: int) -> _File:
        """Return the file of a number."""
        file = self.files.get(number)
        if file is None:
            raise OSError(errno.EBADF, f"descriptor {number} is closed")
        return file

    def close(self, number: int) -> None:
        file = self.find(number)
        del self.files[number]
        for epoll in file.epolls:
            epoll.forget(file)
        file.epolls.clear()
        self.control.point(f"closes {number}")

    def connect(self) -> tuple[End, End]:
        """Return the two ends of a connection."""
        ends = End(self), End(self)
        ends[0].peer, ends[1].peer = ends[1], ends[0]
        return ends

    def epoll(self) -> _Epoll:
        return _Epoll(self)

    def eventfd(self, count: int, flags: int = 0) -> int:
        return self.open(_Event())

    def eventfd_write(self, number: int, value: int) -> None:
        self.control.point(f"writes to {number}")
        if self.control.aborting:
            return
        event = self.find(number)
        if not isinstance(event, _Event):
            self.control.fail(
                Fault(Kind.ERROR, f"a wake-up is written to {number}, which is another file now")
            )
        event.is_readable = True
        event.arrive()
        self.control.point(f"has written to {number}")

    def eventfd_read(self, number: int) -> int:
        event = self.find(number)
        assert isinstance(event, _Event)
        if not event.is_readable:
            raise BlockingIOError(errno.EAGAIN, "nothing to read")
        event.is_readable = False
        return 1


class _File:
    """Something with a number, and the epolls that it is registered with, in the order of the registrations."""

    is_readable = False

    def __init__(self) -> None:
        self.epolls: list[_Epoll] = []

    def arrive(self) -> None:
        """Put it on the lists of its epolls, up to the first that somebody waits at."""
        for epoll in self.epolls:
            is_awaited = epoll.is_awaited and not epoll.ready
            epoll.ready[self] = None
            if is_awaited:
                break


class _Event(_File):
    pass


class _Epoll(_File):
    def __init__(self, system: System) -> None:
        super().__init__()
        self._system = system
        self._control = system.control
        self._registered: dict[int, _File] = {}
        self.ready: dict[_File, None] = {}
        self.is_awaited = False
        self._is_closed = False
        self._number = system.open(self)

    def register(self, number: int, events: int) -> None:
        self._check()
        file = self._system.find(number)
        if file in self._registered.values():
            raise FileExistsError(errno.EEXIST, f"descriptor {number} is registered")
        self._registered[number] = file
        file.epolls.append(self)
        if file.is_readable:
            self.ready[file] = None
        self._control.point(f"registers {number}")

    def unregister(self, number: int) -> None:
        self._check()
        file = self._system.find(number)
        if self._registered.get(number) is not file:
            raise FileNotFoundError(errno.ENOENT, f"descriptor {number} is not registered")
        file.epolls.remove(self)
        self.forget(file)
        self._control.point(f"unregisters {number}")

    def forget(self, file: _File) -> None:
        self.ready.pop(file, None)
        self._registered = {number: each for number, each in self._registered.items() if each is not file}

    def _check(self) -> None:
        if self._is_closed:
            raise ValueError("I/O operation on closed epoll object")

    def close(self) -> None:
        if self.is_awaited and not self._control.aborting:
            self._control.fail(Fault(Kind.ERROR, "an epoll is closed while a thread waits at it"))
        self._is_closed = True
        for file in self._registered.values():
            file.epolls.remove(self)
        self._registered = {}
        self._system.close(self._number)

    def is_free(self) -> bool:
        return any(file.is_readable for file in self.ready)

    def __repr__(self) -> str:
        return f"epoll {self._number}"

    def poll(self, timeout: float | None = None, most: int = 1000) -> list[tuple[int, int]]:
        self._control.point("polls")
        self._check()
        far = timeout is None or timeout > _FAR
        if timeout != 0.0:
            self.is_awaited = True
            try:
                self._control.block(self, None if far else self._control.now + round((timeout or 0) * 1e9))
            finally:
                self.is_awaited = False
        self.ready = {file: None for file in self.ready if file.is_readable}
        numbers = [number for number, file in self._registered.items() if file in self.ready]
        return [(number, int(select.EPOLLIN)) for number in numbers[:most]]


class End(_File):
    """An end of a connection, which is a carrier of whole messages, as between hosts."""

    is_local = False
    wants_write = False

    def __init__(self, system: System) -> None:
        super().__init__()
        self._system = system
        self._number = system.open(self)
        self._arrived: deque[bytes] = deque()
        self.is_closed = False
        self.peer: End

    @property
    def is_readable(self) -> bool:  # type: ignore[override]
        """Whether a message waits, or the peer is gone."""
        return bool(self._arrived) or self.peer.is_closed

    def fileno(self) -> int:
        return self._number

    def send(self, message: bytes, bulk: Sequence[Any] = (), descriptors: Any = ()) -> None:
        if not self.peer.is_closed:
            self.peer._arrived.append(b"".join((message, *map(bytes, bulk))))
            self.peer.arrive()
        self._system.control.point("sends")

    def flush(self) -> None:
        pass

    def receive(self) -> list[Received]:
        if not self._arrived:
            if self.peer.is_closed:
                raise CarrierClosed("the connection was closed")
            return []
        packet = self._arrived.popleft()
        header = unpack_header(packet)
        end = HEADER_SIZE + header.body
        bulk = bytearray(packet[end:]) if header.bulk else None
        return [Received(header.kind, packet[HEADER_SIZE:end], bulk)]

    def say_end(self) -> bool:
        return False  # what was sent is with the peer at once

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self._system.close(self._number)
            self._number = -1
            self.peer.arrive()

    reset = close
