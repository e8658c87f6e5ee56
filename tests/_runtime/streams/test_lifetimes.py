"""What an operator received lives as long as the device may read it, on every path; and the host waits for it."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from headrace import CountCondition, IOSpec, PeriodicCondition
from headrace.gpu import sim
from headrace.resources import CudaStreamPool
from tests._runtime.streams.pipelines import track
from tests.harness import MS, Consumer, MakeScheduler, Producer, Step, launch, run


def test_a_slow_reader_of_a_fast_producer_never_sees_the_next_frame(scheduler: MakeScheduler) -> None:
    def compose(app: Any) -> None:
        producer = Producer(app, CountCondition(app, 50), name="producer")
        producer.seconds = MS / 20
        app.consumer = Consumer(app, name="consumer")
        app.consumer.seconds = 2 * MS
        app.add_flow(producer, app.consumer)

    assert run(compose, scheduler).consumer.seen == list(range(50))


@pytest.mark.parametrize("kind", ["own stream", "named stream", "default stream", "default stream too"])
def test_what_was_received_lives_until_the_stream_has_passed(machine: sim.Machine, kind: str) -> None:
    deaths: list[float] = []
    ends: list[float] = []

    def compose(app: Any) -> None:
        def send(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            op_output.emit(track(machine, deaths), "out")

        def take(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            op_input.receive("in")
            own = op_input.receive_cuda_stream("in", sync_to_default=kind == "default stream too")
            stream = context.allocate_cuda_stream("mine").stream if kind == "named stream" else own.stream
            if kind.startswith("default stream"):
                stream = sim.Device(0).default_stream
            kernel = sim.Kernel("k", 5 * MS, lambda: ends.append(machine.timeline.now / 1e9))
            sim.launch(stream, sim.LaunchConfig(grid=1, block=32), kernel)

        def setup(spec: Any) -> None:
            if kind == "default stream":
                spec.default_stream()

        pool = CudaStreamPool(app, stream_flags=1, max_size=8)  # the default stream is not ordered by itself
        source = Step(app, CountCondition(app, 5), pool, outputs=("out",), body=send, name="send")
        app.add_flow(source, Step(app, pool, inputs=("in",), body=take, setup=setup, name="take"))

    run(compose)
    gc.collect()
    assert len(deaths) == len(ends) == 5
    assert all(death >= end for death, end in zip(sorted(deaths), sorted(ends), strict=True))


def test_when_run_returns_the_work_is_complete_and_everything_is_let_go(
    machine: sim.Machine, scheduler: MakeScheduler
) -> None:
    def compose(app: Any) -> None:
        app.consumer = Consumer(app, name="consumer")
        app.consumer.seconds = 50 * MS
        app.add_flow(Producer(app, CountCondition(app, 5), name="producer"), app.consumer)

    app = run(compose, scheduler)
    assert app.consumer.seen == list(range(5))
    gc.collect()
    assert machine.devices[0].memory.in_use == 0
    assert not machine.devices[0].busy_queues


# -- how far the host runs ahead ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fragment_limit", "operator_limit", "idle", "expected"),
    [(None, None, 0, 8), (3, None, 0, 3), (3, 5, 0, 5), (None, 1, 0, 1), (None, None, 1, 8)],
)
def test_the_host_runs_ahead_so_far_and_no_further(
    machine: sim.Machine,
    scheduler: MakeScheduler,
    fragment_limit: int | None,
    operator_limit: int | None,
    idle: int,
    expected: int,
) -> None:
    launched = finished = 0
    most = 0

    def compose(app: Any) -> None:
        def work(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            nonlocal launched, most

            def done() -> None:
                nonlocal finished
                finished += 1

            stream = context.allocate_cuda_stream("s")
            launch(stream, 10 * MS, done)
            launched += 1
            most = max(most, launched - finished)
            for number in range(idle):  # streams that the device keeps up with
                context.allocate_cuda_stream(f"idle {number}")

        if fragment_limit is not None:
            app.max_in_flight = fragment_limit
        source = Step(app, CountCondition(app, 40), body=work, name="work")
        source.max_in_flight = operator_limit
        app.add_operator(source)

    run(compose, scheduler)
    assert launched == finished == 40
    assert most == expected


def test_an_operator_at_its_bound_does_not_keep_others_from_running(machine: sim.Machine) -> None:
    ran: list[tuple[float, int]] = []

    def compose(app: Any) -> None:
        def slow(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            launch(context.allocate_cuda_stream("s"), 1.0, lambda: None)

        bound = Step(app, CountCondition(app, 20), body=slow, name="bound")
        bound.max_in_flight = 2
        app.add_operator(bound)
        other = Step(
            app,
            CountCondition(app, 50),
            body=lambda self, i, o, c: ran.append((machine.now, self.ticks)),
            name="other",
        )
        app.add_operator(other)

    run(compose)
    assert len(ran) == 50
    assert ran[-1][0] < 0.5


def test_a_bound_that_makes_no_sense_is_refused() -> None:
    def compose(app: Any) -> None:
        app.max_in_flight = 0
        app.add_operator(Step(app, CountCondition(app, 1), body=lambda *_: None, name="step"))

    with pytest.raises(ValueError, match="'step': max_in_flight must be at least 1, not 0"):
        run(compose)


@pytest.mark.parametrize("slow", ["one", "two", "three"])
def test_a_frame_lives_until_each_of_its_receivers_has_read_it(scheduler: MakeScheduler, slow: str) -> None:
    class Quick(Producer):
        seconds = 0.0

    def compose(app: Any) -> None:
        producer = Quick(app, CountCondition(app, 60), name="producer")
        app.readers = [Consumer(app, name=name) for name in ("one", "two", "three")]
        for reader in app.readers:
            reader.seconds = MS if reader.name == slow else 0.0
            app.add_flow(producer, reader)

    app: Any = run(compose, scheduler)
    assert [reader.seen for reader in app.readers] == 3 * [list(range(60))]


@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("per", ["operator", "program"])
def test_an_operator_whose_flow_is_removed_releases_its_frames_when_its_stream_has_passed_them(
    ends: bool, per: str, scheduler: MakeScheduler, machine: sim.Machine
) -> None:
    """Not before: its kernels still read them. And not at the end of the run, which goes on."""
    deaths: list[float] = []

    def send(self: Any, op_input: Any, op_output: Any) -> None:
        if self.ticks == 5:
            self.fragment.remove_flow(self, self.fragment.reader)
        op_output.emit(track(machine, deaths) if self.ticks < 5 else None, "out")

    def read(self: Any, op_input: Any, op_output: Any) -> None:
        op_input.receive("in")
        launch(op_input.receive_cuda_stream("in"), 3 * MS, lambda: None)

    def compose(app: Any) -> None:
        app.stream_per = per
        ticks = CountCondition(app, 40), PeriodicCondition(app, "1 ms")
        camera = Step(app, *ticks, outputs=["out"], body=send, name="camera")
        count = [CountCondition(app, 4)] if ends else []
        app.reader = Step(app, *count, inputs=["in"], body=read, name="reader")
        other = Step(app, inputs=["in"], body=lambda self, i, o: i.receive("in") and None, name="other")
        app.add_flow(camera, app.reader, policy=IOSpec.QueuePolicy.POP)
        app.add_flow(camera, other)

    run(compose, scheduler)
    assert len(deaths) == 4
    assert 12 * MS <= max(deaths) < 20 * MS
