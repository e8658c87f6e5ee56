"""UcxCarrier: large frames by UCX beside a TCP connection; with UCXX where it is installed, and with a stand-in."""

from __future__ import annotations

import gc
import logging
import os
import select
import sys
import threading
from importlib.util import find_spec
from types import ModuleType

import numpy as np
import pytest

from headrace.core.errors import LinkError, PeerLost, ProtocolError
from headrace.link import ucx
from headrace.link.carrier import Carrier, CarrierClosed, Received
from headrace.link.connect import connect
from headrace.link.handshake import Purpose, make_token
from headrace.link.listener import Listener, listen
from headrace.link.receiver import Receiver
from headrace.link.sender import Sender
from headrace.link.tcp import TcpCarrier
from headrace.link.terms import Parcel, Terms
from headrace.link.ucx import UcxCarrier
from headrace.link.wire import Kind, pack_header
from tests.harness.threads import PATIENCE, wait_until
from tests.link import fake_ucxx
from tests.link.connections import identity, tcp_sockets

LINK = Purpose("link", "edge -> server")
REAL = pytest.param("real", marks=pytest.mark.skipif(find_spec("ucxx") is None, reason="needs ucxx"))


@pytest.fixture(params=["fake", REAL])
def library(request, monkeypatch):
    """Let links use UCX, with the stand-in or the real library over TCP."""
    if request.param == "fake":
        package = ModuleType("ucxx._lib")
        for name, module in (
            ("ucxx", package),
            ("ucxx._lib", package),
            ("ucxx._lib.libucxx", fake_ucxx.libucxx),
            ("ucxx._lib.arr", fake_ucxx.arr),
        ):
            monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setenv("UCX_TLS", "tcp,self")
    monkeypatch.setenv(ucx.VARIABLE, "1")
    ucx._library.cache_clear()
    yield request.param
    ucx._library.cache_clear()


def carriers() -> tuple[UcxCarrier, UcxCarrier]:
    near, far = (UcxCarrier(each) for each in tcp_sockets())
    near.max_bulk = far.max_bulk = 64 << 20
    return near, far


def frame(number: int, *parts: np.ndarray) -> tuple[bytes, bytes, tuple[np.ndarray, ...]]:
    size = sum(part.nbytes for part in parts)
    return pack_header(Kind.FRAME, 0, number, 2, size), b"is", parts


def exchange(near: Carrier, far: Carrier, count: int) -> list[Received]:
    """Serve both ends, as a loop does, until so many messages have come to the far one and are confirmed."""
    messages: list[Received] = []
    while len(messages) < count or near.wants_write:
        readable = select.select([near, far], [], [], PATIENCE)[0]
        assert readable, "nothing came"
        if far in readable:
            messages += far.receive()
        if near in readable:
            assert near.receive() == []
    return messages


def links(purpose: Purpose = LINK, encrypted: bool = False) -> tuple[Carrier, Carrier]:
    token = make_token()
    listener = Listener(listen(), token=token, identity=identity() if encrypted else None)
    expected = listener.expect(purpose)
    try:
        return connect(listener.address, purpose, token, encrypted=encrypted), expected.result(PATIENCE)
    finally:
        listener.close()


def close(*carriers: Carrier) -> None:
    for carrier in carriers:
        carrier.close()


def test_frames_of_every_size_arrive_in_order_and_are_writable(library):
    near, far = carriers()
    sizes = [0, 1, 16 << 10, (16 << 10) + 1, 3, 5 << 20, 200, 24 << 20]
    contents = [np.random.default_rng(size).integers(0, 255, size, np.uint8) for size in sizes]
    for number, content in enumerate(contents):
        near.send(*frame(number, content[:100], content[100:100], content[100:]))
    messages = exchange(near, far, len(sizes))
    assert [message.header.number for message in messages] == list(range(len(sizes)))
    for message, content in zip(messages, contents, strict=True):
        if content.size:
            assert np.array_equal(message.bulk, content)
            message.bulk[0] = 1
    close(near, far)


