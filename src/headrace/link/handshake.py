"""The handshake: how the two ends of a connection learn who the other one is, and what the connection is for.

    client                                          server
      HELLO      version, nonce, purpose      ->
                                              <-      CHALLENGE  nonce
      PROOF      HMAC(token, "client" ...)    ->
                                              <-      WELCOME    HMAC(token, "server" ...)   or REFUSAL

Both ends of a network connection prove that they know the token of the run, which is never sent. A proof covers
everything that was said before it, so it cannot be replayed (both nonces are new), reflected (the two ends prove
different words) or used for another purpose. The client proves first: the server tells a stranger nothing but a
nonce.

On a Unix socket the kernel vouches for the user at the other end (`check_user`), there is no token, and WELCOME
follows HELLO at once.

A proof also covers the certificate of the server if there is TLS (the channel binding ``tls-server-end-point`` of
RFC 5929). Somebody in between would have to show a certificate of their own, and could neither make the proofs for
it nor pass on those for the other. So the token authenticates any certificate, one made for the run too, and no
authority has to be set up. Without TLS, somebody who controls the network in between can read and change what
follows the handshake: a plain connection is for networks that are trusted.

Nothing is allocated for a length that a stranger claims: a message has at most `_MOST_BODY` bytes, and a reader
never takes more than are `missing`, so what follows the handshake stays in the socket for the link.

This file has no sockets and no clock. The steps of each end are a generator, which yields bytes to send, and is
sent the message that comes back (`connect.introduce`).
"""

from __future__ import annotations

import hashlib
import hmac
import os
import socket
import struct
from collections.abc import Generator
from enum import IntEnum
from typing import NamedTuple, TypeAlias, TypeVar

from headrace.core.errors import AuthenticationError, LinkError, ProtocolError
from headrace.link.protocol import VERSION

SHORTEST_TOKEN = 16
"""The least bytes of a token: whoever sees a proof can try short tokens until one fits."""

_MAGIC = b"headrace"
_RECORD_OF_TLS = b"\x16\x03"  # how a client of TLS begins
_HEADER = struct.Struct("!8sHBH")  # magic, version, kind, length of the body
_HELLO = struct.Struct("!32sQ")  # nonce, epoch; then the kind and the name of the purpose
_NONCE = 32
_MOST_BODY = 1024
MOST_BYTES = _HEADER.size + _MOST_BODY
"""The longest message of a handshake."""


_T = TypeVar("_T")
Steps: TypeAlias = Generator[bytes, bytes, _T]
"""The steps of one end, which return when both ends know each other."""


class Purpose(NamedTuple):
    """What a connection is for.

    Parameters
    ----------
    kind
        ``"link"`` for the frames of a flow, or another word that both ends know.
    name
        Which one, such as the name of the flow.
    epoch
        How often a part of the program has been restarted. A late connection of an earlier epoch is not expected.
    """

    kind: str
    name: str
    epoch: int = 0

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r}, epoch {self.epoch}"


class Refusal(IntEnum):
    """Why a server refuses a connection."""

    VERSION = 1
    TOKEN = 2
    UNEXPECTED = 3
    TLS = 4


class _Kind(IntEnum):
    HELLO = 1
    CHALLENGE = 2
    PROOF = 3
    WELCOME = 4
    REFUSAL = 5


def make_token() -> bytes:
    """Return a new token for a run."""
    return os.urandom(32).hex().encode()


def check_token(token: bytes) -> bytes:
    """Return a token that is long enough.

    Raises
    ------
    ValueError
        If it could be guessed.
    """
    if len(token) < SHORTEST_TOKEN:
        raise ValueError(
            f"a token needs at least {SHORTEST_TOKEN} bytes, this one has {len(token)}; make_token() makes one"
        )
    return token


def check_user(connection: socket.socket) -> None:
    """Check that the process at the other end of a Unix socket is of the same user.

    Raises
    ------
    AuthenticationError
        If it is of another user.
    """
    user = user_of(connection)
    if user != os.geteuid():
        raise AuthenticationError(
            f"the process at the other end is of the user {user}, this one is of the user {os.geteuid()}; "
            "only processes of the same user may connect"
        )


def user_of(connection: socket.socket) -> int:
    """Return the number of the user whose process is at the other end of a Unix socket."""
    credentials = struct.Struct("3i")  # process, user, group
    packed = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, credentials.size)
    return int(credentials.unpack(packed)[1])


def greet(purpose: Purpose, token: bytes | None, binding: bytes = b"") -> Steps[None]:
    """Take the steps of the end that connects.

    Parameters
    ----------
    purpose
        What the connection is for.
    token
        The token of the run, or None where `check_user` has vouched for the peer.
    binding
        The certificate of the server, if there is TLS.

    Raises
    ------
    ProtocolError
        If the peer has another version, does not expect the connection, or says what it should not.
    AuthenticationError
        If the peer does not know the token.
    """
    named = f"{purpose.kind}\0{purpose.name}".encode()
    if len(named) > _MOST_BODY - _HELLO.size:
        most = _MOST_BODY - _HELLO.size
        raise ValueError(f"the name of a connection has at most {most} bytes, not {len(named)}")
    hello = _message(_Kind.HELLO, _HELLO.pack(os.urandom(_NONCE), purpose.epoch) + named)
    message, expected = (yield hello), b""
    if token is not None:
        _body(message, _Kind.CHALLENGE, purpose)
        said = hello + message
        message = yield _message(_Kind.PROOF, _proof(token, b"client", said, binding))
        expected = _proof(token, b"server", said, binding)
    if not hmac.compare_digest(_body(message, _Kind.WELCOME, purpose), expected):
        raise AuthenticationError(
            "the peer does not know the token of this run, or somebody between the ends changes what they say"
        )


