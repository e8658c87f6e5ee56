"""connect: a connection to a listener of another process, with its handshake, as a carrier."""

from __future__ import annotations

import socket
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import TypeVar

from headrace.core.errors import PeerLost
from headrace.link.carrier import Carrier
from headrace.link.handshake import Purpose, Steps, check_token, check_user, greet, missing

T = TypeVar("T")
_LONGEST = 0.5  # seconds of one wait
_LEAST = 0.001


def connect(
    address: tuple[str, int] | str,
    purpose: Purpose,
    token: bytes = b"",
    *,
    encrypted: bool = False,
    seconds: float = 10.0,
    silence: float = 3.0,
) -> Carrier:
    """Connect to a listener.

    Parameters
    ----------
    address
        Its host and port; or the path of a Unix socket, whose process must be of the same user.
    purpose
        What the connection is for, which the listener must expect.
    token
        The token of the run, which TCP needs.
    encrypted
        Whether to use TLS; the listener must do the same.
    seconds
        How long to wait for the connection, and for the handshake.
    silence
        After how many seconds a host that does not answer is given up, as in the terms of the link.

    Raises
    ------
    AuthenticationError
        If the tokens or the users differ, or somebody is in between.
    ProtocolError
        If the peer has another version, does not expect the connection, or is no listener.
    PeerLost
        If there is no answer, or not in time.
    """
    proof = None if isinstance(address, str) else check_token(token)
    where = repr(address) if isinstance(address, str) else f"{address[0]}:{address[1]}"
    patience = Patience(seconds)
    try:
        connection = _open(address, seconds)
    except OSError as error:
        raise PeerLost(f"cannot connect to {where}: {error}") from error
    try:
        binding = b""
        if encrypted and proof is not None:
            from headrace.link import tls

            secured = tls.client_context().wrap_socket(connection, do_handshake_on_connect=False)
            connection = secured
            patience.wait(secured, secured.do_handshake)
            binding = tls.binding_of(secured)
        try:
            introduce(connection, greet(purpose, proof, binding), patience)
        except PeerLost:
            raise PeerLost(f"{where} closed the connection in the handshake") from None
        except TimeoutError:
            raise PeerLost(f"{where} did not complete the handshake in time") from None
        return carrier_of(connection, silence)
    except OSError as error:
        connection.close()
        also = " (does the listener use TLS?)" if encrypted else ""
        raise PeerLost(f"the handshake with {where} failed: {error}{also}") from error
    except BaseException:
        connection.close()
        raise


def _open(address: tuple[str, int] | str, seconds: float) -> socket.socket:
    if not isinstance(address, str):
        connection = socket.create_connection(address, timeout=seconds)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(seconds)
        connection.connect(address)
        check_user(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def carrier_of(connection: socket.socket, silence: float = 3.0) -> Carrier:
    """Return the carrier over a connection whose ends have proved who they are."""
    if type(connection) is socket.socket:
        return Carrier(connection, silence)
    from headrace.link.tls import TlsCarrier  # costly to import, and not needed on one host

    return TlsCarrier(connection, silence)


# What both sides do.


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
    steps: Steps[T],
    patience: Patience,
    on_data: Callable[[], object] = lambda: None,
) -> T:
    """Take the steps of one end (`handshake`), and return what they return; call `on_data` when anything comes.

    Raises
    ------
    PeerLost
        If the peer closes the connection.
    TimeoutError
        If it takes longer than the patience.
    LinkError
        If the peer says what it should not.
    """
    said = next(steps)
    while True:
        if said:
            connection.sendall(said)
        received = b""
        while wanted := missing(received):
            data = patience.wait(connection, partial(connection.recv, wanted))
            if not data:
                raise PeerLost("the connection was closed in the handshake")
            on_data()
            received += data
        try:
            said = steps.send(received)
        except StopIteration as end:
            result: T = end.value
            return result
