"""LinkLoop: the thread that serves all links of a process.

It waits for messages, for room to send what is left, and for the next beat. Nothing is polled, so idle links cost
one wake-up of the process in half a second, for all of them. The thread begins with the first link and ends with
the last.

Decided against: a worker of a scheduler that waits for messages in the place of the thread. It saves a tenth of the
time of a hop, and two threads would wait for the same messages, beside the rules by which workers are woken.

The system's own epoll is used instead of `selectors`: it can be changed by any thread while another waits. A link
whose descriptor another one had before may be served once too often. That does no harm, since nothing blocks.
"""

from __future__ import annotations

import atexit
import logging
import os
import select
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Any, Protocol, TypeVar

from headrace import waits

_log = logging.getLogger("headrace.link")
_WRITABLE = int(select.EPOLLOUT)
_READABLE = int(select.EPOLLIN)
T = TypeVar("T")
_LONGEST = 24 * 3600.0  # seconds; epoll accepts no more than 24 days
_LATE = 1.0  # seconds by which the loop is late if its process was stopped, as by Ctrl-Z


class Served(Protocol):
    """An end of a link, as the loop sees it."""

    def fileno(self) -> int:
        """Return the descriptor of its carrier."""

    def serve(self, readable: bool, writable: bool) -> None:
        """Read what arrived, and send what is left; never block, never raise."""

    def tick(self, now: float, was_stopped: bool = False) -> float:
        """Send a beat, if it is due, and notice silence; return when to call again.

        `was_stopped` says that this process was not running for a while, and its peer may not have been, either.
        """


class LinkLoop:
    """Serves links on a thread of its own, while there are any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._links: dict[int, Served] = {}
        self._wake_up = WakeUp()
        self._epoll = select.epoll()
        self._epoll.register(self._wake_up.fileno(), _READABLE)
        self.thread: threading.Thread | None = None
        """The thread, while there are links."""
        self._calls: deque[Callable[[], object]] = deque()
        self._next_tick = float("inf")  # of the links that were there at the last pass
        self._has_new = False
        self._is_stopped = False
        self._closing: set[Served] = set()
        self._closing_changed = threading.Condition()

    def add(self, link: Served) -> None:
        """Serve a link from now on."""
        with self._lock:
            descriptor = link.fileno()
            self._links[descriptor] = link
            self._epoll.register(descriptor, _READABLE)
            self._has_new = True
            if self.thread is None:
                self._next_tick = float("inf")
                self.thread = threading.Thread(target=self._run, name="headrace links", daemon=True)
                self.thread.start()
        self._wake_up.set()

    def watch(self, link: Served, wants_write: bool) -> None:
        """Also serve a link when it can be written to, or no longer."""
        descriptor = link.fileno()
        if self._links.get(descriptor) is link:
            self._epoll.modify(descriptor, _READABLE | _WRITABLE if wants_write else _READABLE)

    def remove(self, link: Served) -> None:
        """Serve a link no more, whose descriptor is still open; a second call does nothing."""
        with self._lock:
            descriptor = link.fileno()
            if self._links.get(descriptor) is link:
                self._epoll.unregister(descriptor)
                del self._links[descriptor]
                self._wake_up.set()
        self.note_closing(link, False)

    def call_soon(self, function: Callable[[], object]) -> None:
        """Call a function on the thread of the loop; without links, at once. It takes no lock."""
        self._calls.append(function)
        if self.thread is None:
            self._call()
        else:
            self._wake_up.set()

    def note_closing(self, link: Served, has_more_to_say: bool) -> None:
        """Note whether a link that was closed has more to say, or its peer to read, which `wait` waits for."""
        with self._closing_changed:
            (self._closing.add if has_more_to_say else self._closing.discard)(link)
            self._closing_changed.notify_all()

    def wait(self) -> None:
        """Wait until the peers of links that were closed have read everything, for each as long as it reads."""
        with self._closing_changed:
            while self._closing and not self._is_stopped:
                waits.wait(self._closing_changed)

    def stop(self) -> None:
        """End the thread, at the end of the process.

        It may be in a library, such as cuda.core, where Python would end it in a way that aborts the process.
        """
        self._is_stopped = True
        self._wake_up.set()
        thread = self.thread
        if thread is not None and thread is not threading.current_thread():
            waits.join(thread, 1.0)

    def _run(self) -> None:
        while self._serve_once():
            pass
        self._call()  # what has come before others saw that the thread has ended

    def _call(self) -> None:
        while self._calls and not self._is_stopped:
            with suppress(IndexError):  # another thread was faster
                _guarded(self._calls.popleft())

    def _serve_once(self) -> bool:
        """Wait for something to do and do it; return False if there are no links any more."""
        seconds = 0.0 if self._has_new else min(max(self._next_tick - monotonic(), 0.0), _LONGEST)
        for descriptor, event in self._epoll.poll(seconds):
            link = self._links.get(descriptor)
            if link is not None:
                _guarded(link.serve, event != _WRITABLE, event & _WRITABLE != 0)
            elif descriptor == self._wake_up.fileno():
                self._wake_up.clear()
        self._call()
        with self._lock:
            if self._is_stopped or not self._links:
                self.thread = None
                return False
        now = monotonic()  # of the whole pass: the process may be stopped in it, which the next one finds
        if self._has_new or now >= self._next_tick:
            self._has_new = False  # a link that is added meanwhile sets it again, and wakes the loop
            was_stopped = self._next_tick < now - _LATE
            following = [_guarded(link.tick, now, was_stopped) for link in list(self._links.values())]
            self._next_tick = min([now + 3600.0, *(each or now + 1.0 for each in following)])
        return True


class WakeUp:
    """A descriptor that ends a wait, until it is closed, by `close` or with the last reference."""

    _descriptor = -1  # none is left

    def __init__(self) -> None:
        self._close = os.close  # modules may be gone at the end of the process
        # Its number may be that of another file once it is closed. A finalizer may set it in the middle of `set`.
        self._lock = threading.RLock()
        self._descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def fileno(self) -> int:
        """Return the descriptor, which is readable when it is set."""
        return self._descriptor

    def set(self) -> None:
        """End the wait; from any thread, and when it is closed."""
        with self._lock:
            if self._descriptor >= 0:
                os.eventfd_write(self._descriptor, 1)

    def clear(self) -> None:
        """Let the next wait begin."""
        with suppress(BlockingIOError):
            os.eventfd_read(self._descriptor)

    def close(self) -> None:
        """Close the descriptor, which nobody waits for any more."""
        with self._lock:
            if self._descriptor >= 0:
                self._close(self._descriptor)
                self._descriptor = -1

    def __del__(self) -> None:
        WakeUp.close(self)  # the descriptor alone, whatever a subclass closes with it


def _guarded(function: Callable[..., T], *arguments: Any) -> T | None:
    """Call a function; log what it raises, since the loop has other links to serve."""
    try:
        return function(*arguments)
    except Exception:  # of the program: whoever is told of an event
        _log.exception("a link could not be served")
        return None


_default = LinkLoop()


def default_loop() -> LinkLoop:
    """Return the loop that serves the links of this process."""
    return _default


def _forget_loop() -> None:
    """Make a loop for a forked process: threads do not survive a fork."""
    global _default
    _default = LinkLoop()


os.register_at_fork(after_in_child=_forget_loop)
atexit.register(lambda: _default.stop())
atexit.register(lambda: _default.wait())  # which runs before that
