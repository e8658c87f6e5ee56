"""Delivery: hands snapshots to a function, on a thread of its own, each when it is ready."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Any

from headrace import waits
from headrace.observe.recordings.snapshots import Snapshot


class Delivery:
    """A queue of snapshots, with whatever belongs to them, and the thread that takes them out.

    Parameters
    ----------
    deliver
        Called with each snapshot and its companion. An exception ends the delivery and is kept in `error`.
    name
        The name of the thread.
    in_order
        Whether a snapshot waits for earlier ones that are not ready yet.
    """

    def __init__(self, deliver: Callable[[Snapshot, Any], object], name: str, in_order: bool = True) -> None:
        self._deliver = deliver
        self._in_order = in_order
        self._waiting: deque[tuple[Snapshot, Any]] = deque()
        self._changed = threading.Condition()
        self._is_closing = False
        self._is_busy = False
        self.nbytes = 0
        """The size of what waits."""
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def is_idle(self) -> bool:
        """Whether everything was delivered."""
        with self._changed:
            return not self._waiting and not self._is_busy

    def put(self, snapshot: Snapshot, companion: Any, limit: int | None = None) -> bool:
        """Add a snapshot, and return whether there was room for it."""
        with self._changed:
            if limit is not None and len(self._waiting) >= limit:
                return False
            self._waiting.append((snapshot, companion))
            self.nbytes += snapshot.nbytes
            self._changed.notify_all()
        if not snapshot.is_ready:
            snapshot.when_ready(self._announce)
        return True

    def make_room(self, nbytes: int) -> None:
        """Wait until no more than so many bytes wait; this waits for the device, too, if it is behind."""
        while self.nbytes > nbytes and self.error is None:
            with self._changed:
                oldest = self._waiting[0][0] if self._waiting else None
                if oldest is None or oldest.is_ready:
                    if self.nbytes > nbytes and self.error is None:
                        waits.wait(self._changed)
                    continue
            oldest.wait()  # moves simulated time, too

    def close(self, seconds: float | None = None) -> int:
        """Deliver what waits, for at most so many seconds; return how many were not delivered.

        The run is over, so the device has finished its work.
        """
        deadline = None if seconds is None else monotonic() + seconds
        with self._changed:
            waiting = [snapshot for snapshot, _ in self._waiting]
        for snapshot in waiting:
            if not snapshot.is_ready:
                snapshot.wait()
        with self._changed:
            while (self._waiting or self._is_busy) and self.error is None:
                left = None if deadline is None else deadline - monotonic()
                if left is not None and left <= 0:
                    break
                waits.wait(self._changed, left)
            self._is_closing = True
            lost = len(self._waiting)
            self._waiting.clear()
            self._changed.notify_all()
            is_busy = self._is_busy
        if not is_busy:
            waits.join(self._thread)
        return lost

    def _announce(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _work(self) -> None:
        while self.error is None:
            with self._changed:
                taken = self._take()
                while taken is None and not self._is_closing:
                    waits.wait(self._changed)
                    taken = self._take()
                if taken is None:
                    return
                self._is_busy = True
            snapshot, companion = taken
            error: BaseException | None = None
            try:
                snapshot.complete()
                self._deliver(snapshot, companion)
            except BaseException as failure:
                error = failure
            with self._changed:
                self.error = error
                self._is_busy = False
                self.nbytes -= snapshot.nbytes
                self._changed.notify_all()
            del snapshot, companion, taken

    def _take(self) -> tuple[Snapshot, Any] | None:
        for position, found in enumerate(self._waiting):
            if found[0].is_ready:
                del self._waiting[position]
                return found
            if self._in_order:
                break
        return None
