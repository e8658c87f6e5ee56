"""LinkLoop: the thread that serves all links of a process.

It waits for messages, for room to send what is left, and for the next beat. Nothing is polled, so idle links cost
one wake-up of the process in half a second, for all of them. The thread begins with the first link and ends with
the last.

A worker of a scheduler that has nothing to run waits for messages in the place of the thread (`wait_instead`).
The thread then need not wake it, which takes 40 µs. The system decides who serves a message: the worker if it
waits, otherwise the thread. Both wait with an epoll of their own, for exclusive wake-ups (EPOLLEXCLUSIVE). The
system goes through them in the order of their registration, the worker's first, and wakes nobody else once it has
found one that somebody waits for.

A worker that also waits for a time, as that of a camera, waits in the same way. Otherwise the thread would read
each credit and wake the worker. Python's epoll waits in whole milliseconds, which is too long at the end of a wait,
so such a wait ends a millisecond early (`_TICK`) and the worker sleeps for the rest.

The system's own epoll is used instead of `selectors`: it can be changed by any thread while another waits. A link
whose descriptor another one had before may be served once too often. That does no harm, since nothing blocks.
"""

from __future__ import annotations

import atexit
import errno
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
_READABLE = int(select.EPOLLIN | select.EPOLLEXCLUSIVE)
T = TypeVar("T")
_TICK = 1e-3  # seconds by which a wait of Python's epoll may be too long
_LONGEST = 24 * 3600.0  # seconds; it accepts no more than 24 days
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
        self._serving: _Serving | None = None
        self._is_stopped = False
        self._latest: _Serving | None = None  # which may still end a link when there are none any more

    def add(self, link: Served) -> None:
        """Serve a link from now on."""
        with self._lock:
            if self._serving is None:
                self._serving = self._latest = _Serving(link)
            else:
                self._serving.add(link)

    def watch(self, link: Served, wants_write: bool) -> None:
        """Also serve a link when it can be written to, or no longer."""
        serving = self._serving
        if serving is not None:
            serving.watch(link, wants_write)

    def remove(self, link: Served) -> None:
        """Serve a link no more; a second call does nothing."""
        with self._lock:
            if self._serving is not None and self._serving.remove(link):
                self._serving = None

    def call_soon(self, function: Callable[[], object]) -> None:
        """Call a function on the thread of the loop; without links, at once. It takes no lock."""
        serving = self._serving
        if serving is not None:
            serving.call_soon(function)
        elif not self._is_stopped:
            function()

    def stop(self) -> None:
        """End the thread, at the end of the process.

        It may be in a library, such as cuda.core, where Python would end it in a way that aborts the process.
        """
        self._is_stopped = True
        self._serving = None
        if self._latest is not None:
            self._latest.stop()

    @waits.shielded
    def wait_instead(self) -> _Watch | None:
        """Return where this thread can wait instead of the loop's, until it calls `end`; None if another does."""
        serving = self._serving
        return serving.worker if serving is not None and serving.worker.begin() else None

    @property
    def thread(self) -> threading.Thread | None:
        """The thread, while there are links."""
        serving = self._serving
        return None if serving is None else serving.thread


