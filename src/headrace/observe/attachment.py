"""Attachment: the watchers of a fragment, and the observer that shows them a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.observe.environment import asked_for, replay_from_environment, watchers_from_environment

if TYPE_CHECKING:
    from headrace.core.composition import Composition
    from headrace.observe.events.observation import Observation
    from headrace.observe.events.watchers import Watcher
    from headrace.observe.figures.data_flow_tracker import DataFlowTracker
    from headrace.observe.figures.goals import Goal


def watch(fragment: Composition, watcher: Watcher) -> None:
    """Show every later run of a fragment to a watcher."""
    if watcher not in fragment._watchers:
        fragment._watchers.append(watcher)


def observer_of(fragment: Composition) -> Observation | None:
    """Return what watches the next run of a fragment, or None if nothing was asked for."""
    replay = fragment._replay or replay_from_environment()
    left_out = replay.prepare(fragment) if replay is not None else set()
    loggers = fragment.data_loggers
    if not fragment._watchers and not loggers and not asked_for():
        return None
    watchers = [*fragment._watchers, *watchers_from_environment()]
    if loggers:
        from headrace.observe.loggers.data_loggers import DataLogging

        watchers.append(DataLogging(loggers))
    if not watchers:
        return None
    from headrace.observe.events.observation import Observation

    return Observation(fragment, watchers, left_out=left_out)


def tracker_of(fragment: Composition) -> DataFlowTracker | None:
    """Return the tracker of a fragment, or None."""
    from headrace.observe.figures.data_flow_tracker import DataFlowTracker

    return next((watcher for watcher in fragment._watchers if isinstance(watcher, DataFlowTracker)), None)


def expect(fragment: Composition, path: str, on_miss: Any, bounds: dict[str, Any]) -> Goal:
    """Set a goal for a path of a fragment: its path, what to call at a miss, and its bounds."""
    from headrace.observe.figures.goals import Goal, GoalsWatcher

    goal = Goal(path, bounds, on_miss)
    watcher = next((watcher for watcher in fragment._watchers if isinstance(watcher, GoalsWatcher)), None)
    if watcher is None:
        watcher = GoalsWatcher()
        fragment._watchers.insert(0, watcher)  # it judges the goals at the end, before others show them
    watcher.goals = [other for other in watcher.goals if other.path != path]
    watcher.goals.append(goal)
    return goal
