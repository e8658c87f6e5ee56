"""Claim: the exclusive use of a fragment, from the call of `run` to its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.core.protocols import Engine

__all__ = ["Claim"]


class Claim:
    """One use of a fragment: a run, or a composition without one.

    Any thread may stop the run at any time after the claim was made, even before there is an engine. `stop` first
    sets `stop_wanted` and then looks for an engine; `begin` first sets the engine and then checks `stop_wanted`. So
    at least one of them sees the other.
    """

    __slots__ = ("doing", "engine", "stop_wanted")

    def __init__(self, doing: str) -> None:
        self.doing = doing
        self.engine: Engine | None = None
        self.stop_wanted = False

    def begin(self, engine: Engine) -> None:
        """Set the engine of the run, and stop it if a stop was requested before."""
        self.engine = engine
        if self.stop_wanted:
            engine.request_stop()

    def stop(self) -> None:
        """Stop the run; may be called from any thread."""
        self.stop_wanted = True
        engine = self.engine
        if engine is not None:
            engine.request_stop()