def test_only_large_frames_travel_by_ucx_and_are_kept_until_they_are_confirmed(library):
    near, far = carriers()
    assert exchange(far, near, 0) == []
    near.send(*frame(0, np.zeros(16 << 10, np.uint8)))
    assert not near.wants_write
    near.send(*frame(1, np.zeros(20 << 10, np.uint8)))
    assert near.wants_write
    exchange(near, far, 2)
    close(near, far)


def test_a_link_carries_frames_credits_and_its_end(library):
    near, far = links()
    assert type(near) is type(far) is UcxCarrier
    arrived, credited = threading.Semaphore(0), threading.Semaphore(0)
    sender = Sender(near, Terms("a", 2), credited.release)
    receiver = Receiver(far, Terms("a", 2), arrived.release)
    taken = []
    for number in range(20):
        while not sender.send(
            Parcel({"big": np.full(1 << 20, number, np.uint8), "small": np.full(10, number)})
        ):
            assert credited.acquire(timeout=PATIENCE)
        while (parcel := receiver.take()) is None:
            assert arrived.acquire(timeout=PATIENCE)
        taken.append((int(parcel.data["big"].sum()), int(parcel.data["small"][-1])))
        receiver.give_credits(1)
    assert taken == [(number << 20, number) for number in range(20)]
    sender.send(Parcel(np.ones(8 << 20, np.uint8)))
    sender.end()
    sender.close()  # before the last frame was received
    while (parcel := receiver.take()) is None:
        assert receiver.failure is None
        assert arrived.acquire(timeout=PATIENCE)
    assert parcel.data.sum() == 8 << 20
    receiver.close()
    wait_until(lambda: near.fileno() == far.fileno() == -1, "both ends to be released")


def test_a_peer_that_is_lost_in_the_middle_of_a_frame_is_noticed_at_once(library):
    near, far = carriers()
    near.send(*frame(0, np.zeros(8 << 20, np.uint8)))
    near.reset()
    with pytest.raises(CarrierClosed):
        while select.select([far], [], [], PATIENCE)[0]:
            assert far.receive() == []
    far.close()


def test_a_connection_that_is_closed_before_its_bulk_bytes_were_sent_is_cut_off(library):
    near, far = carriers()
    near.send(*frame(0, np.zeros(8 << 20, np.uint8)))  # which wait for the address of the peer
    near.close()
    with pytest.raises(CarrierClosed, match="in the middle of a message"):
        while select.select([far], [], [], PATIENCE)[0]:
            assert far.receive() == []
    far.close()


def test_ucx_takes_a_few_steps_at_a_time_and_is_called_again(library, monkeypatch):
    monkeypatch.setattr(ucx, "_STEPS", 1)
    near, far = carriers()
    for number in range(3):
        near.send(*frame(number, np.full(1 << 20, number, np.uint8)))
    assert [message.bulk[-1] for message in exchange(near, far, 3)] == [0, 1, 2]
    close(near, far)


def test_a_message_that_is_complete_after_something_was_sent_makes_the_descriptor_readable(library):
    near, far = carriers()
    near.send(*frame(0, np.zeros(1 << 20, np.uint8)))
    assert select.select([far], [], [], PATIENCE)[0]
    assert far.receive() == []
    near.receive()  # the address of the peer
    far.flush()
    assert len(exchange(near, far, 1)) == 1
    close(near, far)


def test_a_connection_that_is_closed_while_it_sends_leaves_its_worker_to_the_next(library):
    """UCXX keeps the worker and its descriptors in any case; the next connection carries frames by it as usual."""
    workers = []
    for number in range(3):
        near, far = carriers()
        content = np.random.default_rng(number).integers(0, 255, 1 << 20, np.uint8)
        near.send(*frame(0, content))
        (message,) = exchange(near, far, 1)
        assert np.array_equal(message.bulk, content)
        near.send(*frame(1, np.zeros(32 << 20, np.uint8)))  # which nobody takes
        assert near._sending
        workers.append(near._worker)
        near.close()
        far.receive()
        far.close()
    assert workers[0] is workers[1] is workers[2]


