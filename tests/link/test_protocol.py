"""The rules of a link, over bytes that arrive in any pieces at any time."""

from __future__ import annotations

import struct
from time import monotonic
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headrace.core.errors import LinkError, PeerAborted, PeerLost, ProtocolError
from headrace.link.end import _TO_CLOSE
from headrace.link.protocol import IN_BULK, Kind, ReceivingEnd, Sample, SendingEnd, frame_body
from headrace.link.sender import Sender
from tests.limits import examples
from tests.link.pipes import ByteCarrier, Bytes

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


@pytest.mark.parametrize("cut", [0, 1, 12, 13, 40, 10_000])
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
        link.receiver.tick(monotonic() + _TO_CLOSE)
        assert link.back.is_closed
        starting = Bytes(silence=3.0)
        starting.sender._machine.heard = float("-inf")
        starting.sender.close()  # before the HELLO of its peer
        starting.sender.tick(monotonic() + 2.0)
        assert not starting.ahead.is_closed
        starting.sender.tick(monotonic() + 2.85)
        assert starting.ahead.is_closed

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


# What cannot be.


def sending(size: int = 2) -> SendingEnd:
    end = SendingEnd(b"terms", 3.0, 0.0, size)
    end.receive(Kind.HELLO, b"receiver\nterms", 0.0)
    return end


def receiving(size: int = 2) -> ReceivingEnd:
    end = ReceivingEnd(b"terms", 3.0, 0.0, size)
    end.receive(Kind.HELLO, b"sender\nterms", 0.0)
    return end


def frame(*places: tuple[int, int, int], text: bytes = b"1", extra: bytes = b"") -> bytes:
    return frame_body(places, text, extra)


def credit(places: int, *leases: int) -> bytes:
    return struct.pack("<I", places) + b"".join(struct.pack("<Q", lease) for lease in leases)


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ([(Kind.FRAME, frame())] * 3, "without a credit: all 2 places"),
        ([(Kind.CREDIT, credit(1))], "a sender sends no message of kind 4"),
        ([(Kind.END, struct.pack("<Q", 1))], "ended after 1 frames, and 0 have come"),
        ([(Kind.HELLO, b"sender\nother terms")], "should be.*terms"),
        ([(Kind.HELLO, b"receiver\nterms")], "should be.*sender"),
    ],
)
def test_a_receiver_refuses(messages: list[Any], said: str) -> None:
    end = receiving()
    with pytest.raises(ProtocolError, match=said):
        for kind, body in messages:
            end.receive(kind, body, 0.0)


def test_frames_are_numbered_and_so_are_their_places_in_shared_memory() -> None:
    end = receiving(size=3)
    in_bulk, elsewhere = (IN_BULK, 0, 9), (0, 0, 9)
    bodies = [frame(in_bulk, text=b"abc", extra=b"5"), frame(elsewhere, elsewhere), frame(elsewhere)]
    found = [end.receive(Kind.FRAME, body, 0.0) for body in bodies]
    assert [(each.number, each.lease) for each in found] == [(0, 0), (1, 0), (2, 2)]
    assert (found[0].description, found[0].extra, found[0].places) == (b"abc", b"5", [in_bulk])
    assert (end.frames, end.lent) == (3, 27)


@pytest.mark.parametrize(
    ("bodies", "said"),
    [
        ([credit(2)], "2 credits came back, and 1 of 2"),
        ([credit(1)] * 2, "1 credits came back, and 0 of 2"),
        ([credit(0, 0)] * 2, "not lent: lease 0"),
    ],
)
def test_a_sender_refuses(bodies: list[bytes], said: str) -> None:
    end = sending()
    end.frame(frame((0, 0, 8)), 0)
    end.lend("memory")
    with pytest.raises(ProtocolError, match=said):
        for body in bodies:
            end.receive(Kind.CREDIT, body, 0.0)


def test_an_end_that_refuses_tells_its_peer_why() -> None:
    link = Bytes(size=1)
    link.deliver()
    link.sender.send(Sample(1))
    link.ahead.wire *= 2
    link.deliver()
    link.deliver()
    assert isinstance(link.receiver.failure, ProtocolError)
    assert isinstance(link.sender.failure, LinkError)
    assert "without a credit" in str(link.sender.failure)
    with pytest.raises(LinkError, match="without a credit"):
        link.sender.send(Sample(2))
