"""TLS for connections between hosts, on request: 1.3 only, by the standard library, and the carrier that uses it.

Only the listening end has a certificate, which is made for the run. The connecting end accepts any, because the
handshake that follows proves with the run's token that it is the right one (`handshake`). The key of a certificate
never leaves the process, and is written to no disk. The standard library cannot make one; cryptography can
(Apache-2.0 or BSD, wheels for all versions of Python and both architectures).

Decided against: authorities and names of hosts, which the token makes superfluous; keys from the token itself
(PSK), which Python has from 3.13 on only.
"""

from __future__ import annotations

import os
import ssl
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from headrace.lazy import import_or_explain
from headrace.link.carrier import Carrier

if TYPE_CHECKING:
    from collections.abc import Iterator

_NOT_NOW = (ssl.SSLWantReadError, ssl.SSLWantWriteError)


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    """The certificate of a listener: how TLS uses it, and its bytes, which the proofs of the handshake cover."""

    context: ssl.SSLContext
    binding: bytes

    @classmethod
    def make(cls) -> ServerIdentity:
        """Return an identity with a new certificate, for this process alone."""
        certificate, key, binding = _new_certificate()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.num_tickets = 0  # a connection is never resumed
        with _in_memory(certificate) as first, _in_memory(key) as second:
            context.load_cert_chain(first, second)
        return cls(context, binding)


@cache
def client_context() -> ssl.SSLContext:
    """Return how an end that connects uses TLS: with any certificate, which the handshake has to prove."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def binding_of(connection: ssl.SSLSocket) -> bytes:
    """Return the certificate that the server at the other end has shown."""
    return connection.getpeercert(binary_form=True) or b""


class TlsCarrier(Carrier):
    """A carrier over TLS: a socket whose handshakes are done, TLS's own and the link's."""

    _socket: ssl.SSLSocket

    def _write(self) -> int:
        # OpenSSL sends one record of at most 16 KiB. If it cannot, it wants to be offered the same bytes again, and
        # is: the first buffer stays the first until it has been sent.
        try:
            return self._socket.send(self._waiting[0])
        except _NOT_NOW:
            raise BlockingIOError from None

    def _read(self, target: memoryview) -> int:
        try:
            return self._socket.recv_into(target)
        except _NOT_NOW:
            raise BlockingIOError from None

    def _holds_bytes(self) -> bool:
        return self._socket.pending() > 0


def _new_certificate() -> tuple[bytes, bytes, bytes]:
    """Return a new certificate and its key (PEM), and the certificate as its proofs cover it (DER)."""
    purpose = "to make a certificate for TLS"
    x509 = import_or_explain("cryptography.x509", "tls", purpose)
    ec = import_or_explain("cryptography.hazmat.primitives.asymmetric.ec", "tls", purpose)
    hashes = import_or_explain("cryptography.hazmat.primitives.hashes", "tls", purpose)
    forms = import_or_explain("cryptography.hazmat.primitives.serialization", "tls", purpose)
    from datetime import UTC, datetime, timedelta

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "headrace")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=3650))
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.PKCS8, forms.NoEncryption())
    encoded = (certificate.public_bytes(form) for form in (forms.Encoding.PEM, forms.Encoding.DER))
    return next(encoded), secret, next(encoded)


@contextmanager
def _in_memory(content: bytes) -> Iterator[str]:
    descriptor = os.memfd_create("headrace-tls")
    try:
        os.write(descriptor, content)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
