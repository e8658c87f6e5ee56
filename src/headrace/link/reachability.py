"""Reachability: whether the host at the other end of a TCP connection answers, as the system of this one knows.

The system of a host answers for its processes, and so for one that is stopped as well: it acknowledges what it is
sent, and keepalive asks it after each second in which nothing was (`link.tcp`). So a host that does not answer is
known to be cut off before the process there would be known to say nothing.

The system gives up such a connection by itself, but only up to 3.3 s later: its keepalive looks once a second, and
its time begins anew with a message.
"""

from __future__ import annotations

import socket
import struct

CUT_OFF = 2.5
"""The seconds without an answer of a host that is cut off: to two questions, to the second for half a second."""
_LOOK = 1.0  # seconds between two checks, at most
_OVERDUE = 1.25  # seconds since it was heard of
_ONCE_MORE = 0.2  # seconds from the first check at which it is overdue to the next one, at least
_LEAST = 0.02
_LAST_HEARD = struct.Struct("=52xII")  # tcpi_last_data_recv and tcpi_last_ack_recv, in the TCP_INFO of Linux


class Reachability:
    """Looks whether the host at the other end of a connection answers."""

    __slots__ = ("is_overdue",)

    def __init__(self) -> None:
        self.is_overdue = False
        """Whether it had not answered at the last check, as it should have."""

    def look(self, connection: socket.socket) -> float | None:
        """Return the seconds until the next check, or None if the host is cut off; on one host it never is."""
        unheard = _unheard(connection)
        was_overdue, self.is_overdue = self.is_overdue, unheard >= _OVERDUE
        if not self.is_overdue:
            return min(_LOOK, max(_OVERDUE - unheard, _LOOK / 2))
        # Not at the first check: this host itself may have been stopped, and has not heard the answer yet.
        if was_overdue and unheard >= CUT_OFF:
            return None
        return max(CUT_OFF - unheard, _LEAST if was_overdue else _ONCE_MORE)


def _unheard(connection: socket.socket) -> float:
    """Return the seconds since the other host has sent or answered anything."""
    try:
        found = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _LAST_HEARD.size)
    except OSError:  # of a Unix socket, or one that is broken
        return 0.0
    return float(min(_LAST_HEARD.unpack(found))) / 1000
