"""Nothing is found in any scenario.

This is a part of all schedules, always the same: one without a preemption, and one by a seed, which has some.
HEADRACE_TESTS=thorough takes more of them. HEADRACE_INTERLEAVINGS=5 explores each scenario for five seconds, with
up to two preemptions and other seeds each time; ``python -m tests.interleavings`` says more.
"""

from __future__ import annotations

import itertools
import os
import time

import pytest

from tests.limits import THOROUGH

from .exploring import explore, sample
from .link_scenarios import SCENARIOS

_RUNS, _SEEDS = (12, 4) if THOROUGH else (1, 1)


@pytest.mark.parametrize("name", SCENARIOS)
def test_no_schedule_with_few_preemptions_goes_wrong(name: str) -> None:
    seconds = float(os.environ.get("HEADRACE_INTERLEAVINGS", 0))
    bounds = {"seconds": seconds / 2} if seconds else {"runs": _RUNS}
    found = explore(SCENARIOS[name], 2 if seconds else 1, **bounds)
    assert found.fault is None, found.fault.report()


@pytest.mark.parametrize("name", SCENARIOS)
def test_no_schedule_by_seed_goes_wrong(name: str) -> None:
    seconds = float(os.environ.get("HEADRACE_INTERLEAVINGS", 0))
    if seconds:
        found = sample(SCENARIOS[name], itertools.count(time.time_ns() % 1_000_000_000), seconds=seconds / 2)
    else:
        found = sample(SCENARIOS[name], range(_SEEDS))
    assert found.fault is None, found.fault.report()