class _Serving:
    """One life of the thread: from the first link to the last."""

    def __init__(self, link: Served) -> None:
        self._links: dict[int, Served] = {}
        self.worker = _Watch(self._links)
        self._watch = _Watch(self._links)
        self._is_over = False
        self._calls: deque[Callable[[], object]] = deque()
        self._next_tick = float("inf")  # of the links that were there at the last pass
        self._has_new = False
        self.add(link)
        self.thread = threading.Thread(target=self._run, name="headrace links", daemon=True)
        self.thread.start()

    def add(self, link: Served) -> None:
        descriptor = link.fileno()
        self._links[descriptor] = link
        self.worker.add(descriptor)  # first
        self._watch.add(descriptor)
        self._has_new = True
        self._watch.wake()

    def call_soon(self, function: Callable[[], object]) -> None:
        self._calls.append(function)
        self._watch.wake()
        if self._watch.is_closed:  # the last link has gone, and the thread with it
            self._call()

    def _call(self) -> None:
        while self._calls:
            with suppress(IndexError):  # another thread was faster
                _guarded(self._calls.popleft())

    def stop(self) -> None:
        self._is_over = True
        self._watch.wake()
        if self.thread is not threading.current_thread():
            waits.join(self.thread, 1.0)

    def watch(self, link: Served, wants_write: bool) -> None:
        descriptor = link.fileno()
        if self._links.get(descriptor) is link:
            self._watch.remove(descriptor)
            self._watch.add(descriptor, _WRITABLE if wants_write else 0)

    def remove(self, link: Served) -> bool:
        """Remove a link whose descriptor is still open; return whether it was the last."""
        descriptor = link.fileno()
        if self._links.get(descriptor) is not link:
            return False
        self.worker.remove(descriptor)
        self._watch.remove(descriptor)
        del self._links[descriptor]  # last: without links the thread closes both
        if not self._links:
            self._watch.wake()
        return not self._links

    def _run(self) -> None:
        try:
            while self._serve_once():
                pass
        finally:
            self.worker.close()
            self._watch.close()
            if not self._is_over:
                self._call()

    def _serve_once(self) -> bool:
        """Wait for something to do and do it; return False if there are no links any more."""
        watch = self._watch
        seconds = 0.0 if self._has_new else max(self._next_tick - monotonic(), 0.0)
        watch.serve(watch.wait(seconds, is_exact=False))
        self._call()
        if self._is_over or not self._links:
            return False
        now = monotonic()  # of the whole pass: the process may be stopped in it, which the next one finds
        if self._has_new or now >= self._next_tick:
            self._has_new = False  # a link that is added meanwhile sets it again, and wakes the loop
            was_stopped = self._next_tick < now - _LATE
            following = [_guarded(link.tick, now, was_stopped) for link in list(self._links.values())]
            self._next_tick = min([now + 3600.0, *(each or now + 1.0 for each in following)])
        return True


class _WakeUp:
    """A descriptor that ends a wait. It is closed with the last reference.

    Whoever writes to it has one, so its number is not that of another file meanwhile.
    """

    def __init__(self) -> None:
        self.descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._close = os.close  # modules may be gone at the end of the process

    def __del__(self) -> None:
        self._close(self.descriptor)


class _Watch:
    """Where one thread waits for messages of links; any other can end its wait."""

    shortest = 2 * _TICK

    def __init__(self, links: dict[int, Served]) -> None:
        self._links = links
        self.is_closed = False
        self._is_taken = threading.Lock()
        self._epoll = select.epoll()
        self._wake: _WakeUp | None = _WakeUp()
        self._descriptor = self._wake.descriptor
        self._epoll.register(self._descriptor, select.EPOLLIN)

    def add(self, descriptor: int, also: int = 0) -> None:
        try:
            self._epoll.register(descriptor, _READABLE | also)
        except OSError as error:
            # A carrier whose descriptor is an epoll cannot have exclusive wake-ups: all who wait are woken.
            if error.errno != errno.EINVAL:
                raise
            self._epoll.register(descriptor, select.EPOLLIN | also)

    def remove(self, descriptor: int) -> None:
        self._epoll.unregister(descriptor)

    @waits.shielded
    def begin(self) -> bool:
        """Return whether this thread may wait here, which no other one does; it calls `end` afterwards."""
        if not self._is_taken.acquire(blocking=False):
            return False
        if not self.is_closed:
            return True
        self.end()
        return False

    @waits.shielded
    def end(self) -> None:
        self._is_taken.release()
        if self.is_closed:
            self.close()

    def wake(self) -> None:
        wake = self._wake
        if wake is not None:
            os.eventfd_write(wake.descriptor, 1)

    @waits.shielded
    def close(self) -> None:
        """Close the descriptors, when nobody waits here any more."""
        self.is_closed = True
        self.wake()
        if self._is_taken.acquire(blocking=False):
            if self._wake is not None:
                self._epoll.close()
                self._wake = None
            self._is_taken.release()

    def wait(self, seconds: float | None, is_exact: bool = True) -> list[tuple[int, int]]:
        """Return the links that something has happened at, as descriptors and events; none after `wake`.

        An exact wait does not last longer than `seconds`.
        """
        limit = waits.limit(seconds)
        most = len(self._links) + 1  # all of them: for those that are left out nobody else would be woken
        if is_exact and limit is not None and limit == seconds:
            limit = min(limit, _LONGEST) - _TICK
        events = self._epoll.poll(limit, most)
        for event in events:
            if event[0] == self._descriptor:
                os.eventfd_read(self._descriptor)
                events.remove(event)
                break
        return events

    def serve(self, events: list[tuple[int, int]]) -> None:
        for descriptor, event in events:
            link = self._links.get(descriptor)
            if link is not None:
                try:
                    link.serve(event != _WRITABLE, event & _WRITABLE != 0)
                except Exception:  # of the program, which was told of an event
                    _log.exception("a link could not be served")


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
