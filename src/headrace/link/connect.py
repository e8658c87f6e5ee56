"""connect: a connection to a listener of another process, with its handshake."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from headrace.core.errors import PeerLost
from headrace.link.handshake import ClientHandshake, Purpose, check_token, check_user
from headrace.link.introduction import Patience, introduce
from headrace.link.tcp import TcpCarrier
from headrace.link.unix import UnixCarrier

if TYPE_CHECKING:
    from headrace.link.carrier import Carrier


def connect(
    address: tuple[str, int],
    purpose: Purpose,
    token: bytes,
    *,
    encrypted: bool = False,
    seconds: float = 10.0,
    silence: float = 3.0,
) -> Carrier:
    """Connect to a listener over TCP.

    Parameters
    ----------
    address
        Its host and port.
    purpose
        What the connection is for, which the listener must expect.
    token
        The token of the run.
    encrypted
        Whether to use TLS; the listener must do the same.
    seconds
        How long to wait for the connection, and for the handshake.
    silence
        After how many seconds a host that does not answer is given up, as in the terms of the link.

    Raises
    ------
    AuthenticationError
        If the tokens differ, or somebody is in between.
    ProtocolError
        If the peer has another version, does not expect the connection, or is no listener.
    PeerLost
        If there is no answer, or not in time.
    """
    check_token(token)
    patience = Patience(seconds)
    where = f"{address[0]}:{address[1]}"
    try:
        connection = socket.create_connection(address, timeout=seconds)
    except OSError as error:
        raise PeerLost(f"cannot connect to {where}: {error}") from error
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not encrypted:
            _introduce(connection, ClientHandshake(purpose, token), patience, where)
            return TcpCarrier(connection, silence)
        from headrace.link import tls

        connection = secured = tls.client_context().wrap_socket(connection, do_handshake_on_connect=False)
        patience.wait(secured, secured.do_handshake)
        _introduce(secured, ClientHandshake(purpose, token, tls.binding_of(secured)), patience, where)
        return tls.TlsCarrier(secured, silence)
    except OSError as error:
        connection.close()
        also = " (does the listener use TLS?)" if encrypted else ""
        raise PeerLost(f"the handshake with {where} failed: {error}{also}") from error
    except BaseException:
        connection.close()
        raise


def connect_unix(path: str, purpose: Purpose, seconds: float = 10.0) -> Carrier:
    """Connect to a Unix socket of the same user; otherwise as `connect`."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connection.settimeout(seconds)
        connection.connect(path)
        check_user(connection)
        _introduce(connection, ClientHandshake(purpose, None), Patience(seconds), repr(path))
        return UnixCarrier(connection)
    except OSError as error:
        connection.close()
        raise PeerLost(f"cannot connect to {path!r}: {error}") from error
    except BaseException:
        connection.close()
        raise


def _introduce(connection: socket.socket, handshake: ClientHandshake, patience: Patience, where: str) -> None:
    connection.sendall(handshake.begin())
    try:
        introduce(connection, handshake, patience)
    except PeerLost:
        raise PeerLost(f"{where} closed the connection in the handshake") from None
    except TimeoutError:
        raise PeerLost(f"{where} did not complete the handshake in time") from None
