"""Connected sockets and carriers for the tests of the link."""

from __future__ import annotations

import os
import select
import socket
import ssl
import threading
from collections.abc import Callable
from functools import cache

from headrace.link.carrier import Carrier, Received
from headrace.link.tls import ServerIdentity, TlsCarrier, client_context
from tests.harness.threads import PATIENCE, wait_until


def tcp_sockets() -> tuple[socket.socket, socket.socket]:
    """Return both ends of a new TCP connection on loopback."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.create_connection(listener.getsockname())
        return near, listener.accept()[0]


@cache
def identity() -> ServerIdentity:
    """Return one identity for all tests."""
    return ServerIdentity.make()


def unix_carriers() -> tuple[Carrier, Carrier]:
    near, far = socket.socketpair(socket.AF_UNIX)
    return Carrier(near), Carrier(far)


def tcp_carriers() -> tuple[Carrier, Carrier]:
    near, far = tcp_sockets()
    return Carrier(near), Carrier(far)


def tls_sockets(
    prepare: Callable[[socket.socket], socket.socket] = lambda connection: connection,
) -> tuple[ssl.SSLSocket, ssl.SSLSocket]:
    """Return both ends of a new TLS connection on loopback, over sockets that were prepared."""
    near, far = map(prepare, tcp_sockets())
    client = client_context().wrap_socket(near, do_handshake_on_connect=False)
    server = identity().context.wrap_socket(far, server_side=True, do_handshake_on_connect=False)
    other = threading.Thread(target=server.do_handshake)
    other.start()
    client.do_handshake()
    other.join(PATIENCE)
    return client, server


def tls_carriers() -> tuple[Carrier, Carrier]:
    near, far = tls_sockets()
    return TlsCarrier(near), TlsCarrier(far)


CARRIERS: dict[str, Callable[[], tuple[Carrier, Carrier]]] = {
    "unix": unix_carriers,
    "tcp": tcp_carriers,
    "tls": tls_carriers,
}


def receive(carrier: Carrier, count: int, sender: Carrier | None = None) -> list[Received]:
    """Wait for so many messages, and flush the sender meanwhile."""
    messages: list[Received] = []
    while len(messages) < count:
        if sender is not None and sender.wants_write:
            sender.flush()
        else:
            assert select.select([carrier], [], [], PATIENCE)[0], "no message came"
        messages += carrier.receive()
    return messages


def descriptors() -> int:
    """Return how many descriptors this process has open."""
    return len(os.listdir("/proc/self/fd"))


def wait_for_descriptors(before: int) -> None:
    """Wait until no more descriptors are open than before: connections linger until their peer has read all."""
    wait_until(lambda: descriptors() <= before, "the end of all connections")
