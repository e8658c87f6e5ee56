"""Goals: how long messages may take on a path, and where the time went when one took longer."""

from __future__ import annotations

import itertools
import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.brief import brief
from headrace.core.condition import RecordedTimes, ticks_of
from headrace.core.errors import GraphError, choices
from headrace.core.outcome import GoalOutcome
from headrace.core.values import Duration, nanoseconds
from headrace.observe.events.watchers import Watcher
from headrace.observe.figures.critical_path import Breakdown, Part, divide
from headrace.observe.figures.distribution import Distribution
from headrace.observe.figures.frames import Fate, FrameTable
from headrace.observe.figures.run_figures import ShowsFigures

if TYPE_CHECKING:
    from headrace.core.composition import Composition
    from headrace.core.outcome import Outcome
    from headrace.observe.events.records import Computes, Drops, Flows, OperatorInfo, RunInfo
    from headrace.observe.figures.frames import Frames
    from headrace.observe.figures.recent_computes import RecentComputes

_log = logging.getLogger("headrace.observe")
_FIGURES = ("mean", "p50", "p95", "p99", "max")
_KEPT = 100  # misses kept with where their time went


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
    """How long messages may take on a path, or how late an operator's ticks may be; made by `Fragment.expect`.

    The frames of a path are the messages that its first operator sends towards its last one. Each is in exactly one
    count: `arrived` in time, `late`, `failed`, `dropped`, `lost`, or `outstanding`; together they are `sent`. What
    follows from a frame belongs to it, and a frame has arrived when all of it has.

    A frame is late if it takes longer than the strictest of the percentiles and the maximum allow. The goal is met
    if the figures themselves hold: at most one frame in a hundred may be late for a ``p99``. Frames that failed or
    were lost count as ones that take for ever. Those that were dropped on purpose do not count: by the policy of a
    queue, by a join that found nothing to go with them, or by an operator that sent nothing on for them. A goal
    that no frame has reached is neither met nor missed. Nor is one that depends on frames that were still under way
    when the run ended, or that were not timed.

    The frames of a period are the ticks of the operator's `PeriodicCondition`, and the time of each is how late its
    compute began. A tick that was skipped is lost.

    Attributes
    ----------
    path
        The path, as given; or the operator, for a period.
    bounds
        The figures that were given, in nanoseconds: ``mean``, ``p50``, ``p95``, ``p99``, ``max``; ``jitter`` for a
        period.
    sent
        The number of frames so far. A message is one frame, however many queues it is sent to.
    arrived, late, failed, dropped, lost
        How many of them arrived in time, arrived late, failed, were dropped on purpose, and were lost with a
        process.
    untimed
        How many of those that arrived were not timed to their end on the device.
    outstanding
        The number of frames that were under way when the run ended; 0 during the run.
    recent
        The last frames that were late, with where the time went.
    """

    def __init__(
        self,
        path: str,
        bounds: dict[str, Duration | None],
        on_miss: Callable[[Miss], object] | None,
        period: Duration | None = None,
    ) -> None:
        if not isinstance(path, str):
            raise TypeError(f"expect() takes a path as text, as in 'camera->display', not {brief(path)}")
        if on_miss is not None and not callable(on_miss):
            raise TypeError(f"expect({path!r}): on_miss must be a function, not {brief(on_miss)}")
        self.path = self._name = path
        self.period = None if period is None else nanoseconds(period, f"expect({path!r}): period")
        self.bounds = {
            name: nanoseconds(bound, f"expect({path!r}): {name}")
            for name, bound in bounds.items()
            if bound is not None
        }
        self.names = [name.strip() for name in path.replace("→", "->").split("->")]
        self._check()
        self._on_miss = on_miss
        self._lock = threading.RLock()  # reentrant, as that of the statistics
        self._frames: FrameTable | None = None
        self._ticking: OperatorInfo | None = None
        self._reset()

    def _check(self) -> None:
        path = self.path
        if self.period is not None:
            if len(self.names) != 1 or not self.names[0] or set(self.bounds) != {"jitter"}:
                raise ValueError(
                    f"expect({path!r}) with period= is about the ticks of one operator, and needs jitter= alone, "
                    "as in expect('tick', period='1ms', jitter='100us')"
                )
        elif "jitter" in self.bounds:
            raise ValueError(f"expect({path!r}): jitter= goes with period=")
        elif not self.bounds:
            raise ValueError(
                f"expect({path!r}) needs a bound, such as p99='30ms'; it takes {choices(_FIGURES)}"
            )
        for name, bound in (*self.bounds.items(), ("period", 1 if self.period is None else self.period)):
            if bound <= 0:
                raise ValueError(f"expect({path!r}): {name} must be more than 0, not {bound} ns")
        if self.period is None and (len(self.names) < 2 or not all(self.names)):
            raise ValueError(
                f"expect({path!r}): a path is two or more operators with '->' between them, as in 'camera->display'"
            )

    def _reset(self) -> None:
        self.sent = self.arrived = self.late = self.failed = self.dropped = self.lost = 0
        self.untimed = self.outstanding = 0
        self._is_given_up = False
        # The number of outstanding frames that had been under way for longer than allowed, and of those of which
        # nobody knows whether they arrived.
        self._overdue = self._unknown = 0
        # Why it cannot be judged in this run.
        self._absent = ""
        self.recent: deque[Miss] = deque(maxlen=_KEPT)
        self._told = 0
        # Frames that are late, until it is known on which way they came.
        self._to_tell: Frames | None = None
        self._called = self._on_miss
        self._latency = Distribution()

    @property
    def name(self) -> str:
        """The path; with the bounds, and a number, if another goal that was there before is called so."""
        return self._name

    @property
    def bound(self) -> int:
        """The time above which a frame is late, in nanoseconds."""
        limits = [bound for name, bound in self.bounds.items() if name != "mean"]
        return min(limits) if limits else self.bounds["mean"]

    @property
    def count(self) -> int:
        """The number of frames that arrived so far, in time or late."""
        return self.arrived + self.late

    @property
    def counts(self) -> dict[str, Any]:
        """The counts so far, and whether it is met, by the names that they have in the outcome."""
        return {each.name: getattr(self, each.name) for each in fields(GoalOutcome)}

    def figure(self, name: str) -> float:
        """Return one of the figures of the frames that have arrived so far, in nanoseconds."""
        with self._lock:
            return float(getattr(self._latency.summary(), "max" if name == "jitter" else name))

    @property
    def is_met(self) -> bool | None:
        """Whether every figure holds so far; None if that is not known.

        It is not known if no frame has come whose time is known, or if it depends on frames that were still under
        way when the run ended, or whose end was not timed.
        """
        with self._lock:
            missing = self.failed + self.lost + self._overdue
            if not self._latency.count and not missing:
                return None
            if not self._holds(missing):
                return False
            unknown = self.outstanding - self._overdue + self.untimed
            return True if self._holds(missing + unknown) and not self._is_given_up else None

    def _holds(self, missing: int) -> bool:
        """Return whether every figure holds if so many frames take for ever."""
        timed = self._latency.count
        for name, bound in self.bounds.items():
            if name in ("mean", "max", "jitter"):
                if missing or self.figure(name) > bound:
                    return False
                continue
            # A percentile is one of all frames, so a larger one of those that have arrived.
            percent = int(name.removeprefix("p")) * (timed + missing)
            if percent > 100 * timed:
                return False
            # A little less, so that rounding does not give the next rank.
            if self._latency.percentile(percent / timed * (1 - 1e-12)) > bound:
                return False
        return True

    def _bounds_text(self) -> str:
        texts = [f"{name} at most {bound / 1e6:g} ms" for name, bound in self.bounds.items()]
        return ", ".join(texts if self.period is None else [f"period {self.period / 1e6:g} ms", *texts])

    def __str__(self) -> str:
        is_met = self.is_met
        missing = [
            f"{number} {text}"
            for number, text in (
                (self.failed, "failed"),
                (self.dropped, "were dropped on purpose"),
                (self.lost, "were skipped" if self.period else "were lost"),
                (self.untimed, "were not timed"),
            )
            if number
        ]
        if known := self.outstanding - self._unknown:
            late = f" ({self._overdue} too late already)" if self._overdue else ""
            missing.append(f"{known} had not arrived at the end{late}")
        if self._unknown:
            missing.append(f"of {self._unknown} nobody knows, because a process was started again")
        if self._is_given_up:
            missing.append("others are not known of, because they were not watched to the end")
        more = f"; {', '.join(missing)}" if missing else ""
        if is_met is None and not self._latency.count:
            return f"{self.path}: not judged, {self._absent or 'no messages' + more}; {self._bounds_text()}"
        figures = ", ".join(
            f"{name} {self.figure(name) / 1e6:.3f} ms (at most {bound / 1e6:g})"
            for name, bound in self.bounds.items()
        )
        if not self._latency.count:
            figures = f"none arrived; {self._bounds_text()}"
        state = {True: "met", False: "NOT met", None: "not judged"}[is_met]
        what = "ticks" if self.period else "messages"
        return f"{self.path}: {state}; {figures}; {self.late} of {self.sent} {what} late{more}"

    def begin(self, run: RunInfo) -> None:
        """Begin anew, and check that the operators exist."""
        self._reset()
        self._frames = self._ticking = None
        known = [operator.name for operator in run.operators]
        for name in self.names:
            if name not in known and name not in run.left_out:
                raise GraphError(
                    f"expect({self.path!r}): there is no operator {name!r}; there are {choices(known, name)}"
                )
        absent = [name for name in self.names if name not in known]
        if absent:
            self._absent = f"{absent[0]!r} does not run: a recording is played behind it"
        elif self.period is None:
            self._frames = FrameTable(run, self.names, self.bound)
            self._mark_end(run)
        else:
            self._find_clock(run.operator(self.names[0]))

    def _find_clock(self, operator: OperatorInfo) -> None:
        conditions = operator.node.operator.conditions.values()
        if any(isinstance(condition, RecordedTimes) for condition in conditions):
            self._absent = f"{operator.name!r} plays a recording, and has no clock"
            return
        self._ticking = operator
        ticks = ticks_of(conditions)
        if ticks is None or ticks.period != self.period:
            has = "no PeriodicCondition" if ticks is None else f"a period of {ticks.period / 1e6:g} ms"
            raise GraphError(
                f"expect({self.path!r}, period=...): operator {operator.name!r} has {has}; it needs a "
                f"PeriodicCondition of {(self.period or 0) / 1e6:g} ms"
            )

    def follow(self, run: RunInfo) -> None:
        """Find the ways between the operators, which have changed."""
        if self._frames is not None:
            self._frames.follow()
            self._mark_end(run)

    def give_up(self) -> None:
        """Note that there are frames that nobody knows of, because counting them has failed."""
        self._is_given_up = True

    def _mark_end(self, run: RunInfo) -> None:
        self._begin = run.sender(self.names[0]).name
        for last in run.receivers(self.names[-1]):
            last.is_probe |= not last.is_sink

    def end(self, now: int) -> None:
        """Count what was under way at the end of the run."""
        self.tell_late([], None)
        if self._frames is None:
            return
        left, self._unknown = self._frames.finish()
        self._count()
        with self._lock:
            self.outstanding = len(left) + self._unknown
            self._overdue = int((now - left["origin"] > self.bound).sum())

    def add(self, computes: Computes) -> None:
        """Count the frames that ended with some computes."""
        self.tell_late([], None)
        if self._frames is not None:
            self._to_tell = self._frames.add(computes)
            self._count()
        elif computes.operator is self._ticking:
            self._add_ticks(computes)

    def drop(self, drops: list[Drops]) -> None:
        """Count messages that were dropped on purpose."""
        if self._frames is not None:
            for each in drops:
                self._frames.drop(each)
            self._count()

    def _add_ticks(self, computes: Computes) -> None:
        ticks = computes.ticks
        lateness = (computes.started - computes.due)[ticks]
        is_late = lateness > self.bound
        with self._lock:
            self._latency.add(lateness, computes.started[ticks])
            self.late += int(is_late.sum())
            self.arrived += int((~is_late).sum())
            self.lost += int(computes.skipped.sum())
            self.sent = self.arrived + self.late + self.lost
        for tick in (computes.first + np.flatnonzero(ticks)[is_late]).tolist()[-_KEPT:]:
            took = int(computes.started[tick - computes.first] - computes.due[tick - computes.first])
            breakdown = Breakdown((Part("before", self.path, "", took),))
            self._tell(Miss(self.path, tick + 1, took, self.bound, breakdown))
        self._log_misses(self.late - int(is_late.sum()), self.late)

    def _count(self) -> None:
        assert self._frames is not None
        ended = self._frames.take_ended()
        numbers = np.bincount(ended["fate"], minlength=len(Fate)).tolist()
        with self._lock:
            self.sent = self._frames.sent
            timed = (ended["fate"] == Fate.ARRIVED) | (ended["fate"] == Fate.LATE)
            # First: whoever asks whether the goal is met divides by their number.
            self._latency.add(ended["latency"][timed], ended["done"][timed])
            self.arrived += numbers[Fate.ARRIVED] + numbers[Fate.UNTIMED]
            self.untimed += numbers[Fate.UNTIMED]
            self.late += numbers[Fate.LATE]
            self.failed += numbers[Fate.FAILED]
            self.dropped += numbers[Fate.DROPPED]
            self.lost += numbers[Fate.LOST]

    # Misses.

    def tell_late(self, flows: list[Flows], computes: RecentComputes | None) -> None:
        """Tell where the time of the frames went that were late with the last computes."""
        late, self._to_tell = self._to_tell, None
        if late is None:
            return
        before, self._told = self._told, self._told + len(late)
        ways = [way for each in flows for way in self._way_of(each)]
        for frame in late[-_KEPT:]:
            took = int(frame["latency"])
            path, breakdown = ",".join(self.names), Breakdown((Part("unknown", self.names[0], "", took),))
            for way in ways:
                rows = np.flatnonzero(
                    (way.compute == frame["compute"])
                    & (way.computes[:, 0] == frame["producer"])
                    & (way.times[:, 1] >= frame["emitted"])
                    & (way.done == frame["done"])
                )
                if len(rows) and computes is not None:
                    # Of the messages of one compute, the first that was not sent before.
                    way = way.part(rows[way.times[rows, 1].argmin()][None])
                    way.origin = frame["origin"][None]
                    path, breakdown = way.path.name, divide(way, computes).breakdown(0)
                    break
            self._tell(Miss(path, int(frame["number"]) + 1, took, self.bound, breakdown))
        self._log_misses(before, self._told)

    def _way_of(self, flows: Flows) -> list[Flows]:
        """Return messages from the first operator of the goal on, if they came on its path."""
        names = [operator.name for operator in flows.path.operators]
        if self._begin not in names:
            return []
        start = names.index(self._begin)
        left = iter(names[start:])
        return [flows.part(slice(None), start)] if all(name in left for name in self.names[1:]) else []

    def _tell(self, miss: Miss) -> None:
        """Call `on_miss`; if it raises, not again in this run: messages are counted all the same."""
        self.recent.append(miss)
        if self._called is None:
            return
        try:
            self._called(miss)
        except Exception:
            self._called = None
            _log.exception("on_miss of goal %s raised, and is not called again in this run", self.path)

    def _log_misses(self, before: int, now: int) -> None:
        # At 1, 2, 4, 8: a goal that is always missed must not flood the log.
        if now.bit_length() > before.bit_length():
            _log.warning("goal %s: %d missed so far; %s", self.path, now, self.recent[-1])


