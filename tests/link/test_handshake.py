"""The handshake: who may connect, and what a stranger can do to it."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from headrace.core.errors import AuthenticationError, LinkError, ProtocolError
from headrace.link import handshake
from headrace.link.handshake import (
    ClientHandshake,
    Purpose,
    ServerHandshake,
    VersionError,
    check_token,
    check_user,
    make_token,
    refusal_after,
)
from tests.limits import examples

TOKEN = b"the token of this run, 256 bits.."
HEADER = 13  # bytes before the body of a message
PURPOSE = Purpose("link", "edge.camera.out -> server.detector.frame", 3)


def shake(client: ClientHandshake, server: ServerHandshake, pieces: Callable[[bytes], list[bytes]]) -> None:
    """Let both ends talk until the client is welcome, with what they say in pieces."""
    to_server = client.begin()
    while not client.is_welcome:
        to_client = b"".join(server.receive(piece) for piece in pieces(to_server))
        if server.purpose is not None:
            to_client = server.welcome()
        to_server = b"".join(client.receive(piece) for piece in pieces(to_client))


def whole(data: bytes) -> list[bytes]:
    return [data] if data else []


def by_byte(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


@pytest.mark.parametrize("pieces", [whole, by_byte])
@pytest.mark.parametrize("token", [TOKEN, None], ids=["token", "no token"])
@pytest.mark.parametrize("binding", [b"", b"a certificate"], ids=["plain", "TLS"])
def test_both_ends_learn_what_the_connection_is_for(pieces, token, binding):
    client, server = ClientHandshake(PURPOSE, token, binding), ServerHandshake(token, binding)
    shake(client, server, pieces)
    assert client.is_welcome
    assert server.purpose == PURPOSE


def test_a_client_with_another_token_is_refused():
    client, server = ClientHandshake(PURPOSE, b"another token of 16+"), ServerHandshake(TOKEN)
    proof = client.receive(server.receive(client.begin()))
    with pytest.raises(AuthenticationError, match="does not know the token") as refused:
        server.receive(proof)
    assert server.purpose is None
    with pytest.raises(AuthenticationError, match="refuses the token"):
        client.receive(refusal_after(refused.value))


def test_a_server_with_another_token_is_not_believed():
    client, server = ClientHandshake(PURPOSE, TOKEN), ServerHandshake(b"another token of 16+")
    client.receive(server.receive(client.begin()))
    with pytest.raises(AuthenticationError, match="does not know the token"):
        client.receive(server.welcome())
    assert not client.is_welcome


def test_a_server_that_asks_for_no_proof_is_not_believed():
    client, server = ClientHandshake(PURPOSE, TOKEN), ServerHandshake(None)
    server.receive(client.begin())
    with pytest.raises(AuthenticationError):
        client.receive(server.welcome())


def test_a_proof_cannot_be_sent_back_to_its_maker():
    """Somebody who knows no token asks the server a question and answers with what the server would say."""
    client, server = ClientHandshake(PURPOSE, TOKEN), ServerHandshake(TOKEN)
    proof = client.receive(server.receive(client.begin()))
    welcome = server.welcome()
    assert proof[HEADER:] != welcome[HEADER:]
    with pytest.raises(AuthenticationError):
        client.receive(welcome[:HEADER] + proof[HEADER:])


def test_a_proof_for_one_purpose_does_not_serve_another():
    client, server = ClientHandshake(PURPOSE, TOKEN), ServerHandshake(TOKEN)
    hello = client.begin()
    other = hello.replace(b"camera", b"microp")
    proof = client.receive(server.receive(other))
    with pytest.raises(AuthenticationError):
        server.receive(proof)


def test_somebody_in_between_with_another_certificate_is_noticed():
    """The one in between has a TLS connection with each, and passes on what they say."""
    client = ClientHandshake(PURPOSE, TOKEN, binding=b"the certificate of the one in between")
    server = ServerHandshake(TOKEN, binding=b"the certificate of the server")
    proof = client.receive(server.receive(client.begin()))
    with pytest.raises(AuthenticationError):
        server.receive(proof)
    with pytest.raises(AuthenticationError):
        client.receive(server.welcome())


def test_another_version_is_named_on_both_sides(monkeypatch):
    client, server = ClientHandshake(PURPOSE, TOKEN), ServerHandshake(TOKEN)
    monkeypatch.setattr(handshake, "VERSION", 1)
    hello = client.begin()
    monkeypatch.undo()
    with pytest.raises(
        VersionError, match=rf"version 1 .* this process version {handshake.VERSION}; install the same"
    ) as refused:
        server.receive(hello)
    said, current = refusal_after(refused.value), handshake.VERSION
    monkeypatch.setattr(handshake, "VERSION", 1)
    with pytest.raises(VersionError, match=rf"version {current} .* this process version 1; install the same"):
        client.receive(said)


def test_a_claimed_length_allocates_nothing():
    server = ServerHandshake(TOKEN)
    hello = ClientHandshake(PURPOSE, TOKEN).begin()
    with pytest.raises(ProtocolError, match="at most 1024 bytes, not 65535"):
        server.receive(hello[: HEADER - 2] + b"\xff\xff")


def test_a_reader_never_takes_what_follows_the_handshake():
    client, server = ClientHandshake(PURPOSE, TOKEN), ServerHandshake(TOKEN)
    stream = client.begin()
    while stream:
        assert server.wanted <= len(stream)
        piece, stream = stream[: server.wanted], stream[server.wanted :]
        answer = server.receive(piece)
    assert len(answer) == HEADER + 32
    with pytest.raises(ProtocolError, match="too early"):
        ServerHandshake(TOKEN).receive(client.begin() + b"more")


def test_names_and_tokens_have_limits():
    with pytest.raises(ValueError, match="at most 984 bytes"):
        ClientHandshake(Purpose("link", "x" * 2000), TOKEN).begin()
    with pytest.raises(ValueError, match="at least 16 bytes, this one has 6"):
        check_token(b"secret")
    assert len(check_token(make_token())) == 64
    assert make_token() != make_token()


@seed(26)
@settings(max_examples=examples(80), deadline=None)
@given(st.data())
def test_nothing_but_the_right_bytes_makes_a_client_welcome(data):
    """Change, cut or repeat any message: the server never gets a purpose, and fails only as it should."""
    client, server = ClientHandshake(PURPOSE, TOKEN), ServerHandshake(TOKEN)
    hello = client.begin()
    challenge = server.receive(hello)
    messages = [hello, client.receive(challenge)]
    torn = data.draw(st.integers(0, 1))
    original = messages[torn]
    at = data.draw(st.integers(0, len(original) - 1))
    changed = bytes([original[at] ^ data.draw(st.integers(1, 255))])
    bad = data.draw(
        st.sampled_from(
            [
                original[:at] + changed + original[at + 1 :],
                original[:at],
                original + original,
                original[:at] + data.draw(st.binary(max_size=64)),
            ]
        )
    )
    messages[torn] = bad
    fresh = ServerHandshake(TOKEN)
    fresh._nonce = server._nonce
    if bad == original:
        return
    try:
        for message in messages:
            fresh.receive(message)
    except LinkError:
        pass
    assert fresh.purpose is None


def test_a_process_of_another_user_is_refused(monkeypatch):
    near, far = socket.socketpair(socket.AF_UNIX)
    with near, far:
        check_user(near)
        monkeypatch.setattr("os.geteuid", lambda: handshake.user_of(near) + 1)
        with pytest.raises(AuthenticationError, match="only processes of the same user"):
            check_user(near)