@pytest.mark.parametrize("is_awaited", [False, True], ids=["unknown", "announced by TCP, too"])
def test_a_connection_closes_without_waiting_for_the_sender_of_what_was_announced(library, is_awaited):
    """Nothing serves the sender meanwhile, as if it were frozen; the next connection carries frames as usual."""
    fake_ucxx.waits.clear()
    for number in range(3):
        near, far = carriers()
        content = np.random.default_rng(number).integers(0, 255, 1 << 20, np.uint8)
        near.send(*frame(0, content))
        (message,) = exchange(near, far, 1)
        assert np.array_equal(message.bulk, content)
        near.send(*frame(1, np.zeros(32 << 20, np.uint8)))
        wait_until(
            lambda far=far: far._worker.progress_once() or far._worker.tag_probe(far._tag).matched,
            "the message of UCX",
        )
        if is_awaited:
            far._arriving.extend(map(ucx._Arriving, TcpCarrier.receive(far)))
        assert not far._arriving or far._arriving[0].missing
        far.close()
        near.close()
    gc.collect()
    assert fake_ucxx.waits == []


def test_memory_that_ucx_still_receives_to_is_kept_until_it_is_done(library):
    near, far = carriers()
    near.send(*frame(0, np.zeros(1 << 20, np.uint8)))
    exchange(near, far, 1)
    request = fake_ucxx.Request()
    near._sending.append((request, memoryview(b"content")))
    near.close()
    assert any(request in left.requests for left in ucx._left)
    request.end()
    far.close()
    assert not any(request in left.requests for left in ucx._left)


def test_a_link_whose_peer_is_gone_fails(library):
    near, far = links()
    lost = threading.Event()
    sender = Sender(near, Terms("a", 2), lost.set)
    far.close()
    assert lost.wait(PATIENCE)
    assert isinstance(sender.failure, PeerLost)
    sender.close()


def test_ucx_that_fails_ends_the_connection_and_both_ends_learn_it(library):
    if library == "real":
        pytest.skip("the connection of the real one cannot be broken from here")
    near, far = carriers()
    exchange(far, near, 0)
    near.receive()
    near.send(*frame(0, np.zeros(1 << 20, np.uint8)))
    near._endpoint.break_down()
    far.send(pack_header(Kind.ABORT, 0, 0, 3), b"why")
    assert select.select([near], [], [], PATIENCE)[0]
    assert [message.body for message in near.receive()] == [b"why"]
    with pytest.raises(CarrierClosed):
        while select.select([far], [], [], PATIENCE)[0]:
            far.receive()
    far.close()
    with pytest.raises(
        CarrierClosed, match=r"closed, after UCX had failed \(.*reset by remote peer.*HEADRACE_LINK_UCX=0"
    ):
        while select.select([near], [], [], PATIENCE)[0]:
            near.receive()
    assert not near.wants_write
    near.close()


def test_an_address_that_cannot_be_reached_is_a_loss_that_says_so(library):
    if library == "real":
        pytest.skip("UCX ends the process for what is no address")
    near, far = tcp_sockets()
    carrier = UcxCarrier(far)
    near.sendall(pack_header(Kind.CARRIER, 0, 0, 12) + b"tag of 8" + b"none")
    carrier.send(*frame(0, np.zeros(20 << 10, np.uint8)))
    near.shutdown(1)
    with pytest.raises(CarrierClosed, match="Destination is unreachable"):
        while select.select([carrier], [], [], PATIENCE)[0]:
            carrier.receive()
    carrier.close()
    near.close()


