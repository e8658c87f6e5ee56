"""Listener and connect: who gets in, and that nobody who does not can harm those who do."""

from __future__ import annotations

import logging
import os
import resource
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from queue import SimpleQueue

import pytest

from headrace.core.errors import AuthenticationError, LinkError, PeerLost, ProtocolError
from headrace.link import handshake
from headrace.link import listener as listening
from headrace.link.carrier import Carrier
from headrace.link.connect import connect
from headrace.link.handshake import Purpose, greet
from headrace.link.listener import Listener, listen
from headrace.link.protocol import Kind, pack_message
from headrace.link.tls import ServerIdentity
from tests.harness.threads import PATIENCE, wait_until
from tests.link.connections import descriptors, identity, receive, tcp_sockets, wait_for_descriptors

TOKEN = b"the token of this run, 256 bits.."
PURPOSE = Purpose("link", "edge.camera.out -> server.detector.frame", 2)


@pytest.fixture(params=["tcp", "tls"])
def encrypted(request) -> bool:
    return request.param == "tls"


class Door(Listener):
    """A listener that takes each connection for a link, and fails if it is for something else."""

    def __init__(self, listening: socket.socket | None = None, **options) -> None:
        self.taken: SimpleQueue[Carrier] = SimpleQueue()
        options = {"find_taker": self.find_taker} | ({"token": TOKEN} if listening is None else {}) | options
        super().__init__(listen() if listening is None else listening, **options)

    def find_taker(self, purpose: Purpose) -> Callable[[Carrier], None] | None:
        if purpose.kind == "nonsense":
            raise ZeroDivisionError
        return self.taken.put if purpose.kind == "link" else None


@pytest.fixture
def listener(encrypted) -> Iterator[Door]:
    listener = Door(identity=identity() if encrypted else None)
    yield listener
    listener.close()


def connected(listener: Door, encrypted: bool = False) -> tuple[Carrier, Carrier]:
    near = connect(listener.address, PURPOSE, TOKEN, encrypted=encrypted, seconds=PATIENCE)
    return near, listener.taken.get(timeout=PATIENCE)


def assert_works(near: Carrier, far: Carrier) -> None:
    for one, other in (near, far), (far, near):
        one.send(pack_message(Kind.BEAT, b"hello"))
        assert receive(other, 1)[0].body == b"hello"


def close(*carriers: Carrier) -> None:
    for carrier in carriers:
        carrier.close()


def stranger(listener: Listener) -> socket.socket:
    connection = socket.create_connection(listener.address)
    connection.settimeout(PATIENCE)
    return connection


def is_closed_by_the_peer(connection: socket.socket) -> bool:
    """Wait until the peer closes a connection, whatever it says before."""
    with suppress(ConnectionResetError):
        while connection.recv(100):
            pass
    return True


def test_a_connection_goes_to_whoever_takes_it(listener, encrypted):
    for kind, error in (("topic", ProtocolError), ("nonsense", LinkError)):
        with pytest.raises(error, match="does not expect" if kind == "topic" else "closed"):
            connect(listener.address, Purpose(kind, "x"), TOKEN, encrypted=encrypted, seconds=PATIENCE)
    near, far = connected(listener, encrypted)
    assert_works(near, far)
    close(near, far)


def listen_unix(path: str) -> socket.socket:
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(path)
    listening.listen()
    return listening


def test_a_unix_socket_lets_the_same_user_in(tmp_path):
    listener = Door(listen_unix(str(tmp_path / "socket")))
    near = connect(listener.address, PURPOSE, seconds=PATIENCE)
    far = listener.taken.get(timeout=PATIENCE)
    assert near.is_local
    assert_works(near, far)
    close(near, far)
    listener.close()


def test_a_unix_socket_refuses_another_user_at_either_end(tmp_path, monkeypatch, caplog):
    listener = Door(listen_unix(str(tmp_path / "socket")))
    monkeypatch.setattr(handshake, "user_of", lambda connection: os.geteuid() + 1)
    with pytest.raises(AuthenticationError, match="only processes of the same user"):
        connect(listener.address, PURPOSE, seconds=PATIENCE)
    wait_until(lambda: "only processes of the same user" in caplog.text, "the listener's refusal")
    listener.close()


def test_nothing_but_loopback_is_listened_on_unless_an_address_is_given():
    with listen() as listening:
        assert listening.getsockname()[0] == "127.0.0.1"
    with listen("::1") as listening:
        assert listening.getsockname()[0] == "::1"
    with pytest.raises(ValueError, match="would listen on all networks"):
        listen("")
    with pytest.raises(LinkError, match=r"cannot listen on 192\.0\.2\.1:0"):
        listen("192.0.2.1")


