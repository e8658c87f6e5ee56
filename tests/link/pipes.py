"""Links in one thread for tests: ends that are served by hand, over bytes in memory or over a real socket pair."""

from __future__ import annotations

import socket
from typing import Any

from headrace.link.carrier import Carrier, CarrierClosed, Received
from headrace.link.protocol import HEADER_SIZE, Terms, unpack_header
from headrace.link.receiver import Receiver
from headrace.link.sender import Sender


class HandLoop:
    """Serves links when it is told to."""

    def __init__(self) -> None:
        self.links: list[Any] = []

    def add(self, link: Any) -> None:
        self.links.append(link)

    def watch(self, link: Any, wants_write: bool) -> None:
        pass

    def remove(self, link: Any) -> None:
        if link in self.links:
            self.links.remove(link)

    def call_soon(self, function: Any) -> None:
        function()

    def note_closing(self, link: Any, has_more_to_say: bool) -> None:
        pass

    def serve(self) -> None:
        """Serve all links until nothing is left to read."""
        for _ in range(64):
            for link in list(self.links):
                link.serve(True, True)


class ByteCarrier:
    """A carrier over bytes in memory, as between hosts; what was sent waits in `wire` until it is delivered."""

    is_local = False
    wants_write = False

    def __init__(self) -> None:
        self.wire: list[bytes] = []  # messages on their way to the peer
        self.inbox = bytearray()
        self.is_cut = False
        self.has_said_end = self.is_closed = self.is_reset = False

    def fileno(self) -> int:
        return -1

    def send(self, message: bytes, bulk: Any = (), descriptors: Any = ()) -> None:
        assert not descriptors
        self.wire.append(b"".join((message, *map(bytes, bulk))))

    def flush(self) -> None:
        pass

    def receive(self) -> list[Received]:
        messages = []
        while len(self.inbox) >= HEADER_SIZE:
            header = unpack_header(self.inbox)
            body, end = HEADER_SIZE + header.body, HEADER_SIZE + header.body + header.bulk
            if len(self.inbox) < end:
                break
            bulk = bytearray(self.inbox[body:end]) if header.bulk else None
            messages.append(Received(header.kind, bytes(self.inbox[HEADER_SIZE:body]), bulk))
            del self.inbox[:end]
        if not messages and self.is_cut:
            raise CarrierClosed("it was cut")
        return messages

    def say_end(self) -> bool:
        self.has_said_end = not self.is_reset
        return self.has_said_end

    def is_read(self) -> bool:
        return False

    def close(self) -> None:
        self.is_closed = True

    def reset(self) -> None:
        self.is_closed = self.is_reset = True


class Bytes:
    """A sender and a receiver, and the bytes between them."""

    def __init__(self, **terms: Any) -> None:
        self.terms = Terms("edge.out -> server.in", **({"size": 4} | terms))
        self.loop: Any = HandLoop()
        self.ahead, self.back = ByteCarrier(), ByteCarrier()
        self.sender = Sender(self.ahead, self.terms, lambda: None, loop=self.loop)
        self.receiver = Receiver(self.back, self.terms, lambda: None, loop=self.loop)

    def deliver(self, most: int = 1 << 30) -> None:
        """Deliver up to so many bytes in each direction, and let both ends read them."""
        for here, there, end in (
            (self.ahead, self.back, self.receiver),
            (self.back, self.ahead, self.sender),
        ):
            waiting = b"".join(here.wire)
            there.inbox += waiting[:most]
            here.wire = [waiting[most:]] if waiting[most:] else []
            end.serve(True, True)


class Pair:
    """A sender and a receiver over a real socket pair."""

    def __init__(self, **terms: Any) -> None:
        self.terms = Terms("edge.out -> server.in", **({"size": 4} | terms))
        self.loop: Any = HandLoop()
        self.sockets = socket.socketpair(socket.AF_UNIX)
        self.events: list[str] = []
        self.sender = Sender(
            Carrier(self.sockets[0]), self.terms, lambda: self.events.append("sender"), loop=self.loop
        )
        self.receiver = Receiver(
            Carrier(self.sockets[1]), self.terms, lambda: self.events.append("receiver"), loop=self.loop
        )
        self.loop.serve()

    def __enter__(self) -> Pair:
        return self

    def __exit__(self, *_: object) -> None:
        self.sender.close()
        self.receiver.close()
        self.loop.serve()

    def take(self) -> Any:
        """Return the data of the next message that arrived."""
        self.loop.serve()
        sample = self.receiver.take()
        assert sample is not None
        self.receiver.give_credits(1)
        return sample.data
