"""Runs: the runs of a program, observed in the place of the runner that every run goes through."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING

from headrace.application import Fragment
from headrace.application.runner import Runner

if TYPE_CHECKING:
    from headrace.core import Outcome
    from headrace.core.run_options import RunOptions


class Runs(Runner):
    """The runs that a program begins for the duration of a ``with`` block.

    Parameters
    ----------
    instead
        Called with the application in place of each run; by default the run takes place.

    Attributes
    ----------
    began
        The number of runs that began.
    """

    def __init__(self, instead: Callable[[Fragment], None] | None = None) -> None:
        super().__init__()
        self.began = 0
        self._instead = instead
        # The application of the run that began last, if it may still be running; otherwise only its outcome is
        # kept, so that a program with many runs does not keep all their frames.
        self._last: Fragment | None = None
        self._last_outcome: Outcome | None = None
        self._read_settings = False

    def __enter__(self) -> Runs:
        self._runner, Fragment._headrace.runner = Fragment._headrace.runner, self
        return self

    def __exit__(self, *raised: object) -> None:
        Fragment._headrace.runner = self._runner

    @property
    def last_outcome(self) -> Outcome | None:
        """How the run ended that began last; None if there was none, or it has not ended."""
        return self._last_outcome if self._last is None else self._last.outcome

    @property
    def read_settings(self) -> bool:
        """Whether one of the applications has a configuration."""
        return self._read_settings or (self._last is not None and self._last._headrace.config is not None)

    def run(self, fragment: Fragment, limits: RunOptions) -> Outcome:
        """Run a fragment to its end."""
        self._begin(fragment)
        try:
            return super().run(fragment, limits)
        finally:
            self._read_settings = self._read_settings or fragment._headrace.config is not None
            self._last, self._last_outcome = None, fragment._headrace.outcome

    def run_async(self, fragment: Fragment, limits: RunOptions) -> Future[Outcome]:
        """Run a fragment on its own thread."""
        self._begin(fragment)
        # Read when it is asked for: a callback of the future could come later than the program's end.
        self._last = fragment
        return super().run_async(fragment, limits)

    def _begin(self, fragment: Fragment) -> None:
        self._read_settings = self.read_settings
        self.began += 1
        if self._instead is not None:
            self._instead(fragment)
