"""Channel: objects between two processes of a program, over one connection.

What the driver and the processes of a run say to each other travels so, and the messages of a replica that computes
in a process of its own. Both ends are of the same user, or have proved that they know the token of the run. Objects
travel as in every link (`codec`): a pickle, with the memory of arrays beside it.

A channel has no credits, and its ends do not give up each other: a program whose code holds the interpreter lock
for seconds would lose its replicas. Whoever waits for the other end may be asked each second whether to go on.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterable
from time import monotonic
from typing import Any, NamedTuple

import numpy as np

from headrace import waits
from headrace.core.errors import CrossingError
from headrace.link.carrier import Carrier, CarrierClosed, Received
from headrace.link.codec import decode, encode
from headrace.link.loop import WakeUp
from headrace.link.memory import ALIGNMENT
from headrace.link.protocol import Kind, pack_message

PATIENCE = 1.0
"""The seconds after which whoever waits for the other end is asked."""
_TO_READ = 2.35  # seconds for an agent to read a last message


class Packed(NamedTuple):
    """An object that is ready to be sent: a message, and the bulk bytes behind it."""

    message: bytes
    bulk: list[Any]


def pack(content: Any) -> Packed:
    """Return what is sent for an object; raise CrossingError if it cannot cross."""
    description, pieces, is_on_device, _ = encode(content)
    if is_on_device:
        raise CrossingError(
            "an array in the memory of a GPU does not cross to another process; copy it to the host first, or "
            "leave out on='processes'"
        )
    flat = [np.ascontiguousarray(piece).reshape(-1).view(np.uint8) for piece in pieces]
    parts = [np.frombuffer(description, np.uint8), *flat]
    bulk: list[Any] = []
    for part in parts:
        bulk += (part, bytes(-part.nbytes % ALIGNMENT))
    sizes = struct.pack(f"<{len(parts)}Q", *(part.nbytes for part in parts))
    return Packed(pack_message(Kind.CONTROL, sizes, sum(map(len, bulk))), bulk)


def unpack(received: Received) -> Any:
    """Return the object that was packed; raise CrossingError if it cannot be unpickled here."""
    assert received.bulk is not None
    content, at = np.frombuffer(received.bulk, np.uint8), 0
    parts = []
    for (size,) in struct.iter_unpack("<Q", received.body):
        parts.append(content[at : at + size])
        at += size + -size % ALIGNMENT
    return decode(parts[0], parts[1:])[0]


class Channel:
    """One end of a channel. Any thread may send; one thread receives, and sends what was left.

    The other end may be frozen, and read nothing. So nothing waits for it but `send` and `receive`.

    Parameters
    ----------
    carrier
        A connection whose ends have proved who they are, which it owns from now on.
    check
        Called after each second in which the other end took nothing, or sent nothing, while this one waits for it.
        It may raise.
    """

    def __init__(self, carrier: Carrier, check: Callable[[], object] | None = None) -> None:
        self._carrier = carrier
        self._check = check
        self._lock = threading.Lock()  # held for a moment
        self._is_closed = False
        self._outgoing: deque[Packed] = deque()
        self._arrived: deque[Received] = deque()
        # Tells the thread that waits in `receive` that something is left to send.
        self._wake: WakeUp | None = None
        self.heard_at = 0.0
        """When something last arrived, even a piece of a message."""
        self.host, self.where = _ends(carrier.fileno())
        """The address of this host in the network of the other end, empty on one host; and that end, in words."""

    def fileno(self) -> int:
        """Return the descriptor, for selectors."""
        return self._carrier.fileno()

    # What is sent.

    def post(self, message: Any) -> None:
        """Send an object without waiting; raise CrossingError, and send nothing, if it cannot cross.

        What the system does not take now is kept, and sent by `flush`, or by the thread that waits in `receive`.
        """
        self._outgoing.append(pack(message))
        self._send_outgoing()

    def offer(self, packed: Packed) -> None:
        """Send an object that was packed, unless others wait to be sent."""
        if not self.wants_write:
            self._outgoing.append(packed)
            self._send_outgoing()

    def send(self, message: Any) -> None:
        """Send an object, and wait until the system has taken it, or nobody is at the other end."""
        self.post(message)
        while self.wants_write:
            self._ready(select.POLLOUT)
            self.flush()

    @property
    def wants_write(self) -> bool:
        """Whether something is left to be sent by `flush`."""
        return not self._is_closed and (bool(self._outgoing) or self._carrier.wants_write)

    def flush(self) -> None:
        """Send as much as the system takes of what was kept."""
        with self._lock:
            if not self._is_closed:
                self._carrier.flush()
        self._send_outgoing()

    @waits.shielded
    def _send_outgoing(self) -> None:
        """Send what was posted. Whoever holds the lock does so for those that come meanwhile.

        One that comes may be a finalizer that logs, on the thread that holds the lock.
        """
        while self._outgoing and self._lock.acquire(blocking=False):
            try:
                while self._outgoing:
                    packed = self._outgoing.popleft()
                    if not self._is_closed:
                        self._carrier.send(*packed)
                if self._wake is not None and self._carrier.wants_write:
                    self._wake.set()
            finally:
                self._lock.release()

    # What arrives.

    def has_data(self, seconds: float = 0.0) -> bool:
        """Return whether something has arrived, or does so within so many seconds."""
        return bool(self._ready(select.POLLIN, seconds))

    def receive_one(self, kind: type | None = None) -> Any:
        """Wait for an object and return it; None when the other end was closed.

        Others that come before the first one of a kind are received after it.

        Raises
        ------
        CrossingError
            If it cannot be unpickled here; the next one can be received.
        """
        others: list[Received] = []
        while self._arrived or self._wait():
            if self._arrived:
                received = self._arrived.popleft()
                message = unpack(received)
                if kind is None or isinstance(message, kind):
                    self._arrived.extendleft(reversed(others))
                    return message
                others.append(received)
        return None

    def receive(self) -> list[Any] | None:
        """Wait for data; return the objects that are complete, or None when the other end was closed.

        What was kept by `post` is sent meanwhile.
        """
        return self._take_arrived() if self._arrived or self._wait() else None

    def take(self) -> list[Any] | None:
        """Return the objects that have arrived, without waiting, or None when the other end was closed."""
        return self._take_arrived() if self._read() else None

    def _take_arrived(self) -> list[Any]:
        return [unpack(self._arrived.popleft()) for _ in range(len(self._arrived))]

    def _wait(self) -> bool:
        """Wait for data and read it; return False when the other end was closed."""
        with self._lock:
            if self._wake is None:
                self._wake = WakeUp()
        while True:
            ready = self._ready(select.POLLIN | (select.POLLOUT if self.wants_write else 0), wake=self._wake)
            self._wake.clear()
            self.flush()
            if ready.get(self.fileno(), 0) & ~select.POLLOUT:
                return self._read()

    def _read(self) -> bool:
        """Read what has arrived; return False when the other end was closed."""
        try:
            with self._lock:
                arrived = self._carrier.receive()
        except CarrierClosed:
            return False
        finally:
            self._send_outgoing()
        self.heard_at = monotonic()
        self._arrived.extend(each for each in arrived if each.bulk is not None)
        return True

    def _ready(self, events: int, seconds: float | None = None, wake: WakeUp | None = None) -> dict[int, int]:
        """Wait for events, or to be woken; return those that have happened, by descriptor."""
        poll = select.poll()  # which, unlike select, takes descriptors above 1023
        poll.register(self.fileno(), events)
        if wake is not None:
            poll.register(wake, select.POLLIN)
        asks = seconds is None and self._check is not None
        limit = waits.limit(PATIENCE if asks else seconds)
        ready = dict(poll.poll(None if limit is None else 1000 * limit))
        if asks and not ready and self._check is not None:
            self._check()
        return ready

    def finish(self, message: Any) -> None:
        """Send a last message. The other end closes when it has read that, which `take` finds; then close this."""
        self.send(message)
        with self._lock:
            self._carrier.say_end()

    def close(self) -> None:
        """Close this end at once."""
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                self._carrier.reset()
                self._wake = None


def finish_all(channels: Iterable[Channel], message: Any) -> None:
    """Send a last message over several channels, and close each when its other end has read it."""
    finishing = list(channels)
    for channel in finishing:
        channel.finish(message)
    until = monotonic() + _TO_READ
    for channel in finishing:
        while (left := until - monotonic()) > 0:
            if channel._ready(select.POLLIN, left) and channel.take() is None:
                break
        channel.close()


def _ends(descriptor: int) -> tuple[str, str]:
    """Return the address of this end of a connection, empty on one host, and the other end in words."""
    with socket.socket(fileno=os.dup(descriptor)) as connection:
        if connection.family == socket.AF_UNIX:
            return "", "this host"
        try:
            return connection.getsockname()[0], "{}:{}".format(*connection.getpeername()[:2])
        except OSError:
            return "", "a host that is gone"
