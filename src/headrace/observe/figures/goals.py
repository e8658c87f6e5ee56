"""Goals: how long messages may take on a path, and where the time went when one took longer."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.core.durations import Duration, nanoseconds
from headrace.core.errors import GraphError, choices
from headrace.core.graph_queries import reachable
from headrace.observe.events.records import Flows
from headrace.observe.events.watchers import Watcher
from headrace.observe.figures.critical_path import CriticalPath
from headrace.observe.figures.distribution import Distribution

if TYPE_CHECKING:
    from headrace.core.composition import Composition
    from headrace.core.outcome import Outcome
    from headrace.observe.events.records import Computes, QueueInfo, RunInfo
    from headrace.observe.figures.critical_path import Breakdown

_log = logging.getLogger("headrace.observe")
_FIGURES = ("mean", "p50", "p95", "p99", "max")
_KEPT = 100  # misses kept with where their time went
_LONGEST_QUEUE = 10_000  # messages in a queue of which it is known since when they wait


@dataclass(frozen=True, slots=True)
class Miss:
    """A message that took longer than a goal allows.

    Attributes
    ----------
    path
        The names of the operators on its way, joined by ``","``.
    number
        Its number among the messages of the goal, from 1.
    latency
        How long it took, in nanoseconds.
    bound
        How long it may have taken.
    breakdown
        Where the time went.
    """

    path: str
    number: int
    latency: int
    bound: int
    breakdown: Breakdown

    def __str__(self) -> str:
        over = f"{self.latency / 1e6:.3f} ms, {(self.latency - self.bound) / 1e6:.3f} ms more than allowed"
        return f"message {self.number} on {self.path.replace(',', '->')} took {over}: {self.breakdown}"


class Goal:
    """How long messages may take on a path; made by `Fragment.expect`.

    A message misses the goal if it takes longer than the strictest of the percentiles and the maximum allow. The
    goal is met if the figures themselves hold: at most one message in a hundred misses a ``p99``. A goal that no
    message has reached is neither met nor missed.

    A message that was lost on the way counts as one that takes for ever. So does one that still waited in a queue
    at the end of the run, if it had waited longer than allowed. If it had not, nobody knows when it would have
    arrived: if the goal depends on such messages, it is neither met nor missed.

    Attributes
    ----------
    path
        The path, as given.
    bounds
        The figures that were given, in nanoseconds: ``mean``, ``p50``, ``p95``, ``p99``, ``max``.
    count, misses
        The number of messages that have arrived so far, and of those that missed.
    outstanding
        The number of messages that waited in queues on the way when the run ended; 0 during the run.
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
        self._on_miss = on_miss
        self._lock = threading.RLock()  # reentrant, as that of the statistics
        self._reset()

    def _reset(self) -> None:
        self.count = self.misses = self.outstanding = 0
        # The number of outstanding messages that have waited longer than allowed.
        self._overdue = 0
        self._queues: list[QueueInfo] = []
        # Why it cannot be judged in this run.
        self._absent = ""
        self.recent: deque[Miss] = deque(maxlen=_KEPT)
        self._called = self._on_miss
        self._latency = Distribution()

    @property
    def bound(self) -> int:
        """The time above which a message misses the goal, in nanoseconds."""
        limits = [bound for name, bound in self.bounds.items() if name != "mean"]
        return min(limits) if limits else self.bounds["mean"]

    @property
    def lost(self) -> int:
        """The number of messages on the way that full queues dropped, or that failed computes took with them.

        A queue on the way that other operators feed, too, counts with all its messages.
        """
        return sum(queue.dropped + self._failed(queue) for queue in self._queues)

    def _failed(self, queue: QueueInfo) -> int:
        # A compute that fails takes the message with it, whether it had received it or not. At the end of the path,
        # a message has arrived once it was received.
        if queue.operator.name == self.names[-1]:
            return queue.discarded
        faults = queue.operator.faults
        return max(queue.discarded, faults.skipped + faults.restarts + faults.cut_off)

    def figure(self, name: str) -> float:
        """Return one of the figures of the messages that have arrived so far, in nanoseconds."""
        with self._lock:
            return float(getattr(self._latency.summary(), name))

    @property
    def is_met(self) -> bool | None:
        """Whether every figure holds so far; None if that is not known.

        It is not known if no message has come whose time is known, or if it depends on messages that were still on
        their way when the run ended.
        """
        missing = self.lost + self._overdue
        with self._lock:
            if not self._latency.count and not missing:
                return None
            if not self._holds(missing):
                return False
            return True if self._holds(self.lost + self.outstanding) else None

    def _holds(self, missing: int) -> bool:
        """Return whether every figure holds if so many messages take for ever."""
        arrived = self.count
        for name, bound in self.bounds.items():
            if name in ("mean", "max"):
                if missing or self.figure(name) > bound:
                    return False
                continue
            # A percentile is one of all messages, so a larger one of those that have arrived.
            percent = int(name.removeprefix("p")) * (arrived + missing)
            if percent > 100 * arrived:
                return False
            # A little less, so that rounding does not give the next rank.
            if self._latency.percentile(percent / arrived * (1 - 1e-12)) > bound:
                return False
        return True

    def __str__(self) -> str:
        is_met = self.is_met
        missing = []
        if self.lost:
            missing.append(f"{self.lost} were lost")
        if self.outstanding:
            late = f" ({self._overdue} too late already)" if self._overdue else ""
            missing.append(f"{self.outstanding} had not arrived at the end{late}")
        more = f"; {' and '.join(missing)}" if missing else ""
        if is_met is None and not self._latency.count:
            bounds = ", ".join(f"{name} at most {bound / 1e6:g} ms" for name, bound in self.bounds.items())
            reason = f"none of {self.count} messages was timed" if self.count else "no messages"
            return f"{self.path}: not judged, {self._absent or reason + more}; {bounds}"
        figures = ", ".join(
            f"{name} {self.figure(name) / 1e6:.3f} ms (at most {bound / 1e6:g})"
            for name, bound in self.bounds.items()
        )
        state = {True: "met", False: "NOT met", None: "not judged"}[is_met]
        return f"{self.path}: {state}; {figures}; {self.misses} of {self.count} messages missed{more}"

    def begin(self, run: RunInfo) -> None:
        """Begin anew, and check that the operators exist."""
        self._reset()
        known = [operator.name for operator in run.operators]
        for name in self.names:
            if name not in known and name not in run.left_out:
                raise GraphError(
                    f"expect({self.path!r}): there is no operator {name!r}; there are {choices(known, name)}"
                )
        absent = [name for name in self.names if name not in known]
        if absent:
            self._absent = f"{absent[0]!r} does not run: a recording is played behind it"
            return
        self.follow(run)

    def follow(self, run: RunInfo) -> None:
        """Find the queues between the operators."""
        if self._absent:
            return
        self._queues = _queues_between(run, self.names)
        if not run.operator(self.names[-1]).is_sink:
            run.operator(self.names[-1]).is_probe = True

    def end(self, now: int, emitted: dict[QueueInfo, deque[int]]) -> None:
        """Count what waits at the end; `emitted` has the times at which each queue's last messages were emitted."""
        for queue in self._queues:
            waiting = queue.waiting
            times = sorted(emitted.get(queue, ()))[-waiting:] if waiting else []
            self.outstanding += waiting
            self._overdue += sum(now - time > self.bound for time in times)

    def add(self, flows: Flows, critical: CriticalPath) -> None:
        """Count messages, if they came on the goal's path."""
        names = [operator.name for operator in flows.path.operators]
        if names[-1] != self.names[-1] or self.names[0] not in names:
            return
        start = names.index(self.names[0])
        left = iter(names[start:])
        if not all(name in left for name in self.names):
            return
        flows = flows.part(slice(None), start)
        # A message whose end was not timed counts as one that did not miss.
        latency = np.where(flows.is_timed, flows.latency, 0)
        first = self.count
        with self._lock:
            # First: whoever asks whether the goal is met divides by it.
            self.count += len(latency)
            self._latency.add(latency[flows.is_timed], flows.done[flows.is_timed])
        missed = np.flatnonzero(latency > self.bound)
        self.misses += len(missed)
        if not len(missed):
            return
        kept = missed[-_KEPT:]
        division = critical.divide(flows.part(kept))
        for place, row in enumerate(kept.tolist()):
            miss = Miss(
                flows.path.name, first + row + 1, int(latency[row]), self.bound, division.breakdown(place)
            )
            self.recent.append(miss)
            self._tell(miss)
        # At 1, 2, 4, 8: a goal that is always missed must not flood the log.
        if self.misses.bit_length() > (self.misses - len(missed)).bit_length():
            _log.warning("goal %s: %d missed so far; %s", self.path, self.misses, self.recent[-1])

    def _tell(self, miss: Miss) -> None:
        """Call `on_miss`; if it raises, not again in this run: messages are counted all the same."""
        if self._called is None:
            return
        try:
            self._called(miss)
        except Exception:
            self._called = None
            _log.exception("on_miss of goal %s raised, and is not called again in this run", self.path)


