"""StreamReader: messages from a stream, however it is cut, and whatever a peer puts into it."""

from __future__ import annotations

import tracemalloc
from contextlib import suppress

import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from headrace.core.errors import LinkError, ProtocolError
from headrace.link.carrier import Received
from headrace.link.protocol import HEADER_SIZE, MAX_BODY, Kind, pack_header
from headrace.link.tcp import StreamReader
from tests.limits import examples

BODIES = st.one_of(st.binary(max_size=40), st.integers(0, MAX_BODY).map(bytes))
BULKS = st.one_of(
    st.just(b""), st.binary(max_size=40), st.integers(0, 200_000).map(lambda size: b"\x5a" * size)
)
MESSAGES = st.lists(st.tuples(st.sampled_from(Kind), BODIES, BULKS), max_size=12)


def encoded(number: int, kind: int, body: bytes, bulk: bytes) -> bytes:
    return pack_header(kind, 0, number, len(body), len(bulk)) + body + bulk


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
@given(MESSAGES, st.sampled_from([1 << 30, 1 << 16, 1460, 97]))
def test_messages_arrive_as_they_were_sent_however_the_stream_is_cut(messages, most):
    stream = b"".join(encoded(number, *message) for number, message in enumerate(messages))
    reader = StreamReader()
    reader.max_bulk = 1 << 20
    received = read(reader, stream, most)
    assert reader.is_between_messages
    assert [
        (each.header.kind, each.body, bytes(each.bulk or b"")) for each in map(plain, received)
    ] == messages
    assert [each.header.number for each in received] == list(range(len(messages)))


def plain(received: Received) -> Received:
    return received if received.bulk is None else received._replace(bulk=received.bulk.tobytes())


def test_single_bytes_are_enough():
    stream = encoded(0, Kind.FRAME, b"description", b"pixels") + encoded(1, Kind.BEAT, b"", b"")
    reader = StreamReader()
    reader.max_bulk = 100
    assert [each.header.kind for each in read(reader, stream, 1)] == [Kind.FRAME, Kind.BEAT]


def test_bulk_bytes_go_straight_into_memory_that_belongs_to_the_message():
    stream = encoded(0, Kind.FRAME, b"", b"x" * 500_000)
    reader = StreamReader()
    reader.max_bulk = 1 << 20
    read(reader, stream[:1000])
    target = reader.target()
    assert len(target) == 500_000 + HEADER_SIZE - 1000
    (message,) = read(reader, stream[1000:])
    assert target.obj is message.bulk
    message.bulk[:] = 0  # it is writable, and the reader has no use for it any more
    assert reader.is_between_messages


def test_a_stream_that_ends_in_a_message_is_noticed():
    stream = encoded(0, Kind.FRAME, b"body", b"bulk")
    for size in range(1, len(stream)):
        reader = StreamReader()
        reader.max_bulk = 100
        assert read(reader, stream[:size]) == []
        assert not reader.is_between_messages


@pytest.mark.parametrize(
    ("header", "what"),
    [
        (b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n", "does not speak this protocol"),
        (
            pack_header(Kind.FRAME, 0, 0, 0, 1 << 62),
            "announces 4611686018427387904 bulk bytes; the most is 1000",
        ),
        (pack_header(Kind.FRAME, 0, 0, 0, 1001), "announces 1001 bulk bytes"),
        (pack_header(Kind.FRAME, 0, 0, MAX_BODY + 1, 0), "announces a body"),
        (pack_header(200, 0, 0, 0, 0), "no message of kind 200"),
    ],
)
def test_a_header_that_cannot_be_is_refused_and_allocates_nothing(header, what):
    reader = StreamReader()
    reader.max_bulk = 1000
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError, match=what):
            read(reader, header)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_a_frame_for_which_there_is_no_memory_ends_the_link_alone():
    reader = StreamReader()
    reader.max_bulk = 1 << 62
    with pytest.raises(LinkError, match="no memory for a frame of 4611686018427387904 bytes"):
        read(reader, pack_header(Kind.FRAME, 0, 0, 0, 1 << 62))


def test_no_bulk_is_accepted_before_the_link_has_set_a_limit():
    with pytest.raises(ProtocolError, match="the most is 0"):
        read(StreamReader(), encoded(0, Kind.FRAME, b"", b"x"))


@seed(26)
@settings(max_examples=examples(60), deadline=None)
@given(MESSAGES, st.data())
def test_any_change_of_the_bytes_ends_in_a_protocol_error_or_in_messages(messages, data):
    stream = bytearray(b"".join(encoded(number, *message) for number, message in enumerate(messages)))
    for _ in range(data.draw(st.integers(1, 4))):
        if stream:
            at = data.draw(st.integers(0, len(stream) - 1))
            stream[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(stream)))
    reader = StreamReader()
    reader.max_bulk = 200_000
    try:
        received = read(reader, bytes(stream[:cut]), data.draw(st.sampled_from([1 << 16, 100])))
    except ProtocolError:
        return
    for message in received:
        assert len(message.body) == message.header.body <= MAX_BODY
        assert (0 if message.bulk is None else len(message.bulk)) == message.header.bulk <= 200_000


@seed(26)
@settings(max_examples=examples(100), deadline=None)
@given(st.binary(min_size=1, max_size=300))
def test_random_bytes_do_no_harm(data):
    reader = StreamReader()
    reader.max_bulk = 100
    with suppress(ProtocolError):
        read(reader, b"HR\x01" + data)
