"""What happened in a run: flow tracking, GPU times, goals, traces, data loggers, and the live page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core.registry import registry
from penstock.lazy import lazy_getattr

if TYPE_CHECKING:
    from penstock.core.fragment import Fragment
    from penstock.core.protocols import Observer
    from penstock.observe.records import Computes, Flows, RunInfo
    from penstock.observe.watchers import Watcher

__all__ = ["Computes", "Flows", "RunInfo", "Watcher", "watch"]

_MODULES = {"Computes": "records", "Flows": "records", "RunInfo": "records", "Watcher": "watchers"}

if not TYPE_CHECKING:  # or a type checker would accept every name
    __getattr__ = lazy_getattr(globals(), _MODULES)


def watch(fragment: Fragment, watcher: Watcher) -> None:
    """Show every later run of a fragment to a watcher."""
    fragment._watchers.append(watcher)


def _observe(fragment: Fragment) -> Observer | None:
    watchers = list(fragment._watchers)
    if not watchers:
        return None
    from penstock.observe.observation import Observation

    return Observation(fragment, watchers)


registry.observe = _observe
