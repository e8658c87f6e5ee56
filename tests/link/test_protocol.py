"""The rules of a link, under carriers that split, tear, repeat, leave out, exchange and delay."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headrace.core.errors import LinkError, PeerAborted, PeerLost, ProtocolError
from headrace.link.protocol import (
    _DESCRIPTION_IN_PLACE,
    IN_BULK,
    Header,
    Kind,
    ReceivingEnd,
    SendingEnd,
    pack_header,
    unpack_header,
)
from headrace.link.sender import Sender
from headrace.link.terms import Sample
from tests.limits import examples
from tests.link.pipes import ByteCarrier, Bytes, frame_of

SIZE = 3


class AnyLink(RuleBasedStateMachine):
    """Two ends over bytes that arrive in any pieces at any time: what was sent comes, once and in order."""

    def __init__(self) -> None:
        super().__init__()
        self.link = Bytes(size=SIZE)
        self.now = 0.0
        self.taken: list[int] = []
        self.uncredited = 0
        self.refused = 0
        self.has_ended = False

    @precondition(lambda self: not self.has_ended)
    @rule(length=st.integers(0, 40))
    def send(self, length: int) -> None:
        number = self.link.sender.sent
        places = self.link.sender.credits
        was_sent = self.link.sender.send(
            Sample({"n": number, "frame": np.full(length, number % 251, np.uint8)})
        )
        assert was_sent is (places > 0)

    @rule(most=st.integers(1, 300))
    def deliver(self, most: int) -> None:
        self.link.deliver(most)

    @rule()
    def take(self) -> None:
        sample = self.link.receiver.take()
        if sample is not None:
            assert sample.number == sample.data["n"] == len(self.taken)
            assert (sample.data["frame"] == sample.number % 251).all()
            self.taken.append(sample.number)
            self.uncredited += 1

    @precondition(lambda self: self.uncredited)
    @rule(data=st.data())
    def give_credits(self, data: Any) -> None:
        count = data.draw(st.integers(1, self.uncredited))
        self.link.receiver.give_credits(count)
        self.uncredited -= count

    @precondition(lambda self: self.taken)
    @rule()
    def defer(self) -> None:
        self.link.receiver.defer(len(self.taken))

    @rule()
    def beat(self) -> None:
        self.now += 1.0
        for end in (self.link.sender, self.link.receiver):
            end._machine.heard = self.now  # whatever is on its way, nobody is silent
            end.tick(self.now)

    @precondition(lambda self: not self.has_ended)
    @rule()
    def end(self) -> None:
        self.has_ended = True
        self.link.sender.end()

    @invariant()
    def nothing_fails_and_no_credit_is_lost_or_made(self) -> None:
        sender, receiver = self.link.sender, self.link.receiver
        assert sender.failure is None
        assert receiver.failure is None
        under_way = sender.sent - sender.credited
        assert sender.credits + under_way == SIZE
        assert sender.deferred <= len(self.taken)
        assert 0 <= receiver.received - len(self.taken) <= SIZE
        if receiver.has_ended:
            assert len(self.taken) == sender.sent

    def teardown(self) -> None:
        if not self.has_ended:
            self.link.sender.end()
        for _ in range(3):
            self.link.deliver()
            while self.link.receiver.take():
                pass
        assert self.link.receiver.has_ended
        assert self.link.receiver.received == self.link.sender.sent


TestAnyLink = AnyLink.TestCase
TestAnyLink.settings = settings(max_examples=examples(40), stateful_step_count=30, deadline=None)


def flipped(message: bytes, at: int) -> bytes:
    at %= len(message)
    return message[:at] + bytes([message[at] ^ 0x41]) + message[at + 1 :]


FAULTS: dict[str, Any] = {
    "repeats": lambda wire, at, byte: [*wire[: at + 1], *wire[at:]],
    "leaves out": lambda wire, at, byte: wire[:at] + wire[at + 1 :],
    "exchanges": lambda wire, at, byte: wire[:at] + wire[at : at + 2][::-1] + wire[at + 2 :],
    "damages a header": lambda wire, at, byte: [*wire[:at], flipped(wire[at], byte % 28), *wire[at + 1 :]],
}


@settings(max_examples=examples(40), deadline=None)
@given(
    fault=st.sampled_from(sorted(FAULTS)),
    at=st.integers(0, 4),
    byte=st.integers(0, 27),
    most=st.integers(1, 500),
)
def test_a_carrier_at_fault_is_noticed_and_no_wrong_frame_arrives(
    fault: str, at: int, byte: int, most: int
) -> None:
    link = Bytes(size=8)
    for number in range(5):
        assert link.sender.send(Sample(np.full(50, number, np.uint8)))
    link.sender.end()
    messages = len(link.ahead.wire)
    link.ahead.wire = FAULTS[fault](link.ahead.wire, at, byte)
    for _ in range(sum(map(len, link.ahead.wire)) // most + 1):
        link.deliver(most)
    arrived = []
    while (sample := link.receiver.take()) is not None:
        arrived.append(int(sample.data[0]))
    assert arrived == list(range(len(arrived)))
    assert not link.receiver.has_ended
    # A length that was made larger keeps the link waiting for the rest, which silence ends.
    link.receiver.tick(link.receiver._machine.heard + 3.0)
    assert isinstance(link.receiver.failure, ProtocolError | PeerLost)
    if fault != "damages a header":
        assert isinstance(link.receiver.failure, ProtocolError)
    assert messages == 7


@pytest.mark.parametrize("cut", [0, 1, 27, 28, 40, 10_000])
def test_a_torn_connection_is_a_loss_wherever_it_tears(cut: int) -> None:
    link = Bytes()
    link.deliver()
    link.sender.send(Sample(b"x" * 100))
    link.deliver(cut)
    link.back.is_cut = True
    link.receiver.serve(True, False)
    link.receiver.serve(True, False)
    assert isinstance(link.receiver.failure, PeerLost)
    assert "did not say why" in str(link.receiver.failure)


def test_after_the_end_a_closed_connection_is_no_loss() -> None:
    link = Bytes()
    link.sender.send(Sample(1))
    link.sender.end()
    link.deliver()
    link.back.is_cut = True
    link.receiver.serve(True, False)
    assert link.receiver.failure is None
    assert not link.receiver.has_ended
    assert link.receiver.take() == Sample(1, number=0)
    assert link.receiver.has_ended


class TestSilence:
    def ends(self) -> tuple[Bytes, float]:
        link = Bytes(silence=3.0)
        link.deliver()
        return link, link.receiver._machine.heard

    def test_is_noticed_within_the_time_of_the_terms_and_told_by_a_reset(self) -> None:
        link, now = self.ends()
        link.receiver.tick(now + 2.84)
        assert link.receiver.failure is None
        link.receiver.tick(now + 2.85)
        assert link.back.is_reset
        assert isinstance(link.receiver.failure, PeerLost)
        assert "frozen" in str(link.receiver.failure)

    def test_is_for_others_to_notice_if_the_terms_say_so(self) -> None:
        """As the driver of a run does: an idle link sends nothing, and wakes nobody's peer."""
        link = Bytes(silence=None)
        link.deliver()
        now = link.receiver._machine.heard
        sent = len(link.ahead.wire)
        for second in range(1, 3600):
            for end in (link.sender, link.receiver):
                assert end.tick(now + second) == now + second + 0.5
        assert link.sender.failure is link.receiver.failure is None
        assert len(link.ahead.wire) == sent

    def test_of_another_link_is_the_failure_of_the_peer(self) -> None:
        """A part that fails because it has lost another one has not lost this link."""
        link, _ = self.ends()
        link.receiver.abort(
            PeerLost("link 'server.out -> screen.in': nothing was heard of the peer"), "server"
        )
        link.deliver()
        assert isinstance(link.sender.failure, PeerAborted)
        assert isinstance(link.sender.failure.__cause__, PeerLost)

    def test_counts_for_a_link_that_is_closed_meanwhile(self) -> None:
        """A process that ends must not wait for the answer of a lost one as if it had just been heard of."""
        link, now = self.ends()
        assert link.receiver._machine.patience_left(now + 2.0) == pytest.approx(0.85)
        link.receiver._machine.heard = float("-inf")
        link.receiver.close()
        assert link.back.patience == float("-inf")
        starting = Bytes(silence=3.0)
        starting.sender._machine.heard = float("-inf")
        starting.sender.close()  # before the HELLO of its peer
        assert starting.ahead.patience == pytest.approx(2.85)

    def test_a_beat_is_enough(self) -> None:
        link, now = self.ends()
        link.sender.send(Sample(1))
        for second in range(1, 20):
            link.sender.tick(now + second)
            link.receiver.tick(now + second)
            link.deliver()
            # `serve` reads the real clock; the times of this test are later.
            link.receiver._machine.heard = link.sender._machine.heard = now + second
        assert link.receiver.failure is None
        assert link.sender.failure is None

    def test_a_process_that_was_stopped_itself_reads_before_it_judges(self) -> None:
        link, now = self.ends()
        link.sender.tick(now + 1.0)
        link.back.inbox += b"".join(link.ahead.wire)
        link.receiver.tick(now + 30.0)
        assert link.receiver.failure is None

    def test_a_peer_that_has_not_said_hello_may_take_its_time(self) -> None:
        sender = Sender(ByteCarrier(), Bytes().terms, lambda: None, loop=Bytes().loop)
        sender.tick(sender._machine.heard + 1000.0)
        assert sender.failure is None


