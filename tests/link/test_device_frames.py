"""Frames in the memory of a device: they arrive complete, and their memory comes back when the reader is done."""

from __future__ import annotations

import gc
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace import TensorMap, gpu
from headrace.core.errors import CrossingError, PeerLost
from headrace.gpu import sim
from headrace.link.carrier import Carrier
from headrace.link.device import DeviceSegment
from headrace.link.protocol import Sample, Terms
from headrace.link.receiver import Receiver
from headrace.link.sender import Sender
from headrace.resources.memory_block import StreamUse
from headrace.tensor.copies import copy, simulated_memory, upload
from headrace.tensor.description import StreamWork
from headrace.tensor.tensor import Tensor
from tests.harness.processes import forking
from tests.harness.threads import PATIENCE, wait_until
from tests.link.connections import tcp_carriers, unix_carriers

MS = 0.001
SIZE = 1 << 17  # bytes of a frame, which is the size of a slot
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def machine() -> Iterator[sim.Machine]:
    """A device whose kernels take no time that anybody waits for."""
    with sim.Machine(time="paced") as machine:
        sim.Device(0).set_current()
        yield machine


class Link:
    """Both ends of a link in this process."""

    def __init__(self, carriers: Any = unix_carriers, frames: int = 3, size: int = 4) -> None:
        near, far = carriers()
        terms = Terms("a -> b", size, max_bytes=frames * SIZE)
        self.sender = Sender(near, terms, lambda: None)
        self.receiver = Receiver(far, terms, lambda: None)
        self.stream = gpu.StreamHandle(gpu.Device(0).create_stream())

    def frame(self, value: int, milliseconds: float = 0.0) -> Tensor:
        """Return a tensor that the device is about to fill."""
        tensor = upload(np.full(SIZE // 4, -1, np.int32), self.stream)
        slow(self.stream, milliseconds)
        copy(tensor, np.full(SIZE // 4, value, np.int32), self.stream)
        return tensor._with_pending_work(StreamWork(self.stream))

    def send(self, data: Any) -> None:
        wait_until(lambda: self.sender.send(Sample(data)), "a frame can be sent")

    def take(self) -> Any:
        taken: list[Sample] = []

        def look() -> bool:
            sample = self.receiver.take()
            if sample is not None:
                taken.append(sample)
            return bool(taken)

        wait_until(look, "a frame arrives")
        self.receiver.give_credits(1)
        return taken.pop().data

    def close(self) -> None:
        self.sender.close()
        self.receiver.close()


def slow(stream: gpu.StreamHandle, milliseconds: float, effect: Any = None) -> None:
    kernel = gpu.kernel("slow", source="", seconds=milliseconds * MS, effect=effect)
    gpu.launch(stream.stream, gpu.LaunchConfig(grid=1, block=32), kernel.on(gpu.Device(0)))


def values(tensor: Tensor) -> set[int]:
    return set(np.unique(simulated_memory(tensor)).tolist())


@pytest.fixture
def link() -> Iterator[Link]:
    made = Link()
    yield made
    made.close()


def test_a_frame_arrives_complete_though_the_device_was_still_at_work(link: Link) -> None:
    for number in range(10):
        link.send(link.frame(number, 2.0))
        received = link.take()
        assert received.device.is_cuda
        assert values(received) == {number}
    assert len(link.receiver._segments) <= 3  # each was mapped once


def test_memory_comes_back_when_the_readers_stream_has_passed_its_work(link: Link) -> None:
    stream = gpu.StreamHandle(gpu.Device(0).create_stream())
    seen: list[set[int]] = []
    for number in range(8):  # with three slots
        link.send(link.frame(number))
        received = link.take()
        received.owner.add_user(StreamUse.of(stream, 0))
        memory = simulated_memory(received)
        slow(stream, 20.0, lambda memory=memory: seen.append(set(np.unique(memory).tolist())))
        del received, memory
    stream.stream.sync()
    assert seen == [{number} for number in range(8)]


def test_frames_that_are_kept_stall_the_sender_until_one_is_let_go(link: Link) -> None:
    kept = []
    for number in range(3):
        link.send(link.frame(number))
        kept.append(link.take())
    assert not link.sender.send(Sample(link.frame(3)))
    assert [values(frame) for frame in kept] == [{0}, {1}, {2}]
    del kept[1]
    gc.collect()
    link.send(link.frame(3))
    assert values(link.take()) == {3}
    assert [values(frame) for frame in kept] == [{0}, {2}]


def test_frames_that_never_fit_together_are_an_error(link: Link) -> None:
    frames = [link.frame(value) for value in range(4)]  # and there is room for three
    with pytest.raises(CrossingError, match="512 KB.* 384 KB"):
        link.send(frames)


def test_no_frame_is_sent_in_memory_that_the_receiver_has_not_mapped(
    link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_map, map_segment = threading.Event(), DeviceSegment.from_peer

    def late(*given: Any) -> DeviceSegment:
        may_map.wait(PATIENCE)
        return map_segment(*given)

    monkeypatch.setattr(DeviceSegment, "from_peer", late)
    frame = link.frame(1)
    assert not link.sender.send(Sample(frame))
    assert not link.sender.send(Sample(frame))
    may_map.set()
    link.send(frame)
    assert values(link.take()) == {1}


def test_layouts_and_containers_travel() -> None:
    link = Link(frames=32)
    tensor = link.frame(5)
    address, element, device = tensor.data, tensor.dl_dtype, tensor.device
    view = Tensor._at((address + 12, (3, 2), (16, -8), element, device, False), tensor.owner)
    nothing = Tensor._at((address, (0, 4), (16, 4), element, device, False), tensor.owner)
    gpu.Device(0).sync()
    link.send({"view": view, "map": TensorMap({"whole": tensor}), "nothing": nothing, "host": np.arange(3)})
    received = link.take()
    assert (received["view"].shape, received["view"].strides) == ((3, 2), (16, -8))
    assert values(received["view"]) == values(received["map"]["whole"]) == {5}
    assert received["nothing"].shape == (0, 4)
    assert received["host"].tolist() == [0, 1, 2]
    link.close()


def test_an_array_of_a_library_of_devices_arrives_as_such(link: Link) -> None:
    xp = gpu.arrays()
    frame = xp.asarray(np.arange(6.0, dtype=np.float32).reshape(2, 3))
    gpu.Device(0).sync()
    link.send({"frame": frame})
    received = link.take()["frame"]
    assert type(received) is type(frame)
    assert xp.asnumpy(received).tolist() == [[0, 1, 2], [3, 4, 5]]


def test_what_is_sent_after_a_frame_of_a_device_arrives_after_it(link: Link) -> None:
    link.send(link.frame(0))  # the receiver answers whether it can map the memory
    link.take()

    def is_back() -> bool:
        link.receiver.give_credits(0)  # memory goes back with credits
        return not link.sender._memory.held()

    wait_until(is_back, "its memory comes back")
    link.send(link.frame(1, 20.0))
    text = bytearray(b"as it was")
    step = np.array(7)
    link.send({"text": text, "step": step})
    text[:] = b"changed ."
    step[...] = 8
    assert link.sender.sent == 3
    link.sender.end()
    link.sender.close()
    assert values(link.take()) == {1}
    assert link.take() == {"text": bytearray(b"as it was"), "step": 7}
    wait_until(lambda: link.receiver.has_ended, "the end arrives")


def refuse(*_: Any, **__: Any) -> Any:
    raise RuntimeError("not here")


@pytest.mark.parametrize("end", ["create", "from_peer"])
def test_where_memory_cannot_be_shared_frames_go_through_the_host(
    link: Link, end: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(DeviceSegment, end, refuse)
    for number in range(8):
        link.send(link.frame(number, 1.0))
        received = link.take()
        assert received.device.is_cuda
        assert values(received) == {number}
    (said,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert said == (
        "link 'a -> b': frames on device 0 are copied through the host, since their memory cannot be shared: "
        "not here"
    )


def test_frames_go_to_another_host_through_pinned_memory() -> None:
    link = Link(tcp_carriers, frames=8)
    for number in range(4):
        link.send({"frame": link.frame(number, 1.0)})
        assert values(link.take()["frame"]) == {number}
    link.close()


def test_a_device_that_fails_fails_the_link(link: Link) -> None:
    frame = link.frame(0)

    def fault() -> None:
        raise ZeroDivisionError

    link.send(link.frame(0))
    link.take()
    slow(link.stream, 1.0, fault)
    with pytest.raises(sim.CUDAError, match="LAUNCH_FAILED"):
        for _ in range(100):
            link.send(frame)


# Another process, which is killed.

PEER = """
import os, sys, socket
import numpy as np
from headrace import gpu
from tests.link.test_device_frames import Link, PATIENCE, values
from headrace.link.receiver import Receiver
from headrace.link.sender import Sender
from headrace.link.protocol import Sample, Terms
from headrace.link.carrier import Carrier
import threading
gpu.Device(0).set_current()
carrier = Carrier(socket.socket(fileno=int(sys.argv[2])))
event = threading.Event()
terms = Terms("a -> b", 4, max_bytes=1 << 20)
if sys.argv[1] == "reader":
    end = Receiver(carrier, terms, event.set)
    kept = []
    while len(kept) < 3:
        event.clear()
        sample = end.take()
        if sample is None:
            event.wait(PATIENCE)
            continue
        kept.append(sample.data)
        end.give_credits(1)
    print(*[min(values(frame)) for frame in kept], flush=True)
else:
    end = Sender(carrier, terms, event.set)
    link = Link()
    for number in range(3):
        while not end.send(Sample(link.frame(number, 1.0))):
            event.wait(0.1)
    end.sent
    link.frame(9, 10_000.0)
    print("sent", flush=True)
threading.Event().wait()
"""


def start(role: str) -> tuple[subprocess.Popen[str], Carrier]:
    near, far = socket.socketpair(socket.AF_UNIX)
    process = forking()(
        [sys.executable, "-c", PEER, role, str(far.fileno())],
        pass_fds=[far.fileno()],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=os.environ | {"HEADRACE_DEVICE": "sim", "HEADRACE_SIM_TIME": "paced"},
    )
    far.close()
    return process, Carrier(near)


def kill(process: subprocess.Popen[str]) -> None:
    os.kill(process.pid, signal.SIGKILL)
    process.wait(PATIENCE)
    assert process.stdout is not None
    process.stdout.close()


def test_a_reader_that_is_killed_leaves_the_writer_with_a_device_that_works() -> None:
    process, carrier = start("reader")
    link = Link()
    sender = Sender(carrier, Terms("a -> b", 4, max_bytes=1 << 20), lambda: None)
    for number in range(3):
        frame = link.frame(number, 1.0)
        wait_until(lambda frame=frame: sender.send(Sample(frame)), "a frame can be sent")
    assert process.stdout is not None
    assert process.stdout.readline() == "0 1 2\n"
    assert sender._memory.device_rings[0] is not None  # by IPC
    kill(process)
    wait_until(lambda: sender.failure is not None, "the sender is told")
    assert isinstance(sender.failure, PeerLost)
    link.frame(7)
    link.stream.stream.sync()
    sender.close()
    link.close()


def test_a_writer_that_is_killed_leaves_the_frames_that_it_announced() -> None:
    process, carrier = start("writer")
    receiver = Receiver(carrier, Terms("a -> b", 4, max_bytes=1 << 20), lambda: None)
    assert process.stdout is not None
    assert process.stdout.readline() == "sent\n"
    kept: list[Any] = []

    def look() -> bool:
        sample = receiver.take()
        if sample is not None:
            kept.append(sample.data)
        return len(kept) == 3

    wait_until(look, "three frames arrive")
    kill(process)
    wait_until(lambda: receiver.failure is not None, "the receiver is told")
    assert isinstance(receiver.failure, PeerLost)
    stream, seen = gpu.StreamHandle(gpu.Device(0).create_stream()), []
    for frame in kept:
        slow(stream, 1.0, lambda frame=frame: seen.append(values(frame)))
    stream.stream.sync()  # no stream waits for the process that is gone
    assert seen == [{0}, {1}, {2}]
    receiver.close()
