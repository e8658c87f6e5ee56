"""A peer that got through the handshake and then misbehaves: its link fails by name, and nothing else is harmed."""

from __future__ import annotations

import os
import pickle
import struct
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from headrace.core.errors import ProtocolError
from headrace.link.carrier import Carrier
from headrace.link.protocol import IN_BULK, Kind, Message, ReceivingEnd, SendingEnd, pack_header
from headrace.link.receiver import Receiver
from headrace.link.sender import Sender
from headrace.link.terms import Sample, Terms
from headrace.tensor import DLDataType
from tests.harness.threads import wait_until
from tests.link.connections import CARRIERS, descriptors, wait_for_descriptors
from tests.link.pipes import frame_of

TERMS = Terms("edge.camera.out -> server.detector.frame", 2, max_bytes=1 << 20, epoch=5)

BYTE = np.dtype(np.uint8)


class Attacker:
    """The other end of a link, with an honest state machine to misuse."""

    def __init__(self, carrier: Carrier, machine: SendingEnd | ReceivingEnd) -> None:
        self.carrier = carrier
        self.machine = machine

    def say(self, message: Message, *bulk: bytes, fds: tuple[int, ...] = ()) -> None:
        self.carrier.send(message.header, message.body, bulk, fds)

    def say_raw(
        self, kind: int, body: bytes = b"", bulk: int = 0, *, number: int = 1, epoch: int = 5
    ) -> None:
        """Send a header and a body, and none of the bulk bytes that it announces."""
        self.carrier.send(pack_header(kind, epoch, number, len(body), bulk), body)

    def frame(self, description: bytes, content: bytes = b"") -> None:
        """Send a frame with one piece of memory, and any description."""
        places = [(IN_BULK, 0, len(content))] if content else []
        self.say(frame_of(self.machine, places, description, b"", len(content)), content)


def sending(carrier: Carrier) -> Attacker:
    return Attacker(carrier, SendingEnd(TERMS.text(), 5, 3.0, 0.0, 1000))


def receiving(carrier: Carrier) -> Attacker:
    return Attacker(carrier, ReceivingEnd(TERMS.text(), 5, 3.0, 0.0, 1000, 1 << 20))


@pytest.fixture(params=CARRIERS)
def carriers(request) -> tuple[Carrier, Carrier]:
    return CARRIERS[request.param]()


@pytest.fixture
def beside() -> Iterator[Callable[[], None]]:
    """A link beside, and a check that it still works."""
    before = descriptors()
    near, far = CARRIERS["unix"]()
    terms = Terms("the link beside", 2)
    sender, receiver = Sender(near, terms, lambda: None), Receiver(far, terms, lambda: None)

    def check() -> None:
        number = receiver.received
        assert sender.send(Sample(np.full(50_000, number)))
        wait_until(lambda: receiver.received > number, "the frame of the link beside")
        sample = receiver.take()
        assert sample is not None
        assert np.all(sample.data == number)
        receiver.give_credits(1)
        wait_until(sender.take_credits, "the credit of the link beside")

    check()
    yield check
    check()
    sender.close()
    receiver.close()
    wait_for_descriptors(before)


def hello(attacker: Attacker) -> None:
    attacker.say(attacker.machine.hello())


def described(kind: object, shape: object, strides: object = None) -> bytes:
    return b"a" + pickle.dumps((kind, shape, strides))


def frames_without_credit(attacker: Attacker) -> None:
    for _ in range(3):
        attacker.frame(b"null")


def end_too_early(attacker: Attacker) -> None:
    attacker.say_raw(Kind.END, struct.pack("<Q", 7))


def frame_after_the_end(attacker: Attacker) -> None:
    attacker.say(attacker.machine.end())
    attacker.frame(b"null")


def place(segment: int, offset: int, length: int) -> Callable[[Attacker], None]:
    def attack(attacker: Attacker) -> None:
        attacker.say(
            frame_of(attacker.machine, [(segment, offset, length)], described(BYTE, (1,)), b"", 4),
            b"four",
        )

    return attack


