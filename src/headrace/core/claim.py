"""Claim: the exclusive use of a fragment, from the call of `run` to its end."""

from __future__ import annotations

import threading
from time import monotonic
from typing import TYPE_CHECKING

from headrace import waits

if TYPE_CHECKING:
    from headrace.core.protocols import Engine

__all__ = ["Claim"]


class Claim:
    """One use of a fragment: a run, or a composition without one.

    Any thread may stop or pause the run at any time after the claim was made, even before there is an engine.
    `stop` first sets `stop_wanted` and then looks for an engine; `begin` first sets the engine and then checks
    `stop_wanted`. So at least one of them sees the other; `pause` does the same.
    """

    __slots__ = ("_has_begun", "doing", "engine", "pause_wanted", "stop_wanted")

    def __init__(self, doing: str) -> None:
        self.doing = doing
        self.engine: Engine | None = None
        self.stop_wanted = False
        self.pause_wanted = False
        self._has_begun = threading.Event()

    def begin(self, engine: Engine) -> None:
        """Set the engine of the run, and stop it if a stop was requested before."""
        self.engine = engine
        if self.stop_wanted:
            engine.request_stop()
        if self.pause_wanted:
            engine.pausing.pause()
        self._has_begun.set()

    def end(self) -> None:
        """End the waits for a run, because there will be none."""
        self._has_begun.set()

    def stop(self) -> None:
        """Stop the run; may be called from any thread."""
        self.stop_wanted = True
        engine = self.engine
        if engine is not None:
            engine.request_stop()

    def pause(self) -> None:
        """Pause the run; may be called from any thread."""
        self.pause_wanted = True
        engine = self.engine
        if engine is not None:
            engine.pausing.pause()

    def resume(self) -> None:
        """End a pause; may be called from any thread."""
        self.pause_wanted = False
        engine = self.engine
        if engine is not None:
            engine.pausing.resume()

    def wait_until_paused(self, timeout: float | None) -> bool:
        """Wait until the run is paused and nothing computes; return whether that is so."""
        began = monotonic()
        waits.wait(self._has_begun, timeout)
        engine = self.engine
        if engine is None:
            return False
        return engine.pausing.wait(None if timeout is None else max(timeout - (monotonic() - began), 0.0))
