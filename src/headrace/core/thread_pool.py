"""ThreadPool: worker threads for some operators only, optionally pinned to cores.

And how Linux schedules the thread of one operator, before all normal threads.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from headrace.core.errors import choices
from headrace.core.operator import Operator
from headrace.core.parameters import declared, parameter
from headrace.core.resource import Resource
from headrace.core.run_options import MOST_WORKERS
from headrace.core.values import boolean, whole_number, whole_numbers


@dataclass(slots=True)
class Assignment:
    """An operator in a pool, and whether it has its own thread."""

    operator: Operator
    pinned: bool
    cores: tuple[int, ...]
    realtime: RealtimeScheduling | None = None


@declared(kw_only=False)
class ThreadPool(Resource):
    """Worker threads that run only the operators added to the pool.

    Parameters
    ----------
    initial_size
        The number of threads shared by operators without their own thread.
    """

    name = "thread_pool"
    initial_size: int = parameter(default=1, minimum=1, maximum=MOST_WORKERS)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.assignments: list[Assignment] = []
        # Whether its threads exist under schedulers that run everything on one thread, too.
        self.is_required = False
        if self.fragment is not None:
            self.fragment._headrace.thread_pools.append(self)

    def add(
        self,
        ops: Operator | Iterable[Operator],
        pin_operator: bool = True,
        pin_cores: Iterable[int] | None = None,
    ) -> None:
        """Run operators on the threads of this pool.

        Parameters
        ----------
        ops
            One operator or several.
        pin_operator
            Whether each operator gets its own thread.
        pin_cores
            The CPU cores that those threads may use; any unless given.
        """
        self._add(ops, pin_operator, pin_cores)

    def add_realtime(
        self,
        op: Operator,
        sched_policy: SchedulingPolicy | int | str,
        pin_operator: bool = True,
        pin_cores: Iterable[int] | None = None,
        sched_priority: int = 0,
        sched_runtime: int = 0,
        sched_deadline: int = 0,
        sched_period: int = 0,
    ) -> None:
        """Run an operator on a thread of its own, which Linux schedules before all normal ones.

        Without the right to do so (``CAP_SYS_NICE``), the operator runs at normal priority, with a warning.

        Parameters
        ----------
        op
            The operator.
        sched_policy
            The policy, or its name: ``"SCHED_FIFO"``.
        pin_operator
            Whether the operator has its own thread, which a policy needs.
        pin_cores
            The CPU cores that the thread may use; any unless given. Not with SCHED_DEADLINE.
        sched_priority
            The priority for SCHED_FIFO and SCHED_RR, from 1 to 99.
        sched_runtime, sched_deadline, sched_period
            For SCHED_DEADLINE, in nanoseconds: how long it computes at most, by when it is done, and how often. The
            period is the deadline unless given.
        """
        where = f"thread pool {self.name!r}, operator {getattr(op, 'name', op)!r}"
        if not boolean(pin_operator, f"{where}: pin_operator"):
            raise ValueError(
                f"{where}: a real-time thread belongs to one operator; leave out pin_operator=False"
            )
        cores = () if pin_cores is None else whole_numbers(pin_cores, f"{where}: pin_cores")
        times = (sched_runtime, sched_deadline, sched_period)
        realtime = RealtimeScheduling.of(sched_policy, sched_priority, *times, cores, where)
        self._add([op], True, cores, realtime)

    def _add(
        self,
        ops: Operator | Iterable[Operator],
        pin_operator: bool,
        pin_cores: Iterable[int] | None,
        realtime: RealtimeScheduling | None = None,
    ) -> None:
        where = f"thread pool {self.name!r}: "
        cores = () if pin_cores is None else whole_numbers(pin_cores, f"{where}pin_cores")
        pinned = boolean(pin_operator, f"{where}pin_operator")
        for operator in ops if isinstance(ops, Iterable) else (ops,):
            if not isinstance(operator, Operator):
                raise TypeError(f"{where}add takes an operator or a list of operators, not {operator!r}")
            for pool in operator.fragment._headrace.thread_pools:
                if any(assignment.operator is operator for assignment in pool.assignments):
                    raise ValueError(f"operator {operator.name!r} is in thread pool {pool.name!r} already")
            self.assignments.append(Assignment(operator, pinned, cores, realtime))

    @property
    def operators(self) -> list[Operator]:
        """The operators that were added."""
        return [assignment.operator for assignment in self.assignments]


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