def _queues_between(run: RunInfo, names: Sequence[str]) -> list[QueueInfo]:
    """Return the queues on all ways from the first of some operators to the last, through the others in order."""
    links = [
        (output.operator, queue)
        for queue in run.queues
        for output in queue.outputs
        if output.operator not in queue.closing
    ]
    legs = []
    for first, last in pairwise(map(run.operator, names)):
        behind = reachable(first, lambda one: [queue.operator for source, queue in links if source is one])
        before = reachable(last, lambda one: [source for source, queue in links if queue.operator is one])
        legs.append([queue for source, queue in links if source in behind and queue.operator in before])
    return list(dict.fromkeys(queue for leg in legs for queue in leg)) if all(legs) else []


class GoalsWatcher(Watcher):
    """Counts the messages of a fragment's goals."""

    wants_emissions = True
    spans_parts = True

    def __init__(self) -> None:
        self.goals: list[Goal] = []
        self._critical: CriticalPath
        self._emitted: dict[QueueInfo, deque[int]] = {}

    def begin(self, run: RunInfo) -> None:
        """Begin anew."""
        self._critical = CriticalPath()
        self._emitted = {}
        for goal in self.goals:
            goal.begin(run)
            self._expect(goal)

    def changed(self, run: RunInfo) -> None:
        """Watch the queues that are now between the operators of each goal."""
        for goal in self.goals:
            goal.follow(run)
            self._expect(goal)

    def _expect(self, goal: Goal) -> None:
        for queue in goal._queues:
            self._emitted.setdefault(queue, deque(maxlen=min(queue.size, _LONGEST_QUEUE)))

    def computed(self, computes: Computes) -> None:
        """Remember computes, to tell where the time of a message went."""
        self._critical.add(computes)
        for emissions in computes.emissions:
            if emissions.queue in self._emitted:
                self._emitted[emissions.queue].extend(emissions.emitted[-_LONGEST_QUEUE:].tolist())

    def flowed(self, flows: list[Flows]) -> None:
        """Count messages."""
        for each in flows:
            for goal in self.goals:
                goal.add(each, self._critical)

    def end(self, outcome: Outcome | None) -> None:
        """Log which goals were met; with a warning if one was not, or could not be judged."""
        now = 0 if self.observation is None else self.observation.now()
        for goal in self.goals:
            goal.end(now, self._emitted)
            _log.log(logging.INFO if goal.is_met else logging.WARNING, "%s", goal)


def expect(fragment: Composition, path: str, on_miss: Any, bounds: dict[str, Any]) -> Goal:
    """Set a goal for a path of a fragment: its path, what to call at a miss, and its bounds."""
    goal = Goal(path, bounds, on_miss)
    watcher = next(
        (watcher for watcher in fragment._headrace.watchers if isinstance(watcher, GoalsWatcher)), None
    )
    if watcher is None:
        watcher = GoalsWatcher()
        fragment._headrace.watchers.insert(
            0, watcher
        )  # it judges the goals at the end, before others show them
    watcher.goals = [other for other in watcher.goals if other.path != path]
    watcher.goals.append(goal)
    return goal
