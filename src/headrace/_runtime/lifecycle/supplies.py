"""Supplies: what a run is given from the layers above the runtime, which the runtime does not import."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace._runtime.observer import Observer
    from headrace._runtime.scheduling.group import GroupPlan
    from headrace.core.composition import Composition
    from headrace.core.condition import Condition
    from headrace.core.ports import ConditionType
    from headrace.core.run_options import RunOptions
    from headrace.core.scheduler import Scheduler


@dataclass(frozen=True, slots=True)
class Supplies:
    """What the application gives a run."""

    scheduler: Callable[[Composition, RunOptions], Scheduler]
    """Returns the scheduler of a run of a composed fragment, with what the environment changes."""
    observer: Callable[[Composition], Observer | None]
    """Returns what watches the run, or None if nothing was asked for."""
    groups: Callable[[Composition], Sequence[GroupPlan]]
    """Returns the groups of operators that the run schedules as one."""
    progress: Callable[[Composition], AbstractContextManager[None]]
    """Returns the context in which the progress of the run is shown."""
    conditions: Mapping[ConditionType, type[Condition]]
    """The classes of the conditions that a port selects by name."""
    limits: RunOptions
    """What the call of `run` asks for; the environment comes first."""
    drain: Callable[[Composition], None]
    """Ends the sources of the run, so that it ends when what is under way has been computed."""
    any_of: Callable[..., Condition]
    """Combines the conditions `terms` of a fragment, under a `name`, so that any one of them is enough."""
