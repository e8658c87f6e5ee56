"""OutcomeFuture: the future of a run, whose waits Ctrl-C can end on the main thread.

It is imported by the runs that need it, because importing `concurrent.futures` takes time.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future

from headrace import waits
from headrace.core.outcome import Outcome


class OutcomeFuture(Future[Outcome]):
    """The outcome of a run that is in progress on another thread."""

    thread: threading.Thread | None = None
    """The thread of the run; it ends right after the run."""

    def result(self, timeout: float | None = None) -> Outcome:
        """Return the outcome, or raise the exception that ended the run, after waiting for its end."""
        waits.wait_for_futures((self,), timeout)
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the exception that ended the run, or None, after waiting for its end."""
        waits.wait_for_futures((self,), timeout)
        return super().exception(0)
