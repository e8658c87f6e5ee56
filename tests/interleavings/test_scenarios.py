"""Nothing is found in any scenario.

This is a part of all schedules, always the same: one without a preemption, or one by a seed, which has some.
HEADRACE_TESTS=thorough takes more of both. HEADRACE_INTERLEAVINGS=5 explores each scenario for five seconds, with
up to two preemptions and other seeds each time; ``python -m tests.interleavings`` says more.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable

import pytest

from tests.limits import THOROUGH

from .exploring import Found, explore, sample
from .link_scenarios import SCENARIOS
from .scenario import Scenario

_RUNS, _SEEDS = (12, 4) if THOROUGH else (1, 1)
_SECONDS = float(os.environ.get("HEADRACE_INTERLEAVINGS", 0))


def _with_few_preemptions(scenario: Scenario) -> Found:
    if _SECONDS:
        return explore(scenario, 2, seconds=_SECONDS / 2)
    return explore(scenario, 1, runs=_RUNS)


def _by_seed(scenario: Scenario) -> Found:
    if _SECONDS:
        return sample(scenario, itertools.count(time.time_ns() % 1_000_000_000), seconds=_SECONDS / 2)
    return sample(scenario, range(_SEEDS))


@pytest.mark.turns(*([] if _SECONDS else ["find"]))
@pytest.mark.parametrize("find", [_with_few_preemptions, _by_seed])
@pytest.mark.parametrize("name", SCENARIOS)
def test_no_schedule_goes_wrong(name: str, find: Callable[[Scenario], Found]) -> None:
    found = find(SCENARIOS[name])
    assert found.fault is None, found.fault.report()


def test_workers_do_not_make_way_for_each_other_for_ever() -> None:
    """Which of them goes on is left to chance: without a bound on their turns, some of these runs do not end."""
    found = sample(SCENARIOS["step-late-2"], range(5000, 5016), shrinks=False)
    assert found.fault is None, found.fault.report()
