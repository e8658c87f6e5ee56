"""Goals: how long messages may take on a path, and where the time went when one took longer."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from headrace.core.clock import Duration, nanoseconds
from headrace.core.errors import GraphError, choices
from headrace.observe.critical_path import CriticalPath
from headrace.observe.distribution import Distribution
from headrace.observe.records import Flows, Path
from headrace.observe.watchers import Watcher

if TYPE_CHECKING:
    from headrace.core.outcome import Outcome
    from headrace.observe.breakdown import Breakdown
    from headrace.observe.records import Computes, OperatorInfo, RunInfo, Times

__all__ = ["Goal", "GoalsWatcher", "Miss"]

_log = logging.getLogger("headrace.observe")
_FIGURES = ("mean", "p50", "p95", "p99", "max")
_KEPT = 100  # misses kept with where their time went


@dataclass(frozen=True, slots=True)
class Miss:
    """A message that took longer than a goal allows."""

    path: str
    """The names of the operators on its way, joined by ``","``."""
    number: int
    """Its number among the messages of the goal, from 1."""
    latency: int
    """How long it took, in nanoseconds."""
    bound: int
    """How long it may have taken."""
    breakdown: Breakdown
    """Where the time went."""

    def __str__(self) -> str:
        over = f"{self.latency / 1e6:.3f} ms, {(self.latency - self.bound) / 1e6:.3f} ms more than allowed"
        return f"message {self.number} on {self.path.replace(',', '->')} took {over}: {self.breakdown}"


class Goal:
    """How long messages may take on a path; made by `Fragment.expect`.

    A message misses the goal if it takes longer than the strictest of the percentiles and the maximum allow. The
    goal is met if the figures themselves hold: at most one message in a hundred misses a ``p99``. A goal that no
    message has reached is neither met nor missed.

    Attributes
    ----------
    path
        The path, as given.
    bounds
        The figures that were given, in nanoseconds: ``mean``, ``p50``, ``p95``, ``p99``, ``max``.
    count, misses
        The number of messages so far, and of those that missed.
    recent
        The last misses, with where the time went.
    """

    def __init__(
        self,
        path: str,
        bounds: dict[str, Duration | None],
        on_miss: Callable[[Miss], object] | None,
    ) -> None:
        self.path = path
        self.bounds = {
            name: nanoseconds(bound, f"expect({path!r}): {name}")
            for name, bound in bounds.items()
            if bound is not None
        }
        if not self.bounds:
            raise ValueError(
                f"expect({path!r}) needs a bound, such as p99='30ms'; it takes {choices(_FIGURES)}"
            )
        for name, bound in self.bounds.items():
            if bound <= 0:
                raise ValueError(f"expect({path!r}): {name} must be more than 0, not {bound} ns")
        self.names = [name.strip() for name in path.replace("→", "->").split("->")]
        if len(self.names) < 2 or not all(self.names):
            raise ValueError(
                f"expect({path!r}): a path is two or more operators with '->' between them, as in 'camera->display'"
            )
        self.count = 0
        self.misses = 0
        self.recent: deque[Miss] = deque(maxlen=_KEPT)
        self._on_miss = on_miss
        self._latency = Distribution()
        self._lock = threading.RLock()  # reentrant, as that of the statistics

    @property
    def bound(self) -> int:
        """The time above which a message misses the goal, in nanoseconds."""
        limits = [bound for name, bound in self.bounds.items() if name != "mean"]
        return min(limits) if limits else self.bounds["mean"]

    def figure(self, name: str) -> float:
        """Return one of the figures of the messages so far, in nanoseconds."""
        with self._lock:
            if name == "mean":
                return self._latency.total / self._latency.count if self._latency.count else 0.0
            if name == "max":
                return self._latency.max
            return self._latency.percentile(float(name.removeprefix("p")))

    @property
    def is_met(self) -> bool | None:
        """Whether every figure holds so far; None if no message has come whose time is known."""
        with self._lock:
            if not self._latency.count:
                return None
        return all(self.figure(name) <= bound for name, bound in self.bounds.items())

    def __str__(self) -> str:
        is_met = self.is_met
        if is_met is None:
            bounds = ", ".join(f"{name} at most {bound / 1e6:g} ms" for name, bound in self.bounds.items())
            reason = f"none of {self.count} messages was timed" if self.count else "no messages"
            return f"{self.path}: not judged, {reason}; {bounds}"
        figures = ", ".join(
            f"{name} {self.figure(name) / 1e6:.3f} ms (at most {bound / 1e6:g})"
            for name, bound in self.bounds.items()
        )
        state = "met" if is_met else "NOT met"
        return f"{self.path}: {state}; {figures}; {self.misses} of {self.count} messages missed"

    def begin(self, run: RunInfo) -> None:
        """Begin anew, and check that the operators exist."""
        known = [operator.name for operator in run.operators]
        for name in self.names:
            if name not in known:
                raise GraphError(
                    f"expect({self.path!r}): there is no operator {name!r}; there are {choices(known, name)}"
                )
        if not run.operator(self.names[-1]).is_leaf:
            run.operator(self.names[-1]).is_probe = True
        self.count = self.misses = 0
        self.recent.clear()
        self._latency = Distribution()

    def start_in(self, operators: tuple[OperatorInfo, ...]) -> int | None:
        """Return where the goal's path begins in a path of the run; None if it is not that path."""
        names = [operator.name for operator in operators]
        if names[-1] != self.names[-1] or self.names[0] not in names:
            return None
        start = names.index(self.names[0])
        left: Iterator[str] = iter(names[start:])
        return start if all(name in left for name in self.names) else None

    def add(self, flows: Flows, start: int, critical: CriticalPath) -> None:
        """Count messages; `start` is where the path begins in theirs."""
        origin = flows.origin if not start else flows.times[:, 2 * start + 1]
        # A message whose end was not timed counts as one that did not miss.
        latency = np.where(flows.is_timed, flows.done - origin, 0)
        with self._lock:
            self._latency.add(latency[flows.is_timed])
        missed = np.flatnonzero(latency > self.bound)
        first = self.count
        self.count += len(latency)
        self.misses += len(missed)
        if not len(missed):
            return
        kept = missed[-_KEPT:]
        part = _part_of(flows, kept, start, origin)
        division = critical.divide(part)
        for place, row in enumerate(kept.tolist()):
            miss = Miss(
                part.path.name, first + row + 1, int(latency[row]), self.bound, division.breakdown(place)
            )
            self.recent.append(miss)
            if self._on_miss is not None:
                self._on_miss(miss)
        # At 1, 2, 4, 8: a goal that is always missed must not flood the log.
        if self.misses.bit_length() > (self.misses - len(missed)).bit_length():
            _log.warning("goal %s: %d missed so far; %s", self.path, self.misses, self.recent[-1])


