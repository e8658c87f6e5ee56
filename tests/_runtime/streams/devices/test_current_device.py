"""The device that is current in a compute, and on the caller's thread after the run."""

from __future__ import annotations

from typing import Any

import pytest

from headrace import CountCondition
from headrace.gpu import sim
from headrace.resources import CudaStreamPool
from headrace.schedulers import EventBasedScheduler, GreedyScheduler
from tests._runtime.streams.devices.operators import current, sink, source
from tests.harness import App, MakeScheduler, Step, run


@pytest.mark.parametrize("workers", [0, 1, 2, 3, 5])
def test_a_compute_begins_with_its_device_current_whatever_ran_on_the_thread_before(workers: int) -> None:
    found: dict[int, set[int]] = {0: set(), 1: set()}

    def compose(app: Any) -> None:
        app.scheduler(
            EventBasedScheduler(app, worker_thread_number=workers) if workers else GreedyScheduler(app)
        )

        def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            found[self.device_id].add(current())
            sim.Device(self.ticks % 2).set_current()

        for n in range(4):
            step = Step(app, CountCondition(app, 20), CudaStreamPool(app, n % 2), body=body, name=f"step{n}")
            step.device_id = n % 2
            app.add_operator(step)

    class Chosen(App):
        def compose(self) -> None:
            compose(self)

    Chosen(compose).run()
    assert found == {0: {0}, 1: {1}}


@pytest.mark.parametrize("device_id", [0, 1])
def test_the_callers_thread_has_its_device_again_after_the_run(
    scheduler: MakeScheduler, device_id: int
) -> None:
    sim.Device(device_id).set_current()
    run(lambda app: app.add_flow(source(app, 0, 3), sink(app, 1, [])), scheduler)
    assert current() == device_id
