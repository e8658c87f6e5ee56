"""StreamReader: messages from a stream, however it is cut."""

from __future__ import annotations

import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from headrace.core.errors import LinkError
from headrace.link.carrier import Received, StreamReader
from headrace.link.protocol import HEADER_SIZE, MAX_BODY, Kind, pack_message
from tests.limits import examples

BODIES = st.one_of(st.binary(max_size=40), st.integers(0, MAX_BODY).map(bytes))
BULKS = st.one_of(
    st.just(b""), st.binary(max_size=40), st.integers(0, 200_000).map(lambda size: b"\x5a" * size)
)
MESSAGES = st.lists(st.tuples(st.sampled_from(Kind), BODIES, BULKS), max_size=12)


def encoded(kind: int, body: bytes, bulk: bytes) -> bytes:
    return pack_message(kind, body, len(bulk)) + bulk


def read(reader: StreamReader, data: bytes, most: int = 1 << 30) -> list[Received]:
    """Give a reader all bytes of a stream, at most so many at a time."""
    messages = []
    rest = memoryview(data)
    while rest:
        target = reader.target()
        size = min(len(target), len(rest), most)
        assert size > 0
        target[:size] = rest[:size]
        rest = rest[size:]
        messages += reader.advance(size)
    return messages


@seed(26)
@settings(max_examples=examples(40), deadline=None)
@given(MESSAGES, st.sampled_from([1 << 30, 1 << 16, 1460, 97, 1]))
def test_messages_arrive_as_they_were_sent_however_the_stream_is_cut(messages, most):
    stream = b"".join(encoded(*message) for message in messages)
    reader = StreamReader()
    received = read(reader, stream, most)
    assert reader.is_between_messages
    assert [(each.kind, each.body, bytes(each.bulk or b"")) for each in map(plain, received)] == messages


def plain(received: Received) -> Received:
    return received if received.bulk is None else received._replace(bulk=received.bulk.tobytes())


def test_bulk_bytes_go_straight_into_memory_that_belongs_to_the_message():
    stream = encoded(Kind.FRAME, b"", b"x" * 500_000)
    reader = StreamReader()
    read(reader, stream[:1000])
    target = reader.target()
    assert len(target) == 500_000 + HEADER_SIZE - 1000
    (message,) = read(reader, stream[1000:])
    assert target.obj is message.bulk
    message.bulk[:] = 0  # it is writable, and the reader has no use for it any more
    assert reader.is_between_messages


def test_a_stream_that_ends_in_a_message_is_noticed():
    stream = encoded(Kind.FRAME, b"body", b"bulk")
    for size in range(1, len(stream)):
        reader = StreamReader()
        assert read(reader, stream[:size]) == []
        assert not reader.is_between_messages


def test_a_frame_for_which_there_is_no_memory_ends_the_link_alone():
    reader = StreamReader()
    with pytest.raises(LinkError, match="no memory for a frame of 4611686018427387904 bytes"):
        read(reader, pack_message(Kind.FRAME, b"", 1 << 62))
