"""Two ends over a real socket pair: frames in shared memory, credits, and the three kinds of end."""

from __future__ import annotations

import gc
import logging
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from queue import SimpleQueue
from time import monotonic
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from headrace import TensorMap, as_tensor, waits
from headrace.core.errors import CrossingError, LinkError, PeerAborted, PeerLost
from headrace.gpu.backend import is_chosen
from headrace.link import sender as senders
from headrace.link.carrier import Carrier
from headrace.link.loop import LinkLoop
from headrace.link.protocol import Sample, Terms
from headrace.link.receiver import Receiver
from headrace.link.sender import Sender
from headrace.resources import RingAllocator
from tests.harness.files import open_files
from tests.harness.threads import PATIENCE, wait_until
from tests.link.pipes import Bytes, Pair

LARGE = 100_000  # bytes; too many to travel with the message


def frame(value: int, size: int = LARGE) -> np.ndarray:
    return np.full(size, value % 251, np.uint8)


@contextmanager
def uncollected() -> Iterator[None]:
    """Let Python's collector run only when it is asked."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def collecting() -> bool:
    return any(each.name == "headrace collect" for each in threading.enumerate())


class Unpicklable(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("there are no words for it")


class TestFrames:
    def test_come_in_order_with_their_details(self) -> None:
        with Pair() as link:
            for number in range(20):
                assert link.sender.send(Sample({"frame": frame(number), "n": number}, number, {"m": number}))
                link.loop.serve()
                sample = link.receiver.take()
                assert sample is not None
                assert (sample.number, sample.acq_timestamp, sample.metadata) == (
                    number,
                    number,
                    {"m": number},
                )
                assert (sample.data["frame"] == number).all()
                link.receiver.give_credits(1)
                link.loop.serve()

    def test_belong_to_the_receiver_who_may_write_to_them(self) -> None:
        with Pair() as link:
            original = frame(1)
            link.sender.send(Sample(original))
            received = link.take()
            received[:] = 9
            assert (original == 1).all()
            original[:] = 2
            assert (received == 9).all()

    def test_keep_their_contents_while_anything_refers_to_them(self) -> None:
        with Pair() as link:
            kept = []
            for number in range(12):
                link.sender.send(Sample({"frame": frame(number), "other": frame(number + 100)}))
                received = link.take()
                kept.append(
                    (received["frame"][3:50:2], np.from_dlpack(as_tensor(received["other"])).reshape(-1, 2))
                )
                del received
                link.loop.serve()
            gc.collect()
            link.receiver.tick(0)
            link.loop.serve()
            assert len(link.sender._memory.held()) == 12
            for number, (part, other) in enumerate(kept):
                assert (part == number).all()
                assert (other == number + 100).all()

    @pytest.mark.parametrize("hold", [lambda a: a[5:9], np.from_dlpack, as_tensor, memoryview, lambda a: a.T])
    def test_give_their_memory_back_with_the_last_reference(self, hold: Any) -> None:
        with Pair() as link:
            link.sender.send(Sample(frame(1)))
            held = hold(link.take())
            link.receiver.tick(0)
            link.loop.serve()
            assert link.sender._memory.held()
            del held
            link.receiver.tick(0)
            link.loop.serve()
            assert not link.sender._memory.held()

    def test_that_nobody_can_reach_give_their_memory_back_to_a_sender_that_waits(self) -> None:
        """Frames in circles of references: both ends would wait for ever, as nothing makes Python collect them."""
        with Pair(size=64, max_bytes=4 << 20) as link, uncollected():
            sent = 0
            while link.sender.send(Sample(frame(sent, 1 << 20))):
                circle = [link.take()]
                circle.append(circle)
                sent += 1
            del circle
            assert sent == 4
            now = monotonic()
            link.sender.tick(now)
            link.loop.serve()
            assert not collecting()  # not at once
            link.sender.tick(now + link.terms.silence / 2)
            link.loop.serve()

            def can_send() -> bool:
                link.loop.serve()
                return link.sender.send(Sample(frame(sent, 1 << 20)))

            wait_until(can_send, "memory came back")

    def test_that_are_kept_are_asked_for_less_and_less_often(self) -> None:
        with Pair(size=64, max_bytes=1 << 20, silence=None) as link:
            assert link.sender.send(Sample(frame(0, 1 << 20)))
            kept = link.take()
            assert not link.sender.send(Sample(frame(1, 1 << 20)))
            asked, now = [], monotonic()
            link.receiver._collect = lambda: asked.append(beat)  # type: ignore[method-assign]
            for beat in range(1, 40):
                for end in link.receiver, link.sender:
                    end.tick(now + beat * 0.5 + 0.01)
                before = len(asked)
                link.loop.serve()
                wait_until(lambda: not collecting(), "it was asked")
                assert len(asked) - before <= 1
            assert asked == [1, 3, 7, 15, 31]
            del kept

    def test_that_are_small_take_no_shared_memory(self) -> None:
        with Pair() as link:
            link.sender.send(Sample([frame(1, 64), frame(2, 1000), b"text"]))
            small, larger, text = link.take()
            assert not link.sender._memory.held()
            assert (small == 1).all()
            assert (larger == 2).all()
            assert text == b"text"
            small[:] = larger[:64] = 3

    def test_return_each_array_by_itself(self) -> None:
        with Pair() as link:
            link.sender.send(Sample([frame(1), frame(2, 2 * LARGE)]))
            first = link.take()[0]
            link.receiver.tick(0)
            link.loop.serve()
            assert sum(link.sender._memory.held().values()) < 2 * LARGE
            assert (first == 1).all()

    def test_with_a_long_description_travel_too(self) -> None:
        data = {f"key {number}": "x" * 100 for number in range(2000)} | {"frame": frame(3)}
        with Pair() as link:
            assert link.sender.send(Sample(data, 5, {"note": "y" * 5000}))
            link.loop.serve()
            sample = link.receiver.take()
            assert sample is not None
            assert sample.data.keys() == data.keys()
            assert (sample.data["frame"] == 3).all()
            assert (sample.acq_timestamp, sample.metadata) == (5, {"note": "y" * 5000})

    def test_whose_copy_is_interrupted_leave_no_memory_in_use(self, monkeypatch: Any) -> None:
        with Pair() as link:
            monkeypatch.setattr(senders, "_copy", Mock(side_effect=KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                link.sender.send(Sample([frame(1), frame(2)]))
            ring = link.sender._memory.ring
            assert sum(len(slot.memory) for idle in ring._idle.values() for slot in idle) == ring.size > 0
            monkeypatch.undo()
            assert link.sender.send(Sample(frame(3)))
            assert (link.take() == 3).all()

    def test_that_cannot_cross_harm_nothing(self) -> None:
        with Pair() as link:
            with pytest.raises(CrossingError, match="cannot be pickled"):
                link.sender.send(Sample([frame(1), lambda: 1]))
            assert link.sender.sent == 0
            assert link.sender.send(Sample(1))
            assert link.take() == 1

    def test_that_are_too_large_for_a_network_are_refused_before_they_are_copied(self) -> None:
        link = Bytes()
        repeated = np.broadcast_to(np.uint8(1), (1 << 20, 1 << 20))  # a terabyte, of one byte
        with pytest.raises(CrossingError, match="1 TB"):
            link.sender.send(Sample(repeated))

    def test_whose_objects_are_unknown_here_are_lost_alone(self) -> None:
        with Pair() as link:
            module = type(os)("vanishing")
            module.Thing = type("Thing", (), {"__module__": "vanishing"})
            with pytest.MonkeyPatch.context() as patch:
                patch.setitem(__import__("sys").modules, "vanishing", module)
                link.sender.send(Sample(module.Thing()))
            link.sender.send(Sample(2))
            with pytest.raises(CrossingError, match="vanishing"):
                link.take()
            assert link.take() == 2

    def test_travel_as_bytes_where_no_memory_is_shared(self) -> None:
        link = Bytes()
        sent = {"a": frame(1), "b": np.arange(10.0)[::-2], "c": TensorMap(x=frame(2, 3))}
        link.sender.send(Sample(sent))
        link.deliver()
        sample = link.receiver.take()
        assert sample is not None
        sample.data["a"][:] = 5
        assert sample.data["b"].tolist() == [9, 7, 5, 3, 1]
        assert sample.data["a"].ctypes.data % 16 == sample.data["b"].ctypes.data % 16


class TestCredits:
    def test_are_the_places_in_the_queue(self) -> None:
        with Pair(size=3) as link:
            assert [link.sender.send(Sample(n)) for n in range(4)] == [True, True, True, False]
            assert [link.take(), link.take()] == [0, 1]
            link.events.clear()
            link.loop.serve()
            assert link.events == ["sender"]
            assert link.sender.take_credits() == 2
            assert link.sender.take_credits() == 0
            assert (link.sender.sent, link.sender.credited, link.sender.credits) == (3, 2, 2)

    def test_that_have_come_are_all_taken_before_the_sender_is_told(self) -> None:
        with Pair(size=4) as link:
            for number in range(4):
                link.sender.send(Sample(number))
            link.loop.serve()
            for _ in range(4):
                link.receiver.take()
                link.receiver.give_credits(1)
            link.sender.serve(True, False)
            assert link.sender.take_credits() == 4
            assert link.events.count("sender") == 1

    def test_cannot_be_given_twice(self) -> None:
        with Pair() as link:
            link.sender.send(Sample(1))
            link.take()
            with pytest.raises(ValueError, match="1 credits are given back, and 0 frames"):
                link.receiver.give_credits(1)

    def test_a_receiver_that_keeps_everything_stops_the_sender_at_the_bound(self, caplog: Any) -> None:
        with Pair(max_bytes=1 << 20) as link, caplog.at_level(logging.WARNING):
            kept = []
            while link.sender.send(Sample(frame(len(kept), 200_000))):
                kept.append(link.take())
                link.loop.serve()
            assert len(kept) == 4
            assert not link.sender.send(Sample(frame(0, 200_000)))
            (record,) = caplog.records
            for said in (
                "edge.out -> server.in",
                "4 frames that server.in keeps (0, 1, 2, 3)",
                "at most 1 MB",
            ):
                assert said in record.getMessage()
            link.events.clear()
            kept.pop(0)  # at once, since the sender waits
            link.loop.serve()
            assert link.events == ["sender"]
            assert link.sender.send(Sample(frame(7, 200_000)))
            assert (link.take() == 7).all()
            assert [int(one[0]) for one in kept] == [1, 2, 3]

    def test_a_frame_beyond_the_bound_is_an_error(self) -> None:
        with Pair(max_bytes=1 << 20) as link:
            with pytest.raises(CrossingError, match=r"2 MB.* 1 MB"):
                link.sender.send(Sample(frame(0, 2 << 20)))
            assert link.sender.send(Sample(frame(1)))

    def test_arrays_that_never_fit_together_are_refused_once_all_memory_is_free(self) -> None:
        with Pair(max_bytes=1 << 20) as link:
            link.sender.send(Sample(frame(1)))
            pair = Sample([frame(2, 600_000), frame(3, 600_000)])
            assert not link.sender.send(pair)  # it may fit, as far as anybody knows
            assert link.take()[0] == 1
            link.receiver.tick(0)  # the memory goes back
            link.loop.serve()
            with pytest.raises(CrossingError, match=r"1200000 bytes.* 1 MB"):
                link.sender.send(pair)

    def test_other_sizes_of_frames_use_the_same_memory(self) -> None:
        with Pair(max_bytes=4 << 20) as link:
            for size in (500_000, 3 << 20, 20_000, 4 << 20, 500_000) * 2:
                assert link.sender.send(Sample(frame(size, size)))
                assert (link.take() == size % 251).all()
                link.receiver.tick(0)
                link.loop.serve()
            assert link.receiver.failure is None
            assert sum(each.size for each in link.receiver._segments.values()) <= 4 << 20


class TestInPlace:
    def test_a_frame_of_a_ring_allocator_is_not_copied(self) -> None:
        allocator = RingAllocator()
        with Pair() as link:
            tensor = allocator.allocate_tensor((100, 1000), "uint8")
            np.asarray(tensor)[:] = 5
            link.sender.send(Sample(tensor))
            received = link.take()
            assert (np.asarray(received) == 5).all()
            np.asarray(received)[0, 0] = 77
            assert np.asarray(tensor)[0, 0] == 77
            assert link.sender._memory.ring.size == 0
            del received

    def test_a_part_of_one_and_one_that_is_sent_twice_are_not_copied_either(self) -> None:
        allocator = RingAllocator()
        with Pair() as link, Pair() as other:
            array = np.asarray(allocator.allocate_tensor((4, LARGE), "uint8"))
            array[:] = np.arange(4)[:, None]
            for one in (link, link, other):
                assert one.sender.send(Sample({"row": array[2]}))
                assert one.sender._memory.ring.size == 0
            first, second, third = link.take()["row"], link.take()["row"], other.take()["row"]
            third[0] = 99
            assert first[0] == second[0] == 99
            assert first[1] == 2
            del first, second, third

    def test_its_memory_is_used_again_when_both_sides_let_go(self) -> None:
        allocator = RingAllocator()
        with Pair() as link:
            tensor = allocator.allocate_tensor(LARGE, "uint8")
            address = tensor.data
            link.sender.send(Sample(tensor))
            received = link.take()
            del tensor
            assert allocator.allocate_tensor(LARGE, "uint8").data != address
            del received
            link.receiver.tick(0)
            link.loop.serve()
            addresses = {allocator.allocate_tensor(LARGE, "uint8").data for _ in range(2)}
            assert address in addresses

    def test_it_is_not_used_again_while_the_receiver_has_it_even_if_both_ends_are_closed(self) -> None:
        allocator = RingAllocator()
        link = Pair()
        tensor = allocator.allocate_tensor(LARGE, "uint8")
        address = tensor.data
        link.sender.send(Sample(tensor))
        del tensor
        received = link.take()
        link.sender.close()
        link.receiver.close()
        link.loop.serve()
        assert len(link.loop.links) == 2
        others = [allocator.allocate_tensor(LARGE, "uint8") for _ in range(3)]
        assert address not in [other.data for other in others]
        del received
        link.loop.serve()
        assert not link.loop.links
        assert address in [allocator.allocate_tensor(LARGE, "uint8").data for _ in range(2)]

    def test_it_has_the_same_bound_beyond_which_frames_are_copied(self) -> None:
        with Pair(max_bytes=1 << 20) as link:
            allocator = RingAllocator()
            tensors = [allocator.allocate_tensor(600_000, "uint8") for _ in range(2)]
            for tensor in tensors:
                np.asarray(tensor)[:] = 5
                assert link.sender.send(Sample(tensor))
            assert len(link.sender._memory.held()) == 2
            assert 600_000 <= link.sender._memory.ring.size <= 1 << 20
            assert [int(np.asarray(link.take())[0]) for _ in range(2)] == [5, 5]
            del tensor, tensors, allocator
            link.receiver.tick(0)
            link.loop.serve()
            gc.collect()
            assert link.sender.send(Sample(RingAllocator().allocate_tensor(700_000, "uint8")))
            link.take()
            assert link.receiver.failure is None
            assert link.sender._memory.allocated == 700_416

    def test_memory_that_went_is_unmapped_by_the_receiver(self) -> None:
        with Pair() as link:
            for _ in range(5):
                link.sender.send(Sample(RingAllocator().allocate_tensor(LARGE, "uint8")))
                link.take()
                link.receiver.tick(0)
                link.loop.serve()
                gc.collect()
            assert len(link.receiver._segments) == 1


class TestEnds:
    def test_end_comes_after_everything_was_taken(self) -> None:
        link = Pair()
        link.sender.send(Sample(frame(4)))
        link.sender.end()
        link.sender.close()
        link.loop.serve()
        assert not link.receiver.has_ended
        assert (link.take() == 4).all()
        assert link.receiver.has_ended
        assert link.receiver.failure is None
        link.receiver.close()
        with pytest.raises(LinkError, match="after the end"):
            link.sender.send(Sample(1))

    def test_abort_brings_the_exception_and_the_name_of_the_part(self) -> None:
        link = Pair()
        link.sender.send(Sample(1))
        try:
            raise KeyError("no such camera")
        except KeyError as error:
            link.sender.abort(error, "edge")
        link.sender.close()
        link.loop.serve()
        failure = link.receiver.failure
        assert isinstance(failure, PeerAborted)
        assert failure.part == "edge"
        assert "'edge' failed: KeyError: 'no such camera'" in str(failure)
        assert isinstance(failure.__cause__, KeyError)
        assert failure.__cause__.args == ("no such camera",)
        assert "test_ends.py" in failure.__cause__.__notes__[0]
        assert not link.receiver.has_ended
        assert link.take() == 1
        link.receiver.close()

    def test_a_system_without_memory_fails_the_link_and_not_the_loop(self) -> None:
        with Pair() as link:
            link.receiver._carrier.receive = Mock(side_effect=MemoryError("none is left"))
            link.loop.serve()
            assert isinstance(link.receiver.failure, LinkError)
            assert "MemoryError: none is left" in str(link.receiver.failure)
            assert isinstance(link.sender.failure, PeerAborted)

    def test_abort_travels_to_the_sender_too_and_with_any_exception(self) -> None:
        with Pair() as link:
            link.receiver.abort(Unpicklable(1, 2), "server")
            link.loop.serve()
            assert isinstance(link.sender.failure, PeerAborted)
            assert "Unpicklable: 1 and 2" in str(link.sender.failure)
            assert type(link.sender.failure.__cause__) is Unpicklable
            with pytest.raises(PeerAborted):
                link.sender.send(Sample(1))

    def test_abort_travels_with_an_exception_that_has_no_text(self) -> None:
        with Pair() as link:
            link.receiver.abort(Mute(), "server")
            link.loop.serve()
            assert "'server' failed: Mute: <its __str__ raised>" in str(link.sender.failure)
            assert isinstance(link.sender.failure, PeerAborted)
            assert isinstance(link.sender.failure.__cause__, Mute)

    @pytest.mark.parametrize("lost", ["sender", "receiver"])
    def test_a_peer_that_vanishes_is_a_loss(self, lost: str) -> None:
        with Pair() as link:
            link.sender.send(Sample(frame(1)))
            link.sockets[lost == "receiver"].shutdown(socket.SHUT_RDWR)
            link.loop.serve()
            end = link.receiver if lost == "sender" else link.sender
            assert isinstance(end.failure, PeerLost)
            assert "edge.out -> server.in" in str(end.failure)

    def test_a_peer_that_is_said_to_be_lost_is_lost_after_what_it_sent(self) -> None:
        link = Bytes()
        link.deliver()
        told = Mock()
        link.receiver.on_event = told
        for value in range(3):
            assert link.sender.send(Sample(np.full(70_000, value, np.uint8)))
        for message in link.ahead.wire:  # it has arrived, and was not read
            link.back.inbox += message
        link.receiver.lose(PeerLost("server"))
        told.assert_called_once_with()
        assert str(link.receiver.failure) == "server"
        assert link.back.is_reset
        assert link.loop.links == [link.sender]
        taken = [link.receiver.take() for _ in range(3)]
        assert [sample is not None and sample.data[0] for sample in taken] == [0, 1, 2]
        link.receiver.lose(PeerLost("again"))
        link.receiver.close()
        assert str(link.receiver.failure) == "server"
        told.assert_called_once_with()

    def test_a_closed_end_does_not_wait_for_a_peer_that_is_said_to_be_lost(self) -> None:
        link = Bytes()
        link.deliver()
        link.sender.close()
        assert link.ahead.has_said_end
        assert not link.ahead.is_closed
        link.sender.lose(PeerLost("server"))
        assert link.ahead.is_reset
        assert link.sender.failure is None

    def test_an_abort_is_read_although_the_peer_left_without_reading(self) -> None:
        link = Pair()
        link.receiver.abort(ValueError("full"), "server")
        link.sender.send(Sample(1))
        link.receiver.close()  # with a message unread, which resets the connection
        link.loop.serve()
        assert isinstance(link.sender.failure, PeerAborted)
        link.sender.close()

    def test_a_receiver_that_closes_takes_no_more(self) -> None:
        link = Pair()
        link.receiver.close()
        link.loop.serve()
        assert link.sender.has_ended
        assert link.sender.failure is None
        assert not link.sender.send(Sample(1))
        link.sender.close()

    def test_what_was_sent_arrives_although_the_sender_closed_at_once(self) -> None:
        link = Pair(size=1000)
        for number in range(1000):
            assert link.sender.send(Sample(frame(number, 1000)))
        assert link.sender._carrier.wants_write
        link.sender.end()
        link.sender.close()
        for number in range(1000):
            assert link.take()[0] == number % 251
        assert link.receiver.has_ended
        link.receiver.close()

    def test_what_could_not_be_sent_at_once_is_not_overtaken(self) -> None:
        with Pair(size=10_000) as link:
            while not link.sender._carrier.wants_write:
                assert link.sender.send(Sample(frame(link.sender.sent, 1000)))
            link.receiver.serve(True, False)  # there is room for one more
            assert link.sender.send(Sample(frame(link.sender.sent, 10)))
            for number in range(link.sender.sent):
                assert link.take()[0] == number % 251


class TestLoop:
    """The thread that serves links, with both ends in it."""

    def run(self, loop: LinkLoop, count: int, size: int) -> None:
        here, there = socket.socketpair(socket.AF_UNIX)
        terms = Terms("edge.out -> server.in", 4)
        told: SimpleQueue[None] = SimpleQueue()
        room: SimpleQueue[None] = SimpleQueue()
        receiver = Receiver(Carrier(here), terms, partial(told.put, None), loop=loop)
        sender = Sender(Carrier(there), terms, partial(room.put, None), loop=loop)

        def produce() -> None:
            for number in range(count):
                while not sender.send(Sample(frame(number, size), number)):
                    room.get(timeout=PATIENCE)
            sender.end()
            sender.close()

        producer = threading.Thread(target=produce)
        producer.start()
        taken = 0
        while not receiver.has_ended:
            sample = receiver.take()
            if sample is None:
                assert receiver.failure is None
                told.get(timeout=PATIENCE)
                continue
            assert sample.number == sample.acq_timestamp == taken
            assert (sample.data == taken % 251).all()
            taken += 1
            receiver.give_credits(1)
        producer.join()
        receiver.close()
        assert taken == count

    def test_carries_frames_and_leaves_no_thread_descriptor_or_memory(self) -> None:
        loop = LinkLoop()
        gc.collect()
        others = threading.enumerate()
        before = open_files()
        maps = Path("/proc/self/maps").read_text().count("memfd:headrace")
        for _ in range(2):
            self.run(loop, 200, LARGE)
            self.run(loop, 50, 100)
        threads = [one for one in threading.enumerate() if one.name == "headrace links" and one not in others]
        assert all(waits.join(thread, PATIENCE) for thread in threads)
        assert loop.thread is None
        gc.collect()
        assert not open_files() - before
        assert Path("/proc/self/maps").read_text().count("memfd:headrace") == maps

    def test_goes_on_when_a_program_raises_on_an_event(self, caplog: Any) -> None:
        loop = LinkLoop()
        here, there = socket.socketpair(socket.AF_UNIX)
        terms = Terms("edge.out -> server.in", 4)
        told: SimpleQueue[None] = SimpleQueue()

        def raise_once() -> None:
            told.put(None)
            raise ValueError("not this time")

        receiver = Receiver(Carrier(here), terms, raise_once, loop=loop)
        sender = Sender(Carrier(there), terms, lambda: None, loop=loop)
        for number in range(2):
            sender.send(Sample(number))
            told.get(timeout=PATIENCE)
        assert [receiver.take(), receiver.take()] == [Sample(0, number=0), Sample(1, number=1)]
        self.run(loop, 10, 100)
        assert "not this time" in caplog.text
        sender.close()
        receiver.close()


@pytest.mark.parametrize("wrong", [{"size": 0}, {"silence": 0}, {"max_bytes": 0}])
def test_terms_that_cannot_be_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="such a link cannot be"):
        Terms("a -> b", **({"size": 1} | wrong))


def test_memory_of_the_host_comes_back_without_the_choice_of_a_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To choose one takes 75 ms, in the middle of a stream."""
    monkeypatch.setattr(import_module("headrace.gpu.backend"), "_active", None)
    allocator = RingAllocator()
    address = allocator.allocate_tensor((100_000,), np.uint8).data
    assert allocator.allocate_tensor((100_000,), np.uint8).data == address  # it came back
    assert not is_chosen()