def answer(token: bytes | None, binding: bytes = b"") -> Steps[tuple[Purpose, bytes]]:
    """Take the steps of the end that listens; return what the client wants, and the welcome if it may have that.

    The parameters and errors are those of `greet`.
    """
    hello = yield b""
    body = _body(hello, _Kind.HELLO)
    if token is None:
        return _purpose(body), _message(_Kind.WELCOME, b"")
    challenge = _message(_Kind.CHALLENGE, os.urandom(_NONCE))
    proof = _body((yield challenge), _Kind.PROOF)
    said = hello + challenge
    if not hmac.compare_digest(proof, _proof(token, b"client", said, binding)):
        raise AuthenticationError("a client does not know the token of this run")
    return _purpose(body), _message(_Kind.WELCOME, _proof(token, b"server", said, binding))


def missing(received: bytes | bytearray) -> int:
    """Return the number of bytes to the end of the message that has begun so, or to that of its header.

    Raises
    ------
    ProtocolError
        If the peer does not speak this protocol.
    """
    if received.startswith(_RECORD_OF_TLS):
        raise ProtocolError("the peer uses TLS, and this end does not; start this one with --tls, too")
    if not _MAGIC.startswith(bytes(received[: len(_MAGIC)])):
        raise ProtocolError("the peer does not speak the protocol of a link")
    if len(received) < _HEADER.size:
        return _HEADER.size - len(received)
    length = _HEADER.unpack_from(received)[3]
    if length > _MOST_BODY:
        raise ProtocolError(f"a message of a handshake has at most {_MOST_BODY} bytes, not {length}")
    return int(_HEADER.size + length - len(received))


def _body(message: bytes, expected: _Kind, purpose: Purpose | None = None) -> bytes:
    """Return the body of a message; raise the error for one that is a refusal, or does not belong here."""
    _, version, kind, _ = _HEADER.unpack_from(message)
    body = message[_HEADER.size :]
    if kind == _Kind.REFUSAL and purpose is not None:
        raise _refused(version, body, purpose)
    if version != VERSION:
        raise _other_version(version)
    if kind != expected:
        raise ProtocolError(
            f"the peer sent a message of kind {kind}, which does not belong here in a handshake"
        )
    return body


def _proof(token: bytes, side: bytes, said: bytes, binding: bytes) -> bytes:
    digests = hashlib.sha256(said).digest() + hashlib.sha256(binding).digest()
    return hmac.digest(token, b"headrace link, " + side + digests, "sha256")


def _refused(version: int, body: bytes, purpose: Purpose) -> LinkError:
    reason = body[0] if body else 0
    if reason == Refusal.VERSION:
        return _other_version(version)
    if reason == Refusal.TOKEN:
        return AuthenticationError(
            "the peer refuses the token: it belongs to another run, or somebody between the ends changes what "
            "they say"
        )
    if reason == Refusal.UNEXPECTED:
        return ProtocolError(f"the peer does not expect this connection ({purpose})")
    if reason == Refusal.TLS:
        return TlsMismatch("the peer uses TLS, and this end does not; start this one with --tls, too")
    return ProtocolError("the peer refuses the connection without a reason")


class TlsMismatch(ProtocolError):
    """One end uses TLS, and the other one does not."""


class VersionError(ProtocolError):
    """The two ends have versions of headrace that cannot be linked."""


class Unexpected(LinkError):
    """Nobody takes the connection."""


_REASONS: dict[type[Exception], Refusal] = {
    VersionError: Refusal.VERSION,
    AuthenticationError: Refusal.TOKEN,
    TlsMismatch: Refusal.TLS,
    Unexpected: Refusal.UNEXPECTED,
}


def is_plain(began: bytes) -> bool:
    """Return whether a connection that began so is a handshake without TLS."""
    return began.startswith(_MAGIC)


def refusal_after(error: Exception) -> bytes:
    """Return the last bytes to send to a client after an error of the handshake; a stranger gets none."""
    reason = next((reason for kind, reason in _REASONS.items() if isinstance(error, kind)), None)
    return b"" if reason is None else _message(_Kind.REFUSAL, bytes([reason]))


def _message(kind: _Kind, body: bytes) -> bytes:
    return _HEADER.pack(_MAGIC, VERSION, kind, len(body)) + body


def _purpose(body: bytes) -> Purpose:
    """Return what a client wants to connect for."""
    try:
        _, epoch = _HELLO.unpack_from(body)
        kind, name = body[_HELLO.size :].decode().split("\0")
    except (struct.error, ValueError):
        raise ProtocolError("a client's HELLO does not say what the connection is for") from None
    return Purpose(kind, name, epoch)


def _other_version(version: int) -> VersionError:
    return VersionError(
        f"the peer speaks version {version} of the protocol, this process version {VERSION}; "
        "install the same version of headrace on both"
    )
