"""Interrupts: signals that ask the process to end while a run has the main thread.

Python runs the handler of a signal between any two steps of the main thread, and that of Ctrl-C raises there. In
the middle of stopping the operators that would leave some of them unstopped, and the application "running" for
ever. So during a run its own handlers stand in front of those that were there. They call them, and what those raise
is

- raised at once where it may be: while the application is composed and started, and where operators run on this
  thread, inside whatever `compute` is doing. Once in a run;
- held back everywhere else: while workers finish what they are at, and while the operators are stopped. The run is
  asked to stop, a log line says what it waits for, and the exception comes out of `run` when all is done.

SIGTERM ends a process at once, unless the program handles it. Here it does what Ctrl-C does, and comes out as
``SystemExit(143)``: the exit status by which a shell knows a process that SIGTERM ended. Decided against: sending
the signal once more after the run, which would skip the program's own `finally` blocks and exit functions.

Only handlers that were installed in Python are replaced, and those that the program installs during the run stay.
"""

from __future__ import annotations

import signal
import threading
from time import monotonic
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

__all__ = ["Interrupts"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """What became of the signals of one run; `held` says whether an exception of theirs is held back.

    Parameters
    ----------
    name
        The application, for the log.
    stop
        Asks the run to stop; called from a signal handler.
    waits_for
        Says what the run waits for, for the log.
    """

    def __init__(self, name: str, stop: Callable[[], None], waits_for: Callable[[], str]) -> None:
        self.held = True
        self.first: BaseException | None = None
        self._name = name
        self._stop = stop
        self._waits_for = waits_for
        self._since = 0.0
        self._previous: dict[int, Any] = {}

    def install(self) -> None:
        """Stand in front of the handlers of this process, if this is the thread that runs them."""
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
        """Put the handlers back, those of Ctrl-C last."""
        for number in reversed(_SIGNALS):
            if number in self._previous and signal.getsignal(number) == self._on_signal:
                signal.signal(number, self._previous[number])

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        try:
            previous = self._previous[number]
            if previous is signal.SIG_DFL:
                raise SystemExit(128 + number)
            previous(number, frame)
        except BaseException as error:
            self._stop()
            is_first, self.first = self.first is None, self.first or error
            if is_first:
                self._since = monotonic()
            was_held, self.held = self.held, True
            if not was_held:
                raise
            self._log(is_first, signal.Signals(number).name)

    def _log(self, is_first: bool, name: str) -> None:
        import logging

        try:
            logger = logging.getLogger("penstock.run")
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
            # A log that cannot be written from inside a signal handler (its stream was being written to) must not
            # come out in the middle of a tear-down.
            pass
