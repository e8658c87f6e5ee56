"""Observing a run: the times of each operator, and the latencies and rates that targets are about.

PlanWatch says at the end of a tracked run where reality has left the plan.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from headrace.observe import Computes, Flows, RunInfo, Watcher
from headrace.planner.measured import NOTHING, Times
from headrace.planner.targets import Target, shown_time

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headrace.core.outcome import Outcome
    from headrace.observe.events.cupti_activity import Activity
    from headrace.planner.plan import Plan


WARM_UP = 5
"""The first computes of an operator, which are not counted: libraries load kernels then."""
ENOUGH = 10
"""As many computes, or frames, make a figure."""
SHORTEST = 5_000
"""Nanoseconds after a compute in which a device that has nothing to do reaches the end of it: less is no work."""


class Observed(Watcher):
    """What was seen of one run.

    Attributes
    ----------
    is_virtual
        Whether its time was virtual, so that another run would be the same.
    """

    wants_every_gpu_time = True
    is_virtual = False

    def __init__(self, targets: Sequence[Target] = ()) -> None:
        self._targets = targets
        self._started: defaultdict[str, list[NDArray[np.int64]]] = defaultdict(list)
        self._host: defaultdict[str, list[NDArray[np.int64]]] = defaultdict(list)
        self._device: defaultdict[str, list[NDArray[np.int64]]] = defaultdict(list)
        self._replayed: defaultdict[str, int] = defaultdict(int)
        self._latencies: defaultdict[tuple[str, ...], list[NDArray[np.int64]]] = defaultdict(list)

    def begin(self, run: RunInfo) -> None:
        """Let paths end where the frames of targets do."""
        self.is_virtual = run.is_virtual
        ends = {target.names[-1] for target in self._targets}
        for operator in run.operators:
            operator.is_probe |= operator.name in ends

    def computed(self, computes: Computes) -> None:
        """Note the times of computes."""
        name = computes.operator.name
        counted = ~computes.is_failed
        self._started[name].append(computes.started[counted])
        self._host[name].append((computes.ended - computes.started)[counted])
        self._device[name].append(computes.certain_gpu_time[counted & computes.uses_gpu & computes.is_timed])
        self._replayed[name] += int(computes.is_replayed.sum())

    def flowed(self, flows: list[Flows]) -> None:
        """Note the latencies of paths."""
        for each in flows:
            names = tuple(operator.name for operator in each.path.operators)
            self._latencies[names].append(each.latency[each.is_timed])

    def host(self, *names: str) -> Times:
        """Return the times of an operator's computes on the host, or of several for the same frames."""
        return times_of(_together([_all(self._host[name]) for name in names]))

    def device(self, *names: str) -> Times | None:
        """Return the times of their work on the device, from where they had launched it; None if they have none.

        So the time of a frame is that of the launch, as far as the device waits for it, and this.
        """
        found = _together([_all(self._device[name]) for name in names])
        return times_of(found) if len(found) and found.any() else None

    def has_work(self, name: str) -> bool:
        """Return whether the device was seen to work on after a compute of an operator.

        One such compute is a proof. A thread that waits for the interpreter's lock returns from most of them when
        the device is done.
        """
        found = _all(self._device[name])
        return bool(len(found)) and int(found.max()) >= SHORTEST

    def was_captured(self, *names: str) -> bool:
        """Return whether frames of these operators were replayed, enough of them for a figure."""
        return all(self._replayed[name] >= ENOUGH for name in names)

    def rate(self, name: str) -> float:
        """Return its computes per second."""
        intervals = self._intervals(name)
        return 1e9 / float(intervals.mean()) if len(intervals) and intervals.mean() > 0 else 0.0

    def variation(self, name: str) -> float:
        """Return the squared coefficient of variation of the intervals between its computes."""
        intervals = self._intervals(name)
        mean = float(intervals.mean()) if len(intervals) else 0.0
        return float(intervals.var()) / mean**2 if mean else 0.0

    def figure(self, target: Target) -> float | None:
        """Return what a target's figure was; None if too few frames reached it."""
        if target.is_rate:
            return self.rate(target.names[-1]) or None
        found = [
            float(getattr(times_of(latencies), target.figure))
            for names, parts in self._latencies.items()
            if _is_way(names, target.names) and len(latencies := _all(parts)) >= ENOUGH
        ]
        return max(found, default=None)

    def _intervals(self, name: str) -> NDArray[np.float64]:
        return np.diff(np.sort(_all(self._started[name]))).astype(np.float64)


