"""Claim: what makes a run the only one of its fragment, from the moment it is asked for to its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock._runtime.scheduling.engine import Engine

__all__ = ["Claim"]


class Claim:
    """One use of a fragment: a run, or a composition without one.

    A stop may come from any thread at any time after the claim was made. It is kept until there is an engine:
    whoever stops sets `stop_wanted` first and looks for an engine second, whoever makes the engine does it the
    other way round, so that one of them sees the other.
    """

    __slots__ = ("doing", "engine", "stop_wanted")

    def __init__(self, doing: str) -> None:
        self.doing = doing
        self.engine: Engine | None = None
        self.stop_wanted = False

    def begin(self, engine: Engine) -> None:
        """Take the engine of the run, and pass on a stop that came before it."""
        self.engine = engine
        if self.stop_wanted:
            engine.request_stop()

    def stop(self) -> None:
        """Stop the run; may be called from any thread."""
        self.stop_wanted = True
        engine = self.engine
        if engine is not None:
            engine.request_stop()