# What a peer may not say.


def sending(size: int = 2) -> SendingEnd:
    end = SendingEnd(b"terms", 7, 3.0, 0.0, size)
    say(end, Kind.HELLO, b"receiver\nterms", 0)
    return end


def receiving(size: int = 2, max_bytes: int = 1 << 20) -> ReceivingEnd:
    end = ReceivingEnd(b"terms", 7, 3.0, 0.0, size, max_bytes)
    say(end, Kind.HELLO, b"sender\nterms", 0)
    return end


def say(
    end: Any, kind: int, body: bytes, number: int, *, bulk: int = 0, descriptors: int = 0, epoch: int = 7
) -> Any:
    return end.receive(Header(kind, epoch, number, len(body), bulk), body, descriptors, 0.0)


def frame(
    *places: tuple[int, int, int], count: int | None = None, text: bytes = b"1", length: int | None = None
) -> bytes:
    head = struct.pack(
        "<HHI", 0, len(places) if count is None else count, len(text) if length is None else length
    )
    return head + b"".join(struct.pack("<IQQ", *place) for place in places) + text


def segment(number: int, size: int) -> bytes:
    return struct.pack("<IQB", number, size, 0)


def credit(places: int, *loans: int) -> bytes:
    return struct.pack("<I", places) + b"".join(struct.pack("<Q", loan) for loan in loans)


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ([(Kind.HELLO, b"sender\nterms", {})], "came again"),
        ([(Kind.FRAME, frame(), {"epoch": 8})], "epoch 8, and this link is of 7"),
        ([(Kind.FRAME, frame(), {})] * 3, "without a credit: all 2 places"),
        ([(Kind.FRAME, frame((0, 0, 1)), {})], "segment 0, which does not exist"),
        (
            [(Kind.SEGMENT, segment(0, 4096), {"descriptors": 1}), (Kind.FRAME, frame((0, 4000, 97)), {})],
            "has 4096",
        ),
        ([(Kind.FRAME, frame((IN_BULK, 0, 9)), {"bulk": 8})], "lies at 0 with 9 bytes, of 8"),
        ([(Kind.FRAME, frame((IN_BULK, 0, 9), (IN_BULK, 8, 1)), {"bulk": 20})], "9 are taken"),
        (  # as the one before, with fewer bytes behind
            [(Kind.FRAME, frame((IN_BULK, 0, 9)), {"bulk": bulk}) for bulk in (9, 8)],
            "lies at 0 with 9 bytes, of 8",
        ),
        (
            [
                (Kind.FRAME, frame((IN_BULK, 0, 9), text=text, length=3), {"bulk": 9})
                for text in (b"abc", b"ab")
            ],
            "3 bytes of text",
        ),
        ([(Kind.FRAME, frame((IN_BULK, 0, 9)), {"bulk": 9})] * 3, "without a credit: all 2 places"),
        ([(Kind.FRAME, frame(count=60000), {})], "60000 places"),
        ([(Kind.FRAME, frame(length=1 << 31), {})], "bytes of text"),
        ([(Kind.FRAME, struct.pack("<HHI", 1, 0, 0), {})], "flags 1"),
        ([(Kind.FRAME, b"", {})], "FRAME has 0 bytes"),
        ([(Kind.FRAME, frame(), {"descriptors": 1})], "FRAME came with 1 descriptors"),
        ([(Kind.SEGMENT, segment(0, 4096), {})], "came with 0 descriptors"),
        ([(Kind.SEGMENT, segment(1, 4096), {"descriptors": 1})], "0 was expected"),
        ([(Kind.SEGMENT, segment(0, 1 << 40), {"descriptors": 1})], "more than 1048576"),
        ([(Kind.SEGMENT, segment(5, 0), {})], "5 is dropped, which does not exist"),
        (
            [
                (Kind.SEGMENT, segment(0, 4096), {"descriptors": 1}),
                (Kind.FRAME, frame((0, 0, 8)), {}),
                (Kind.SEGMENT, segment(0, 0), {}),
            ],
            "which is in use",
        ),
        ([(Kind.CREDIT, credit(1), {})], "a sender sends no CREDIT"),
        ([(Kind.END, struct.pack("<Q", 1), {})], "at frame 1"),
        ([(Kind.END, struct.pack("<Q", 0), {}), (Kind.FRAME, frame(), {})], "after the end"),
        ([(Kind.END, struct.pack("<Q", 0), {})] * 2, "came again"),
        ([(Kind.FRAME, struct.pack("<HHI", 2, 0, 0), {})], "flags 2"),
        ([(Kind.BEAT, b"123", {})], "BEAT has 3 bytes"),
        ([(Kind.BEAT, b"", {"bulk": 1})], "bulk bytes"),
    ],
)
def test_a_receiver_refuses(messages: list[Any], said: str) -> None:
    end = receiving()
    with pytest.raises(ProtocolError, match=said):
        for number, (kind, body, more) in enumerate(messages, 1):
            say(end, kind, body, number, **more)


