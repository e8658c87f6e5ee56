"""Lingering: a TCP connection that this end has closed, until the peer has read the last that was said on it.

A TCP connection that is closed resets its peer if the peer still says something, and what was under way to the peer
is lost: its last frames, or why this end has failed. So a closed end says that it has said everything, goes on
reading, and forgets the connection when the peer has read everything: a carrier then closes its direction too.

A process that exits waits for that, and for what its carriers still have to send, as long as the peers read. One
that ends by `os._exit` calls `wait` before.
"""

from __future__ import annotations

import atexit
import os
import socket
import threading
from contextlib import suppress
from time import monotonic

from headrace import waits
from headrace.link.loop import default_loop

_AT_ONCE = 64  # reads, so that a peer that says much does not keep the links waiting
_NEVER = 3600.0
_changed = threading.Condition()
_lingering: set[_Lingering] = set()
_latest = float("inf")  # until when to wait at all
_unsent: dict[
    int, float
] = {}  # until when to wait for carriers that have something to send, by their identity


def linger(connection: socket.socket, seconds: float) -> _Lingering:
    """Close a connection once the peer has read everything, or after so many seconds; return at once.

    What is returned can end earlier: `end` closes the connection, from any thread.
    """
    lingering = _Lingering(connection, monotonic() + seconds)
    try:
        lingering.connection.shutdown(socket.SHUT_WR)
        with _changed:
            _lingering.add(lingering)
        lingering.loop.add(lingering)
    except OSError:  # the peer is gone, or there is no descriptor for the loop
        lingering.end()
    return lingering


def note_unsent(carrier: object, seconds: float | None) -> None:
    """Let a process that exits wait for a carrier for so many seconds from now on, None for no longer."""
    with _changed:
        if seconds is not None:
            _unsent[id(carrier)] = monotonic() + seconds
        elif _unsent.pop(id(carrier), None) is not None:
            _changed.notify_all()


def wait() -> None:
    """Wait until the peers have read what was said to them, for each as long as it reads at all."""
    with _changed:
        while (left := _longest() - monotonic()) > 0:
            waits.wait(_changed, left)


def leave_soon(seconds: float) -> None:
    """Let a process that exits wait for nobody longer than so many seconds from now on."""
    global _latest
    with _changed:
        _latest = monotonic() + seconds
        _changed.notify_all()


def _longest() -> float:
    longest = max((*_unsent.values(), *(each.deadline for each in _lingering)), default=0.0)
    return min(longest, _latest)


class _Lingering:
    """A connection that lingers, as the loop sees it."""

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        # Below TLS, if there is any, because nobody cares what is read.
        self.connection = socket.socket(fileno=connection.detach())
        self.connection.setblocking(False)
        self.deadline = deadline
        self.loop = default_loop()

    def fileno(self) -> int:
        return self.connection.fileno()

    def serve(self, readable: bool, writable: bool) -> None:
        """Read what the peer still says, and forget it; end with the peer."""
        try:
            for _ in range(_AT_ONCE):
                if not self.connection.recv(1 << 16):
                    return self.end()
        except BlockingIOError:
            pass
        except OSError:
            self.end()

    def tick(self, now: float, was_stopped: bool = False) -> float:
        if now < self.deadline:
            return self.deadline
        self.end()
        return now + _NEVER

    def end(self) -> None:
        with _changed:
            if self.connection.fileno() >= 0:
                self.loop.remove(self)
                self.connection.close()
            _lingering.discard(self)
            _changed.notify_all()


def _forget() -> None:
    """Let a forked process wait for nobody: the connections are its parent's."""
    global _changed, _latest
    _latest = float("inf")
    _changed = threading.Condition()
    _unsent.clear()
    while _lingering:
        with suppress(OSError):
            _lingering.pop().connection.close()


atexit.register(wait)  # after the loop, so that it runs before the loop is stopped
os.register_at_fork(after_in_child=_forget)
