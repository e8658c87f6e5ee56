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
never takes more than `wanted`, so what follows the handshake stays in the socket for the link.

This file has no sockets and no clock: bytes come in, and bytes to send come out.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import socket
import struct
from enum import IntEnum
from typing import NamedTuple

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


class _Handshake:
    """What both ends have in common: messages in, one at a time, in the order that the subclass expects."""

    def __init__(self, token: bytes | None, binding: bytes) -> None:
        self._token = token
        self._binding = binding
        self._nonce = os.urandom(_NONCE)
        self._received = bytearray()
        self._said: list[bytes] = []  # HELLO and CHALLENGE, which the proofs cover

    @property
    def wanted(self) -> int:
        """The number of bytes to the end of the message that is under way, or of its header."""
        have = len(self._received)
        if have < _HEADER.size:
            return _HEADER.size - have
        return _HEADER.size + int(_HEADER.unpack_from(self._received)[3]) - have

    def receive(self, data: bytes) -> bytes:
        """Take at most `wanted` bytes from the peer, and return the bytes to send.

        Raises
        ------
        ProtocolError
            If the peer does not speak this protocol, or another version of it.
        AuthenticationError
            If the peer does not know the token.
        """
        self._received += data
        if self._received.startswith(_RECORD_OF_TLS):
            raise ProtocolError("the peer uses TLS, and this end does not; start this one with --tls, too")
        magic = self._received[: len(_MAGIC)]
        if not _MAGIC.startswith(bytes(magic)):
            raise ProtocolError("the peer does not speak the protocol of a link")
        if len(self._received) < _HEADER.size:
            return b""
        _, version, kind, length = _HEADER.unpack_from(self._received)
        if length > _MOST_BODY:
            raise ProtocolError(f"a message of a handshake has at most {_MOST_BODY} bytes, not {length}")
        if len(self._received) < _HEADER.size + length:
            return b""
        message = bytes(self._received)
        if len(message) > _HEADER.size + length:
            raise ProtocolError("a message of a handshake is followed by others too early")
        self._received.clear()
        return self._take(version, kind, message, message[_HEADER.size :])

    def _take(self, version: int, kind: int, message: bytes, body: bytes) -> bytes:
        raise NotImplementedError

    def _proof(self, side: bytes) -> bytes:
        assert self._token is not None
        said = hashlib.sha256(b"".join(self._said)).digest()
        binding = hashlib.sha256(self._binding).digest()
        return hmac.digest(self._token, b"headrace link, " + side + said + binding, "sha256")


