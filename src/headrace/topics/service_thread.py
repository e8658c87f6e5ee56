"""ServiceThread: a thread of a publication or a subscription, which waits for descriptors and for a wake-up.

The link's own thread (`headrace.link.loop`) serves all links of the process and must never wait. Connecting and
copies of large frames may take long, so they happen here.
"""

from __future__ import annotations

import logging
import os
import select
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from headrace import waits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_log = logging.getLogger("headrace.topics")


class ServiceThread:
    """Calls `step` in a loop until it is closed.

    Parameters
    ----------
    name
        The name of the thread.
    step
        Does what is to do, and calls `wait` once.
    on_abandoned
        Called on the thread when it has ended because of `abandon`.
    """

    def __init__(
        self, name: str, step: Callable[[], None], on_abandoned: Callable[[], None] = lambda: None
    ) -> None:
        self.is_closing = False
        self._step, self._on_abandoned = step, on_abandoned
        self._is_abandoned = False
        self._woken = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._is_open = True
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def wake(self) -> None:
        """Let `wait` return; may be called from any thread, and when the thread has ended."""
        with self._lock:
            if self._is_open:
                os.eventfd_write(self._woken, 1)

    def wait(self, descriptors: Iterable[int] = (), seconds: float | None = None) -> set[int]:
        """Wait until a descriptor is readable, `wake` was called, or so many seconds have passed.

        Return what is readable.
        """
        poll = select.poll()
        for descriptor in (self._woken, *descriptors):
            poll.register(descriptor, select.POLLIN)
        ready = poll.poll(None if seconds is None else max(seconds, 0) * 1000 + 1)
        with suppress(BlockingIOError):
            os.eventfd_read(self._woken)
        return {descriptor for descriptor, _ in ready}

    def close(self) -> None:
        """End the thread, and wait for it."""
        self.is_closing = True
        self.wake()
        waits.join(self._thread)
        with self._lock:
            self._is_open = False
            os.close(self._woken)

    def abandon(self) -> None:
        """End the thread without waiting for it. A finalizer may call it, on any thread: it takes no lock.

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
            try:
                self._step()
            except Exception:
                _log.exception("%s has ended because of an error", self._thread.name)
                while not self.is_closing:
                    self.wait()
        if self._is_abandoned:
            self._on_abandoned()
