"""Links over TCP and TLS: the same as on one host, and what happens when one end goes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from headrace.core.errors import PeerAborted, PeerLost
from headrace.link.carrier import Carrier, CarrierClosed
from headrace.link.loop import default_loop
from headrace.link.protocol import HEADER_SIZE, ReceivingEnd, Sample, SendingEnd, Terms, unpack_header
from headrace.link.receiver import Receiver
from headrace.link.sender import Sender
from tests.harness.processes import environment_of_programs, forking
from tests.harness.threads import PATIENCE, wait_until
from tests.link.connections import CARRIERS, descriptors, receive, tcp_sockets, wait_for_descriptors

TERMS = Terms("edge.camera.out -> server.detector.frame", 4)


@pytest.fixture(params=["tcp", "tls"])
def carriers(request) -> tuple[Carrier, Carrier]:
    return CARRIERS[request.param]()


class Taking:
    """Takes all messages of a link on a thread, and gives each credit back."""

    def __init__(self, carrier: Carrier, terms: Terms = TERMS) -> None:
        self._event = threading.Event()
        self.receiver = Receiver(carrier, terms, self._event.set)
        self.taken: list[Sample] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self.receiver.has_ended and self.receiver.failure is None:
            assert self._event.wait(PATIENCE)
            self._event.clear()
            while (sample := self.receiver.take()) is not None:
                self.taken.append(sample)
                self.receiver.give_credits(1)

    def finish(self) -> list[Sample]:
        self._thread.join(PATIENCE)
        self.receiver.close()
        return self.taken


def send_all(sender: Sender, room: threading.Event, samples: list[Sample]) -> None:
    for sample in samples:
        while not sender.send(sample):
            assert room.wait(PATIENCE)
            room.clear()


def test_a_sender_that_closes_at_once_loses_nothing(carriers):
    """The receiver still returns credits when the sender has closed, and gets everything."""
    before = descriptors() - 2
    near, far = carriers
    room = threading.Event()
    sender = Sender(near, TERMS, room.set)
    taking = Taking(far)
    rng = np.random.default_rng(26)
    samples = [
        Sample(rng.integers(0, 255, size, np.uint8), 7, {"size": size})
        for size in [3, 0, 90_000, 2 << 20] * 4
    ]
    send_all(sender, room, samples)
    sender.end()
    sender.close()
    taken = taking.finish()
    assert taking.receiver.failure is None
    assert [sample.metadata for sample in taken] == [sample.metadata for sample in samples]
    assert all(np.array_equal(one.data, other.data) for one, other in zip(taken, samples, strict=True))
    taken[-1].data[:] = 0  # a received frame belongs to its receiver
    default_loop().wait()
    wait_for_descriptors(before)


@pytest.mark.parametrize("ends", ["is read", "is silent", "is lost"])
def test_a_closed_end_is_there_until_its_peer_has_read_everything_or_is_lost(carriers, monkeypatch, ends):
    near, far = carriers
    before = descriptors()
    monkeypatch.setattr("headrace.link.end._TO_CLOSE", 0.0)
    silence = 1e-3 if ends == "is silent" else 4 * PATIENCE
    sender = Sender(near, replace(TERMS, silence=silence), lambda: None)
    sender.end()
    sender.close()
    if ends == "is read":
        with pytest.raises(CarrierClosed):
            receive(far, 3)
    elif ends == "is lost":
        sender.lose(PeerLost("it is gone"))
    default_loop().wait()
    wait_for_descriptors(before - 1)
    far.close()


def test_numbers_and_arrays_without_dimensions_arrive_among_others(carriers):
    near, far = carriers
    taking = Taking(far)
    loss = {"loss": np.float32(0.5), "step": np.array(7), "pair": np.array([1j, 2]), "none": np.empty((0, 3))}
    with closing(Sender(near, TERMS, lambda: None)) as sender:
        sender.send(Sample(loss))
        sender.end()
    (taken,) = taking.finish()
    assert {key: value.tolist() for key, value in taken.data.items()} == {
        "loss": 0.5,
        "step": 7,
        "pair": [1j, 2],
        "none": [],
    }


def test_the_exception_of_a_part_arrives_after_its_frames(carriers):
    near, far = carriers
    room = threading.Event()
    sender = Sender(near, TERMS, room.set)
    taking = Taking(far)
    send_all(sender, room, [Sample(np.zeros(1 << 20, np.uint8))] * 6)
    sender.abort(ZeroDivisionError("by zero"), "edge")
    sender.close()
    taking.finish()
    assert taking.receiver.received == 6
    assert isinstance(taking.receiver.failure, PeerAborted)
    assert isinstance(taking.receiver.failure.__cause__, ZeroDivisionError)
    assert taking.receiver.failure.part == "edge"


def test_a_peer_that_is_gone_without_a_word_is_lost(carriers):
    near, far = carriers
    receiver = Receiver(far, TERMS, lambda: None)
    near.close()
    wait_until(lambda: receiver.failure, "the failure")
    assert isinstance(receiver.failure, PeerLost)
    assert "the peer is gone" in str(receiver.failure)
    receiver.close()


PROGRAM = """
import os, socket, sys
import numpy as np
from headrace.link.sender import Sender
from headrace.link.protocol import Sample, Terms
from headrace.link.carrier import Carrier, CarrierClosed
from headrace.link.loop import default_loop
carrier = Carrier(socket.socket(fileno=int(sys.argv[1])))
sender = Sender(carrier, Terms("edge.camera.out -> server.detector.frame", 4), int)
for number in range(4):
    assert sender.send(Sample(np.full(4 << 20, number, np.uint8)))
