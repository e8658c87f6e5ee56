"""What happened in a run: flow tracking, GPU times, goals, traces, data loggers, and the live page.

A run that nobody watches pays nothing for any of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.core.registry import registry
from penstock.lazy import lazy_getattr
from penstock.observe.environment import asked_for, watchers_from_environment

if TYPE_CHECKING:
    from penstock.core.fragment import Fragment
    from penstock.core.protocols import Observer
    from penstock.observe.breakdown import Breakdown, Part
    from penstock.observe.dashboard import Dashboard
    from penstock.observe.data_flow_tracker import DataFlowMetric, DataFlowTracker, Tracker
    from penstock.observe.distribution import Summary
    from penstock.observe.goals import Goal, Miss
    from penstock.observe.records import (
        Arrivals,
        Computes,
        Flows,
        GpuWork,
        OperatorInfo,
        OutputInfo,
        Path,
        QueueInfo,
        RunInfo,
        StreamInfo,
    )
    from penstock.observe.statistics import OperatorStatistics, PathStatistics, QueueStatistics, Statistics
    from penstock.observe.watchers import Watcher

__all__ = [
    "Arrivals",
    "Breakdown",
    "Computes",
    "Dashboard",
    "DataFlowMetric",
    "DataFlowTracker",
    "Flows",
    "Goal",
    "GpuWork",
    "Miss",
    "OperatorInfo",
    "OperatorStatistics",
    "OutputInfo",
    "Part",
    "Path",
    "PathStatistics",
    "QueueInfo",
    "QueueStatistics",
    "RunInfo",
    "Statistics",
    "StreamInfo",
    "Summary",
    "Tracker",
    "Watcher",
    "watch",
]

_MODULES = {
    "Arrivals": "records",
    "Breakdown": "breakdown",
    "Computes": "records",
    "Dashboard": "dashboard",
    "DataFlowMetric": "data_flow_tracker",
    "DataFlowTracker": "data_flow_tracker",
    "Flows": "records",
    "Goal": "goals",
    "GpuWork": "records",
    "Miss": "goals",
    "OperatorInfo": "records",
    "OperatorStatistics": "statistics",
    "OutputInfo": "records",
    "Part": "breakdown",
    "Path": "records",
    "PathStatistics": "statistics",
    "QueueInfo": "records",
    "QueueStatistics": "statistics",
    "RunInfo": "records",
    "Statistics": "statistics",
    "StreamInfo": "records",
    "Summary": "distribution",
    "Tracker": "data_flow_tracker",
    "Watcher": "watchers",
}

if not TYPE_CHECKING:  # or a type checker would accept every name
    __getattr__ = lazy_getattr(globals(), _MODULES)


def watch(fragment: Fragment, watcher: Watcher) -> None:
    """Show every later run of a fragment to a watcher."""
    if watcher not in fragment._watchers:
        fragment._watchers.append(watcher)


def _observe(fragment: Fragment) -> Observer | None:
    if not fragment._watchers and not asked_for():
        return None
    watchers = [*fragment._watchers, *watchers_from_environment()]
    if not watchers:
        return None
    from penstock.observe.observation import Observation

    return Observation(fragment, watchers)


def _track(fragment: Fragment, **options: Any) -> DataFlowTracker:
    from penstock.observe.data_flow_tracker import DataFlowTracker

    tracker = DataFlowTracker(**options)
    # A fragment has one tracker, the last one made.
    fragment._watchers = [other for other in fragment._watchers if not isinstance(other, DataFlowTracker)]
    fragment._watchers.append(tracker)
    return tracker


def _tracker_of(fragment: Fragment) -> DataFlowTracker | None:
    from penstock.observe.data_flow_tracker import DataFlowTracker

    return next((watcher for watcher in fragment._watchers if isinstance(watcher, DataFlowTracker)), None)


def _expect(fragment: Fragment, path: str, on_miss: Any, bounds: dict[str, Any]) -> Goal:
    from penstock.observe.goals import Goal, GoalsWatcher

    goal = Goal(path, bounds, on_miss)
    watcher = next((watcher for watcher in fragment._watchers if isinstance(watcher, GoalsWatcher)), None)
    if watcher is None:
        watcher = GoalsWatcher()
        fragment._watchers.append(watcher)
    watcher.goals = [other for other in watcher.goals if other.path != path]
    watcher.goals.append(goal)
    return goal


registry.observe = _observe
registry.track = _track
registry.tracker_of = _tracker_of
registry.expect = _expect