def test_a_connection_that_ucx_cannot_make_is_closed_with_an_error_of_the_link(library, monkeypatch):
    assert ucx.is_wanted("link")
    monkeypatch.setattr(ucx._library("1", os.getpid()).ucx, "UCXWorker", None)
    with pytest.raises(LinkError, match=r"UCX cannot make a connection: .*HEADRACE_LINK_UCX=0"):
        links()


@pytest.mark.parametrize("body", [b"", b"short"])
def test_what_a_carrier_cannot_say_is_refused(library, body):
    near, far = tcp_sockets()
    carrier = UcxCarrier(far)
    near.sendall(pack_header(Kind.CARRIER, 0, 0, len(body)) + body)
    assert select.select([carrier], [], [], PATIENCE)[0]
    with pytest.raises(ProtocolError, match="do not belong here"):
        carrier.receive()
    carrier.close()
    near.close()


def test_bulk_bytes_that_were_not_announced_are_refused(library):
    near, far = carriers()
    near.send(pack_header(Kind.FRAME, 0, 0, 0, 20 << 10), b"", [np.zeros(30 << 10, np.uint8)])
    with pytest.raises(ProtocolError, match="30720 bulk bytes came, and 20480 were announced"):
        while select.select([near, far], [], [], PATIENCE)[0]:
            near.receive()
            far.receive()
    close(near, far)


def test_a_frame_that_is_too_large_is_refused_before_memory_is_allocated(library):
    near, far = carriers()
    far.max_bulk = 1 << 20
    near.send(*frame(0, np.zeros(2 << 20, np.uint8)))
    with pytest.raises(ProtocolError, match="2097152 bulk bytes"):
        exchange(near, far, 1)
    close(near, far)


def test_other_connections_and_encrypted_ones_stay_on_tcp(library):
    for near, far in (links(Purpose("part", "edge")), links(encrypted=True)):
        assert not isinstance(near, UcxCarrier)
        assert not isinstance(far, UcxCarrier)
        close(near, far)


def test_an_end_without_ucx_is_told_of_and_both_use_tcp(library, monkeypatch, caplog):
    caplog.set_level(logging.INFO, "headrace.link")
    wanted = iter([True, False])  # the client's, then the server's
    monkeypatch.setattr(ucx, "is_wanted", lambda kind: next(wanted))
    near, far = links()
    assert type(near) is type(far) is TcpCarrier
    assert "travel by TCP: the other end does not use UCX" in caplog.text
    close(near, far)


@pytest.mark.parametrize(
    ("setting", "devices", "level"),
    [("1", [], "WARNING"), ("", ["mlx5_0"], "INFO"), ("", [], None), ("0", ["mlx5_0"], None)],
)
def test_without_ucxx_links_use_tcp_and_say_so_once_where_it_matters(
    monkeypatch, caplog, tmp_path, setting, devices, level
):
    caplog.set_level(logging.INFO, "headrace.link")
    monkeypatch.setenv(ucx.VARIABLE, setting)
    monkeypatch.setitem(sys.modules, "ucxx", None)
    monkeypatch.setitem(sys.modules, "ucxx._lib.libucxx", None)
    monkeypatch.setattr(ucx, "_DEVICES", str(tmp_path))
    for device in devices:
        (tmp_path / device).mkdir()
    ucx._library.cache_clear()
    for _ in range(2):
        near, far = links()
        assert type(near) is type(far) is TcpCarrier
        close(near, far)
    said = [(record.levelname, record.message) for record in caplog.records]
    assert [name for name, _ in said] == ([level] if level else [])
    assert all("by TCP: ucxx is needed" in text and "[ucx]" in text for _, text in said)
    ucx._library.cache_clear()


def test_what_ucx_itself_refuses_is_said(library, monkeypatch, caplog):
    if library == "real":
        monkeypatch.setenv("UCX_TLS", "nothing")
    else:
        monkeypatch.setattr(fake_ucxx.libucxx, "UCXContext", None)
    near, far = links()
    assert type(near) is type(far) is TcpCarrier
    assert "since UCX cannot be used" in caplog.text
    close(near, far)
