"""A frame stays until it is let go and the streams that may read it have passed that moment, however held."""

from __future__ import annotations

import contextlib
import gc
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

from penstock import CountCondition, gpu
from penstock.gpu import sim
from penstock.resources import CudaStreamPool
from tests.harness import (
    MS,
    Consumer,
    Doubler,
    MakeScheduler,
    Producer,
    Step,
    event_based,
    frame,
    greedy,
    launch,
    run,
    write,
)

FRAMES = 12
HELD: list[Any] = []  # by a module
ALL = list(range(FRAMES))


class Sending(Producer):
    """Sends frames wrapped in something."""

    seconds = MS / 20
    wrap: Callable[[Any], Any] = staticmethod(lambda data: data)

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        class Output:
            set_cuda_stream = op_output.set_cuda_stream

            @staticmethod
            def emit(data: Any, port: str) -> None:
                op_output.emit(self.wrap(data), port)

        super().compute(op_input, Output, context)


def read_late(app: Any, stream: Any, data: Any) -> None:
    launch(stream, 2 * MS, lambda source: app.seen.append(int(source.view(np.int64)[0])), data)


def frames_seen(
    body: Callable[..., None],
    scheduler: MakeScheduler = greedy,
    wrap: Any = None,
    frames: int = FRAMES,
    **step: Any,
) -> list[int]:
    """Run a quick sender into an operator that reads late, and return what it read."""

    def compose(app: Any) -> None:
        app.seen = []
        sender = Sending(app, CountCondition(app, frames), name="sender")
        if wrap is not None:
            sender.wrap = wrap
        app.taker = Step(app, inputs=("in",), body=body, name="taker", **step)
        app.add_flow(sender, app.taker)

    return run(compose, scheduler).seen


# -- what a receiver changes -------------------------------------------------------------------------


@dataclass
class Picture:
    frame: Any


class Slotted:
    __slots__ = ("frame",)

    def __init__(self, data: Any) -> None:
        self.frame = data


def generate(data: Any) -> Iterator[Any]:
    yield data


def take_field(message: Any) -> Any:
    data, message.frame = message.frame, None
    return data


def take_value(message: Any) -> Any:
    data, message["frame"] = message["frame"], None
    return data


WRAPPINGS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "a field is replaced": (Picture, take_field),
    "a slot is replaced": (Slotted, take_field),
    "a list is popped": (lambda data: [data], list.pop),
    "a list in a list is popped": (lambda data: [[data], 1], lambda message: message[0].pop()),
    "a deque is popped": (lambda data: deque([data]), deque.pop),
    "a set is popped": (lambda data: {data}, set.pop),
    "a value of a dict is replaced": (lambda data: {"frame": data, "number": 1}, take_value),
    "a map of tensors is popped": (lambda data: {"frame": data}, lambda message: message.pop("frame").owner),
    "an iterator is consumed": (lambda data: iter([data]), lambda message: list(message).pop()),
    "a generator is consumed": (generate, lambda message: list(message).pop()),
    "an iterator of another is consumed": (
        lambda data: map(itself, [data]),
        lambda message: list(message).pop(),
    ),
    "a function gives it": (lambda data: lambda: data, lambda message: message()),
}


def itself(data: Any) -> Any:
    return data


@pytest.mark.parametrize("kind", WRAPPINGS)
def test_a_frame_that_is_taken_out_of_what_it_came_in_stays(kind: str, scheduler: MakeScheduler) -> None:
    wrap, take = WRAPPINGS[kind]

    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        data = take(op_input.receive("in"))
        read_late(self.fragment, op_input.receive_cuda_stream("in"), data)

    assert frames_seen(body, scheduler, wrap) == ALL


