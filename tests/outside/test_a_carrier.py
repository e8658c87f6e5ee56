"""A carrier, written outside of headrace: messages leave a run through a socket and are played into another."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

from headrace import Application, op
from headrace.observe import (
    Carrier,
    PortRecorder,
    RecordedMessage,
    RecordedPort,
    RecordedRun,
    decode,
    encode,
    replay,
    watch,
)


class SocketCarrier(Carrier):
    """Sends each message to a socket: its length, and its bytes."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection

    def begin(self, run: RecordedRun) -> None:
        self.ports = [port.name for port in run.ports]

    def carry(self, message: RecordedMessage) -> None:
        port = (message.port.operator, message.port.port)
        details = (message.sequence, message.step, message.time, message.acq_timestamp, message.metadata)
        content = encode([port, details, message.data])
        self.connection.sendall(struct.pack("<I", len(content)) + content)

    def end(self, is_complete: bool) -> None:
        self.connection.close()


def received(connection: socket.socket) -> Iterator[RecordedMessage]:
    """Yield the messages that come out of the socket."""
    with connection.makefile("rb") as stream:
        while head := stream.read(4):
            port, details, data = decode(stream.read(*struct.unpack("<I", head)))
            yield RecordedMessage(RecordedPort(*port), *details, data)


@op
def camera() -> Iterator[Any]:
    for number in range(3):
        yield {"frame": np.full((2, 3), number, np.float32)}


@op
def total(frame: Any, *, results: list[float]) -> None:
    array = np.asarray(frame["frame"])
    results.append(float(array.sum()))
    array[...] = 0  # which changes nothing for whoever plays the same messages again


class Camera(Application):
    def __init__(self) -> None:
        super().__init__()
        self.results: list[float] = []

    def compose(self) -> None:
        self.add_flow(camera(self), total(self, results=self.results))


def test_messages_of_a_port_are_carried_away_and_played_into_another_run() -> None:
    here, there = socket.socketpair()
    carrier, messages = SocketCarrier(here), []
    reader = threading.Thread(target=lambda: messages.extend(received(there)))
    reader.start()
    live = Camera()
    watch(live, PortRecorder(carrier, ["camera.out"]))
    live.run()
    reader.join()
    there.close()
    assert carrier.ports == ["camera.out"]
    assert [message.sequence for message in messages] == [0, 1, 2]

    for _ in range(2):
        again = Camera()
        replay(again, messages, "fast")
        again.run()
        assert again.results == live.results == [0.0, 6.0, 12.0]