def test_a_frame_that_begins_as_the_one_before_is_read_like_every_other() -> None:
    end = receiving(size=8)
    in_bulk, elsewhere = (IN_BULK, 0, 9), (0, 0, 9)
    say(end, Kind.SEGMENT, segment(0, 4096), 1, descriptors=1)
    bodies = [frame(in_bulk, text=b"abc" + extra, length=3) for extra in (b"", b"[1,null]", b"[2,null]")]
    bodies += [
        frame(elsewhere),
        frame(elsewhere),
        frame(in_bulk, text=b"de"),
        *[frame(in_bulk, (IN_BULK, 9, 1))] * 2,
    ]
    found = [say(end, Kind.FRAME, body, number, bulk=10) for number, body in enumerate(bodies, 2)]
    assert [each.number for each in found] == [*range(8)]
    assert [each.extra for each in found] == [b"", b"[1,null]", b"[2,null]", b"", b"", b"", b"", b""]
    assert [each.description for each in found] == [b"abc"] * 3 + [b"1"] * 2 + [b"de", b"1", b"1"]
    assert [each.loan for each in found] == [0, 0, 0, 0, 1, 2, 2, 2]
    assert [each.places for each in found][2:6] == [[in_bulk], [elsewhere], [elsewhere], [in_bulk]]
    assert end.frames == 8