def test_a_listener_on_the_network_needs_a_token_that_nobody_guesses(tmp_path):
    with listen() as listening:
        for token in None, b"short":
            with pytest.raises(ValueError, match="at least 16 bytes"):
                Door(listening, token=token)
        with pytest.raises(ValueError, match="at least 16 bytes"):
            connect(listening.getsockname(), PURPOSE, b"short")
    with listen_unix(str(tmp_path / "socket")) as listening, pytest.raises(ValueError, match="no token"):
        Door(listening, token=TOKEN)


def test_another_token_is_refused_and_both_ends_say_so(listener, encrypted, caplog):
    with pytest.raises(AuthenticationError, match="belongs to another run"):
        connect(listener.address, PURPOSE, b"the token of another run", encrypted=encrypted, seconds=PATIENCE)
    wait_until(lambda: "does not know the token" in caplog.text, "the refusal")
    assert listener.refused == 1
    assert listener.taken.empty()


def test_strangers_are_refused_while_a_link_beside_them_goes_on(listener, encrypted):
    near, far = connected(listener, encrypted)
    before = descriptors()
    hello = next(greet(PURPOSE, TOKEN))
    sayings = [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(600),
        b"\0" * 4096,
        hello[:11] + b"\xff\xff" + hello[13:],
        hello + hello,
        pack_message(Kind.FRAME, b"", 1 << 40),
    ]
    for saying in sayings:
        with stranger(listener) as connection:
            connection.sendall(saying)
            assert is_closed_by_the_peer(connection)
            assert_works(near, far)
    assert listener.refused == len(sayings)
    wait_for_descriptors(before)
    close(near, far)


def test_a_replayed_handshake_is_refused():
    """Somebody recorded everything that a client said, and says it again."""
    listener = Door()
    client = greet(PURPOSE, TOKEN)
    said = [next(client)]
    with stranger(listener) as connection:
        connection.sendall(said[0])
        said.append(client.send(connection.recv(1000)))
        # The proof is kept back: it would have been right here.
    with stranger(listener) as connection:
        for each in said:
            connection.sendall(each)
        assert is_closed_by_the_peer(connection)
    wait_until(lambda: listener.refused == 2, "the refusal")
    close(connect(listener.address, PURPOSE, TOKEN, seconds=PATIENCE), listener.taken.get(timeout=PATIENCE))
    listener.close()


def test_hundreds_of_connections_that_say_nothing_keep_nobody_out(caplog):
    """They cost a bounded number of descriptors and one line a second, and one that knows the token gets in."""
    began = time.monotonic()
    listener = Door()
    near, far = connected(listener)
    before = descriptors()
    strangers = []
    for count in range(400):
        strangers.append(socket.create_connection(listener.address))
        if len(strangers) > 100:
            strangers.pop(0).close()
        if count % 200 == 0:
            assert_works(near, far)
            close(*connected(listener))
    most = before + len(strangers) + listening.MOST_ARRIVALS
    wait_until(lambda: descriptors() <= most, "the end of connections that are too many")
    assert_works(near, far)
    for connection in strangers:
        connection.close()
    wait_for_descriptors(before)
    assert len(caplog.records) <= 1 + time.monotonic() - began
    close(near, far)
    listener.close()


def test_strangers_push_out_each_other_and_not_one_that_is_in_its_handshake():
    listener = Door()
    client = greet(PURPOSE, TOKEN)
    slow = socket.create_connection(listener.address, PATIENCE)
    slow.sendall(next(client))
    challenge = slow.recv(1000)
    strangers = [socket.create_connection(listener.address) for _ in range(3 * listening.MOST_ARRIVALS)]
    wait_until(lambda: listener.refused >= 2 * listening.MOST_ARRIVALS, "the refusal of strangers")
    slow.sendall(client.send(challenge))
    listener.taken.get(timeout=PATIENCE).close()
    for each in slow, *strangers:
        each.close()
    listener.close()


def test_a_process_without_descriptors_goes_on_when_it_has_some_again():
    listener = Door()
    near, far = connected(listener)
    client = socket.socket()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (client.fileno() + 1, hard))
    kept = []
    try:
        with suppress(OSError):
            while True:  # the numbers below the limit
                kept.append(os.open("/dev/null", os.O_RDONLY))
        client.connect(listener.address)
        client.sendall(next(greet(PURPOSE, TOKEN)))
        assert_works(near, far)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for each in kept:
            os.close(each)
    client.settimeout(PATIENCE)
    assert client.recv(100)
    client.close()
    assert listener.taken.empty()
    close(near, far)
    listener.close()