if sys.argv[2] == "exit":
    sender.end()
    sender.close()
else:
    sys.stdin.read()
"""


def started(connection: socket.socket, how: str) -> subprocess.Popen[bytes]:
    with connection:
        os.set_inheritable(connection.fileno(), True)
        return forking()(
            [sys.executable, "-c", PROGRAM, str(connection.fileno()), how],
            env=environment_of_programs(),
            pass_fds=[connection.fileno()],
            stdin=subprocess.PIPE,
        )


def test_a_process_that_exits_at_once_loses_nothing():
    near, far = tcp_sockets()
    process = started(near, "exit")
    taking = Taking(Carrier(far))
    taken = taking.finish()
    assert [int(sample.data[-1]) for sample in taken] == [0, 1, 2, 3]
    assert taking.receiver.failure is None
    assert process.wait(PATIENCE) == 0
    process.stdin.close()


def test_a_process_that_is_killed_is_lost_and_its_whole_frames_are_there():
    near, far = tcp_sockets()
    process = started(near, "stay")
    taking = Taking(Carrier(far))
    wait_until(lambda: len(taking.taken) == 4, "the frames")
    process.kill()
    taking.finish()
    assert isinstance(taking.receiver.failure, PeerLost)
    process.wait(PATIENCE)
    process.stdin.close()


# Silence, by a clock of the test.


class Wire:
    """Two ends and a wire between them that can be cut, in virtual time."""

    def __init__(self, silence: float = 3.0) -> None:
        self.now = 0.0
        self.ends = SendingEnd(b"", silence, 0.0, 4), ReceivingEnd(b"", silence, 0.0, 4)
        self.is_cut = False
        self.frozen: set[int] = set()
        self._inbox: tuple[list, list] = ([], [])
        for index, end in enumerate(self.ends):
            self._carry(index, [end.hello()])
        self.deliver()

    def _carry(self, index: int, messages: list) -> None:
        if not self.is_cut:
            self._inbox[1 - index].extend(messages)

    def deliver(self) -> None:
        for index, end in enumerate(self.ends):
            if index not in self.frozen:
                for message in self._inbox[index]:
                    end.receive(unpack_header(message).kind, message[HEADER_SIZE:], self.now)
                self._inbox[index].clear()

    def go_to(self, time: float) -> list[float | None]:
        """Let the time pass in steps of 50 ms; return when each end noticed that the other is silent."""
        noticed: list[float | None] = [None, None]
        while self.now < time:
            self.now = round(self.now + 0.05, 6)
            self.deliver()
            for index, end in enumerate(self.ends):
                if index not in self.frozen:
                    self._carry(index, [beat] if (beat := end.tick(self.now)) else [])
                    if end.is_silent(self.now) and noticed[index] is None:
                        noticed[index] = self.now
            self.deliver()
        return noticed


def test_two_idle_ends_hear_of_each_other():
    assert Wire().go_to(60.0) == [None, None]


def test_a_cut_cable_is_noticed_by_both_ends_within_three_seconds():
    wire = Wire()
    assert wire.go_to(10.4) == [None, None]
    wire.is_cut = True
    for noticed in wire.go_to(20.0):
        assert noticed is not None
        assert 12.4 < noticed <= 13.3


def test_a_freeze_is_a_loss_within_three_seconds_and_never_before_two_point_three():
    """Wherever it begins between two beats."""
    for phase in range(10):
        wire = Wire()
        begin = 10.0 + 0.05 * phase
        wire.go_to(begin)
        wire.frozen = {0}
        assert wire.go_to(begin + 2.3) == [None, None]
        wire.frozen = set()
        assert wire.go_to(20.0 + 0.05 * phase) == [None, None]
        wire.frozen = {0}
        noticed = wire.go_to(30.0)
        assert noticed[0] is None
        assert noticed[1] is not None
        assert 2.3 < noticed[1] - (20.0 + 0.05 * phase) <= 3.0