def test_a_frame_that_has_its_description_in_its_place_has_it_there_again() -> None:
    end = receiving(size=2)
    body = struct.pack("<H", _DESCRIPTION_IN_PLACE) + frame((IN_BULK, 0, 9))[2:]
    found = [say(end, Kind.FRAME, body, number, bulk=9) for number in (1, 2)]
    assert [each.description for each in found] == [None, None]


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ([(Kind.CREDIT, credit(2))], "2 credits came back, and 1 of 2"),
        ([(Kind.CREDIT, credit(1)), (Kind.CREDIT, credit(1))], "1 credits came back, and 0 of 2"),
        ([(Kind.CREDIT, credit(0, 0)), (Kind.CREDIT, credit(0, 0))], "came back before: loan 0"),
        ([(Kind.CREDIT, credit(0, 1))], "was never lent: loan 1"),
        ([(Kind.CREDIT, credit(0) + b"xyz")], "CREDIT has 7 bytes"),
        ([(Kind.CREDIT, b"")], "CREDIT has 0 bytes"),
        ([(Kind.FRAME, frame())], "a receiver sends no FRAME"),
        ([(Kind.SEGMENT, segment(0, 0))], "a receiver sends no SEGMENT"),
        ([(Kind.END, struct.pack("<Q", 2))], "at frame 2"),
        ([(Kind.DEFER, struct.pack("<Q", 2))], "2 frames are deferred, of 1"),
        ([(Kind.DEFER, struct.pack("<Q", 1)), (Kind.DEFER, struct.pack("<Q", 0))], "0 frames .* after 1"),
        ([(Kind.DEFER, b"")], "DEFER has 0 bytes"),
    ],
)
def test_a_sender_refuses(messages: list[Any], said: str) -> None:
    end = sending()
    frame_of(end, [(0, 0, 8)], b"1", b"", 0)
    end.lend("memory")
    with pytest.raises(ProtocolError, match=said):
        for number, (kind, body) in enumerate(messages, 1):
            say(end, kind, body, number)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"GET / HTTP/1.1\r\nHost: somebody\r\n", "does not speak this protocol"),
        (pack_header(Kind.FRAME, 0, 0, 0)[:20], "20 bytes, and a header has 28"),
        (b"HR\x63" + pack_header(Kind.FRAME, 0, 0, 0)[3:], "version 99"),
        (pack_header(77, 0, 0, 0), "no message of kind 77"),
        (pack_header(Kind.FRAME, 0, 0, 1 << 31), "a body of 2147483648"),
        (pack_header(Kind.FRAME, 0, 0, 0, 1 << 60), "bulk bytes; the most is 1000"),
    ],
)
def test_a_header_that_cannot_be_is_refused(data: bytes, said: str) -> None:
    with pytest.raises(ProtocolError, match=said):
        unpack_header(data, 1000)


