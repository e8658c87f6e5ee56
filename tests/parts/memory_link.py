"""A link between two parts in one process: what both ends promise, with two deques in the place of a socket."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from headrace.core.errors import PeerAborted, PeerLost
from headrace.link.protocol import Sample


class MemoryLink:
    """A link whose ends call each other's `on_event` as they act, on the thread of the other part.

    Parameters
    ----------
    size
        The number of credits.
    memory
        How many messages may be on their way, if that is less: `send` returns False then, as without memory.
    """

    def __init__(self, name: str, size: int, memory: int = 1 << 30) -> None:
        self.name, self.size, self.memory = name, size, memory
        self.lock = threading.Lock()
        self.frames: deque[Sample] = deque()
        self.credits = size
        self.sender = MemorySender(self)
        self.receiver = MemoryReceiver(self)

    def lose(self) -> None:
        """Let both ends find that the other one is gone."""
        for end in (self.sender, self.receiver):
            end.failure = end.failure or PeerLost(f"link {self.name!r}: the peer is gone")
            end.on_event()


class _End:
    def __init__(self, link: MemoryLink) -> None:
        self.link = link
        self.failure: BaseException | None = None
        self.on_event: Callable[[], Any] = lambda: None
        self.is_closed = False
        self.has_said_end = False
        self.peer_ended = False

    @property
    def peer(self) -> Any:
        return self.link.sender if self is self.link.receiver else self.link.receiver

    def _tell(self) -> None:
        if not self.peer.is_closed:
            self.peer.on_event()

    def abort(self, error: BaseException, part: str) -> None:
        if not self.has_said_end:
            self.has_said_end = True
            aborted = PeerAborted(f"{part!r} failed: {error}", part)
            aborted.__cause__ = error
            self.peer.failure = self.peer.failure or aborted
            self._tell()

    def _end(self) -> None:
        if not self.has_said_end:
            self.has_said_end = self.peer.peer_ended = True
            self._tell()


class MemorySender(_End):
    given = 0
    deferred = 0

    @property
    def has_ended(self) -> bool:
        return self.peer_ended

    def send(self, sample: Sample) -> bool:
        assert not self.has_said_end, "a message is sent after the end"
        link = self.link
        with link.lock:
            if not link.credits or self.peer_ended or len(link.frames) >= link.memory:
                return False
            link.credits -= 1
            link.frames.append(sample)
        self._tell()
        return True

    def take_credits(self) -> int:
        with self.link.lock:
            taken, self.given = self.given, 0
        return taken

    def end(self) -> None:
        self._end()

    def close(self) -> None:
        self.is_closed = True
        if not self.has_said_end and not self.peer_ended:
            self.peer.failure = self.peer.failure or PeerLost(f"link {self.link.name!r}: the peer is gone")
            self._tell()


class MemoryReceiver(_End):
    taken = 0

    @property
    def arrived(self) -> int:
        return self.taken + len(self.link.frames) + self.peer_ended

    @property
    def has_ended(self) -> bool:
        return self.peer_ended and not self.link.frames

    def take(self) -> Sample | None:
        link = self.link
        with link.lock:
            if not link.frames:
                return None
            had_no_memory = len(link.frames) >= link.memory
            sample = link.frames.popleft()
            self.taken += 1
        if had_no_memory:
            self._tell()
        return sample

    def give_credits(self, count: int) -> None:
        link = self.link
        with link.lock:
            link.credits += count
            assert link.credits <= link.size, "more credits came back than were out"
            link.sender.given += count
        self._tell()

    def defer(self, count: int) -> None:
        self.link.sender.deferred = count
        self._tell()

    def close(self) -> None:
        self.is_closed = True
        self._end()
