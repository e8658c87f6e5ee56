"""The objects that core uses from the layers above it, by role.

core declares and never schedules, so it imports none of the layers that build on it. Each layer fills its roles
when it is imported, and ``headrace/__init__.py`` imports all layers. So every role is filled in a program that has
imported any part of headrace. A registered function may import its module when it is first called.

Conditions are registered by their class statement instead: ``class CountCondition(Condition, kind=...)``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from concurrent.futures import Future

    from headrace import gpu
    from headrace.core.claim import Claim
    from headrace.core.clock import Clock
    from headrace.core.condition import Condition
    from headrace.core.fragment import Fragment
    from headrace.core.operator import Operator
    from headrace.core.outcome import Outcome
    from headrace.core.protocols import GreenContextPool, Node, Observer, Resume, Segment
    from headrace.core.resource import Resource
    from headrace.core.run_options import RunOptions
    from headrace.core.scheduler import Scheduler

__all__ = ["Registry", "registry"]


class Registry:
    """The roles that the layers above core fill."""

    # By headrace._runtime.

    run: Callable[[Fragment, Claim], Outcome]
    """Run a fragment to its end."""
    run_async: Callable[[Fragment, Claim], Future[Outcome]]
    """Run a fragment on its own thread."""
    resume: Callable[[Node], Resume]
    """Keep a node ready between the values that its function yields."""
    slice_of: Callable[[Operator], gpu.Share | None]
    """Return the slice of a device that an operator's streams belong to, or None if they may use every SM."""

    # By headrace.capture.

    capture: Callable[..., Segment]
    """Make a segment of operators; takes the arguments of `Fragment.capture`."""
    find_segments: Callable[[Fragment], None]
    """Check the segments that compose declared, and find those that are wanted besides."""
    plan_groups: Callable[[Fragment], list[Any]]
    """Return the groups of operators that a run schedules as one."""

    # By headrace.conditions.

    any_of: Callable[[Fragment, list[Condition], str], Condition]
    """Combine conditions so that any one of them is enough, under a name."""

    # By headrace.schedulers.

    default_scheduler: Callable[[Fragment], Scheduler]
    """Create the scheduler of a fragment that sets none."""
    chosen_scheduler: Callable[[Scheduler, RunOptions], Scheduler]
    """Create the scheduler of one run from the application's own and what the environment changes."""

    # By headrace.resources.

    default_clock: Callable[[Fragment | None], Clock]
    """Create the clock of a scheduler that was given none."""
    device_clock: Callable[[Fragment | None], Clock | None]
    """Create the clock of the simulated device that a run will use, or return None if the run uses real time."""
    default_streams: Callable[[Fragment], Resource]
    """Create the stream pool for operators that were given none."""
    green_context_pool: Callable[..., GreenContextPool]
    """Create the pool that divides a device; takes the arguments of CudaGreenContextPool."""

    # By headrace.observe.

    observe: Callable[[Fragment], Observer | None]
    """Return what watches the next run of a fragment, or None if nothing was asked for."""
    track: Callable[..., Any]
    """Track the runs of a fragment; takes the arguments of `Fragment.track`."""
    tracker_of: Callable[[Fragment], Any]
    """Return the tracker of a fragment, or None."""
    expect: Callable[..., Any]
    """Set a goal for a path of a fragment: its path, what to call at a miss, and its bounds."""
    latency: Callable[[Fragment], float | None]
    """Return the mean latency of a running fragment's slowest path in seconds, or None if it is not tracked."""

    check_data_logger: Callable[[Fragment, Any], None]
    """Raise if an object is not a data logger."""

    if not TYPE_CHECKING:

        def __getattr__(self, role: str) -> Any:
            """Raise for a role that has not been filled: its layer has not been imported."""
            raise AttributeError(
                f"nothing is registered as {role!r}; headrace/__init__.py imports the layers that register"
            )


registry = Registry()
