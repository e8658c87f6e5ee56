"""SimulatedActivity: the kernels and copies of a run on simulated devices, which report them (`WorkReports`)."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.observe.events.cupti_activity import SHOWN, Activity

if TYPE_CHECKING:
    from headrace.gpu.sim.operations import Work, WorkReports
    from headrace.observe.events.records import OperatorInfo


class SimulatedActivity:
    """Collects kernels and copies while a run goes on; it is used as `CuptiActivity` is.

    Parameters
    ----------
    reports
        Where the devices report them.
    is_beside_host
        Whether the run's clock is not that of the simulated devices.
    is_apart
        Whether the run's clock has nothing to do with theirs, nor with the host's.
    """

    def __init__(self, reports: WorkReports, is_beside_host: bool, is_apart: bool) -> None:
        self.state = "not shown: the run's clock is not that of the simulated device" if is_apart else SHOWN
        self._reports = reports
        self._is_apart = is_apart
        self._offset = time.perf_counter_ns() - time.monotonic_ns() if is_beside_host else None
        self._collected: deque[Work] = deque()

    def start(self) -> bool:
        """Begin to collect; return whether that is possible."""
        if not self._is_apart:
            self._reports.collectors.append(self._collected.append)
        return not self._is_apart

    def around(
        self, operator: OperatorInfo, number: Callable[[], int], compute: Callable[..., None]
    ) -> Callable[..., None]:
        """Return a compute whose kernels are known to be its own; `number` returns which compute it is."""
        reports = self._reports

        def labelled(op_input: Any, op_output: Any, context: Any) -> None:
            before, reports.launcher = reports.launcher, (self, operator.index, number())
            try:
                compute(op_input, op_output, context)
            finally:
                reports.launcher = before

        return labelled

    def take(self, is_last: bool = False) -> list[Activity]:
        """Return the work that is complete and was not returned yet."""
        taken = [self._activity(self._collected.popleft()) for _ in range(len(self._collected))]
        return sorted(taken, key=lambda activity: activity.started)

    def stop(self) -> None:
        """Collect no more."""
        self._reports.collectors.remove(self._collected.append)

    def _activity(self, work: Work) -> Activity:
        ended = work.ended if self._offset is None else work.ended_wall + self._offset
        started = ended - (work.ended - work.started)
        about = work.launcher
        operator, compute = about[1:] if isinstance(about, tuple) and about[0] is self else (None, -1)
        return Activity(
            work.name, work.device, work.stream, started, ended, work.arguments, operator, compute
        )
