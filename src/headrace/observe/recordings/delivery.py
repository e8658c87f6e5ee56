"""Delivery: copies messages, and hands each copy to a function when it is complete, in order, on its own thread."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from headrace import waits
from headrace.observe.recordings.snapshots import Check, Snapshot, Snapshots


class Delivery:
    """A queue of snapshots, with whatever belongs to them, and the thread that takes them out.

    Parameters
    ----------
    deliver
        Called with each snapshot and its companion. An exception ends the delivery and is kept in `error`.
    name
        The name of the thread.
    check
        As :class:`Snapshots` takes it.

    Attributes
    ----------
    snapshots
        Takes the snapshots.
    nbytes
        The size of what waits.
    """

    def __init__(
        self,
        deliver: Callable[[Any, Any], object],
        name: str,
        check: Check | None = None,
    ) -> None:
        self._deliver = deliver
        self._waiting: deque[tuple[Snapshot, Any]] = deque()
        self._changed = threading.Condition()
        self._is_closing = self._is_busy = False
        self.snapshots = Snapshots(check, self._changed)
        self.nbytes = 0
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, snapshot: Snapshot, companion: Any) -> None:
        """Add a snapshot."""
        with self._changed:
            self._waiting.append((snapshot, companion))
            self.nbytes += snapshot.nbytes
            self._changed.notify_all()

    def close(self, seconds: float | None = None) -> int:
        """Deliver what waits, for at most so many seconds; return how many were not delivered.

        The run is over, so the device has finished its work.
        """
        self.wait_until(lambda: not self._waiting and not self._is_busy, seconds)
        with self._changed:
            self._is_closing = True
            lost = len(self._waiting)
            self._waiting.clear()
            self._changed.notify_all()
            is_busy = self._is_busy
        if not is_busy:
            waits.join(self._thread)
        self.snapshots.close()
        return lost

    def wait_until(self, is_so: Callable[[], bool], seconds: float | None = None) -> None:
        """Wait until something is so, or an error has ended the delivery; for the device, too, if it is behind."""

        def is_over() -> bool:
            return is_so() or self.error is not None

        def unready() -> Snapshot | None:
            return next((snapshot for snapshot, _ in self._waiting if not snapshot.is_ready), None)

        while True:
            with self._changed:
                waits.wait_for(self._changed, lambda: is_over() or unready() is not None, seconds)
                behind = None if is_over() else unready()
            if behind is None:
                return
            self.snapshots.wait(behind)  # moves simulated time, too

    def _work(self) -> None:
        while self.error is None:
            with self._changed:
                waits.wait_for(self._changed, lambda: self._is_closing or self._has_ready())
                if not self._has_ready():
                    return
                snapshot, companion = self._waiting.popleft()
                self._is_busy = True
            error: BaseException | None = None
            try:
                snapshot.complete()
                if snapshot.error is not None:
                    raise snapshot.error
                self._deliver(snapshot, companion)
            except BaseException as failure:
                error = failure
            with self._changed:
                self.error = error
                self._is_busy = False
                self.nbytes -= snapshot.nbytes
                self._changed.notify_all()
            del snapshot, companion

    def _has_ready(self) -> bool:
        """Return whether the next snapshot can be delivered; a later one waits for it."""
        return bool(self._waiting) and self._waiting[0][0].is_ready
