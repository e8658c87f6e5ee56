"""Interrupts: signals that end the process while a run occupies the main thread.

Python runs the handler of a signal between any two steps of the main thread, and the handler of Ctrl-C raises
there. If it raised while the operators are being stopped, some of them would stay unstopped and the application
would stay "running" forever. So a run wraps the existing handlers with its own. These call the original handlers,
and an exception that those raise is

- raised at once, one time in a run, where that is safe: while the application is composed and started, and inside
  `compute` if operators run on this thread;
- held back everywhere else: while workers finish their computes, while the operators are stopped, and where a lock
  would stay locked (`waits.shielded`). The run begins to stop, a log line reports what it waits for, and `run`
  raises the exception when everything is stopped.

SIGTERM ends a process at once, unless the program handles it. During a run it acts like Ctrl-C, and `run` raises
``SystemExit(143)``, the exit status that a shell shows for a process ended by SIGTERM. The alternative, to send the
signal again after the run, would skip the program's own `finally` blocks and exit functions.

Only handlers that were installed in Python are wrapped, and handlers that the program installs during the run stay.
"""

from __future__ import annotations

import signal
import threading
from time import monotonic
from typing import TYPE_CHECKING, Any

from headrace import waits

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """The signals of one run; `held` is whether exceptions of their handlers are held back.

    Parameters
    ----------
    name
        The application, for the log.
    stop
        Stops the run; called from a signal handler.
    waits_for
        Returns what the run waits for, for the log.
    """

    def __init__(self, name: str, stop: Callable[[], None], waits_for: Callable[[], str]) -> None:
        self.held = True
        self.first: BaseException | None = None
        self._name = name
        self._stop = stop
        self._waits_for = waits_for
        self._since = 0.0
        self._previous: dict[int, Any] = {}
        self.drain: Callable[[], None] | None = None
        """Ends the sources, for a run whose first SIGTERM does that; called from a signal handler."""

    def install(self) -> None:
        """Wrap the signal handlers of this process, if this is the thread that runs them."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in _SIGNALS:
            previous = signal.getsignal(number)
            if callable(previous) or (previous is signal.SIG_DFL and number == signal.SIGTERM):
                self._previous[number] = previous
                try:
                    signal.signal(number, self._on_signal)
                except ValueError:  # not in the main interpreter
                    del self._previous[number]

    def restore(self) -> None:
        """Restore the handlers, that of Ctrl-C last."""
        for number in reversed(_SIGNALS):
            if number in self._previous and signal.getsignal(number) == self._on_signal:
                signal.signal(number, self._previous[number])

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        is_shielded = waits.is_shielded(frame)
        try:
            previous = self._previous[number]
            if previous is signal.SIG_DFL:
                raise SystemExit(128 + number)
            # If that is the handler of a run around this one, it leaves it to this one to hold back the exception.
            previous(number, None if is_shielded else frame)
        except BaseException as error:
            is_first, self.first = self.first is None, self.first or error
            if is_first and number == signal.SIGTERM and self.drain is not None:
                self.drain()
            else:
                self._stop()
            if is_first:
                self._since = monotonic()
            if not (self.held or is_shielded):
                self.held = True
                raise
            self._log(is_first, signal.Signals(number).name)

    def _log(self, is_first: bool, name: str) -> None:
        import logging

        try:
            logger = logging.getLogger("headrace.run")
            if is_first:
                logger.info("%r stops because of %s: it waits for %s", self._name, name, self._waits_for())
            else:
                logger.warning(
                    "%r is stopping and still waits for %s, %.1f s after the first interrupt; SIGQUIT "
                    "(Ctrl-\\) or SIGKILL ends the process at once, with nothing stopped",
                    self._name,
                    self._waits_for(),
                    monotonic() - self._since,
                )
        except Exception:
            # Logging from a signal handler fails if its stream is being written to. That error must not be raised
            # in the middle of a tear-down.
            pass
