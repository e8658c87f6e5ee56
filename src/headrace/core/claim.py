"""Claim: the exclusive use of a fragment, from the call of `run` to its end."""

from __future__ import annotations

import threading
from collections import deque
from time import monotonic
from typing import TYPE_CHECKING, TypeAlias

from headrace import waits

if TYPE_CHECKING:
    from headrace.core.protocols import Engine

__all__ = ["PAUSE", "RESUME", "STEP", "Claim", "Request"]

Request: TypeAlias = tuple[str, int, str]
PAUSE = "pause"
STEP = "step"
RESUME = "resume"


class Claim:
    """One use of a fragment: a run, or a composition without one.

    Any thread may stop, pause or step the run at any time after the claim was made, even before there is an engine.
    `stop` first sets `stop_wanted` and then looks for an engine; `begin` first sets the engine and then checks
    `stop_wanted`. So at least one of them sees the other. Pauses, steps and resumes are appended to `requests`,
    from which the engine takes them in their order (`_runtime/scheduling/pausing`).

    Attributes
    ----------
    requests
        What was requested and not carried out yet: the kind, and for steps their number and the operator, if one
        was named. Any thread appends.
    pause_wanted
        Whether the last request was to pause or to step.
    """

    __slots__ = ("_has_begun", "doing", "engine", "pause_wanted", "requests", "stop_wanted")

    def __init__(self, doing: str) -> None:
        self.doing = doing
        self.engine: Engine | None = None
        self.stop_wanted = False
        self.pause_wanted = False
        self.requests: deque[Request] = deque()
        self._has_begun = threading.Event()

    def begin(self, engine: Engine) -> None:
        """Set the engine of the run, and stop it if a stop was requested before."""
        engine.pausing.requests = self.requests
        self.engine = engine
        if self.stop_wanted:
            engine.request_stop()
        if self.requests:
            engine.pausing.wake()
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
        self._request((PAUSE, 0, ""))

    def resume(self) -> None:
        """End a pause; may be called from any thread."""
        self.pause_wanted = False
        self._request((RESUME, 0, ""))

    def step(self, count: int, op_name: str) -> None:
        """Let `count` computes begin, of an operator or of any; pause the run first if it is not paused."""
        self.pause_wanted = True
        self._request((STEP, count, op_name))

    def _request(self, request: Request) -> None:
        self.requests.append(request)
        engine = self.engine
        if engine is not None:
            engine.pausing.wake()

    def wait_until_paused(self, timeout: float | None) -> bool:
        """Wait until the run is paused and nothing computes; return whether that is so."""
        began = monotonic()
        waits.wait(self._has_begun, timeout)
        engine = self.engine
        if engine is None:
            return False
        return engine.pausing.wait(None if timeout is None else max(timeout - (monotonic() - began), 0.0))