def test_ends_with_other_terms_or_the_same_role_refuse_each_other() -> None:
    end = ReceivingEnd(b"size 4", 0, 3.0, 0.0, 4, 1)
    with pytest.raises(ProtocolError, match="size 5.*should be.*size 4"):
        say(end, Kind.HELLO, b"sender\nsize 5", 0, epoch=0)
    end = ReceivingEnd(b"size 4", 0, 3.0, 0.0, 4, 1)
    with pytest.raises(ProtocolError, match="should be.*sender"):
        say(end, Kind.HELLO, b"receiver\nsize 4", 0, epoch=0)
    end = ReceivingEnd(b"size 4", 0, 3.0, 0.0, 4, 1)
    with pytest.raises(ProtocolError, match="before HELLO"):
        say(end, Kind.FRAME, frame(), 0, epoch=0)


def test_an_end_that_refuses_tells_its_peer_why() -> None:
    link = Bytes()
    link.deliver()
    link.sender.send(Sample(1))
    link.ahead.wire *= 2
    link.deliver()
    link.deliver()
    assert isinstance(link.receiver.failure, ProtocolError)
    assert isinstance(link.sender.failure, LinkError)
    assert "came again" in str(link.sender.failure)
    with pytest.raises(LinkError, match="came again"):
        link.sender.send(Sample(2))