class GoalsWatcher(ShowsFigures):
    """Counts the frames of a fragment's goals."""

    period = Watcher.period
    wants_statistics = wants_cpu_times = False
    explains = True
    wants_emissions = True
    wants_every_gpu_time = True  # a goal is not met by frames of which nobody knows how long they took
    spans_parts = True

    def __init__(self) -> None:
        self.goals: list[Goal] = []

    def add(self, goal: Goal) -> None:
        """Take a goal, and give it a name that no other has."""
        full = f"{goal.path} ({goal._bounds_text()})"
        taken = {other.name for other in self.goals}
        names = itertools.chain((goal.path, full), (f"{full} {number}" for number in itertools.count(2)))
        goal._name = next(name for name in names if name not in taken)
        self.goals.append(goal)

    def begin(self, run: RunInfo) -> None:
        """Begin anew."""
        self._has_own_time = run.is_virtual
        for goal in self.goals:
            goal.begin(run)

    def changed(self, run: RunInfo) -> None:
        """Follow the ways that there are now between the operators of each goal."""
        for goal in self.goals:
            goal.follow(run)

    def computed(self, computes: Computes) -> None:
        """Count frames."""
        self._tell_each(lambda goal: goal.add(computes))

    def messages_dropped(self, drops: list[Drops]) -> None:
        """Count messages that were dropped on purpose."""
        self._tell_each(lambda goal: goal.drop(drops))

    def flowed(self, flows: list[Flows]) -> None:
        """Tell where the time of late frames went."""
        self._tell_each(lambda goal: goal.tell_late(flows, self.figures.computes))

    def _tell_each(self, tell: Callable[[Goal], None]) -> None:
        """Tell each goal something; if that raises, nobody is told any more, and no goal is said to be met."""
        try:
            for goal in self.goals:
                tell(goal)
        except BaseException:
            for goal in self.goals:
                goal.give_up()
            raise

    def end(self, outcome: Outcome | None) -> None:
        """Log which goals were met, with a warning if one was not or is not known, and add to the outcome."""
        now = self.figures.newest
        if self.observation is not None and not self._has_own_time:
            now = max(now, self.observation.now())
        for goal in self.goals:
            goal.end(now)
            if outcome is not None:
                outcome.goals[goal.name] = GoalOutcome(**goal.counts)
            _log.log(logging.INFO if goal.is_met else logging.WARNING, "%s", goal)


def expect(
    fragment: Composition,
    path: str,
    on_miss: Any,
    bounds: dict[str, Any],
    period: Any = None,
) -> Goal:
    """Set a goal for a path of a fragment, or for the period of an operator."""
    goal = Goal(path, bounds, on_miss, period)
    watcher = next(
        (watcher for watcher in fragment._headrace.watchers if isinstance(watcher, GoalsWatcher)), None
    )
    if watcher is None:
        watcher = GoalsWatcher()
        # It judges the goals at the end, before others show them.
        fragment._headrace.watchers.insert(0, watcher)
    watcher.add(goal)
    return goal
