"""Every hand-over between streams is ordered, on the device."""

from __future__ import annotations

from typing import Any

import pytest

from headrace import CountCondition, GreedyScheduler, IOSpec
from headrace.gpu import sim
from tests.harness import (
    MS,
    Consumer,
    MakeScheduler,
    Producer,
    Step,
    frame,
    launch,
    run,
    write_frame,
)

FRAMES = 30


def test_every_frame_arrives_right(scheduler: MakeScheduler) -> None:
    def compose(app: Any) -> None:
        app.consumer = Consumer(app, name="consumer")
        app.consumer.seconds = MS / 10
        app.add_flow(Producer(app, CountCondition(app, FRAMES), name="producer"), app.consumer)

    assert run(compose, scheduler).consumer.seen == list(range(FRAMES))


def test_a_consumer_that_is_not_ordered_reads_frames_that_are_not_there_yet(scheduler: MakeScheduler) -> None:
    # The test of the tests: with a quick consumer and no order, the frames are wrong.
    def compose(app: Any) -> None:
        app.consumer = Consumer(app, name="consumer")
        app.consumer.order = False
        app.consumer.seconds = MS / 10
        app.add_flow(Producer(app, CountCondition(app, FRAMES), name="producer"), app.consumer)

    assert run(compose, scheduler).consumer.seen != list(range(FRAMES))


def test_frames_dropped_by_a_full_queue_do_no_harm(scheduler: MakeScheduler) -> None:
    def compose(app: Any) -> None:
        def spray(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            stream = context.allocate_cuda_stream("s")
            op_output.set_cuda_stream(stream)
            for k in range(3):  # three frames for a queue of one
                data = frame(stream)
                write_frame(stream, MS, data, 3 * (self.ticks - 1) + k)
                op_output.emit(data, "out")

        def take(spec: Any) -> None:
            spec.input("in", policy=IOSpec.QueuePolicy.POP)

        class Last(Consumer):
            def setup(self, spec: Any) -> None:
                take(spec)

        app.consumer = Last(app, name="consumer")
        app.add_flow(
            Step(app, CountCondition(app, 10), outputs=("out",), body=spray, name="spray"), app.consumer
        )

    app = run(compose, scheduler)
    # The producer does not wait for a queue that drops, so whole computes of it may be dropped as well.
    # Another worker may take a frame between two emits.
    seen = app.consumer.seen
    assert seen == sorted(set(seen))
    if isinstance(scheduler(app), GreedyScheduler):
        assert all(number % 3 == 2 for number in seen)
    assert seen[-1] == 29
    assert app.dropped() == {"consumer.in": 30 - len(seen)}


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


def test_events_are_used_again(machine: sim.Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    original = sim.Device.create_event
    monkeypatch.setattr(
        sim.Device, "create_event", lambda self, options=None: made.append(1) or original(self, options)
    )

    def compose(app: Any) -> None:
        app.consumer = Consumer(app, name="consumer")
        app.add_flow(Producer(app, CountCondition(app, 500), name="producer"), app.consumer)

    assert run(compose).consumer.seen == list(range(500))
    assert len(made) < 60
