"""What compute can ask about streams."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import CountCondition, IOSpec, gpu
from penstock.conditions import CudaStreamCondition
from penstock.core.errors import PortError, StreamError
from penstock.gpu import sim
from penstock.resources import CudaStreamPool
from tests.harness import MS, MakeScheduler, Producer, Step, launch, once, run


def answers(body: Any, *args: Any, frames: int = 3, **step: Any) -> list[Any]:
    """Run a producer into a step and give what its body returns each time."""
    found: list[Any] = []

    def compose(app: Any) -> None:
        def note(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            found.append(body(self, op_input, op_output, context))

        given = [make(app) for make in args]
        step.setdefault("inputs", ("in",))
        taker = Step(app, *given, body=note, name="taker", **step)
        app.add_flow(Producer(app, CountCondition(app, frames), name="producer"), taker)

    run(compose)
    return found


def test_the_stream_is_the_operators_own_and_stays_the_same() -> None:
    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> Any:
        op_input.receive("in")
        (theirs,) = op_input.receive_cuda_streams("in")
        mine = op_input.receive_cuda_stream("in")
        again = op_input.receive_cuda_stream("in")
        assert isinstance(mine, int)
        assert mine.__cuda_stream__() == (0, int(mine))
        return int(mine), int(again), int(theirs)

    found = answers(body)
    assert len({pair[0] for pair in found}) == 1
    assert all(mine == again != theirs for mine, again, theirs in found)


def test_the_streams_device_is_current_afterwards() -> None:
    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> Any:
        op_input.receive("in")
        op_input.receive_cuda_stream("in")
        return sim.Device(0).create_event() is not None

    assert answers(body) == [True] * 3


def test_what_is_emitted_carries_the_stream() -> None:
    streams: list[tuple[int, list[Any]]] = []

    def compose(app: Any) -> None:
        def middle(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            data = op_input.receive("in")
            self.mine = op_input.receive_cuda_stream("in")
            op_output.emit(data, "out")

        def last(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            op_input.receive("in")
            streams.append((middle_step.mine, op_input.receive_cuda_streams("in")))

        middle_step = Step(app, inputs=("in",), outputs=("out",), body=middle, name="middle")
        app.add_flow(Producer(app, CountCondition(app, 3), name="producer"), middle_step)
        app.add_flow(middle_step, Step(app, inputs=("in",), body=last, name="last"))

    run(compose)
    assert all(found == [mine] for mine, found in streams)


def test_receive_comes_first() -> None:
    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        op_input.receive_cuda_stream("in")

    with pytest.raises(StreamError, match=r"'taker': receive_cuda_stream\('in'\) before receive\('in'\)"):
        answers(body)


def test_a_port_that_is_not_there_is_named() -> None:
    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        op_input.receive("in")
        op_input.receive_cuda_stream("inn")

    with pytest.raises(PortError, match="'taker' has no input 'inn'; it has 'in'"):
        answers(body)


def test_without_a_stream_of_its_own_an_operator_gets_the_first_it_received() -> None:
    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> Any:
        op_input.receive("in")
        (theirs,) = op_input.receive_cuda_streams("in")
        return op_input.receive_cuda_stream("in", allocate=False) == theirs

    assert answers(body) == [True] * 3


def test_a_pool_that_is_exhausted_is_as_good_as_none() -> None:
    def compose(app: Any) -> None:
        app.found = []
        pool = CudaStreamPool(app, 0, 0, 0, 1, 1)

        def take(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            op_input.receive("in")
            (theirs,) = op_input.receive_cuda_streams("in")
            app.found.append(
                (op_input.receive_cuda_stream("in") == theirs, context.allocate_cuda_stream("more"))
            )

        app.add_flow(
            Producer(app, CountCondition(app, 2), pool, name="producer"),
            Step(app, pool, inputs=("in",), body=take, name="take"),
        )

    assert run(compose).found == [(True, None)] * 2


@pytest.mark.parametrize("size", [0, 1])
def test_a_stream_of_its_own_takes_the_place_of_a_borrowed_one_in_what_is_emitted(size: int) -> None:
    """Where the pool has one to give; otherwise the borrowed one stays."""
    from tests.harness import Consumer, Doubler

    class Doubling(Doubler):
        streams: list[int]

        def start(self) -> None:
            self.streams = []

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            allocate = bool(self.streams)

            class Input:
                receive = op_input.receive

                def receive_cuda_stream(self, port: str) -> Any:
                    return op_input.receive_cuda_stream(port, allocate=allocate)

            super().compute(Input(), op_output, context)
            self.streams.append(int(op_input.receive_cuda_stream("in", allocate=allocate)))

    def compose(app: Any) -> None:
        app.consumer = Consumer(app, name="consumer")
        app.consumer.seconds = MS / 10
        app.doubler = Doubling(app, CudaStreamPool(app, 0, 0, 0, 0, 1), name="doubler")
        if size == 0:
            pool = app.doubler.resources["cuda_stream_pool"]
            app.add_operator(
                Step(
                    app,
                    CountCondition(app, 1),
                    pool,
                    body=lambda self, i, o, c: c.allocate_cuda_stream("the last"),
                    name="first",
                )
            )
        app.add_flow(Producer(app, CountCondition(app, 6), name="producer"), app.doubler)
        app.add_flow(app.doubler, app.consumer)

    app = run(compose)
    assert app.consumer.seen == [2 * number for number in range(6)]
    borrowed, *own = app.doubler.streams
    assert len(set(own)) == 1
    assert (borrowed in own) is (size == 0)


def test_no_stream_at_all_means_the_default_stream_and_none_is_emitted() -> None:
    def compose(app: Any) -> None:
        app.found = []

        def middle(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            data = op_input.receive("in")
            stream = op_input.receive_cuda_stream("in", allocate=False)
            app.found.append((int(stream), stream.__cuda_stream__()))
            op_output.emit(data, "out")

        def last(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            op_input.receive("in")
            app.found.append(op_input.receive_cuda_streams("in"))

        source = once(app)
        middle_step = Step(app, inputs=("in",), outputs=("out",), body=middle, name="middle")
        app.add_flow(source, middle_step)
        app.add_flow(middle_step, Step(app, inputs=("in",), body=last, name="last"))

    assert run(compose).found == [(0, (0, 0)), [None]]


def test_the_default_stream_that_was_given_can_be_emitted() -> None:
    def compose(app: Any) -> None:
        app.found = []

        def middle(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            data = op_input.receive("in")
            stream = op_input.receive_cuda_stream("in", allocate=False)
            op_output.set_cuda_stream(stream, "out")
            app.found.append(context.device_from_stream(stream))
            op_output.emit(data, "out")

        def last(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            op_input.receive("in")
            app.found += op_input.receive_cuda_streams("in")

        source = once(app)
        step = Step(app, inputs=("in",), outputs=("out",), body=middle, name="middle")
        app.add_flow(source, step)
        app.add_flow(step, Step(app, inputs=("in",), body=last, name="last"))

    device, stream = run(compose).found
    assert device == 0
    assert stream.stream is gpu.LEGACY_DEFAULT_STREAM


def test_what_stands_for_a_stream_where_there_is_no_device_can_be_emitted_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gpu, "backend", lambda: "none")

    def compose(app: Any) -> None:
        def pass_on(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            data = op_input.receive("in")
            op_output.set_cuda_stream(op_input.receive_cuda_stream("in"), "out")
            op_output.emit(data, "out")

        source = once(app)
        app.last = Step(
            app, inputs=("in",), body=lambda self, i, o, c: setattr(self, "got", i.receive("in")), name="last"
        )
        step = Step(app, inputs=("in",), outputs=("out",), body=pass_on, name="step")
        app.add_flow(source, step)
        app.add_flow(step, app.last)

    assert run(compose).last.got == 1


def test_a_queue_that_others_add_to_can_be_looked_through() -> None:
    from penstock._runtime.messages.queue import Queue

    class Changing(list[int]):
        times = 0

        def __iter__(self) -> Any:
            self.times += 1
            if self.times < 3:
                raise RuntimeError("deque mutated during iteration")
            return super().__iter__()

    assert Queue.snapshot(Changing([1, 2])) == (1, 2)  # type: ignore[arg-type]


def test_the_default_stream_is_a_handle_like_any_other(machine: sim.Machine) -> None:
    done: list[float] = []

    def compose(app: Any) -> None:
        def take(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            op_input.receive("in")
            stream = op_input.receive_cuda_stream("in", allocate=False)
            assert isinstance(stream, gpu.StreamHandle)
            assert stream.is_simulated
            assert stream == 0
            launch(stream, MS, lambda: done.append(machine.timeline.now / 1e9))

        source = once(app)
        app.add_flow(source, Step(app, inputs=("in",), body=take, name="take"))

    run(compose)
    assert done == [pytest.approx(MS, rel=0.05)]


@pytest.mark.parametrize("allocate", [True, False])
def test_a_second_port_is_ordered_onto_the_same_stream(allocate: bool) -> None:
    def compose(app: Any) -> None:
        app.found = []

        def join(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            streams = []
            for port in ("a", "b"):
                op_input.receive(port)
                streams.append(int(op_input.receive_cuda_stream(port, allocate=allocate)))
            app.found.append(streams)

        taker = Step(app, inputs=("a", "b"), body=join, name="join")
        for port in ("a", "b"):
            app.add_flow(Producer(app, CountCondition(app, 2), name=port), taker, {("out", port)})

    found = run(compose).found
    assert len({stream for pair in found for stream in pair}) == 1


def test_a_receivers_port_gives_a_stream_for_each_message() -> None:
    def compose(app: Any) -> None:
        app.found = []

        def join(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            op_input.receive("all")
            app.found.append(op_input.receive_cuda_streams("all"))

        taker = Step(app, inputs=(("all", {"size": IOSpec.ANY_SIZE}),), body=join, name="join")
        for name in "ab":
            app.add_flow(Producer(app, CountCondition(app, 1), name=name), taker, {("out", "all")})
        plain = Step(
            app,
            CountCondition(app, 1),
            outputs=("out",),
            body=lambda self, i, o, c: o.emit(1, "out"),
            name="c",
        )
        app.add_flow(plain, taker, {("out", "all")})

    (streams,) = run(compose).found
    assert [stream is None for stream in streams] == [False, False, True]
    assert streams[0] != streams[1]


@pytest.mark.parametrize("sync", [False, True])
def test_sync_to_default_orders_the_default_stream_too(machine: sim.Machine, sync: bool) -> None:
    times: list[float] = []

    def compose(app: Any) -> None:
        pool = CudaStreamPool(app, 0, 1)  # flag 1: not ordered with the default stream by itself

        def take(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            op_input.receive("in")
            op_input.receive_cuda_stream("in", sync_to_default=sync)
            sim.Device(0).default_stream.record().sync()
            times.append(machine.now)

        producer = Producer(app, CountCondition(app, 1), pool, name="producer")
        app.add_flow(producer, Step(app, pool, inputs=("in",), body=take, name="take"))

    run(compose)
    assert (times[0] >= MS) is sync  # the producer's kernel takes a millisecond


def test_named_streams() -> None:
    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> Any:
        op_input.receive("in")
        one, other = (context.allocate_cuda_stream(name) for name in ("one", "other"))
        assert one == context.allocate_cuda_stream("one")
        assert context.device_from_stream(one) == 0
        assert context.is_gpu_available
        return int(one), int(other), int(op_input.receive_cuda_stream("in"))

    found = answers(body)
    assert len(set(found)) == 1
    assert len(set(found[0])) == 3


def test_streams_that_penstock_does_not_manage_are_refused_by_name() -> None:
    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> Any:
        op_input.receive("in")
        op_input.receive_cuda_stream("in")
        foreign = gpu.StreamHandle(sim.Device(0).create_stream())
        for call in (context.device_from_stream, op_output.set_cuda_stream):
            with pytest.raises(StreamError, match=rf"'taker': .* penstock manages .* not {int(foreign):#x}"):
                call(foreign)
        with pytest.raises(PortError, match="no output 'outt'; it has 'out'"):
            op_output.set_cuda_stream(op_input.receive_cuda_stream("in"), "outt")
        return True

    assert answers(body, outputs=("out",), frames=1) == [True]


@pytest.mark.parametrize("wrong", [None, "stream", object()])
def test_what_is_no_handle_of_a_stream_is_refused_by_name(wrong: Any) -> None:
    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> Any:
        op_input.receive("in")
        mine = op_input.receive_cuda_stream("in")
        hint = "None, which allocate_cuda_stream gives" if wrong is None else type(wrong).__name__
        for call in (
            context.device_from_stream,
            op_output.set_cuda_stream,
            *(() if wrong is None else (lambda stream: context.synchronize_streams([stream], mine),)),
        ):
            with pytest.raises(
                StreamError, match=f"'taker': .* takes the handle of a stream .* not .*{hint}"
            ):
                call(wrong)
        return True

    assert answers(body, outputs=("out",), frames=1) == [True]


def test_streams_are_synchronised_on_the_device(machine: sim.Machine) -> None:
    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> Any:
        op_input.receive("in")
        slow, target = context.allocate_cuda_stream("slow"), context.allocate_cuda_stream("target")
        launch(slow, 1.0, lambda: None)
        context.synchronize_streams([None, slow, target], target)
        event = target.stream.record()
        assert not event.is_done
        assert machine.now < 0.5  # nothing waited here
        event.sync()
        assert machine.now >= 1.0
        with pytest.raises(StreamError, match="target"):
            context.synchronize_streams([slow], None)
        return True

    assert answers(body, frames=1) == [True]


def test_with_no_device_there_are_no_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.gpu.backend", lambda: "none")

    def compose(app: Any) -> None:
        app.found = []

        def take(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            op_input.receive("in")
            app.found.append(
                (
                    context.is_gpu_available,
                    int(op_input.receive_cuda_stream("in")),
                    context.allocate_cuda_stream("a"),
                )
            )

        source = once(app)
        app.add_flow(source, Step(app, inputs=("in",), body=take, name="take"))

    assert run(compose).found == [(False, 0, None)]


# -- ambient streams ---------------------------------------------------------------------------------


def test_an_ambient_stream_is_current_while_the_operator_computes() -> None:
    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> Any:
        data = op_input.receive("in")
        mine = gpu.current_stream()
        found: list[int] = []
        launch(mine, MS, lambda source: found.append(int(source[0])), data)  # ordered with no further call
        self.found = found
        return int(mine)

    streams = answers(body, setup=lambda spec: spec.ambient_stream())
    assert len(set(streams)) == 1
    assert gpu.current_stream() is None  # and put back afterwards


def test_an_ambient_operator_reads_right_frames_and_passes_them_on(scheduler: MakeScheduler) -> None:
    from tests.harness import Consumer, Doubler, frame, write

    class Ambient(Doubler):
        def setup(self, spec: Any) -> None:
            super().setup(spec)
            spec.ambient_stream()

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            data = op_input.receive("in")
            result = frame(gpu.current_stream())
            launch(
                gpu.current_stream(),
                MS / 10,
                lambda target, source: write(target, 2 * int(source.view("int64")[0])),
                result,
                data,
            )
            op_output.emit(result, "out")

    def compose(app: Any) -> None:
        app.consumer = Consumer(app, name="consumer")
        ambient = Ambient(app, name="ambient")
        app.add_flow(Producer(app, CountCondition(app, 20), name="producer"), ambient)
        app.add_flow(ambient, app.consumer)

    assert run(compose, scheduler).consumer.seen == [2 * number for number in range(20)]


def test_an_ambient_operator_for_which_no_stream_is_left_is_ordered_on_the_default_stream(
    scheduler: MakeScheduler,
) -> None:
    class Ambient(Step):
        def setup(self, spec: Any) -> None:
            super().setup(spec)
            spec.ambient_stream()

    def compose(app: Any) -> None:
        app.seen = []
        pool = CudaStreamPool(app, stream_flags=1, max_size=1)

        def take(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            data = op_input.receive("in")
            launch(
                gpu.current_stream(),
                MS / 10 if self.ticks % 2 else 5 * MS,
                lambda source: app.seen.append(int(source.view("int64")[0])),
                data,
            )

        app.add_flow(
            Producer(app, CountCondition(app, 20), pool, name="producer"),
            Ambient(app, pool, inputs=("in",), body=take, name="take"),
        )

    assert run(compose, scheduler).seen == list(range(20))


def test_a_function_given_streams_has_an_ambient_one() -> None:
    import penstock

    seen: list[Any] = []

    @penstock.op
    def numbers() -> Any:
        yield from range(3)

    @penstock.op(outputs=())
    def look(value: Any) -> None:
        seen.append(gpu.current_stream())

    def compose(app: Any) -> None:
        app.add_flow(numbers(app), look(app, CudaStreamPool(app)))

    run(compose)
    assert len(seen) == 3
    assert len(set(map(int, seen))) == 1


def test_a_function_that_was_given_none_is_left_alone() -> None:
    import penstock

    seen: list[Any] = []

    @penstock.op
    def numbers() -> Any:
        yield from range(3)

    @penstock.op(outputs=())
    def look(value: Any) -> None:
        seen.append(gpu.current_stream())

    run(lambda app: app.add_flow(numbers(app), look(app)))
    assert seen == [None] * 3


# -- the condition -----------------------------------------------------------------------------------


def done_when_run(*conditions: Any, scheduler: MakeScheduler, **step: Any) -> list[bool]:
    """Run a slow producer into a step and give, for each compute, whether the device was done with its input."""
    found: list[bool] = []

    def compose(app: Any) -> None:
        def take(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            waiting = [message for queue in self._node.inputs for message in queue]
            found.append(all(message.is_done for message in waiting))
            for port in self.spec.inputs:
                op_input.receive(port)

        taker = Step(app, *(make(app) for make in conditions), body=take, name="taker", **step)
        for n in range(2 if len(step["inputs"]) == 2 or step["inputs"][0][0] == "all" else 1):
            producer = Producer(app, CountCondition(app, 12), name=f"producer{n}")
            producer.seconds = (1 + 2 * n) * MS
            port = step["inputs"][n if len(step["inputs"]) == 2 else 0]
            app.add_flow(producer, taker, {("out", port if isinstance(port, str) else port[0])})

    run(compose, scheduler)
    return found


def test_without_the_condition_the_operator_runs_before_the_work_is_done(scheduler: MakeScheduler) -> None:
    assert not all(done_when_run(inputs=("in",), scheduler=scheduler))


def test_the_condition_holds_an_operator_back_until_the_work_is_done(scheduler: MakeScheduler) -> None:
    found = done_when_run(
        lambda app: CudaStreamCondition(app, receiver="in"), inputs=("in",), scheduler=scheduler
    )
    assert found == [True] * 12


@pytest.mark.parametrize(
    "inputs",
    [(("in", {"size": 3}),), (("all", {"size": IOSpec.ANY_SIZE}),), ("a", "b")],
    ids=["a queue of three", "a receivers port", "two ports"],
)
def test_the_condition_looks_at_every_message_that_would_be_taken(
    scheduler: MakeScheduler, inputs: tuple[Any, ...]
) -> None:
    names = [port if isinstance(port, str) else port[0] for port in inputs]
    found = done_when_run(
        lambda app: CudaStreamCondition(app, receivers=names), inputs=inputs, scheduler=scheduler
    )
    assert len(found) == (4 if names == ["in"] else 12)
    assert all(found)


def test_messages_without_a_stream_do_not_hold_it_back() -> None:
    taken: list[Any] = []

    def compose(app: Any) -> None:
        source = Step(
            app,
            CountCondition(app, 3),
            outputs=("out",),
            body=lambda self, i, o, c: o.emit(1, "out"),
            name="s",
        )
        condition = CudaStreamCondition(app, receiver="in", name="stream_sync")
        taker = Step(
            app, condition, inputs=("in",), body=lambda self, i, o, c: taken.append(i.receive("in")), name="t"
        )
        app.add_flow(source, taker)

    run(compose)
    assert taken == [1, 1, 1]


def test_an_operator_that_skips_errors_receives_a_batch_as_any_other() -> None:
    taken: list[Any] = []

    def compose(app: Any) -> None:
        def emit(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            op_output.emit(1, "out")

        def take(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            taken.append(op_input.receive("in"))
            raise ValueError("no good")

        source = Step(app, CountCondition(app, 8), outputs=("out",), body=emit, name="source")
        condition = CudaStreamCondition(app, receiver="in")
        taker = Step(app, condition, inputs=(("in", {"size": 4}),), body=take, name="taker", on_error="skip")
        app.add_flow(source, taker)

    app = run(compose)
    assert taken == [(1, 1, 1, 1), (1, 1, 1, 1)]
    assert app.outcome is not None
    assert app.outcome.discarded == {}


def test_a_condition_on_a_port_that_is_not_there_says_so() -> None:
    def compose(app: Any) -> None:
        condition = CudaStreamCondition(app, receiver="inn")
        taker = Step(app, condition, inputs=("in",), body=lambda *_: None, name="taker")
        app.add_flow(Producer(app, CountCondition(app, 1), name="producer"), taker)

    with pytest.raises(PortError, match="'taker' has no input 'inn'; it has 'in'"):
        run(compose)
