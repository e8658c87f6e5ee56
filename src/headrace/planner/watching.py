"""PlanWatch: says at the end of a tracked run where reality has left the plan."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from headrace.planner.observing import SHORTEST, Observed
from headrace.planner.targets import Target, shown_time

if TYPE_CHECKING:
    from headrace.core.outcome import Outcome
    from headrace.planner.plan import Plan

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