# What is said after HELLO, and what the receiver of it says about that.
TO_A_RECEIVER = {
    "a gap": (lambda a: a.say_raw(Kind.BEAT, number=2), "number 2 arrived, and 1 was expected"),
    "a repetition": (lambda a: a.say_raw(Kind.BEAT, number=0), "a message came again"),
    "another epoch": (lambda a: a.say_raw(Kind.BEAT, epoch=4), "of epoch 4, and this link is of 5"),
    "a second HELLO": (lambda a: a.say(a.machine.hello()), "HELLO came again"),
    "an unknown kind": (lambda a: a.say_raw(99), "no message of kind 99"),
    "a huge frame": (lambda a: a.say_raw(Kind.FRAME, bulk=1 << 50), "bulk bytes"),
    "bulk that is no frame's": (lambda a: a.say(a.machine._message(Kind.BEAT, bytes(9))), "has 9 bytes"),
    "a credit": (lambda a: a.say_raw(Kind.CREDIT, bytes(4)), "a sender sends no CREDIT"),
    "frames without credits": (frames_without_credit, "without a credit: all 2 places are taken"),
    "an end too early": (end_too_early, "at frame 7"),
    "a frame after the end": (frame_after_the_end, "after the end"),
    "a bad segment": (place(3, 0, 4), "of segment 3, which does not exist"),
    "a piece beyond the memory": (place(IN_BULK, 1, 4), "lies at 1 with 4 bytes, of 4 in all"),
    "a piece that wraps around": (place(IN_BULK, (1 << 64) - 1, 2), "with 2 bytes, of 4 in all"),
    "a frame that is cut off": (
        lambda a: a.say_raw(Kind.FRAME, b"\0\0\1"),
        "the body of a FRAME has 3 bytes",
    ),
    "many places": (lambda a: a.say_raw(Kind.FRAME, b"\0\0\xff\xff" + bytes(4)), "65535 places"),
    "a damaged ABORT": (lambda a: a.say_raw(Kind.ABORT, b"not JSON"), "ABORT is damaged"),
    "a damaged loss": (lambda a: a.say_raw(Kind.ABORT, b'{"unheard": []}'), "ABORT is damaged"),
}

FOUR = b"four"
# The description of an array in four bytes of memory, which is not possible.
DESCRIPTIONS = {
    "nothing": b"a",
    "no pickle": b"aaa",
    "objects": described(np.dtype("O"), (1,)),
    "no dtype": described("nonsense", (1,)),
    "another dtype": described(np.dtype("f8"), (1,)),
    "too many elements": described(BYTE, (5,)),
    "a negative shape": described(BYTE, (-4,)),
    "a shape of text": described(BYTE, ("4",)),
    "strides beyond": described(BYTE, (2,), (4,)),
    "strides before": described(BYTE, (2,), (-1,)),
    "a huge array on four bytes": described(BYTE, (1 << 60,), (0,)),
    "a huge tensor on four bytes": described(DLDataType(1, 8, 1), (1 << 60,), (0,)),
    "a tensor beyond": described(DLDataType(2, 64, 1), (1,)),
    "no element type": described(DLDataType(999, 0, 0), (1,)),
}


@pytest.mark.parametrize("attack", TO_A_RECEIVER)
def test_a_receiver_refuses(attack, carriers, beside):
    act, complaint = TO_A_RECEIVER[attack]
    near, far = carriers
    receiver = Receiver(far, TERMS, lambda: None)
    attacker = sending(near)
    hello(attacker)
    act(attacker)
    wait_until(lambda: receiver.failure, "the failure")
    beside()
    assert isinstance(receiver.failure, ProtocolError)
    assert complaint in str(receiver.failure)
    receiver.close()
    near.close()


@pytest.mark.parametrize("description", DESCRIPTIONS)
def test_a_receiver_refuses_a_frame_that_is_described_wrongly(description, beside):
    near, far = CARRIERS["tcp"]()
    receiver = Receiver(far, TERMS, lambda: None)
    attacker = sending(near)
    hello(attacker)
    attacker.frame(DESCRIPTIONS[description], FOUR)
    wait_until(lambda: receiver.received, "the frame")
    was_taken = receiver.take() is not None
    assert not was_taken
    assert isinstance(receiver.failure, ProtocolError)
    assert "a frame is damaged" in str(receiver.failure)
    receiver.close()
    near.close()


def after_a_frame(*said: tuple[int, bytes]) -> Callable[[Attacker], None]:
    def attack(attacker: Attacker) -> None:
        for number, (kind, body) in enumerate(said, 1):
            attacker.say_raw(kind, body, number=number)

    return attack


