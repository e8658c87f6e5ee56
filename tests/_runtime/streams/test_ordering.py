"""Every hand-over between streams is ordered, on the device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headrace import CountCondition, GreedyScheduler, IOSpec
from headrace.gpu import sim
from tests.harness import (
    MS,
    Consumer,
    Doubler,
    MakeScheduler,
    Producer,
    Step,
    frame,
    launch,
    run,
    write,
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


def test_a_chain_of_streams(scheduler: MakeScheduler) -> None:
    def compose(app: Any) -> None:
        stages = [Doubler(app, name=f"stage{n}") for n in range(4)]
        app.consumer = Consumer(app, name="consumer")
        app.add_flow(Producer(app, CountCondition(app, FRAMES), name="producer"), stages[0])
        for one, other in zip(stages, [*stages[1:], app.consumer], strict=True):
            app.add_flow(one, other)

    assert run(compose, scheduler).consumer.seen == [16 * number for number in range(FRAMES)]


def add_up(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
    """Add what came in at every port, a millisecond later."""
    frames: list[Any] = []
    for port in self.spec.inputs:
        got = op_input.receive(port)
        frames += got if isinstance(got, tuple) else [got]
        stream = op_input.receive_cuda_stream(port)

    def total(*sources: np.ndarray) -> None:
        self.fragment.seen.append(sum(int(source.view(np.int64)[0]) for source in sources))

    launch(stream, MS, total, *frames)


@pytest.mark.parametrize(
    "inputs",
    [("a", "b"), (("both", {"size": IOSpec.ANY_SIZE}),), (("both", {"size": 2}),)],
    ids=["two ports", "a receivers port", "a queue of two"],
)
def test_several_producers_into_one_consumer(scheduler: MakeScheduler, inputs: tuple[Any, ...]) -> None:
    def compose(app: Any) -> None:
        app.seen = []
        slow, fast = (Producer(app, CountCondition(app, FRAMES), name=name) for name in ("slow", "fast"))
        slow.seconds = 3 * MS
        join = Step(app, inputs=inputs, body=add_up, name="join")
        for producer, port in zip((slow, fast), ("a", "b"), strict=True):
            app.add_flow(producer, join, {("out", port if len(inputs) == 2 else "both")})

    seen = run(compose, scheduler).seen
    if len(inputs) == 1 and inputs[0][1]["size"] == 2:  # whichever producer was sooner may have both places
        assert (len(seen), sum(seen)) == (FRAMES, FRAMES * (FRAMES - 1))
    else:
        assert seen == [2 * number for number in range(FRAMES)]


def test_a_queue_of_several_frames_is_ordered_after_all_of_them(scheduler: MakeScheduler) -> None:
    def compose(app: Any) -> None:
        app.seen = []
        batch = Step(app, inputs=(("in", {"size": 3}),), body=add_up, name="batch")
        app.add_flow(Producer(app, CountCondition(app, 30), name="producer"), batch)

    assert run(compose, scheduler).seen == [9 * k + 3 for k in range(10)]


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


def test_a_cycle_with_a_seed(scheduler: MakeScheduler) -> None:
    def compose(app: Any) -> None:
        app.seen = []

        def turn(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            data = op_input.receive("in")
            stream = op_input.receive_cuda_stream("in")
            result = frame(stream)

            def increment(target: np.ndarray, *sources: np.ndarray) -> None:
                value = int(sources[0].view(np.int64)[0]) + 1 if sources else 0
                write(target, value)
                app.seen.append(value)

            launch(stream, MS, increment, result, *([] if data is None else [data]))
            op_output.emit(result, "out")

        def other(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            data = op_input.receive("in")
            op_input.receive_cuda_stream("in")
            op_output.emit(data, "out")

        def optional(spec: Any) -> None:
            from headrace import ConditionType

            spec.inputs["in"].condition(ConditionType.NONE)

        first = Step(
            app,
            CountCondition(app, 20),
            # Each would wait for the other if the first computed twice before the second had sent.
            inputs=(("in", {"policy": IOSpec.QueuePolicy.POP}),),
            outputs=("out",),
            body=turn,
            setup=optional,
            name="first",
        )
        second = Step(app, inputs=("in",), outputs=("out",), body=other, name="second")
        app.add_flow(first, second)
        app.add_flow(second, first)

    seen = run(compose, scheduler).seen
    assert len(seen) == 20
    assert seen[0] == 0
    # A turn that found nothing begins again at 0; one that found something goes on from it.
    assert all(later == 0 or later in [s + 1 for s in seen] for later in seen)


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
