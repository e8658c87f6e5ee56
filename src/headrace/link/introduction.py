"""introduce: the two ends of a new connection talk until each knows who the other one is (`handshake`)."""

from __future__ import annotations

import socket
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, TypeVar

from headrace.core.errors import PeerLost
from headrace.link.handshake import MOST_BYTES

if TYPE_CHECKING:
    from headrace.link.handshake import ClientHandshake, ServerHandshake

T = TypeVar("T")
_LONGEST = 0.5  # seconds of one wait
_LEAST = 0.001


class Patience:
    """The time of a handshake, in which this process runs.

    A process that was stopped, or a machine that stood still, could not have read what has come meanwhile. So of
    each wait no more than `_LONGEST` counts, and what has come is read in any case.
    """

    def __init__(self, seconds: float) -> None:
        self.left = seconds

    def wait(self, connection: socket.socket, operation: Callable[[], T]) -> T:
        """Return what an operation on a connection returns; raise TimeoutError when the time is over."""
        while True:
            began = monotonic()
            connection.settimeout(max(min(self.left, _LONGEST), _LEAST))
            try:
                return operation()
            except TimeoutError:
                pass
            finally:
                self.left -= min(monotonic() - began, _LONGEST)
            if self.left <= 0:
                raise TimeoutError("timed out")


def introduce(
    connection: socket.socket,
    handshake: ClientHandshake | ServerHandshake,
    patience: Patience,
    on_data: Callable[[], object] = lambda: None,
) -> None:
    """Let the two ends learn who they are, and never read beyond the handshake; call `on_data` when anything comes.

    Raises
    ------
    PeerLost
        If the peer closes the connection.
    TimeoutError
        If it takes longer than the patience.
    LinkError
        If the peer says what it should not (`handshake`).
    """
    is_unix = connection.family == socket.AF_UNIX  # one packet is one message
    while not handshake.is_done:
        data = patience.wait(connection, lambda: connection.recv(MOST_BYTES if is_unix else handshake.wanted))
        if not data:
            raise PeerLost("the connection was closed in the handshake")
        on_data()
        if answer := handshake.receive(data):
            connection.sendall(answer)