CREDIT, LOAN = struct.Struct("<I"), struct.Struct("<Q")
TO_A_SENDER = {
    "credits for nothing": (
        after_a_frame((Kind.CREDIT, CREDIT.pack(2))),
        "2 credits came back, and 1 of 2 were out",
    ),
    "a double credit": (
        after_a_frame((Kind.CREDIT, CREDIT.pack(1)), (Kind.CREDIT, CREDIT.pack(1))),
        "1 credits came back, and 0 of 2 were out",
    ),
    "memory that was never lent": (after_a_frame((Kind.CREDIT, CREDIT.pack(0) + LOAN.pack(9))), "never lent"),
    "half a loan": (
        after_a_frame((Kind.CREDIT, CREDIT.pack(0) + b"123")),
        "the body of a CREDIT has 7 bytes",
    ),
    "a frame": (after_a_frame((Kind.FRAME, bytes(8))), "a receiver sends no FRAME"),
    "an end that cannot be": (after_a_frame((Kind.END, LOAN.pack(2))), "at frame 2"),
    "shared memory": (after_a_frame((Kind.SEGMENT, struct.pack("<IQB", 0, 0, 0))), "sends no SEGMENT"),
}


@pytest.mark.parametrize("attack", TO_A_SENDER)
def test_a_sender_refuses(attack, carriers, beside):
    act, complaint = TO_A_SENDER[attack]
    near, far = carriers
    sender = Sender(near, TERMS, lambda: None)
    assert sender.send(Sample(np.zeros(100, np.uint8)))
    attacker = receiving(far)
    hello(attacker)
    act(attacker)
    wait_until(lambda: sender.failure, "the failure")
    beside()
    assert isinstance(sender.failure, ProtocolError)
    assert complaint in str(sender.failure)
    with pytest.raises(ProtocolError):
        sender.send(Sample(None))
    sender.close()
    far.close()


def test_memory_that_comes_back_twice_is_refused(beside):
    near, far = CARRIERS["unix"]()
    sender = Sender(near, TERMS, lambda: None)
    assert sender.send(Sample(np.zeros(100_000, np.uint8)))
    attacker = receiving(far)
    hello(attacker)
    after_a_frame(*[(Kind.CREDIT, CREDIT.pack(0) + LOAN.pack(0))] * 2)(attacker)
    wait_until(lambda: sender.failure, "the failure")
    assert "came back before" in str(sender.failure)
    sender.close()
    far.close()


@pytest.mark.parametrize("said", [b"sender\nother terms", b"receiver\n" + TERMS.text(), b""])
def test_other_terms_are_refused(said, carriers):
    near, far = carriers
    receiver = Receiver(far, TERMS, lambda: None)
    sending(near).say_raw(Kind.HELLO, said, number=0)
    wait_until(lambda: receiver.failure, "the failure")
    assert "terms" in str(receiver.failure)
    receiver.close()
    near.close()


def sealed(size: int) -> int:
    descriptor = os.memfd_create("hostile", os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, size)
    return descriptor


@pytest.mark.parametrize("kind", ["unsealed memory", "a file", "memory that is too small", "too much memory"])
def test_shared_memory_that_could_be_taken_away_is_refused(kind, beside):
    """A peer that could shrink the memory could kill its reader (SIGBUS)."""
    near, far = CARRIERS["unix"]()
    receiver = Receiver(far, TERMS, lambda: None)
    attacker = sending(near)
    hello(attacker)
    descriptor = os.open("/dev/null", os.O_RDWR) if kind == "a file" else sealed(4096)
    size = (2 << 20) if kind == "too much memory" else (1 << 16) if kind.endswith("small") else 4096
    attacker.say(attacker.machine.segment(size)[1], fds=(descriptor,))
    wait_until(lambda: receiver.failure, "the failure")
    assert isinstance(receiver.failure, ProtocolError)
    os.close(descriptor)
    receiver.close()
    near.close()


def test_descriptors_with_a_message_that_has_none_are_closed(beside):
    near, far = CARRIERS["unix"]()
    receiver = Receiver(far, TERMS, lambda: None)
    attacker = sending(near)
    hello(attacker)
    descriptor = sealed(4096)
    attacker.say(attacker.machine.tick(10.0)[0], fds=(descriptor, descriptor))
    wait_until(lambda: receiver.failure, "the failure")
    assert "with 2 descriptors" in str(receiver.failure)
    os.close(descriptor)
    receiver.close()
    near.close()
