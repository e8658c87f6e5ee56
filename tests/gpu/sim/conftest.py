from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from penstock.gpu import sim
from penstock.schedulers import EventBasedScheduler, GreedyScheduler
from tests.harness import MakeScheduler

WORKERS = (1, 2, 3, 5)


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
def in_time() -> Callable[[Callable[[], object]], None]:
    """Run something that must not block for good; a test that hangs tells nobody why."""

    def run(function: Callable[[], object]) -> None:
        outcome: list[BaseException] = []

        def work() -> None:
            sim.Device(0).set_current()
            try:
                function()
            except BaseException as error:
                outcome.append(error)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        thread.join(20)
        assert not thread.is_alive(), "it blocked for good"
        if outcome:
            raise outcome[0]

    return run
