"""Runs: the runs of a program, observed through the roles of the registry that every run goes through."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING

from penstock.core.registry import registry

if TYPE_CHECKING:
    from penstock.core import Fragment, Outcome
    from penstock.core.claim import Claim

__all__ = ["Runs"]


class Runs:
    """The runs that a program begins for the duration of a ``with`` block.

    Parameters
    ----------
    instead
        Called with the application in place of each run; by default the run takes place.

    Attributes
    ----------
    began
        The number of runs that began.
    read_settings
        Whether one of the applications has a configuration.
    outcomes
        How the runs ended that came so far that they have an outcome, in that order.
    """

    def __init__(self, instead: Callable[[Fragment], None] | None = None) -> None:
        self.began = 0
        self.read_settings = False
        self.outcomes: list[Outcome] = []
        self._instead = instead

    def __enter__(self) -> Runs:
        self._run, self._run_async = registry.run, registry.run_async
        registry.run, registry.run_async = self.run, self.run_async
        return self

    def __exit__(self, *raised: object) -> None:
        registry.run, registry.run_async = self._run, self._run_async

    def run(self, fragment: Fragment, claim: Claim) -> Outcome:
        """Run a fragment in the place of the runtime's function."""
        self._begin(fragment)
        try:
            return self._run(fragment, claim)
        finally:
            self._end(fragment)

    def run_async(self, fragment: Fragment, claim: Claim) -> Future[Outcome]:
        """Run a fragment on its own thread in the place of the runtime's function."""
        self._begin(fragment)
        future = self._run_async(fragment, claim)
        future.add_done_callback(lambda future: self._end(fragment))
        return future

    def _begin(self, fragment: Fragment) -> None:
        self.began += 1
        if self._instead is not None:
            self._instead(fragment)

    def _end(self, fragment: Fragment) -> None:
        self.read_settings = self.read_settings or fragment._config is not None
        if fragment.outcome is not None:
            self.outcomes.append(fragment.outcome)
