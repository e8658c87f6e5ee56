"""RunControl: stops, pauses and steps of a run, from the call of `run` to its end, from any thread."""

from __future__ import annotations

import threading
from collections import deque
from time import monotonic
from typing import Any, Protocol, TypeAlias

from headrace import waits

Request: TypeAlias = tuple[str, int, str]
PAUSE = "pause"
STEP = "step"
RESUME = "resume"


class ControlledEngine(Protocol):
    """The engine of a run, which core must not import."""

    @property
    def pausing(self) -> Any:
        """The pauses of the run: `requests`, `wake` and `wait`."""

    def request_stop(self) -> None:
        """End the run; may be called from any thread."""


class RunControl:
    """The control of one use of a fragment: a run, or composing without one.

    Any thread may stop, pause or step the run at any time, even before there is an engine.
    `stop` first sets `stop_wanted` and then looks for an engine; `begin` first sets the engine and then checks
    `stop_wanted`. So at least one of them sees the other. Pauses, steps and resumes are appended to `requests`,
    from which the engine takes them in their order (`_runtime/scheduling/pausing`).

    Attributes
    ----------
    has_started
        Whether every operator has started.
    requests
        What was requested and not carried out yet: the kind, and for steps their number and the operator, if one
        was named. Any thread appends.
    pause_wanted
        Whether the last request was to pause or to step.
    """

    __slots__ = (
        "_has_begun",
        "_is_under_way",
        "changes",
        "doing",
        "engine",
        "has_started",
        "pause_wanted",
        "requests",
        "stop_wanted",
    )

    def __init__(self, doing: str) -> None:
        self.doing = doing
        self.engine: ControlledEngine | None = None
        # What changes the graph of the run, once it has begun (`_runtime/lifecycle/changes`).
        self.changes: Any = None
        self.stop_wanted = False
        self.pause_wanted = False
        self.requests: deque[Request] = deque()
        self.has_started = False
        self._has_begun = threading.Event()
        self._is_under_way = threading.Event()  # or it ended before

    def begin(self, engine: ControlledEngine) -> None:
        """Set the engine of the run, and stop it if a stop was requested before."""
        engine.pausing.requests = self.requests
        self.engine = engine
        if self.stop_wanted:
            engine.request_stop()
        if self.requests:
            engine.pausing.wake()
        self._has_begun.set()

    def start(self) -> None:
        """Record that every operator has started."""
        self.has_started = True
        self._is_under_way.set()

    @classmethod
    def of_no_run(cls) -> RunControl:
        """Return a control that has no effect, because there is no run."""
        control = cls("")
        control.end()
        return control

    def end(self) -> None:
        """End the waits for a run, because there will be none."""
        self._has_begun.set()
        self._is_under_way.set()

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

    def step(self, count: int, op_name: str = "") -> None:
        """Let `count` computes begin, of an operator or of any; pause the run first if it is not paused."""
        self.pause_wanted = True
        self._request((STEP, count, op_name))

    def _request(self, request: Request) -> None:
        self.requests.append(request)
        engine = self.engine
        if engine is not None:
            engine.pausing.wake()

    def wait_until_started(self, timeout: float | None) -> bool:
        """Wait until every operator has started; return whether that is so."""
        waits.wait(self._is_under_way, timeout)
        return self.has_started

    def wait_until_paused(self, timeout: float | None) -> bool:
        """Wait until the run is paused and nothing computes; return whether that is so."""
        began = monotonic()
        waits.wait(self._has_begun, timeout)
        engine = self.engine
        if engine is None:
            return False
        left = None if timeout is None else max(timeout - (monotonic() - began), 0.0)
        is_paused: bool = engine.pausing.wait(left)
        return is_paused
