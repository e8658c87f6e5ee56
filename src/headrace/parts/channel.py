"""Channel: one connection between the driver and the process of a part or an agent, for their `messages`.

The process connects to the driver (`access`). What travels is pickled: both ends run the same program, and have
proved that they are of the same user, or know the token of the run.
"""

from __future__ import annotations

import os
import pickle
import select
import socket
import threading
from collections.abc import Iterable
from time import monotonic
from typing import Any

from headrace import waits
from headrace.link.carrier import Carrier, CarrierClosed
from headrace.link.protocol import Kind, pack_message
from headrace.parts.messages import Beat

_PATIENCE = 2.35  # seconds for an agent to read a last message
_QUIET_BEAT = pickle.dumps(Beat())


class Channel:
    """One end of a control channel. Any thread may send; one thread receives, and sends what was left.

    The other end may be frozen, and read nothing. So nothing waits for it but `send` and `receive`.

    Parameters
    ----------
    carrier
        A connection whose ends have proved who they are, which it owns from now on.
    """

    def __init__(self, carrier: Carrier) -> None:
        self._carrier = carrier
        self._lock = threading.Lock()  # held for a moment
        self._is_closed = False
        self._later: list[Any] = []  # what arrived together with one message
        # Tells the thread that waits in `receive` that something is left to send.
        self._wake: int | None = None
        self.heard_at = 0.0
        """When something last arrived, even a piece of a message."""
        self.host, self.where = _ends(carrier.fileno())
        """The address of this host in the network of the other end, empty on one host; and that end, in words."""

    def fileno(self) -> int:
        """Return the descriptor, for selectors."""
        return self._carrier.fileno()

    # What is sent.

    def post(self, message: Any) -> None:
        """Send a message without waiting.

        What the system does not take now is kept, and sent by `flush`, or by the thread that waits in `receive`.
        """
        with self._lock:
            self._post(message)

    @waits.shielded
    def offer(self, message: Any) -> None:
        """Send a message, unless others wait to be sent, or another thread sends one now."""
        if self._lock.acquire(blocking=False):
            try:
                if not self._carrier.wants_write:
                    self._post(message)
            finally:
                self._lock.release()

    def send(self, message: Any) -> None:
        """Send a message, and wait until the system has taken it, or nobody is at the other end."""
        self.post(message)
        while self.wants_write:
            self._ready(select.POLLOUT)
            self.flush()

    @property
    def wants_write(self) -> bool:
        """Whether something is left to be sent by `flush`."""
        return not self._is_closed and self._carrier.wants_write

    def flush(self) -> None:
        """Send as much as the system takes of what was kept."""
        with self._lock:
            if not self._is_closed:
                self._carrier.flush()

    def _post(self, message: Any) -> None:
        if self._is_closed:
            return
        # Most beats are the same: pickling one costs a process more than all else while nothing happens.
        is_quiet = type(message) is Beat and not message.problems
        content = _QUIET_BEAT if is_quiet else pickle.dumps(message)
        self._carrier.send(pack_message(Kind.CONTROL, b"", len(content)), (content,))
        if self._wake is not None and self._carrier.wants_write:
            os.eventfd_write(self._wake, 1)

    # What arrives.

    def has_data(self) -> bool:
        """Return whether something has arrived."""
        return bool(self._ready(select.POLLIN, 0.0))

    def receive_one(self, kind: type | None = None) -> Any:
        """Wait for a message and return it; None when the other end was closed.

        Others that come before the first one of a kind are received after it.
        """
        others: list[Any] = []
        while (messages := self.receive()) is not None:
            for at, message in enumerate(messages):
                if kind is None or isinstance(message, kind):
                    self._later = [*others, *messages[:at], *messages[at + 1 :]]
                    return message
            others += messages
        return None

    def receive(self) -> list[Any] | None:
        """Wait for data; return the messages that are complete, or None when the other end was closed.

        What was kept by `post` is sent meanwhile.
        """
        if self._later:
            messages, self._later = self._later, []
            return messages
        with self._lock:
            if self._wake is None:
                self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        while True:
            ready = self._ready(select.POLLIN | (select.POLLOUT if self.wants_write else 0), wake=self._wake)
            if self._wake in ready:
                os.eventfd_read(self._wake)
            self.flush()
            if ready.get(self.fileno(), 0) & ~select.POLLOUT:
                return self.take()

    def take(self) -> list[Any] | None:
        """Return the messages that have arrived, without waiting, or None when the other end was closed."""
        try:
            with self._lock:
                arrived = self._carrier.receive()
        except CarrierClosed:
            return None
        self.heard_at = monotonic()
        return [pickle.loads(each.bulk) for each in arrived if each.bulk is not None]

    def _ready(self, events: int, seconds: float | None = None, wake: int | None = None) -> dict[int, int]:
        """Wait for events, or to be woken; return those that have happened, by descriptor."""
        poll = select.poll()  # which, unlike select, takes descriptors above 1023
        poll.register(self.fileno(), events)
        if wake is not None:
            poll.register(wake, select.POLLIN)
        limit = waits.limit(seconds)
        return dict(poll.poll(None if limit is None else 1000 * limit))

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
                if self._wake is not None:
                    os.close(self._wake)
                    self._wake = None


def finish_all(channels: Iterable[Channel], message: Any) -> None:
    """Send a last message over several channels, and close each when its other end has read it."""
    finishing = list(channels)
    for channel in finishing:
        channel.finish(message)
    until = monotonic() + _PATIENCE
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
