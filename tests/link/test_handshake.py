"""The handshake: who may connect, and what a stranger can do to it."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from headrace.core.errors import AuthenticationError, LinkError, ProtocolError
from headrace.link import handshake
from headrace.link.connect import Patience, introduce
from headrace.link.handshake import (
    Purpose,
    VersionError,
    answer,
    check_token,
    check_user,
    greet,
    make_token,
    missing,
    refusal_after,
)
from tests.harness import PATIENCE
from tests.limits import examples

TOKEN = b"the token of this run, 256 bits.."
HEADER = 13  # bytes before the body of a message
PURPOSE = Purpose("link", "edge.camera.out -> server.detector.frame", 3)


def client(token: bytes | None = TOKEN, binding: bytes = b"") -> tuple[Any, bytes]:
    """Return the steps of an end that connects, and its HELLO."""
    steps = greet(PURPOSE, token, binding)
    return steps, next(steps)


def server(token: bytes | None = TOKEN, binding: bytes = b"") -> Any:
    """Return the steps of an end that listens, before the first message."""
    steps = answer(token, binding)
    assert next(steps) == b""
    return steps


def end_of(steps: Any, message: bytes) -> Any:
    """Return what the last step returns."""
    with pytest.raises(StopIteration) as ended:
        steps.send(message)
    return ended.value.value


@pytest.mark.parametrize("token", [TOKEN, None], ids=["token", "no token"])
@pytest.mark.parametrize("binding", [b"", b"a certificate"], ids=["plain", "TLS"])
def test_both_ends_learn_what_the_connection_is_for(token, binding):
    (near, said), far = client(token, binding), server(token, binding)
    if token is not None:
        said = near.send(far.send(said))
    purpose, welcome = end_of(far, said)
    assert purpose == PURPOSE
    assert end_of(near, welcome) is None


def test_a_client_with_another_token_is_refused():
    (near, hello), far = client(b"another token of 16+"), server()
    proof = near.send(far.send(hello))
    with pytest.raises(AuthenticationError, match="does not know the token") as refused:
        far.send(proof)
    with pytest.raises(AuthenticationError, match="refuses the token"):
        near.send(refusal_after(refused.value))


def welcome_of(far: Any, hello: bytes) -> tuple[bytes, bytes]:
    """Return the challenge of a server that knows no token of ours, and a welcome that it can make."""
    challenge = far.send(hello)
    said = handshake._proof(b"another token of 16+", b"server", hello + challenge, b"")
    return challenge, handshake._message(handshake._Kind.WELCOME, said)


def test_a_server_with_another_token_is_not_believed():
    near, hello = client()
    challenge, welcome = welcome_of(server(), hello)
    near.send(challenge)
    with pytest.raises(AuthenticationError, match="does not know the token"):
        near.send(welcome)


def test_a_server_that_asks_for_no_proof_is_not_believed():
    (near, hello), far = client(), server(None)
    with pytest.raises(ProtocolError, match="does not belong here"):
        near.send(end_of(far, hello)[1])


def test_a_proof_cannot_be_sent_back_to_its_maker():
    """Somebody who knows no token asks the server a question and answers with what the server would say."""
    (near, hello), far = client(), server()
    proof = near.send(far.send(hello))
    _, welcome = end_of(far, proof)
    assert proof[HEADER:] != welcome[HEADER:]
    with pytest.raises(AuthenticationError):
        near.send(welcome[:HEADER] + proof[HEADER:])


def test_a_proof_for_one_purpose_does_not_serve_another():
    (near, hello), far = client(), server()
    proof = near.send(far.send(hello.replace(b"camera", b"microp")))
    with pytest.raises(AuthenticationError):
        far.send(proof)


def test_somebody_in_between_with_another_certificate_is_noticed():
    """The one in between has a TLS connection with each, and passes on what they say."""
    near, hello = client(binding=b"the certificate of the one in between")
    far = server(binding=b"the certificate of the server")
    proof = near.send(far.send(hello))
    with pytest.raises(AuthenticationError):
        far.send(proof)


def test_another_version_is_named_on_both_sides(monkeypatch):
    far = server()
    monkeypatch.setattr(handshake, "VERSION", 1)
    near, hello = client()
    monkeypatch.undo()
    with pytest.raises(
        VersionError, match=rf"version 1 .* this process version {handshake.VERSION}; install the same"
    ) as refused:
        far.send(hello)
    said, current = refusal_after(refused.value), handshake.VERSION
    monkeypatch.setattr(handshake, "VERSION", 1)
    with pytest.raises(VersionError, match=rf"version {current} .* this process version 1; install the same"):
        near.send(said)


def test_a_claimed_length_allocates_nothing():
    with pytest.raises(ProtocolError, match="at most 1024 bytes, not 65535"):
        missing(client()[1][: HEADER - 2] + b"\xff\xff")


def test_a_reader_never_takes_what_follows_the_handshake():
    near, far = socket.socketpair()
    with near, far:
        near.sendall(client(None)[1] + b"more")
        purpose, _ = introduce(far, answer(None), Patience(PATIENCE))
        assert (purpose, far.recv(100)) == (PURPOSE, b"more")


def test_names_and_tokens_have_limits():
    with pytest.raises(ValueError, match="at most 984 bytes"):
        next(greet(Purpose("link", "x" * 2000), TOKEN))
    with pytest.raises(ValueError, match="at least 16 bytes, this one has 6"):
        check_token(b"secret")
    assert len(check_token(make_token())) == 64
    assert make_token() != make_token()


@seed(26)
@settings(max_examples=examples(80), deadline=None)
@given(st.data())
def test_nothing_but_the_right_bytes_makes_a_client_welcome(data):
    """Change, cut or repeat any message: the server fails, and only as it should."""
    (near, hello), far = client(), server()
    challenge = far.send(hello)
    messages = [hello, near.send(challenge)]
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
    if bad == original or (torn and bad.startswith(original)):  # what follows the proof is not read
        return
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.MonkeyPatch.context() as patched:
        patched.setattr(handshake.os, "urandom", lambda size: challenge[HEADER:])
        ours.sendall(b"".join(messages))
        ours.shutdown(socket.SHUT_WR)
        with pytest.raises(LinkError):
            introduce(theirs, answer(TOKEN), Patience(PATIENCE))


def test_a_process_of_another_user_is_refused(monkeypatch):
    near, far = socket.socketpair(socket.AF_UNIX)
    with near, far:
        check_user(near)
        monkeypatch.setattr("os.geteuid", lambda: handshake.user_of(near) + 1)
        with pytest.raises(AuthenticationError, match="only processes of the same user"):
            check_user(near)
