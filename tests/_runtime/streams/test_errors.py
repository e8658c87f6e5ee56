"""Errors of operators that use streams, and a machine that is closed: no frame is lost early, no run hangs."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from headrace import Application, CountCondition, schedulers
from headrace.core import Operator
from headrace.gpu import sim
from tests.harness import (
    MS,
    PATIENCE,
    MakeScheduler,
    Producer,
    Step,
    launch,
    read_frame,
    run,
    wait_until,
)


@pytest.mark.parametrize("policy", ["skip", {"restart": 100}])
def test_what_a_failed_compute_received_lives_until_the_device_has_read_it(
    scheduler: MakeScheduler, policy: Any
) -> None:
    """Every other compute raises after its kernel was launched; what the kernels read must still be right."""

    def compose(app: Any) -> None:
        app.seen = []

        def take(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            data = op_input.receive("in")
            stream = op_input.receive_cuda_stream("in")
            read_frame(stream, 3 * MS, data, app.seen)
            self.count = getattr(self, "count", 0) + 1
            if self.count % 2:
                raise ValueError("after the launch")

        producer = Producer(app, CountCondition(app, 30), name="producer")
        producer.seconds = MS / 20
        app.add_flow(producer, Step(app, inputs=("in",), body=take, name="take", on_error=policy))

    app = run(compose, scheduler)
    assert app.seen == list(range(30))
    assert app.outcome.skipped + app.outcome.restarts == 15


def test_an_operator_is_restarted_after_the_device_is_done_with_its_work(
    machine: sim.Machine, scheduler: MakeScheduler
) -> None:
    log: list[str] = []

    class Fails(Operator):
        def stop(self) -> None:
            log.append("stop")

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            launch(context.allocate_cuda_stream("s"), 5 * MS, lambda: log.append("kernel"))
            raise ValueError

    def compose(app: Any) -> None:
        app.add_operator(Fails(app, CountCondition(app, 3), on_error={"restart": 3}))

    run(compose, scheduler)
    assert log == [*["kernel", "stop"] * 3, "stop"]


class Busy(Operator):
    """Submits more than the device can do, and waits for it to catch up."""

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        launch(context.allocate_cuda_stream("s"), 3600.0, lambda: None)
        self.fragment.submitted += 1  # type: ignore[attr-defined]
        if self.fragment.submitted == self.fragment.max_in_flight:  # type: ignore[attr-defined]
            self.fragment.full.set()  # type: ignore[attr-defined]


class Closed(Application):
    def __init__(self, workers: int, compose: Any) -> None:
        super().__init__([])
        self.workers, self._compose = workers, compose
        self.submitted = 0
        self.full = threading.Event()

    def compose(self) -> None:
        if self.workers:
            self.scheduler(schedulers.EventBasedScheduler(self, worker_thread_number=self.workers))
        self._compose(self)


@pytest.mark.parametrize("kind", ["virtual", "paced"])
@pytest.mark.parametrize("workers", [0, 1, 2, 3, 5])
def test_closing_the_machine_ends_a_run_whose_operators_wait_for_it(workers: int, kind: Any) -> None:
    with sim.Machine("h200", time=kind) as machine:
        app = Closed(workers, lambda app: app.add_operator(Busy(app, name="busy")))
        with machine.attach():  # virtual time stands still until the machine is closed
            future = app.run_async()
            assert app.full.wait(PATIENCE)
            wait_until(
                lambda: app._headrace.engine is None or app._headrace.engine.nodes[0].throttled,
                "the throttling",
            )
            machine.close()
        with pytest.raises(sim.CUDAError, match="CUDA_ERROR_DEINITIALIZED: the simulated machine was closed"):
            future.result(timeout=PATIENCE)
        assert app.outcome.ended_by == "failed"


@pytest.mark.parametrize("kind", ["virtual", "paced"])
def test_a_point_that_a_closed_machine_never_passes_is_told_once_with_the_error(kind: Any) -> None:
    from headrace import gpu

    told: list[Any] = []
    with sim.Machine("h200", time=kind) as machine:
        device = sim.Device(0)
        device.set_current()
        stream = device.create_stream()
        is_told = threading.Event()
        gpu.when_done(stream, lambda error: (told.append(error), is_told.set()))
        stream.sync()
        machine.sleep(1e-3)
        assert is_told.wait(PATIENCE if kind == "paced" else 0)  # another thread tells it, some time or other
        assert told == [None]
        launch(gpu.StreamHandle(stream), 3600.0, lambda: None)
        event = stream.record()
        gpu.when_done(stream, told.append, event=event)
    assert [str(error) for error in told[1:]] == [
        "CUDA_ERROR_DEINITIALIZED: the simulated machine was closed and its work abandoned"
    ]
    with pytest.raises(sim.CUDAError, match="CUDA_ERROR_DEINITIALIZED"):
        gpu.when_done(stream, told.append, event=event)
    machine.close()
    assert len(told) == 2
