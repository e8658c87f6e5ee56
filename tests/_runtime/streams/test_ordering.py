"""Every hand-over between streams is ordered, on the device."""

from __future__ import annotations

from typing import Any

from headrace import CountCondition
from headrace.gpu import sim
from tests.harness import (
    MS,
    Consumer,
    MakeScheduler,
    Producer,
    Step,
    launch,
    run,
)

FRAMES = 30


def test_every_frame_arrives_right(scheduler: MakeScheduler) -> None:
    def compose(app: Any) -> None:
        app.consumer = Consumer(app, name="consumer")
        app.consumer.seconds = MS / 10
        app.add_flow(Producer(app, CountCondition(app, FRAMES), name="producer"), app.consumer)

    assert run(compose, scheduler).consumer.seen == list(range(FRAMES))


def test_a_wait_is_for_the_frame_not_for_what_was_launched_since(machine: sim.Machine) -> None:
    times: list[float] = []

    def compose(app: Any) -> None:
        def busy(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            stream = context.allocate_cuda_stream("s")
            op_output.set_cuda_stream(stream)
            op_output.emit("frame", "out")
            launch(stream, 1.0, lambda: None)  # a second of work that the frame has nothing to do with

        def take(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            op_input.receive("in")
            launch(op_input.receive_cuda_stream("in"), MS, lambda: times.append(machine.now))

        source = Step(app, CountCondition(app, 1), outputs=("out",), body=busy, name="busy")
        app.add_flow(source, Step(app, inputs=("in",), body=take, name="take"))

    run(compose)
    assert times[0] < 0.1
