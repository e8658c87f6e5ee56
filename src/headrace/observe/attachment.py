"""Attachment: the watchers of a fragment, and the observer that shows them a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.observe.environment import replay_from_environment, watchers_from_environment

if TYPE_CHECKING:
    from headrace.core.composition import Composition
    from headrace.observe.events.observation import Observation
    from headrace.observe.events.watchers import Watcher


def watch(fragment: Composition, watcher: Watcher) -> None:
    """Show every later run of a fragment to a watcher."""
    if watcher not in fragment._headrace.watchers:
        fragment._headrace.watchers.append(watcher)


def prepare_replay(fragment: Composition) -> set[str]:
    """Put players into a composed graph, if a recording is to be played; return the operators that are left out."""
    replay = fragment._headrace.replay or replay_from_environment()
    return set() if replay is None else replay.prepare(fragment)


def observer_of(fragment: Composition) -> Observation | None:
    """Return what watches the next run of a fragment, or None if nothing was asked for."""
    cut = fragment._headrace.cut  # a part is cut out of a graph in which the players are already
    left_out = prepare_replay(fragment) if cut is None else cut.left_out
    loggers = fragment._headrace.every_data_logger
    watchers = [*fragment._headrace.watchers, *watchers_from_environment()]
    if loggers:
        from headrace.observe.loggers.data_loggers import DataLogging

        watchers.append(DataLogging(loggers))
    if not watchers:
        return None
    from headrace.observe.events.observation import Observation

    return Observation(fragment, watchers, left_out=left_out)