def test_time_in_which_the_listener_was_stopped_does_not_count_in_a_handshake(monkeypatch):
    stopped = [0.0]
    monkeypatch.setattr("headrace.link.connect.monotonic", lambda: time.monotonic() + stopped[0])
    listener = Door()
    client = greet(PURPOSE, TOKEN)
    with stranger(listener) as connection:
        hello = next(client)
        connection.sendall(hello[:20])
        wait_until(lambda: listener._arrivals, "the arrival")
        stopped[0] = 3600.0
        connection.sendall(hello[20:])
        connection.sendall(client.send(connection.recv(1000)))
        close(listener.taken.get(timeout=PATIENCE))
    listener.close()


def test_a_listener_that_is_closed_in_a_handshake_gives_nobody_the_connection():
    asked, goes_on, taken = threading.Event(), threading.Event(), []

    def find_taker(purpose: Purpose) -> Callable[[Carrier], None]:
        asked.set()
        goes_on.wait(PATIENCE)
        return taken.append

    def come() -> None:
        with pytest.raises(LinkError):
            connect(listener.address, PURPOSE, TOKEN, seconds=PATIENCE)

    listener = Door(find_taker=find_taker)
    threads = [threading.Thread(target=come), threading.Thread(target=listener.close)]
    threads[0].start()
    assert asked.wait(PATIENCE)
    threads[1].start()
    wait_until(listener._closing.is_set, "it is being closed")
    goes_on.set()
    for thread in threads:
        thread.join(PATIENCE)
    assert taken == []


def test_a_listener_leaves_nothing_behind(encrypted):
    identity()
    close(*tcp_sockets())
    before = descriptors()
    listener = Door(identity=identity() if encrypted else None)
    close(*connected(listener, encrypted))
    waiting = stranger(listener)
    listener.close()
    waiting.close()
    wait_for_descriptors(before)


def test_a_server_that_is_gone_or_answers_nothing_is_named():
    with listen() as listening, pytest.raises(PeerLost, match="timed out|in time"):
        connect(listening.getsockname(), PURPOSE, TOKEN, seconds=0.01)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        address = silent.getsockname()
        with pytest.raises(PeerLost, match=f"cannot connect to 127.0.0.1:{address[1]}: .*refused"):
            connect(address, PURPOSE, TOKEN)
    with pytest.raises(PeerLost, match="cannot connect to '/nowhere/socket'"):
        connect("/nowhere/socket", PURPOSE)


def test_a_certificate_that_cannot_be_made_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography.x509", None)
    with pytest.raises(ImportError, match=r"certificate for TLS: .* '(\.|headrace)\[tls\]'"):
        ServerIdentity.make()


def test_a_handshake_that_takes_too_long_is_closed(caplog, monkeypatch):
    monkeypatch.setattr(listening, "PATIENCE", 0.05)
    listener = Door()
    with stranger(listener) as connection:
        connection.sendall(next(greet(PURPOSE, TOKEN))[:20])
        assert is_closed_by_the_peer(connection)
    wait_until(lambda: listener.refused == 1, "it is refused")
    assert "took longer than 0.05 s" in caplog.text
    listener.close()


def test_the_log_has_one_line_a_second(caplog, monkeypatch):
    caplog.set_level(logging.WARNING, "headrace.link")
    times = iter([0.0, 0.1, 0.2, 0.9, 1.1])
    monkeypatch.setattr(listening, "monotonic", lambda: next(times))
    listener = Door()
    for count in range(1, 6):
        with stranger(listener) as connection:
            connection.sendall(b"no handshake")
            wait_until(lambda count=count: listener.refused == count, "the refusal")
    wait_until(lambda: len(caplog.records) == 2, "the lines")
    first, second = (record.getMessage() for record in caplog.records)
    assert "127.0.0.1" in first
    assert second.endswith("(3 more before)")
    listener.close()


def test_a_client_without_tls_is_told_that_the_listener_uses_it(caplog) -> None:
    listener = Door(identity=identity())
    try:
        with pytest.raises(
            ProtocolError, match="the peer uses TLS, and this end does not; start this one with --tls"
        ):
            connect(listener.address, PURPOSE, TOKEN, seconds=PATIENCE)
        wait_until(lambda: listener.refused == 1, "it is refused")
    finally:
        listener.close()
    assert "the peer does not use TLS, and this end does; start the peer with --tls, too" in caplog.text


def test_a_client_with_tls_is_told_to_ask_whether_the_listener_uses_it(caplog) -> None:
    listener = Door()
    try:
        with pytest.raises(PeerLost, match="does the listener use TLS"):
            connect(listener.address, PURPOSE, TOKEN, encrypted=True, seconds=PATIENCE)
        wait_until(lambda: listener.refused == 1, "it is refused")
    finally:
        listener.close()
    assert "the peer uses TLS, and this end does not; start this one with --tls, too" in caplog.text
