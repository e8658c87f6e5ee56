"""Tracker and Report: the figures of a fragment's runs, for a program and at their end.

A message's time ends when the work of the last operator is complete on the device, not when its `compute` returns.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.observe.figures.run_figures import ShowsFigures
from headrace.observe.figures.statistics import Statistics

if TYPE_CHECKING:
    from typing import Self

    from headrace.core.composition import Composition
    from headrace.core.outcome import Outcome
    from headrace.observe.events.records import RunInfo


class Tracker(ShowsFigures):
    """Tracks the messages of a fragment's runs; made by `Fragment.track`.

    In a ``with`` block, it tracks the runs that begin in the block. Its figures are then those of the last of them,
    whatever runs later. Every message that arrives at a sink counts, once for each way on which it came.

    Parameters
    ----------
    kernels
        Whether the kernels and copies of each compute are timed by themselves (`OperatorStatistics.kernels`), if
        the package ``cupti-python`` is installed. This slows down every launch.
    """

    spans_parts = True

    def __init__(self, *, kernels: bool = False) -> None:
        self.wants_kernels = kernels
        self._fragment: Callable[[], Composition | None] = lambda: None

    def attach(self, fragment: Composition) -> None:
        """Track every later run of a fragment, in place of the tracker that it has."""
        self._fragment = weakref.ref(fragment)
        others = [other for other in fragment._headrace.watchers if not isinstance(other, Tracker)]
        fragment._headrace.watchers = [*others, self]

    def detach(self) -> None:
        """Track no later run; one that has begun is tracked to its end."""
        fragment = self._fragment()
        if fragment is not None:
            fragment._headrace.watchers = [
                other for other in fragment._headrace.watchers if other is not self
            ]

    @property
    def statistics(self) -> Statistics:
        """All figures so far: of operators, queues and paths."""
        return self.snapshot()

    def _repr_html_(self) -> str:
        return self.statistics._repr_html_()

    def __enter__(self) -> Self:
        fragment = self._fragment()
        if fragment is not None:
            self.attach(fragment)  # a second block tracks again
        return self

    def __exit__(self, *error: object) -> None:
        self.detach()


class Report(ShowsFigures):
    """Reports the statistics of each run at its end.

    Parameters
    ----------
    path
        The file: in the text format of Prometheus if its name ends with ``.prom``, as tables with ``.txt``, else as
        JSON. The standard error stream unless given, with tables.
    kernels
        As in `Tracker`.
    """

    spans_parts = True

    def __init__(self, path: Path | None = None, *, kernels: bool = False) -> None:
        self.path = path
        self.wants_kernels = kernels

    def begin(self, run: RunInfo) -> None:
        """Begin the file: what cannot be written is an error now, not after the run."""
        if self.path is not None:
            self.path.open("a").close()
            self._text(self.path.suffix)

    def end(self, outcome: Outcome | None) -> None:
        """Write the statistics."""
        if self.path is None:
            print(self.snapshot(), file=sys.stderr)
        else:
            self.path.write_text(self._text(self.path.suffix), encoding="utf-8")

    def _text(self, suffix: str) -> str:
        statistics = self.snapshot()
        if suffix == ".prom":
            return statistics.to_prometheus()
        return f"{statistics}\n" if suffix == ".txt" else f"{statistics.to_json()}\n"


def tracker_of(fragment: Composition) -> Tracker | None:
    """Return the tracker of a fragment, or None."""
    return next((watcher for watcher in fragment._headrace.watchers if isinstance(watcher, Tracker)), None)