class Tries:
    """Some runs of the same program, of which the median counts: a hiccup of the host spoils one of them."""

    def __init__(self, runs: Sequence[Observed]) -> None:
        self._runs = runs

    def figure(self, target: Target) -> float | None:
        """Return what a target's figure was; None if too few frames reached it."""
        found = [figure for run in self._runs if (figure := run.figure(target)) is not None]
        return _median(found) if found else None

    def host(self, name: str) -> Times:
        """Return the times of an operator's computes on the host."""
        return _middle([run.host(name) for run in self._runs])

    def device(self, *names: str) -> Times | None:
        """Return the times of operators on the device, as `Observed.device` does."""
        found = [times for run in self._runs if (times := run.device(*names)) is not None]
        return _middle(found) if found else None

    def has_work(self, name: str) -> bool:
        """Return whether the device was seen to work on after a compute of an operator."""
        return any(run.has_work(name) for run in self._runs)

    def rate(self, name: str) -> float:
        """Return its computes per second."""
        return _median([run.rate(name) for run in self._runs])

    def variation(self, name: str) -> float:
        """Return the squared coefficient of variation of the intervals between its computes."""
        return _median([run.variation(name) for run in self._runs])


class Copies(Watcher):
    """How long copies took of the work of operators, where they can be told from kernels."""

    wants_kernels = True
    wants_gpu_times = False

    def begin(self, run: RunInfo) -> None:
        """Note what runs."""
        self._run = run
        self._took: defaultdict[str, int] = defaultdict(int)
        self._computes: defaultdict[str, set[int]] = defaultdict(set)

    def ran(self, kernels: list[Activity]) -> None:
        """Add the times of copies."""
        for each in kernels:
            if each.operator is not None:
                name = self._run.operators[each.operator].name
                self._computes[name].add(each.compute)
                if "bytes" in each.arguments:
                    self._took[name] += each.ended - each.started

    def of(self, name: str) -> float:
        """Return the time of the copies of one compute, in nanoseconds."""
        return self._took[name] / max(len(self._computes[name]), 1)

    @property
    def unknown(self) -> str:
        """Why copies cannot be told from kernels; empty if they can."""
        return self._run.kernels.removeprefix("shown")


def times_of(durations: NDArray[np.int64]) -> Times:
    """Return the median and the 99th percentile of durations."""
    if not len(durations):
        return NOTHING
    p50, p99 = np.percentile(durations, (50, 99))
    return Times(float(p50), float(p99))


def _median(values: Sequence[float]) -> float:
    return float(np.median(values))


def _middle(times: Sequence[Times]) -> Times:
    return Times(_median([one.p50 for one in times]), _median([one.p99 for one in times]))


def _all(parts: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    found = np.concatenate(parts) if parts else np.zeros(0, np.int64)
    return found[WARM_UP:] if len(found) >= WARM_UP + ENOUGH else found


def _together(of: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Return the sums of the times of several operators, of the frames that all of them have computed."""
    count = min(map(len, of))
    total = np.zeros(count, np.int64)
    for times in of:
        total += times[len(times) - count :]
    return total


def _is_way(path: Sequence[str], names: Sequence[str]) -> bool:
    """Return whether frames on a path are those of a target, which names its end, or its first and its last."""
    rest = iter(path)
    return (
        path[-1] == names[-1]
        and (len(names) == 1 or path[0] == names[0])
        and all(name in rest for name in names)
    )


_log = logging.getLogger("headrace.planner")
SLOWER = 1.3
"""How many times the planned time an operator may take before that is said."""


class PlanWatch(Observed):
    """Compares the times and figures of a run with those of its plan."""

    def __init__(self, plan: Plan) -> None:
        super().__init__([Target.parse(goal) for goal in plan.goals])
        self.plan = plan

    def end(self, outcome: Outcome | None) -> None:
        """Warn of every operator and goal that is not as planned."""
        for text in self.differences():
            _log.warning("%s; `headrace plan` would measure again", text)

    def differences(self) -> list[str]:
        """Return what is not as planned, in words."""
        found = []
        for name, expected in self.plan.expected.items():
            times = self.device(name)
            if times is not None and times.p50 > max(SLOWER * expected, expected + SHORTEST):
                found.append(
                    f"operator {name!r} takes {shown_time(times.p50)} on the device, "
                    f"{times.p50 / expected - 1:.0%} more than the planned {shown_time(expected)}"
                )
        for goal in self.plan.goals:
            target = Target.parse(goal)
            value = self.figure(target)
            if value is not None and not target.is_met(value):
                found.append(f"goal {goal!r} has no margin left: {target.figure} is {target.shown(value)}")
        return found