class ClientHandshake(_Handshake):
    """The end that connects.

    Parameters
    ----------
    purpose
        What the connection is for.
    token
        The token of the run, or None where `check_user` has vouched for the peer.
    binding
        The certificate of the server, if there is TLS.
    """

    def __init__(self, purpose: Purpose, token: bytes | None, binding: bytes = b"") -> None:
        super().__init__(token, binding)
        self.purpose = purpose
        self.is_welcome = False
        self._has_proved = False

    @property
    def is_done(self) -> bool:
        """Whether both ends know each other."""
        return self.is_welcome

    def begin(self) -> bytes:
        """Return the first bytes to send."""
        purpose = f"{self.purpose.kind}\0{self.purpose.name}".encode()
        body = _HELLO.pack(self._nonce, self.purpose.epoch) + purpose
        if len(body) > _MOST_BODY:
            most = _MOST_BODY - _HELLO.size
            raise ValueError(f"the name of a connection has at most {most} bytes, not {len(purpose)}")
        self._said.append(_message(_Kind.HELLO, body))
        return self._said[0]

    def _take(self, version: int, kind: int, message: bytes, body: bytes) -> bytes:
        if kind == _Kind.REFUSAL:
            raise self._refused(version, body)
        if version != VERSION:
            raise _other_version(version)
        if (
            kind == _Kind.CHALLENGE
            and self._token is not None
            and not self._has_proved
            and len(body) == _NONCE
        ):
            self._said.append(message)
            self._has_proved = True
            return _message(_Kind.PROOF, self._proof(b"client"))
        if kind == _Kind.WELCOME and not self.is_welcome:
            self._check_welcome(body)
            self.is_welcome = True
            return b""
        raise ProtocolError(
            f"the peer sent a message of kind {kind}, which does not belong here in a handshake"
        )

    def _check_welcome(self, body: bytes) -> None:
        if self._token is None:
            if body:
                raise ProtocolError("the welcome of a Unix socket has a body")
            return
        if not self._has_proved or not hmac.compare_digest(body, self._proof(b"server")):
            raise AuthenticationError(
                "the peer does not know the token of this run, or somebody between the ends changes what they say"
            )

    def _refused(self, version: int, body: bytes) -> LinkError:
        reason = body[0] if body else 0
        if reason == Refusal.VERSION:
            return _other_version(version)
        if reason == Refusal.TOKEN:
            return AuthenticationError(
                "the peer refuses the token: it belongs to another run, or somebody between the ends changes what "
                "they say"
            )
        if reason == Refusal.UNEXPECTED:
            return ProtocolError(f"the peer does not expect this connection ({self.purpose})")
        if reason == Refusal.TLS:
            return TlsMismatch("the peer uses TLS, and this end does not; start this one with --tls, too")
        return ProtocolError("the peer refuses the connection without a reason")


class ServerHandshake(_Handshake):
    """The end that listens. It has a `purpose` as soon as the client has proved who it is; then comes `welcome`."""

    def __init__(self, token: bytes | None, binding: bytes = b"") -> None:
        super().__init__(token, binding)
        self.purpose: Purpose | None = None
        self._claimed: Purpose | None = None  # what an unauthenticated client says

    @property
    def is_done(self) -> bool:
        """Whether the client has proved who it is."""
        return self.purpose is not None

    def welcome(self) -> bytes:
        """Return the last bytes to send to a client whose purpose is expected."""
        return _message(_Kind.WELCOME, b"" if self._token is None else self._proof(b"server"))

    def _take(self, version: int, kind: int, message: bytes, body: bytes) -> bytes:
        if version != VERSION:
            raise _other_version(version)
        if kind == _Kind.HELLO and self._claimed is None:
            self._claimed = _purpose(body)
            self._said.append(message)
            if self._token is None:
                self.purpose = self._claimed
                return b""
            self._said.append(_message(_Kind.CHALLENGE, self._nonce))
            return self._said[1]
        if (
            kind == _Kind.PROOF
            and self._claimed is not None
            and self._token is not None
            and self.purpose is None
        ):
            if not hmac.compare_digest(body, self._proof(b"client")):
                raise AuthenticationError("a client does not know the token of this run")
            self.purpose = self._claimed
            return b""
        raise ProtocolError(
            f"a client sent a message of kind {kind}, which does not belong here in a handshake"
        )


class TlsMismatch(ProtocolError):
    """One end uses TLS, and the other one does not."""


class VersionError(ProtocolError):
    """The two ends have versions of headrace that cannot be linked."""


def is_plain(began: bytes) -> bool:
    """Return whether a connection that began so is a handshake without TLS."""
    return began.startswith(_MAGIC)


def refusal(reason: Refusal) -> bytes:
    """Return the last bytes to send to a client that is refused."""
    return _message(_Kind.REFUSAL, bytes([reason]))


def refusal_after(error: LinkError) -> bytes:
    """Return the last bytes to send to a client after an error of the handshake; a stranger gets none."""
    if isinstance(error, VersionError):
        return refusal(Refusal.VERSION)
    if isinstance(error, AuthenticationError):
        return refusal(Refusal.TOKEN)
    if isinstance(error, TlsMismatch):
        return refusal(Refusal.TLS)
    return b""


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
