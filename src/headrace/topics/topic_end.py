"""TopicEnd: what a publication and a subscription have in common: a thread that serves them, and their reports.

The link's own thread (`headrace.link.loop`) serves all links of the process and must never wait. Connecting and
copies of large frames may take long, so they happen on a thread of each end.
"""

from __future__ import annotations

import logging
import os
import select
import threading
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING

from headrace import waits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_log = logging.getLogger("headrace.topics")


class Opened:
    """What one end of a topic has open, and the thread that serves it.

    The thread refers to this, and not to the end itself, which may be garbage: one that is dropped without `close`
    ends, too.

    Parameters
    ----------
    what
        ``"publication"`` or ``"subscription"``.
    topic
        The name of the topic.
    """

    def __init__(self, what: str, topic: str) -> None:
        self.is_closing = False
        self.readable: set[int] = set()
        """Those of `descriptors` that ended the last wait."""
        self._what, self._topic = what, topic
        self._is_abandoned = False
        self._woken = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._is_open = True
        self._lock = threading.Lock()
        self._end: Callable[[], TopicEnd | None] = lambda: None
        self._thread = threading.Thread(target=self._run, name=f"headrace topic {topic}", daemon=True)

    @property
    def descriptors(self) -> Iterable[int]:
        """What the thread waits for."""
        raise NotImplementedError

    def release(self) -> None:
        """Close all that is open."""
        raise NotImplementedError

    def begin(self, end: TopicEnd) -> None:
        """Serve an end from now on."""
        self._end = weakref.ref(end)
        self._thread.start()

    def wake(self) -> None:
        """Let the thread serve the end; may be called from any thread, and when it has ended."""
        with self._lock:
            if self._is_open:
                os.eventfd_write(self._woken, 1)

    def close(self) -> None:
        """End the thread and wait for it, and close all that is open."""
        self.is_closing = True
        self.wake()
        waits.join(self._thread)
        with self._lock:
            self._is_open = False
            os.close(self._woken)
        self.release()

    def abandon(self) -> None:
        """End the thread without waiting for it. A finalizer calls it, on any thread: it takes no lock.

        The thread may end before it is woken here, so its descriptor is closed with this object.
        """
        if not self.is_closing:
            self._is_abandoned = self.is_closing = True
            os.eventfd_write(self._woken, 1)

    def __del__(self) -> None:
        if getattr(self, "_is_open", False):
            os.close(self._woken)

    def _run(self) -> None:
        while not self.is_closing:
            pause = None
            end = self._end()
            try:
                pause = None if end is None else end._step()
            except Exception:
                _log.exception("%s has ended because of an error", self._thread.name)
                self._end = lambda: None
            del end
            self._wait(pause)
        if self._is_abandoned:
            _log.warning(
                "the %s of topic %r was dropped without close(), and has ended; keep it as long as it is needed, "
                "and close it then",
                self._what,
                self._topic,
            )
            self.release()

    def _wait(self, seconds: float | None) -> None:
        """Wait until a descriptor is readable, `wake` was called, or so many seconds have passed."""
        poll = select.poll()
        for descriptor in (self._woken, *self.descriptors):
            poll.register(descriptor, select.POLLIN)
        ready = poll.poll(None if seconds is None else max(seconds, 0) * 1000 + 1)
        with suppress(BlockingIOError):
            os.eventfd_read(self._woken)
        self.readable = {descriptor for descriptor, _ in ready}


class TopicEnd:
    """A publication or a subscription."""

    def __init__(self, topic: str, opened: Opened) -> None:
        self.topic = topic
        self._thread = opened
        self._reported: set[str] = set()

    def __del__(self) -> None:
        thread = getattr(self, "_thread", None)  # its __init__ may have failed
        if thread is not None:
            thread.abandon()

    def _step(self) -> float | None:
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
