"""The board of a link on one host: beats that are notes."""

from __future__ import annotations

import os
from typing import Any

import pytest

from headrace.core.errors import PeerLost
from headrace.link.protocol import Kind
from headrace.link.terms import Parcel
from tests.link.pipes import Pair


class TestBeats:
    def test_are_notes_that_wake_nobody(self) -> None:
        with Pair(silence=3.0) as link:
            now = link.receiver._machine.heard
            for second in range(1, 60):
                for end in (link.sender, link.receiver):
                    assert end.tick(now + second) <= now + second + 0.51
                assert [socket.recv(1, _PEEK) for socket in link.sockets if _is_readable(socket)] == []
            assert link.sender.failure is None
            assert link.receiver.failure is None
            assert link.sender.peer_frames == 0

    def test_say_how_far_the_peer_is(self) -> None:
        with Pair() as link:
            link.sender.send(Parcel(1))
            link.take()
            now = link.receiver._machine.heard
            for end in (link.sender, link.receiver, link.sender):
                end.tick(now + 1)
            assert link.sender.peer_frames == link.receiver.peer_frames == 1

    def test_may_be_read_before_a_message_that_was_sent_earlier(self) -> None:
        with Pair() as link:
            link.sender.send(Parcel(1))
            link.sender._post(link.sender._machine.beat())
            link.sender.send(Parcel(2))
            now = link.receiver._machine.heard
            for end in (link.sender, link.receiver):
                end.tick(now + 1)
            assert link.receiver.peer_frames == 2
            assert link.take() == 1
            assert link.receiver.failure is None
            assert link.receiver.peer_frames == 2
            assert link.take() == 2

    def test_a_peer_without_them_is_lost_within_the_time_of_the_terms(self) -> None:
        link = Pair(silence=3.0)
        now = link.receiver._machine.heard
        link.sender.tick(now + 0.8)  # the last sign of life, which is read late
        link.receiver.tick(now + 2.0)
        link.receiver.tick(now + 0.8 + 2.84)
        assert link.receiver.failure is None
        link.receiver.tick(now + 0.8 + 2.851)
        assert isinstance(link.receiver.failure, PeerLost)
        link.sender.close()
        link.receiver.close()

    def test_of_a_time_to_come_do_not_keep_a_link(self) -> None:
        link = Pair(silence=3.0)
        now = link.receiver._machine.heard
        link.sender._machine.board.beat(now + 1e6, 0)
        link.receiver.tick(now + 1.0)
        assert link.receiver.failure is None
        link.receiver.tick(now + 1.0 + 2.851)
        assert isinstance(link.receiver.failure, PeerLost)
        link.sender.close()
        link.receiver.close()

    @pytest.mark.parametrize("ahead", [-1e6, -3.0, -2.5, -2.0, -0.5, 0.5, 2.0, 2.5, 3.0, 1e6])
    def test_of_a_clock_that_differs_neither_end_a_link_nor_keep_it(self, ahead: float) -> None:
        """As in two containers with time namespaces: a peer is lost when it notes nothing, and not before."""
        late = 0.05  # from a note to the look at it, at least
        link = Pair(silence=3.0)
        board = link.sender._machine.board
        board._words[2] = 7  # its clock
        now = 2e6 + link.receiver._machine.heard
        link.receiver._machine.heard = now
        for number in range(1, 40):
            made = now + number * 0.75
            board.beat(made + ahead, 0)
            link.receiver.tick(made + (late if number == 3 else 0.7))
            assert link.receiver.failure is None
        link.receiver.tick(made + 2.84)
        assert link.receiver.failure is None
        link.receiver.tick(made + late + 2.851)
        assert isinstance(link.receiver.failure, PeerLost)
        link.sender.close()
        link.receiver.close()


class TestStrangers:
    def test_a_board_that_is_no_memory_is_refused(self) -> None:
        link = Pair()
        reading, writing = os.pipe()
        machine = link.sender._machine
        link.receiver._machine.board = None
        link.sender._post(machine._message(Kind.BOARD, b""), descriptors=(reading,))
        link.loop.serve()
        assert "not a memory file" in str(link.receiver.failure)
        for descriptor in (reading, writing):
            os.close(descriptor)
        link.sender.close()
        link.receiver.close()

    @pytest.mark.parametrize(
        ("body", "said"), [(b"", "with 0 descriptors and 0 bytes, again"), (b"x", "1 bytes")]
    )
    def test_a_second_board_is_refused(self, body: bytes, said: str) -> None:
        link = Pair()
        link.sender._post(link.sender._machine._message(Kind.BOARD, body))
        link.loop.serve()
        assert said in str(link.receiver.failure)
        link.sender.close()
        link.receiver.close()


_PEEK = 0x42  # MSG_PEEK | MSG_DONTWAIT


def _is_readable(socket: Any) -> bool:
    try:
        socket.recv(1, _PEEK)
    except BlockingIOError:
        return False
    return True