def _part_of(flows: Flows, rows: Times, start: int, origin: Times) -> Flows:
    """Return some messages, from the operator at `start` of their path on."""
    return Flows(
        Path(flows.path.operators[start:]),
        flows.queues[start:],
        flows.computes[rows, start:],
        flows.times[rows, 2 * start :],
        origin[rows],
        flows.is_timed[rows],
    )


class GoalsWatcher(Watcher):
    """Counts the messages of a fragment's goals."""

    def __init__(self) -> None:
        self.goals: list[Goal] = []
        self._critical: CriticalPath

    def begin(self, run: RunInfo) -> None:
        """Begin anew."""
        self._critical = CriticalPath(run)
        for goal in self.goals:
            goal.begin(run)

    def computed(self, computes: Computes) -> None:
        """Remember computes, to tell where the time of a message went."""
        self._critical.add(computes)

    def flowed(self, flows: list[Flows]) -> None:
        """Count messages."""
        for each in flows:
            for goal in self.goals:
                start = goal.start_in(each.path.operators)
                if start is not None:
                    goal.add(each, start, self._critical)

    def end(self, outcome: Outcome | None) -> None:
        """Log which goals were met; with a warning if one was not, or could not be judged."""
        for goal in self.goals:
            _log.log(logging.INFO if goal.is_met else logging.WARNING, "%s", goal)