def test_a_frame_that_came_as_metadata_stays(scheduler: MakeScheduler) -> None:
    def compose(app: Any) -> None:
        app.seen = []
        app.enable_metadata(True)

        def send(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            stream = context.allocate_cuda_stream("mine")
            op_output.set_cuda_stream(stream, "out")
            data = frame(stream)
            launch(stream, MS / 20, lambda out, number=self.ticks - 1: write(out, number), data)
            self.metadata["frame"] = data
            op_output.emit("see the metadata", "out")

        def take(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            op_input.receive("in")
            read_late(app, op_input.receive_cuda_stream("in"), self.metadata.pop("frame"))

        sender = Step(app, CountCondition(app, FRAMES), outputs=("out",), body=send, name="sender")
        app.add_flow(sender, Step(app, inputs=("in",), body=take, name="taker"))

    assert run(compose, scheduler).seen == ALL


# -- what is held across computes --------------------------------------------------------------------


def test_the_previous_frame_may_be_kept(scheduler: MakeScheduler) -> None:
    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        data = op_input.receive("in")
        stream = op_input.receive_cuda_stream("in")
        if self.ticks > 1:
            read_late(self.fragment, stream, self.previous)
        self.previous = data

    assert frames_seen(body, scheduler) == ALL[:-1]


def test_a_batch_of_frames_may_be_gathered(scheduler: MakeScheduler) -> None:
    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        gathered = self.__dict__.setdefault("gathered", [])
        gathered.append(op_input.receive("in"))
        stream = op_input.receive_cuda_stream("in")
        if len(gathered) == 4:
            for data in gathered:
                read_late(self.fragment, stream, data)
            gathered.clear()

    assert frames_seen(body, scheduler) == ALL


def test_a_batch_may_be_gathered_before_a_stream_is_asked_for() -> None:
    """Three computes that ask for no stream, from senders that take turns; a fourth reads what they held."""

    def compose(app: Any) -> None:
        app.seen = []

        def gather(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            gathered = self.__dict__.setdefault("gathered", [])
            gathered.append(op_input.receive("in"))
            if len(gathered) == 4:
                stream = op_input.receive_cuda_stream("in")
                for data in gathered:
                    read_late(app, stream, data)
                gathered.clear()

        gatherer = Step(app, inputs=("in",), body=gather, name="gatherer")
        for n, seconds in enumerate((5 * MS, MS / 10)):
            sender = Producer(app, CountCondition(app, 8), name=f"sender{n}")
            sender.seconds = seconds
            app.add_flow(sender, gatherer)

    assert sorted(run(compose).seen) == sorted([*range(8), *range(8)])


def test_a_frame_that_is_let_go_in_a_compute_that_receives_nothing_stays() -> None:
    """The one that holds frames runs again, without a message, and lets go of them there."""
    from penstock import ConditionType

    def optional(spec: Any) -> None:
        spec.inputs["in"].condition(ConditionType.NONE)

    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        held = self.__dict__.setdefault("held", [])
        data = op_input.receive("in")
        if data is not None:
            self.stream = op_input.receive_cuda_stream("in")
            held.append(data)
        elif held:
            read_late(self.fragment, self.stream, held.pop(0))

    def compose(app: Any) -> None:
        app.seen = []
        sender = Sending(app, CountCondition(app, FRAMES), name="sender")
        taker = Step(app, CountCondition(app, 60), inputs=("in",), body=body, setup=optional, name="taker")
        app.add_flow(sender, taker)

    assert run(compose).seen == ALL


def test_what_is_watched_is_let_go_when_the_program_lets_go(machine: sim.Machine) -> None:
    """What is held is what the program holds and a bound beyond it, and both can be seen."""
    in_use: list[int] = []
    told: list[tuple[int, int]] = []

    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        held = self.__dict__.setdefault("held", deque(maxlen=5))
        held.append(op_input.receive("in"))
        read_late(self.fragment, op_input.receive_cuda_stream("in"), held[0])
        in_use.append(machine.devices[0].memory.in_use // 8)
        told.append((context.frames_held, context.frames_in_flight))

    frames_seen(body, frames=200)
    assert max(in_use) <= 5 + 8 + 3
    assert max(held for held, _ in told) == 5
    assert 0 < max(in_flight for _, in_flight in told) <= 8
    gc.collect()
    assert machine.devices[0].memory.in_use == 0


def test_much_that_is_held_is_not_looked_through_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock._runtime.streams import keeper

    looks: list[int] = []
    original = keeper.let_go
    monkeypatch.setattr(keeper, "let_go", lambda frames: looks.append(len(frames)) or original(frames))

    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        held = self.__dict__.setdefault("held", deque(maxlen=300))
        held.append(op_input.receive("in"))
        op_input.receive_cuda_stream("in")

    frames_seen(body, frames=1000)
    assert 1000 < sum(looks) <= 40 * 1000


def test_operators_that_share_a_frame_do_not_wait_for_each_other(
    machine: sim.Machine, scheduler: MakeScheduler
) -> None:
    in_use: list[int] = []

    def compose(app: Any) -> None:
        app.seen = []

        def take(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            data = op_input.receive("in")
            stream = op_input.receive_cuda_stream("in")
            read_late(app, stream, data)
            in_use.append(machine.devices[0].memory.in_use // 8)
            if self.name == "middle":
                op_output.emit(data, "out")

        sender = Sending(app, CountCondition(app, 100), name="sender")
        for n in range(3):
            app.add_flow(sender, Step(app, inputs=("in",), body=take, name=f"taker{n}"))
        middle = Step(app, inputs=("in",), outputs=("out",), body=take, name="middle")
        app.add_flow(sender, middle)
        app.add_flow(middle, Step(app, inputs=("in",), body=take, name="last"))

    assert sorted(run(compose, scheduler).seen) == sorted(list(range(100)) * 5)
    assert max(in_use) <= 40


def test_a_frame_passed_on_and_read_by_both(scheduler: MakeScheduler) -> None:
    def compose(app: Any) -> None:
        app.seen = []

        def pass_on(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            data = op_input.receive("in")
            read_late(app, op_input.receive_cuda_stream("in"), data)
            op_output.emit([data], "out")

        def take(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            op_input.receive("in").clear()  # which is of no use to it; the other still reads

        middle = Step(app, inputs=("in",), outputs=("out",), body=pass_on, name="middle")
        app.add_flow(Sending(app, CountCondition(app, FRAMES), name="sender"), middle)
        app.add_flow(middle, Step(app, inputs=("in",), body=take, name="last"))

    assert run(compose, scheduler).seen == ALL


class Holding(Step):
    held: ClassVar[list[Any]] = []


def held_by(operator: Any, where: str) -> list[Any]:
    return HELD if where == "module" else operator.held  # in no variable of compute


@pytest.mark.parametrize("where", ["operator", "module", "class"])
def test_a_frame_held_before_the_first_stream_stays(scheduler: MakeScheduler, where: str) -> None:
    """Left alone after its first compute, since nothing it received came with a stream, it asks for one later."""

    def compose(app: Any) -> None:
        app.seen = []

        def send(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            device = sim.Device(0)
            device.set_current()
            data = device.allocate(8, stream=device.default_stream)
            sim.host_view(data).view(np.int64)[0] = self.ticks
            op_output.emit(data, "out")

        def take(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            data = op_input.receive("in")
            if self.ticks == 3:
                held_by(self, where).append(data)
            if self.ticks == 5:
                stream = context.allocate_cuda_stream("mine")
                read_late(app, stream, held_by(self, where).pop())

        source = Step(app, CountCondition(app, 9), outputs=("out",), body=send, name="send")
        taker = Holding(app, inputs=("in",), body=take, name="take")
        if where == "operator":
            taker.held = []  # type: ignore[misc]
        app.add_flow(source, taker)

    assert run(compose, scheduler).seen == [3]


def test_what_came_before_the_first_stream_stays_wherever_the_compute_put_it(
    scheduler: MakeScheduler,
) -> None:
    """In the compute that asks for the first stream, and was sent others before."""

    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        app = self.fragment
        app.latest = op_input.receive("in")
        if self.ticks > 1:
            read_late(app, op_input.receive_cuda_stream("in"), app.latest)
            app.latest = None

    assert frames_seen(body, scheduler) == ALL[1:]


def test_what_was_received_stays_when_a_compute_raises_and_the_run_goes_on(machine: sim.Machine) -> None:
    """The run goes on here because something around the compute takes the exception."""
    in_use: list[int] = []

    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        node = self._node
        if self.ticks == 1:
            around = node.compute

            def lenient(*arguments: Any) -> None:
                with contextlib.suppress(ZeroDivisionError):
                    around(*arguments)

            node.compute = lenient
        data = op_input.receive("in")
        read_late(self.fragment, op_input.receive_cuda_stream("in"), data)
        in_use.append(machine.devices[0].memory.in_use // 8)
        if self.ticks > 1:
            raise ZeroDivisionError

    assert frames_seen(body, frames=60) == list(range(60))
    assert max(in_use) <= 8 + 3


def test_a_frame_that_stop_reads_and_lets_go_stays() -> None:
    class Holding(Step):
        def stop(self) -> None:
            for data in self.held:
                read_late(self.fragment, self.stream, data)
            self.held.clear()
            del data
            # The same memory for something else, where there is any.
            other = gpu.Device(0).allocate(8, stream=self.theirs.stream)
            launch(self.theirs, MS / 10, lambda out: write(out, 99), other)

    def compose(app: Any) -> None:
        app.seen = []

        def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            self.__dict__.setdefault("held", []).append(op_input.receive("in"))
            (self.theirs,) = op_input.receive_cuda_streams("in")
            self.stream = op_input.receive_cuda_stream("in")

        app.add_flow(
            Sending(app, CountCondition(app, 4), name="sender"),
            Holding(app, inputs=("in",), body=body, name="holding"),
        )

    assert run(compose).seen == [0, 1, 2, 3]


# -- order through operators that do not look at streams ----------------------------------------------


def passed_through(body: Callable[..., None], scheduler: MakeScheduler = greedy, **step: Any) -> list[int]:
    """Run a slow producer through an operator into a quick reader, and return what that read."""

    def compose(app: Any) -> None:
        app.consumer = Consumer(app, name="consumer")
        app.consumer.seconds = MS / 100
        middle = Step(
            app, inputs=step.pop("inputs", ("in",)), outputs=("out",), body=body, name="middle", **step
        )
        app.add_flow(Producer(app, CountCondition(app, 8), name="producer"), middle)
        app.add_flow(middle, app.consumer)

    return run(compose, scheduler).consumer.seen


def test_an_operator_that_asks_for_no_stream_passes_the_order_on(scheduler: MakeScheduler) -> None:
    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        op_output.emit(op_input.receive("in"), "out")

    assert passed_through(body, scheduler) == list(range(8))


def test_so_does_one_that_sends_it_later(scheduler: MakeScheduler) -> None:
    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        previous = self.__dict__.get("previous")
        self.previous = op_input.receive("in")
        if previous is not None:
            op_output.emit(previous, "out")

    assert passed_through(body, scheduler) == list(range(7))


def test_so_do_several_in_a_row_of_several_producers(scheduler: MakeScheduler) -> None:
    def compose(app: Any) -> None:
        app.seen = []

        def join(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            op_output.emit([op_input.receive(port) for port in self.spec.inputs], "out")

        def take(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            ((left, right),) = op_input.receive("in")
            stream = op_input.receive_cuda_stream("in")

            def look(a: np.ndarray, b: np.ndarray) -> None:
                app.seen.append((int(a.view(np.int64)[0]), int(b.view(np.int64)[0])))

            launch(stream, MS / 100, look, left, right)

        joint = Step(app, inputs=("a", "b"), outputs=("out",), body=join, name="joint")
        again = Step(app, inputs=("in",), outputs=("out",), body=join, name="again")
        for port, seconds in (("a", 5 * MS), ("b", MS)):
            producer = Producer(app, CountCondition(app, 8), name=port)
            producer.seconds = seconds
            app.add_flow(producer, joint, {("out", port)})
        app.add_flow(joint, again)
        app.add_flow(again, Step(app, inputs=("in",), body=take, name="take"))

    assert run(compose, scheduler).seen == [(n, n) for n in range(8)]


@pytest.mark.parametrize("by_hand", [False, True])
def test_what_comes_after_several_streams_can_be_ordered_by_hand(by_hand: bool) -> None:
    def compose(app: Any) -> None:
        app.seen = []

        def join(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            op_output.emit((op_input.receive("a"), op_input.receive("b")), "out")

        def take(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            frames = op_input.receive("in")
            if by_hand:
                stream = context.allocate_cuda_stream("mine")
                context.synchronize_streams(op_input.receive_cuda_streams("in"), stream)
            else:
                stream = op_input.receive_cuda_stream("in", allocate=False)
            for data in frames:
                launch(stream, MS / 100, lambda source: app.seen.append(int(source.view(np.int64)[0])), data)

        joint = Step(app, inputs=("a", "b"), outputs=("out",), body=join, name="joint")
        for port, seconds in (("a", 5 * MS), ("b", MS)):
            producer = Producer(app, CountCondition(app, 8), name=port)
            producer.seconds = seconds
            app.add_flow(producer, joint, {("out", port)})
        app.add_flow(joint, Step(app, inputs=("in",), body=take, name="take"))

    assert run(compose).seen == [n for n in range(8) for _ in range(2)]


def test_a_stream_that_was_set_in_an_earlier_compute_is_ordered_after_what_is_sent_now(
    scheduler: MakeScheduler,
) -> None:
    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        data = op_input.receive("in")
        if self.ticks == 1:
            op_output.set_cuda_stream(context.allocate_cuda_stream("mine"))
        op_output.emit(data, "out")

    assert passed_through(body, scheduler) == list(range(8))


def test_a_second_receive_is_ordered_too(scheduler: MakeScheduler) -> None:
    def compose(app: Any) -> None:
        app.seen = []

        def send(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            stream = context.allocate_cuda_stream("s")
            op_output.set_cuda_stream(stream, "one")
            op_output.set_cuda_stream(stream, "two")
            for port in ("one", "two"):
                data = frame(stream)
                launch(stream, MS, lambda out, number=self.ticks: write(out, number), data)
                op_output.emit(data, port)

        def take(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            first = op_input.receive("in")
            stream = op_input.receive_cuda_stream("in")
            op_input._node.input_queues["in"][0].append(op_input._node.input_queues["more"][0].popleft())
            for data in (first, op_input.receive("in")):
                launch(stream, MS / 100, lambda source: app.seen.append(int(source.view(np.int64)[0])), data)
            assert len(op_input.receive_cuda_streams("in")) == 2

        source = Step(app, CountCondition(app, 8), outputs=("one", "two"), body=send, name="send")
        taker = Step(app, inputs=("in", "more"), body=take, name="take")
        app.add_flow(source, taker, {("one", "in"), ("two", "more")})

    assert run(compose, scheduler).seen == [n for n in range(1, 9) for _ in range(2)]


def test_what_an_operator_launched_is_part_of_what_it_sends_without_naming_a_stream(
    scheduler: MakeScheduler,
) -> None:
    class Silent(Producer):
        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            class Output:
                emit = op_output.emit

                @staticmethod
                def set_cuda_stream(*_: Any) -> None: ...

            super().compute(op_input, Output, context)

    def compose(app: Any) -> None:
        app.consumer = Consumer(app, name="consumer")
        app.consumer.seconds = MS / 100
        app.add_flow(Silent(app, CountCondition(app, 8), name="producer"), app.consumer)

    assert run(compose, scheduler).consumer.seen == list(range(8))


def test_a_stream_chosen_late_comes_after_what_the_own_one_was_ordered_after(
    scheduler: MakeScheduler,
) -> None:
    """What was ordered on the operator's own stream, and held, is sent on another."""

    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        data = op_input.receive("in")
        op_input.receive_cuda_stream("in")
        if self.ticks == 4:
            op_output.set_cuda_stream(context.allocate_cuda_stream("other"))
        op_output.emit(data, "out")

    assert passed_through(body, scheduler) == list(range(8))


def test_a_map_of_tensors_is_sent_after_what_was_received(scheduler: MakeScheduler) -> None:
    def compose(app: Any) -> None:
        app.seen = []

        def wrap(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            data = op_input.receive("in")
            if self.ticks == 1:
                op_output.set_cuda_stream(context.allocate_cuda_stream("mine"))
            op_output.emit({"frame": data}, "out")

        def take(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            data = op_input.receive("in")["frame"].owner
            stream = op_input.receive_cuda_stream("in")
            launch(stream, MS / 100, lambda source: app.seen.append(int(source.view(np.int64)[0])), data)

        middle = Step(app, inputs=("in",), outputs=("out",), body=wrap, name="middle")
        app.add_flow(Producer(app, CountCondition(app, 8), name="producer"), middle)
        app.add_flow(middle, Step(app, inputs=("in",), body=take, name="take"))

    assert run(compose, scheduler).seen == list(range(8))


def test_what_was_made_on_the_default_stream_for_want_of_another_is_waited_for(
    scheduler: MakeScheduler,
) -> None:
    def compose(app: Any) -> None:
        pool = CudaStreamPool(app, stream_flags=1, max_size=4)

        def make(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            op_input.receive("in")
            stream = op_input.receive_cuda_stream("in", allocate=False)
            assert stream == 0
            device = gpu.Device(0)
            device.set_current()
            data = device.allocate(8, stream=stream.stream)
            launch(stream, MS, lambda out, number=self.ticks: write(out, number), data)
            op_output.emit(data, "out")

        source = Step(
            app,
            CountCondition(app, 8),
            outputs=("out",),
            body=lambda self, i, o, c: o.emit(1, "out"),
            name="s",
        )
        middle = Step(app, inputs=("in",), outputs=("out",), body=make, name="middle")
        app.consumer = Consumer(app, pool, name="consumer")
        app.consumer.seconds = MS / 100
        app.add_flow(source, middle)
        app.add_flow(middle, app.consumer)

    assert run(compose, scheduler).consumer.seen == list(range(1, 9))


def test_a_stream_is_ordered_after_all_that_was_received_before_it_was_asked_for(
    scheduler: MakeScheduler,
) -> None:
    def compose(app: Any) -> None:
        app.seen = []

        def take(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            slow, _ = op_input.receive("slow"), op_input.receive("quick")
            stream = op_input.receive_cuda_stream("quick")
            launch(stream, MS / 100, lambda source: app.seen.append(int(source.view(np.int64)[0])), slow)

        taker = Step(app, inputs=("slow", "quick"), body=take, name="taker")
        for port, seconds in (("slow", 5 * MS), ("quick", MS / 10)):
            producer = Producer(app, CountCondition(app, 8), name=port)
            producer.seconds = seconds
            app.add_flow(producer, taker, {("out", port)})

    assert run(compose, scheduler).seen == list(range(8))


def test_what_is_ordered_by_hand_is_not_ordered_again(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[Any] = []
    original = sim.Stream.wait
    monkeypatch.setattr(sim.Stream, "wait", lambda self, other: (waits.append(self), original(self, other)))

    def compose(app: Any) -> None:
        def pass_on(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            data = op_input.receive("in")
            mine = context.allocate_cuda_stream("mine")
            context.synchronize_streams(op_input.receive_cuda_streams("in"), mine)
            op_output.set_cuda_stream(mine)
            op_output.emit(data, "out")

        middle = Step(app, inputs=("in",), outputs=("out",), body=pass_on, name="middle")
        app.consumer = Consumer(app, name="consumer")
        app.add_flow(Producer(app, CountCondition(app, 8), name="producer"), middle)
        app.add_flow(middle, app.consumer)

    assert run(compose).consumer.seen == list(range(8))
    assert len(waits) == 8 + 8  # once for each frame in either operator


def test_what_an_operator_without_a_stream_passes_on_carries_the_stream_that_came_last() -> None:
    def compose(app: Any) -> None:
        app.expected, app.found = [], []

        def join(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            for port in ("b", "a") if self.ticks % 2 else ("a", "b"):
                op_input.receive(port)
                (stream,) = (self._node.input._named[port].item.trail.stream.handle,)
            app.expected.append(stream)
            op_output.emit(1, "out")

        def take(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            op_input.receive("in")
            self.stream = op_input.receive_cuda_stream("in")
            self.stream.stream.sync()  # so that it is all done before the next
            app.found += op_input.receive_cuda_streams("in")

        joint = Step(app, inputs=("a", "b"), outputs=("out",), body=join, name="joint")
        for port in ("a", "b"):
            app.add_flow(Producer(app, CountCondition(app, 30), name=port), joint, {("out", port)})
        app.add_flow(joint, Step(app, inputs=("in",), body=take, name="take"))

    app = run(compose)
    assert len(app.found) == 30
    assert app.found == app.expected


def test_an_operator_that_sees_no_stream_is_left_alone() -> None:
    def compose(app: Any) -> None:
        def count(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            op_output.emit(op_input.receive("in"), "out")

        source = Step(
            app,
            CountCondition(app, 5),
            outputs=("out",),
            body=lambda self, i, o, c: o.emit(1, "out"),
            name="s",
        )
        app.middle = Step(app, inputs=("in",), outputs=("out",), body=count, name="middle")
        app.last = Step(app, inputs=("in",), body=lambda self, i, o, c: i.receive("in"), name="last")
        app.add_flow(source, app.middle)
        app.add_flow(app.middle, app.last)

    app = run(compose)
    for step in (app.middle, app.last):
        node = step._node
        assert node.compute == step.compute
        assert not any(outlet.stamp for outlet in node.output.outlets.values())


def test_one_that_is_sent_a_stream_late_passes_the_order_on(scheduler: MakeScheduler) -> None:
    """It is left alone after its first compute, and then a message comes that carries work."""

    def compose(app: Any) -> None:
        app.seen = []

        def send(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            if self.ticks < 4:
                op_output.emit(None, "out")
                return
            stream = context.allocate_cuda_stream("s")
            op_output.set_cuda_stream(stream)
            data = frame(stream)
            launch(stream, MS, lambda out, number=self.ticks: write(out, number), data)
            op_output.emit(data, "out")

        def pass_on(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            messages = op_input.receive("in")
            op_output.emit(messages[0] if isinstance(messages, tuple) else messages, "out")

        def take(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            data = op_input.receive("in")
            if data is not None:
                stream = op_input.receive_cuda_stream("in")
                launch(stream, MS / 100, lambda source: app.seen.append(int(source.view(np.int64)[0])), data)

        last = Step(app, CountCondition(app, 9), outputs=("out",), body=send, name="send")
        for port in ("in", ("in", {"size": 1, "policy": None})):
            stage = Step(app, inputs=(port,), outputs=("out",), body=pass_on, name=f"stage{port}")
            app.add_flow(last, stage)
            last = stage
        app.add_flow(last, Step(app, inputs=("in",), body=take, name="take"))

    assert run(compose, scheduler).seen == [4, 5, 6, 7, 8, 9]


def test_so_does_one_that_is_late_sent_work_on_the_default_stream(scheduler: MakeScheduler) -> None:
    """Such a message names no stream, and comes after work all the same."""

    def compose(app: Any) -> None:
        app.seen = []

        def send(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            op_output.emit(self.ticks, "out")

        def make(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            number = op_input.receive("in")
            if number < 4:
                op_output.emit(None, "out")
                return
            stream = op_input.receive_cuda_stream("in", allocate=False)
            data = frame(stream)
            launch(stream, MS, lambda out: write(out, number), data)
            op_output.emit(data, "out")

        def pass_on(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            op_output.emit(op_input.receive("in"), "out")

        def take(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            data = op_input.receive("in")
            if data is not None:
                stream = op_input.receive_cuda_stream("in")
                launch(stream, MS / 100, lambda source: app.seen.append(int(source.view(np.int64)[0])), data)

        last = Step(app, CountCondition(app, 9), outputs=("out",), body=send, name="send")
        for body in (make, pass_on):
            stage = Step(app, inputs=("in",), outputs=("out",), body=body, name=body.__name__)
            app.add_flow(last, stage)
            last = stage
        pool = CudaStreamPool(
            app, stream_flags=1
        )  # of streams that do not wait for the default stream themselves
        app.add_flow(last, Step(app, pool, inputs=("in",), body=take, name="take"))

    assert run(compose, scheduler).seen == [4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize("size", [1, 2])
def test_one_that_is_sent_a_stream_late_knows_it_in_the_same_compute(size: int) -> None:
    def compose(app: Any) -> None:
        app.found = []

        def send(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            if self.ticks > 3 * size:
                op_output.set_cuda_stream(context.allocate_cuda_stream("s"))
            op_output.emit(1, "out")

        def take(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            op_input.receive("in")
            if self.ticks > 3:
                app.found.append([stream is not None for stream in op_input.receive_cuda_streams("in")])

        source = Step(app, CountCondition(app, 5 * size), outputs=("out",), body=send, name="send")
        app.add_flow(source, Step(app, inputs=(("in", {"size": size}),), body=take, name="take"))

    assert run(compose).found == [[True] * size] * 2


def test_what_a_program_holds_beyond_the_run_is_its_own(machine: sim.Machine) -> None:
    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        self.__dict__.setdefault("held", []).append(op_input.receive("in"))
        op_input.receive_cuda_stream("in")

    def compose(app: Any) -> None:
        app.taker = Step(app, inputs=("in",), body=body, name="taker")
        app.add_flow(Sending(app, CountCondition(app, 5), name="sender"), app.taker)

    app = run(compose)
    assert machine.devices[0].memory.in_use == 5 * 8
    app.taker.held.clear()
    assert machine.devices[0].memory.in_use == 0


# -- the default stream, and the end -----------------------------------------------------------------


def reading_on_default(app: Any, frames: int, emits: bool = False) -> None:
    """A sender, and a reader on the default stream of streams that do not follow it by themselves."""
    app.seen = []
    app.most = app.launched = 0
    pool = CudaStreamPool(app, stream_flags=1, max_size=8)

    def take(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        data = op_input.receive("in")
        op_input.receive_cuda_stream("in", sync_to_default=True)
        default = gpu.StreamHandle(gpu.LEGACY_DEFAULT_STREAM)
        app.launched += 1
        read_late(app, default, data)
        app.most = max(app.most, app.launched - len(app.seen))
        if emits:
            result = frame(default)
            launch(default, MS, lambda out, number=self.ticks: write(out, number), result)
            op_output.emit(result, "out")

    sender = Sending(app, CountCondition(app, frames), pool, name="sender")
    app.taker = Step(app, pool, inputs=("in",), outputs=("out",) if emits else (), body=take, name="taker")
    app.add_flow(sender, app.taker)
    app.pool = pool


def test_a_reader_on_the_default_stream_is_waited_for(machine: sim.Machine, scheduler: MakeScheduler) -> None:
    app = run(lambda app: reading_on_default(app, 30), scheduler)
    assert app.seen == list(range(30))  # when run() returned, and each of them right
    assert app.most <= 8


def test_what_was_made_on_the_default_stream_is_waited_for_by_the_next(scheduler: MakeScheduler) -> None:
    def compose(app: Any) -> None:
        reading_on_default(app, 8, emits=True)
        app.consumer = Consumer(app, app.pool, name="consumer")
        app.consumer.seconds = MS / 100
        app.add_flow(app.taker, app.consumer)

    assert run(compose, scheduler).consumer.seen == list(range(1, 9))


def test_work_that_stop_launches_is_complete_when_run_returns() -> None:
    done: list[int] = []

    class Stopping(Step):
        def stop(self) -> None:
            launch(self.stream, 5 * MS, lambda: done.append(1))

    def compose(app: Any) -> None:
        def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            self.stream = context.allocate_cuda_stream("s")

        app.add_operator(Stopping(app, CountCondition(app, 1), body=body, name="stopping"))

    run(compose)
    assert done == [1]


# -- what is asked about streams ----------------------------------------------------------------------


def test_without_a_stream_of_its_own_an_operator_gets_that_of_this_message() -> None:
    def compose(app: Any) -> None:
        app.found = []

        def take(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            op_input.receive("in")
            (theirs,) = op_input.receive_cuda_streams("in")
            app.found.append((op_input.receive_cuda_stream("in", allocate=False), theirs))
            op_output.emit(1, "out")

        def last(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            op_input.receive("in")
            app.emitted += op_input.receive_cuda_streams("in")

        app.emitted = []
        taker = Step(app, inputs=("in",), outputs=("out",), body=take, name="taker")
        for n in range(2):
            app.add_flow(Producer(app, CountCondition(app, 4), name=f"producer{n}"), taker)
        app.add_flow(taker, Step(app, inputs=("in",), body=last, name="last"))

    app = run(compose)
    assert len(app.found) == 8
    assert len({theirs for _, theirs in app.found}) == 2
    assert all(mine == theirs for mine, theirs in app.found)
    assert app.emitted == [theirs for _, theirs in app.found]


@pytest.mark.parametrize("slow", [0, 1])
@pytest.mark.parametrize("second", ["another stream", "the default stream"])
def test_what_was_made_on_a_borrowed_stream_is_waited_for_whichever_is_borrowed_next(
    second: str, slow: int
) -> None:
    """What is made in one compute is sent at once and in the next, which may have only the default stream."""

    def compose(app: Any) -> None:
        app.seen = []
        pool = CudaStreamPool(app, stream_flags=1)  # streams that the default stream does not wait for

        def send(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            if second == "another stream":
                op_output.set_cuda_stream(context.allocate_cuda_stream("mine"), "out")
            op_output.emit(1, "out")

        def borrow(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            op_input.receive("in")
            stream = op_input.receive_cuda_stream("in", allocate=False)
            made = self.ticks, frame(stream)
            seconds = 9 * MS if self.ticks % 2 == slow else MS / 10
            launch(stream, seconds, lambda out, number=self.ticks: write(out, number), made[1])
            op_output.emit(made, "now")
            if self.ticks > 1:
                op_output.emit(self.made, "later")
            self.made = made

        def take(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            number, data = op_input.receive("in")
            stream = op_input.receive_cuda_stream("in")
            launch(
                stream,
                MS / 10,
                lambda source: app.seen.append((number, int(source.view(np.int64)[0]))),
                data,
            )

        borrower = Step(app, inputs=("in",), outputs=("now", "later"), body=borrow, name="borrower")
        app.add_flow(Producer(app, CountCondition(app, 3), pool, name="first"), borrower)
        app.add_flow(
            Step(app, CountCondition(app, 3), pool, outputs=("out",), body=send, name="second"), borrower
        )
        for port in ("now", "later"):
            app.add_flow(borrower, Step(app, pool, inputs=("in",), body=take, name=port), {(port, "in")})

    app = run(compose)
    assert len(app.seen) == 11
    assert all(number == found for number, found in app.seen)


def test_the_streams_of_everything_received_at_a_port_are_given() -> None:
    def compose(app: Any) -> None:
        app.found = []

        def take(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            queues = self._node.input_queues
            counts = [len(op_input.receive("in"))]
            queues["in"][0].append(queues["more"][0].popleft())  # as another worker may, in the meantime
            counts.append(len(op_input.receive("in")))
            assert op_input.receive("in") is None
            streams = op_input.receive_cuda_streams("in")
            app.found.append((counts, [stream is not None for stream in streams]))

        batch = Step(app, inputs=(("in", {"size": 3}), "more"), body=take, name="batch")
        app.add_flow(Producer(app, CountCondition(app, 6), name="producer"), batch, {("out", "in")})
        app.add_flow(Producer(app, CountCondition(app, 2), name="other"), batch, {("out", "more")})

    assert run(compose).found == [([3, 1], [True] * 4)] * 2


@pytest.mark.parametrize("caller", ["receive_cuda_stream", "receive_cuda_streams"])
@pytest.mark.parametrize("late", [1, 4])
def test_receive_comes_first_in_every_compute(caller: str, late: int) -> None:
    from penstock.core.errors import StreamError

    def compose(app: Any) -> None:
        def take(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            if self.ticks == late:
                getattr(op_input, caller)("in")
            op_input.receive("in")

        source = Step(
            app,
            CountCondition(app, 5),
            outputs=("out",),
            body=lambda self, i, o, c: o.emit(1, "out"),
            name="s",
        )
        app.add_flow(source, Step(app, inputs=("in",), body=take, name="take"))

    with pytest.raises(StreamError, match=rf"'take': {caller}\('in'\) before receive\('in'\)"):
        run(compose)


@pytest.mark.parametrize(("size", "expected"), [(1, [None]), (3, [None] * 3)])
@pytest.mark.parametrize("scheduler", [greedy, event_based])
def test_plain_messages_have_no_stream_the_first_time_it_is_asked(
    size: int, expected: list[None], scheduler: MakeScheduler
) -> None:
    def compose(app: Any) -> None:
        app.found = []

        def take(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            op_input.receive("in")
            if self.ticks > 2:
                app.found.append(op_input.receive_cuda_streams("in"))

        source = Step(
            app,
            CountCondition(app, 5 * size),
            outputs=("out",),
            body=lambda self, i, o, c: o.emit(1, "out"),
            name="s",
        )
        app.add_flow(source, Step(app, inputs=(("in", {"size": size}),), body=take, name="take"))

    assert run(compose, scheduler).found == [expected] * 3


def test_everything_a_compute_received_counts_when_it_asks_for_its_first_stream_in_between() -> None:
    def compose(app: Any) -> None:
        app.found = []

        def take(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            op_input.receive("in")
            if self.ticks == 3:
                context.allocate_cuda_stream("mine")
                self._node.input_queues["in"][0].append(1)  # as another worker may, in the meantime
                op_input.receive("in")
                app.found += op_input.receive_cuda_streams("in")

        source = Step(
            app,
            CountCondition(app, 4),
            outputs=("out",),
            body=lambda self, i, o, c: o.emit(1, "out"),
            name="s",
        )
        app.add_flow(source, Step(app, inputs=("in",), body=take, name="take"))

    assert run(compose).found == [None, None]


@pytest.mark.parametrize("late", [1, 3])
def test_a_port_that_had_nothing_has_no_streams(late: int) -> None:
    from penstock import ConditionType

    def compose(app: Any) -> None:
        app.found = []

        def take(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            op_input.receive("in")
            if self.ticks >= late:
                app.found.append(op_input.receive_cuda_streams("in"))

        def optional(spec: Any) -> None:
            spec.inputs["in"].condition(ConditionType.NONE)

        taker = Step(app, CountCondition(app, 4), inputs=("in",), body=take, setup=optional, name="take")
        never = Step(app, CountCondition(app, 0), outputs=("out",), body=lambda *_: None, name="never")
        app.add_flow(never, taker)

    assert run(compose).found == [[]] * (5 - late)


# -- the condition ------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["FAULT", "POP"])
@pytest.mark.parametrize("size", [1, 3, -1])
def test_a_message_that_arrives_after_the_condition_looked_is_taken_when_it_is_done(
    machine: sim.Machine, size: int, policy: str
) -> None:
    """It is put there in the middle of the compute here, as another worker may between the look and the receive."""
    from penstock import ConditionType, IOSpec
    from penstock.conditions import CudaStreamCondition

    def compose(app: Any) -> None:
        app.done: list[bool] = []

        def take(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            queue, late = (self._node.input_queues[port][-1] for port in ("in", "late"))
            if late:
                message = late.popleft()
                assert not message.is_done
                if size != 3:
                    queue.clear()  # a full queue drops its oldest; one for each connection may have been empty
                queue.append(message)
            waiting = {id(message.data): message for one in self._node.input_queues["in"] for message in one}
            began = machine.now
            got = op_input.receive("in")
            if policy == "FAULT" or size == 3:
                assert machine.now == began  # nothing was waited for here
            for data in () if got is None else got if isinstance(got, tuple) else (got,):
                app.done.append(waiting[id(data)].is_done)

        def setup(spec: Any) -> None:
            kinds = IOSpec.QueuePolicy
            spec.inputs["in"].policy = kinds.POP if policy == "POP" else kinds.FAULT
            spec.inputs["late"].condition(ConditionType.NONE)

        taker = Step(
            app,
            CudaStreamCondition(app, receiver="in"),
            inputs=(("in", {"size": size}), "late"),
            body=take,
            setup=setup,
            name="taker",
        )
        first = Producer(app, CountCondition(app, 6), name="first")
        app.add_flow(first, taker, {("out", "in")})
        slow = Producer(app, CountCondition(app, 3), name="slow")
        slow.seconds = 50 * MS
        app.add_flow(slow, taker, {("out", "late")})

    done = run(compose).done
    assert done
    assert all(done)


def test_a_condition_looks_at_all_the_work_that_a_message_comes_after(scheduler: MakeScheduler) -> None:
    from penstock.conditions import CudaStreamCondition

    def compose(app: Any) -> None:
        app.done: list[bool] = []

        def join(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            op_output.emit((op_input.receive("a"), op_input.receive("b")), "out")

        def take(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            frames = op_input.receive("in")
            app.done.append(
                [int(sim.host_view(data).view(np.int64)[0]) for data in frames] == [self.ticks - 1] * 2
            )

        joint = Step(app, inputs=("a", "b"), outputs=("out",), body=join, name="joint")
        for port, seconds in (("a", 5 * MS), ("b", MS)):
            producer = Producer(app, CountCondition(app, 5), name=port)
            producer.seconds = seconds
            app.add_flow(producer, joint, {("out", port)})
        taker = Step(app, CudaStreamCondition(app, receiver="in"), inputs=("in",), body=take, name="taker")
        app.add_flow(joint, taker)

    assert run(compose, scheduler).done == [True] * 5


# -- the checker --------------------------------------------------------------------------------------


def checked(
    monkeypatch: pytest.MonkeyPatch,
    body: Callable[..., None],
    wrap: Any = None,
    outputs: tuple[str, ...] = (),
) -> None:
    """Run a slow sender into an operator under the checker, whose warnings are errors here."""
    monkeypatch.setenv("PENSTOCK_CHECK", "streams")

    def compose(app: Any) -> None:
        sender = Sending(app, CountCondition(app, 4), name="sender")
        sender.seconds = MS
        if wrap is not None:
            sender.wrap = wrap
        taker = Step(app, inputs=("in",), outputs=outputs, body=body, name="taker")
        app.add_flow(sender, taker)
        if outputs:
            app.add_flow(taker, Consumer(app, name="last"))

    run(compose)


@pytest.mark.parametrize("emits", [False, True])
def test_the_checker_reports_who_forgot_to_be_ordered_and_where(
    monkeypatch: pytest.MonkeyPatch, emits: bool
) -> None:
    from penstock.core.errors import UnorderedStreamWarning

    def forget(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        data = op_input.receive("in")
        stream = context.allocate_cuda_stream("mine")
        launch(stream, MS / 10, lambda source: None, data)
        if emits:
            op_output.set_cuda_stream(stream)
            op_output.emit(data, "out")

    with pytest.raises(
        UnorderedStreamWarning,
        match="'taker' finished without being ordered after .* at 'in'; call receive_cuda",
    ):
        checked(monkeypatch, forget, outputs=("out",) if emits else ())


def test_the_checker_reports_who_asked_which_streams_came_and_forgot_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from penstock.core.errors import UnorderedStreamWarning

    def ignore(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        data = op_input.receive("in")
        op_input.receive_cuda_streams("in")
        launch(context.allocate_cuda_stream("mine"), MS / 10, lambda source: None, data)

    with pytest.raises(UnorderedStreamWarning, match="'taker' finished"):
        checked(monkeypatch, ignore)


def test_the_checker_has_nothing_to_say_of_one_that_only_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    checked(monkeypatch, lambda self, op_input, op_output, context: op_input.receive("in"))


def test_the_checker_has_nothing_to_say_of_what_is_ordered_without_being_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def pass_on(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        op_output.emit(op_input.receive("in"), "out")

    checked(monkeypatch, pass_on, outputs=("out",))


def test_the_checker_has_nothing_to_say_of_work_on_the_stream_that_came(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def read(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        data = op_input.receive("in")
        (theirs,) = op_input.receive_cuda_streams("in")
        launch(theirs, MS / 10, lambda source: None, data)

    checked(monkeypatch, read)


def test_the_checker_has_nothing_to_say_of_a_tensor_that_was_taken_to_a_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from penstock import as_tensor

    def read(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        tensor = op_input.receive("in")["frame"]
        stream = context.allocate_cuda_stream("mine")
        as_tensor(tensor, stream=stream)

    checked(monkeypatch, read, wrap=lambda data: {"frame": data})


def test_the_checker_has_nothing_to_say_of_an_ambient_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_CHECK", "streams")

    def compose(app: Any) -> None:
        def read(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            launch(gpu.current_stream(), MS / 10, lambda source: None, op_input.receive("in"))

        taker = Step(app, inputs=("in",), body=read, setup=lambda spec: spec.ambient_stream(), name="taker")
        app.add_flow(Producer(app, CountCondition(app, 4), name="producer"), taker)

    run(compose)


def test_the_checker_has_nothing_to_say_of_a_doubler_in_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_CHECK", "streams")

    def compose(app: Any) -> None:
        app.consumer = Consumer(app, name="consumer")
        doubler = Doubler(app, name="doubler")
        app.add_flow(Producer(app, CountCondition(app, 4), name="producer"), doubler)
        app.add_flow(doubler, app.consumer)

    assert run(compose).consumer.seen == [0, 2, 4, 6]
