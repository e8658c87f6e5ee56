"""TopicEnd: what a publication and a subscription have in common: their queues, and the thread that serves them.

The link's own thread (`headrace.link.loop`) serves all links of the process and must never wait. Connecting and
copies of large frames may take long, so they happen on a thread of each end.

Decided against: an end that ends when the program drops it without `close`. The thread would refer to it weakly,
and what it has open would be an object of its own, with a finalizer on any thread.
"""

from __future__ import annotations

import json
import logging
import os
import select
import threading
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from headrace import waits
from headrace.core.errors import TopicError
from headrace.core.ports import IOSpec
from headrace.link.handshake import Purpose
from headrace.link.loop import WakeUp
from headrace.link.protocol import Terms

if TYPE_CHECKING:
    from collections.abc import Iterable

_log = logging.getLogger("headrace.topics")
TOPIC = "topic"
"""The purpose of a connection of a subscriber; its name has the `SubscribeRequest`."""
MOST_PLACES = 1024
"""The most messages that may be under way to a subscriber."""
_LONGEST_PROGRAM = 200  # characters; a handshake is short
_POLICIES = (IOSpec.QueuePolicy.POP, IOSpec.QueuePolicy.REJECT, IOSpec.QueuePolicy.FAULT)


class TopicEnd:
    """A publication or a subscription, until it is closed."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self._reported: set[str] = set()
        self._is_closing = False
        self._wake_up = WakeUp()
        self._thread = threading.Thread(target=self._run, name=f"headrace topic {topic}", daemon=True)

    def close(self) -> None:
        """Receive, or send, no more; a second call does nothing."""
        if self._is_closing:
            return
        self._is_closing = True
        self._wake()
        waits.join(self._thread)
        self._release()

    def _release(self) -> None:
        """Close all that is open, after the end of the thread."""
        raise NotImplementedError

    def _descriptors(self) -> Iterable[int]:
        """Return what the thread waits for, besides `_wake`."""
        raise NotImplementedError

    def _step(self, readable: set[int]) -> float | None:
        """Do what is to do; return how long to wait, in seconds, unless something happens."""
        raise NotImplementedError

    def _wake(self) -> None:
        """Let the thread look again; may be called from any thread, and when it has ended."""
        self._wake_up.set()

    def _run(self) -> None:
        readable: set[int] = set()
        try:
            while not self._is_closing:
                readable = self._wait(self._step(readable))
        except Exception:
            _log.exception("%s has ended because of an error", self._thread.name)

    def _wait(self, seconds: float | None) -> set[int]:
        """Wait until something happens, or so many seconds have passed; return the readable descriptors."""
        poll = select.poll()
        for descriptor in (self._wake_up.fileno(), *self._descriptors()):
            poll.register(descriptor, select.POLLIN)
        ready = poll.poll(None if seconds is None else max(seconds, 0) * 1000 + 1)
        self._wake_up.clear()
        return {descriptor for descriptor, _ in ready}

    def _report(self, error: BaseException, who: str = "") -> None:
        """Log an error, each kind once; the program goes on."""
        kind = type(error).__name__
        if kind not in self._reported:
            self._reported.add(kind)
            _log.warning(
                "topic %r%s: %s: %s (the program goes on; this is logged once)", self.topic, who, kind, error
            )


@dataclass(frozen=True, slots=True)
class SubscribeRequest:
    """What a subscriber wants, which it says in the handshake of its link."""

    topic: str
    size: int = 1
    """The number of messages that may be under way to it."""
    wants_last: bool = True
    """Whether it wants the last message, if there is one, as soon as it joins."""
    program: str = ""
    pid: int = field(default_factory=os.getpid)

    def purpose(self) -> Purpose:
        """Return the request as the handshake says it."""
        program = self.program.encode()[:_LONGEST_PROGRAM].decode(errors="ignore")
        return Purpose(TOPIC, json.dumps({**asdict(self), "program": program}, ensure_ascii=False))

    @staticmethod
    def of(purpose: Purpose) -> SubscribeRequest:
        """Return the request that a handshake says."""
        return SubscribeRequest(**json.loads(purpose.name))

    def terms(self) -> Terms:
        """Return the terms of the link, the same at both ends.

        The link itself loses nothing: what it has no room for is dropped before it, by the policy of the topic.
        """
        return Terms(f"topic {self.topic}", self.size)


def check_queue(where: str, size: Any, policy: Any, most: int | None = None) -> None:
    """Raise TopicError if a topic cannot have a queue of that size and policy."""
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise TopicError(f"{where}: size must be a number of messages of 1 or more, not {size!r}")
    if most is not None and size > most:
        raise TopicError(f"{where}: size must be at most {most} messages, not {size}")
    if policy not in _POLICIES:
        raise TopicError(
            f"{where}: policy must be POP (the newest messages, for which nobody waits), REJECT or FAULT (wait), "
            f"not {policy!r}"
        )
