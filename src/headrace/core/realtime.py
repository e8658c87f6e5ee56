"""Real-time scheduling: how Linux schedules the thread of one operator, before all normal threads."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from headrace.core.errors import choices
from headrace.core.whole_numbers import whole_number


class SchedulingPolicy(IntEnum):
    """A real-time policy of Linux (sched(7)). The numbers are the kernel's."""

    SCHED_FIFO = 1
    """The thread runs until it waits, or until one of a higher priority can run."""
    SCHED_RR = 2
    """The same, and threads of one priority take turns."""
    SCHED_DEADLINE = 6
    """The thread gets so much time in each period, before its deadline."""


@dataclass(frozen=True, slots=True)
class RealtimeScheduling:
    """A policy and what it needs: a priority, or times in nanoseconds."""

    policy: SchedulingPolicy
    priority: int
    runtime: int
    deadline: int
    period: int

    @classmethod
    def of(
        cls,
        policy: SchedulingPolicy | int | str,
        priority: int,
        runtime: int,
        deadline: int,
        period: int,
        cores: tuple[int, ...],
        where: str,
    ) -> RealtimeScheduling:
        """Return what a program asked for, or raise if the kernel would refuse it to anyone."""
        chosen = _policy(policy, where)
        if chosen is not SchedulingPolicy.SCHED_DEADLINE:
            number = whole_number(priority, f"{where}: sched_priority of {chosen.name}", 1, 99)
            return cls(chosen, number, 0, 0, 0)
        times = {"sched_runtime": runtime, "sched_deadline": deadline, "sched_period": period or deadline}
        found = [whole_number(time, f"{where}: {name}", 0) for name, time in times.items()]
        if not 1024 <= found[0] <= found[1] <= found[2]:
            raise ValueError(
                f"{where}: SCHED_DEADLINE needs 1024 <= sched_runtime <= sched_deadline <= sched_period, in "
                f"nanoseconds, not {', '.join(map(str, found))}"
            )
        if cores:
            raise ValueError(
                f"{where}: Linux lets a SCHED_DEADLINE thread use all cores; leave out pin_cores, or use SCHED_FIFO"
            )
        return cls(chosen, 0, *found)


def _policy(policy: Any, where: str) -> SchedulingPolicy:
    try:
        return SchedulingPolicy[policy] if isinstance(policy, str) else SchedulingPolicy(policy)
    except (KeyError, ValueError, TypeError):
        known = choices(SchedulingPolicy.__members__, str(policy))
        raise ValueError(f"{where}: sched_policy must be one of {known}, not {policy!r}") from None
