"""TopicEnd: what a publication and a subscription have in common: their queues, and the thread that serves them.

The link's own thread (`headrace.link.loop`) serves all links of the process and must never wait. Connecting and
copies of large frames may take long, so they happen on a thread of each end.

An end that the program drops without `close` ends, too: a subscription would block its publisher otherwise. So the
threads refer to it weakly (`weakly`). Its finalizer may run on any thread, in the middle of anything, and takes no
lock: it hands the end to its thread, which closes what is open.
"""

from __future__ import annotations

import json
import logging
import os
import select
import threading
import weakref
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from headrace import waits
from headrace.core.errors import TopicError
from headrace.core.ports import IOSpec
from headrace.link.handshake import Purpose
from headrace.link.loop import WakeUp
from headrace.link.protocol import Terms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

T = TypeVar("T")

_log = logging.getLogger("headrace.topics")
TOPIC = "topic"
"""The purpose of a connection of a subscriber; its name has the `SubscribeRequest`."""
DESCRIBE = "describe"
"""The purpose of a connection that asks what a topic is; its name is the topic."""
MOST_PLACES = 1024
"""The most messages that may be under way to a subscriber."""
_LONGEST_PROGRAM = 200  # characters; a handshake is short
_POLICIES = (IOSpec.QueuePolicy.POP, IOSpec.QueuePolicy.REJECT, IOSpec.QueuePolicy.FAULT)


class TopicEnd:
    """A publication or a subscription, until it is closed."""

    _is_closing = True  # until its thread is there

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self._reported: set[str] = set()
        self._wake_up = WakeUp()
        self._dropped: list[TopicEnd] = []
        """This one, when the program has dropped it."""
        parts = weakref.ref(self), self._wake_up, self._dropped
        self._thread = threading.Thread(
            target=_serve, args=parts, name=f"headrace topic {topic}", daemon=True
        )
        self._is_closing = False

    def close(self) -> None:
        """Receive, or send, no more; a second call does nothing."""
        if self._is_closing:
            return
        self._is_closing = True
        self._wake_up.set()
        waits.join(self._thread)
        self._wake_up.close()
        self._release()

    def __del__(self) -> None:
        if not self._is_closing:
            self._dropped.append(self)
            self._is_closing = True
            self._wake_up.set()

    def _release(self) -> None:
        """Close all that is open, after the end of the thread."""
        raise NotImplementedError

    def _descriptors(self) -> Iterable[int]:
        """Return what the thread waits for, besides `_wake_up`."""
        raise NotImplementedError

    def _step(self, readable: set[int]) -> float | None:
        """Do what is to do; return how long to wait, in seconds, unless something happens."""
        raise NotImplementedError

    def _report(self, error: BaseException, who: str = "") -> None:
        """Log an error, each kind once; the program goes on."""
        kind = type(error).__name__
        if kind not in self._reported:
            self._reported.add(kind)
            _log.warning(
                "topic %r%s: %s: %s (the program goes on; this is logged once)", self.topic, who, kind, error
            )


def weakly(method: Callable[..., T]) -> Callable[..., T | None]:
    """Return a function that calls a method, and does nothing when its object is gone."""
    reference = weakref.WeakMethod(method)

    def call(*arguments: Any) -> T | None:
        found = reference()
        return None if found is None else found(*arguments)

    return call


def _serve(reference: Callable[[], TopicEnd | None], wake_up: WakeUp, dropped: list[TopicEnd]) -> None:
    """Serve an end until it is closed or dropped."""
    readable: set[int] = set()
    has_failed = False
    while not dropped:
        end, seconds, descriptors = reference(), None, list[int]()
        if end is not None and end._is_closing:
            break
        # Garbage that is about to be dropped is not seen any more: nothing is left but to wait for its finalizer.
        if end is not None and not has_failed:
            try:
                seconds, descriptors = end._step(readable), list(end._descriptors())
            except Exception:
                _log.exception("%s has ended because of an error", threading.current_thread().name)
                has_failed = True
        del end  # the program may drop it while this waits
        readable = _wait(wake_up, descriptors, seconds)
    for each in dropped:
        _log.warning(
            "the %s of topic %r was dropped without close(), and has ended; keep it as long as it is needed, and "
            "close it then",
            type(each).__name__.lower(),
            each.topic,
        )
        each._release()
    dropped.clear()


def _wait(wake_up: WakeUp, descriptors: Iterable[int], seconds: float | None) -> set[int]:
    """Wait until something happens, or so many seconds have passed; return the readable descriptors."""
    poll = select.poll()
    for descriptor in (wake_up.fileno(), *descriptors):
        poll.register(descriptor, select.POLLIN)
    ready = poll.poll(None if seconds is None else max(seconds, 0) * 1000 + 1)
    wake_up.clear()
    return {descriptor for descriptor, _ in ready}


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
