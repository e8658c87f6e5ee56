"""The board of a link on one host: frames that are announced before they are complete, and beats that are notes."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

from headrace.core.errors import PeerLost, ProtocolError
from headrace.link import tail
from headrace.link.board import SIZE as SIZE_OF_BOARD
from headrace.link.board import Board
from headrace.link.ring import Segment
from headrace.link.terms import Parcel
from headrace.link.wire import Kind
from tests.link.pipes import Pair

SIZE = 3 << 20


def image(seed: int, size: int = SIZE) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, size, np.uint8)


@pytest.fixture
def link() -> Any:
    with Pair() as link:
        link.rests = []
        link.complete = link.sender._complete
        link.sender._complete = link.rests.append  # by hand
        yield link


def messages(data: np.ndarray) -> list[Any]:
    return [data, {"label": "an image", "small": data[:30_000], "image": data}]


class TestEarlyFrames:
    @pytest.mark.parametrize("form", [0, 1])
    def test_are_handed_out_when_they_are_complete(self, link: Any, form: int) -> None:
        sent = image(1)
        assert link.sender.send(Parcel(messages(sent)[form], 7))
        link.loop.serve()
        link.events.clear()
        assert link.receiver.received == 1
        assert link.receiver.take() is None
        assert not link.receiver.has_ended
        link.complete(*link.rests)
        link.loop.serve()
        assert link.events == ["receiver"]
        parcel = link.receiver.take()
        assert (parcel.acq_timestamp, parcel.number) == (7, 0)
        assert np.array_equal(parcel.data if form == 0 else parcel.data["image"], sent)

    def test_need_no_second_message_if_the_receiver_comes_later(self, link: Any) -> None:
        link.sender.send(Parcel(image(2)))
        before = link.sender._machine._out
        link.complete(*link.rests)
        assert link.sender._machine._out == before
        link.loop.serve()
        assert np.array_equal(link.receiver.take().data, image(2))

    def test_are_complete_by_a_count_of_the_system_and_by_no_word_of_the_shared_page(self, link: Any) -> None:
        """Another process may see the words of the page in another order than they were written in."""
        link.sender.send(Parcel(image(11)))
        link.loop.serve()
        words = link.sender._machine.board._words
        words[:] = memoryview(bytes(b"\x7f" * words.nbytes)).cast("Q")
        assert link.receiver.take() is None
        link.complete(*link.rests)
        assert np.array_equal(link.receiver.take().data, image(11))

    def test_are_whole_even_if_the_copy_is_interrupted(self, link: Any) -> None:
        class Interrupted:
            is_first = True

            def __setitem__(self, at: Any, content: Any) -> None:
                if self.is_first:
                    self.is_first = False
                    raise KeyboardInterrupt
                memory[at] = content

        link.sender.send(Parcel(image(3)))
        ((memory, content),) = link.rests
        with pytest.raises(KeyboardInterrupt):
            link.complete((Interrupted(), content))
        link.loop.serve()
        assert np.array_equal(link.receiver.take().data, image(3))

    def test_that_are_never_complete_are_never_handed_out(self, link: Any) -> None:
        link.sender.send(Parcel(image(4)))
        link.loop.serve()
        assert link.receiver.take() is None
        link.sockets[0].close()
        link.loop.serve()
        assert isinstance(link.receiver.failure, PeerLost)
        assert link.receiver.take() is None

    def test_must_be_complete_before_the_end(self, link: Any) -> None:
        link.sender.send(Parcel(image(5)))
        link.sender.end()
        link.loop.serve()
        assert isinstance(link.receiver.failure, ProtocolError)
        assert "an END came before frame 0 was complete" in str(link.receiver.failure)
        assert link.receiver.take() is None

    def test_are_announced_later_if_the_receiver_had_to_wait(self, link: Any) -> None:
        lengths = []
        for waits in (True, False, False):
            link.sender._tail._looked_at = 0.0
            link.sender.send(Parcel(image(6)))
            lengths.append(len(link.rests[-1][0]))
            link.loop.serve()
            assert not waits or link.receiver.take() is None
            link.complete(link.rests[-1])
            link.take()
        assert lengths[1] < lengths[2] < lengths[0]

    def test_are_none_of_those_that_follow_each_other(self, link: Any) -> None:
        for number in range(3):
            link.sender._tail._looked_at = tail.monotonic() + 3600.0  # however slow this test is
            assert link.sender.send(Parcel(image(number)))
            assert np.array_equal(link.take(), image(number))
        assert link.rests == []

    def test_are_none_of_small_ones_or_of_those_with_gaps(self, link: Any) -> None:
        for data in (image(7, 100_000), image(8).reshape(-1, 2)[:, 0]):
            link.sender._tail._looked_at = 0.0
            link.sender.send(Parcel(data))
            assert np.array_equal(link.take(), data)
        assert link.rests == []

    def test_are_tried_again_after_a_while_if_they_never_gain_anything(self, link: Any) -> None:
        link.sender._tail._length = tail.SHORTEST - 2 * tail._MORE
        for number in range(3):
            link.sender._tail._looked_at = 0.0
            link.sender.send(Parcel(image(number)))
            assert len(link.rests) == (number == 2)
            for rest in link.rests:
                link.complete(rest)
            assert np.array_equal(link.take(), image(number))

    def test_are_seen_if_they_are_complete_just_before_the_receiver_says_that_it_waits(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sender, shared = Board.create()
        receiver = Board.from_peer(*shared)
        os.close(shared[0])
        read = os.eventfd_read

        def read_early(counter: int) -> int:
            monkeypatch.setattr(os, "eventfd_read", read)
            try:
                return read(counter)
            finally:
                assert not sender.note_written(1)  # so the sender sends nothing

        monkeypatch.setattr(os, "eventfd_read", read_early)
        assert receiver.wait_for(0)

    def test_of_a_link_that_was_closed_meanwhile_harm_nothing(self, link: Any) -> None:
        link.sender.send(Parcel(image(9)))
        link.sender.close()
        link.complete(*link.rests)
        link.receiver.close()
        assert link.receiver.take() is None

    def test_are_not_taken_from_a_link_that_is_closed_at_this_moment(self, link: Any) -> None:
        link.sender.send(Parcel(image(10)))
        link.loop.serve()
        link.receiver._is_written = lambda number: link.receiver.close() is None  # by another thread
        assert link.receiver.take_at_once() is None


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

    def test_may_be_read_before_a_message_that_was_sent_earlier(self, link: Any) -> None:
        link.sender.send(Parcel(image(1)))
        link.loop.serve()
        assert link.receiver.take() is None
        link.complete(*link.rests)  # which tells the receiver, who reads it late
        link.sender.send(Parcel(1))
        now = link.receiver._machine.heard
        for end in (link.sender, link.receiver):
            end.tick(now + 1)
        assert link.receiver.peer_frames == 2
        link.loop.serve()
        assert link.receiver.failure is None
        assert link.receiver.peer_frames == 2
        assert np.array_equal(link.take(), image(1))
        assert link.take() == 1

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
    @pytest.mark.parametrize(
        ("is_page_wrong", "said"), [(True, "not a memory file"), (False, "in the place of a counter")]
    )
    def test_a_board_that_is_no_memory_or_no_counter_is_refused(self, is_page_wrong: bool, said: str) -> None:
        link = Pair()
        reading, writing = os.pipe()
        machine = link.sender._machine
        page = Segment.create(SIZE_OF_BOARD)
        link.receiver._machine.board = None
        given = (reading, reading) if is_page_wrong else (page.fileno(), reading)
        link.sender._post(machine._message(Kind.BOARD, b""), descriptors=given)
        link.loop.serve()
        assert said in str(link.receiver.failure)
        for descriptor in (reading, writing):
            os.close(descriptor)
        link.sender.close()
        link.receiver.close()

    def test_a_counter_that_would_block_does_not(self) -> None:
        page, counter = Segment.create(SIZE_OF_BOARD), os.eventfd(0)
        board = Board.from_peer(page.fileno(), counter)
        assert not os.get_blocking(counter)  # otherwise the next line waits for ever
        assert not board.is_written(0)
        os.close(counter)

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
