from __future__ import annotations

import pytest

from headrace.schedulers import EventBasedScheduler, GreedyScheduler
from tests.gpu.sim.in_time import InTime, run_in_time
from tests.harness import MakeScheduler
from tests.harness.application import SEVERAL

WORKERS = (1, *SEVERAL)


def _workers(count: int) -> MakeScheduler:
    return lambda app: EventBasedScheduler(app, worker_thread_number=count)


@pytest.fixture(
    params=[GreedyScheduler, *map(_workers, WORKERS)],
    ids=["greedy", *(f"{count} workers" for count in WORKERS)],
)
def scheduler(request: pytest.FixtureRequest) -> MakeScheduler:
    """A scheduler that takes the clock of the machine, whatever kind of time that is in."""
    return request.param


@pytest.fixture
def in_time() -> InTime:
    """Run something that must not block for good; a test that hangs tells nobody why."""
    return run_in_time
