"""Operators that share a stream part wherever streams of their own pay, and lose nothing that they hold."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from headrace import CountCondition, PeriodicCondition, op
from headrace._runtime.compiled import is_compiled
from headrace._runtime.streams import node_streams
from headrace._runtime.streams.owners import add_memory
from headrace._runtime.streams.watch import Watch
from headrace.core import ConditionType, Resource
from headrace.gpu import sim
from headrace.resources import BlockMemoryPool, CudaStreamPool
from headrace.tensor import Library, register_library
from tests._runtime.streams.rows import FRAMES, ROW, Plain, here, right, stage
from tests.harness import MS, MakeScheduler, Step, frame, launch, read_frame, run, write
from tests.harness.libraries import fresh_registry


@pytest.fixture(autouse=True)
def library(monkeypatch: pytest.MonkeyPatch) -> None:
    fresh_registry(monkeypatch)
    register_library(Plain())


def streams_at_the_end(app: Any, names: tuple[str, ...] = ROW) -> int:
    return len({app.streams[name][-1] for name in names})


# Who sends to them.


def send(self: Any, op_input: Any, op_output: Any) -> None:
    self.fragment.streams.setdefault(self.name, []).append(int(here.stream))
    op_output.emit(frame(here.stream), "out")


def receive_more(self: Any, op_input: Any, op_output: Any) -> None:
    op_input.receive("more")
    stage(self, op_input, op_output)


def compose_with_sender(
    app: Any,
    *conditions: Any,
    frames: int = 4 * FRAMES,
    seconds: float = MS,
    body: Any = receive_more,
    from_other_pool: bool = False,
    setup: Any = None,
) -> None:
    """Compose a row, each stage of which also takes what another operator sends, when there is something."""
    app.streams, app.seen, app.seconds = {}, [], seconds
    pool = CudaStreamPool(app, stream_flags=1)
    other_pool = CudaStreamPool(app, stream_flags=1) if from_other_pool else pool
    before = Step(app, CountCondition(app, frames), pool, outputs=["out"], body=stage, name="first")
    sender = Step(app, *conditions, other_pool, outputs=["out"], body=send, name="sender", setup=setup)
    for name in ROW[1:]:
        after = Step(
            app,
            pool,
            inputs=["in"],
            outputs=[] if name == "last" else ["out"],
            body=body,
            name=name,
            setup=lambda spec: spec.input("more").condition(ConditionType.NONE),
        )
        app.add_flow(before, after)
        app.add_flow(sender, after, {("out", "more")})
        before = after


def of_another_pool(app: Any) -> None:
    compose_with_sender(app, CountCondition(app, FRAMES), from_other_pool=True)


def on_the_default_stream(app: Any) -> None:
    compose_with_sender(app, CountCondition(app, FRAMES), setup=lambda spec: spec.default_stream())


def that_has_ended(app: Any) -> None:
    compose_with_sender(app, CountCondition(app, 1))


def that_seldom_sends(app: Any) -> None:
    compose_with_sender(app, PeriodicCondition(app, "150ms"))


@pytest.mark.parametrize(
    "compose", [of_another_pool, on_the_default_stream, that_has_ended, that_seldom_sends]
)
def test_operators_part_although_they_receive_from_one(
    compose: Any, scheduler: MakeScheduler, machine: sim.Machine
) -> None:
    """It never says that its messages have fences, or not in time."""

    def compose_and_end(app: Any) -> None:
        compose(app)
        last = next(each for each in app.graph if each.name == "last")
        sender = next(each for each in app.graph if each.name == "sender")

        def end(self: Any, op_input: Any, op_output: Any) -> None:
            receive_more(self, op_input, op_output)
            if self.ticks == 4 * FRAMES:
                sender.stop_execution()

        last._body = end

    app: Any = run(compose_and_end, scheduler)
    assert app.seen == right(4 * FRAMES)
    assert streams_at_the_end(app) == len(ROW)
    assert machine.now / MS / (4 * FRAMES) <= 2.5  # five, if nothing overlapped


# Who has a stream of its own from the beginning.


class Ambient(Step):
    def setup(self, spec: Any) -> None:
        super().setup(spec)
        spec.ambient_stream()


@pytest.mark.parametrize("per", ["auto", "branch"])
def test_an_operator_that_asks_for_the_streams_of_its_messages_finds_them(
    scheduler: MakeScheduler, per: str
) -> None:
    def body(self: Any, op_input: Any, op_output: Any) -> None:
        stage(self, op_input, op_output)
        asked.extend(map(int, op_input.receive_cuda_streams("in")))

    def compose(app: Any) -> None:
        app.streams, app.seen, app.seconds, app.stream_per = {}, [], MS, per
        first = Step(app, CountCondition(app, FRAMES), outputs=["out"], body=stage, name="first")
        app.add_flow(first, Ambient(app, inputs=["in"], body=body, name="last"))

    asked: list[int] = []
    app: Any = run(compose, scheduler)
    assert app.seen == list(range(1, FRAMES + 1))
    assert asked == app.streams["first"]


@pytest.mark.parametrize("begins", [1, FRAMES // 4])
def test_messages_come_after_the_work_on_further_streams_of_an_operator(
    scheduler: MakeScheduler, begins: int
) -> None:
    """It is given them unseen, when it begins or later. It keeps the shared stream when the others leave."""

    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        data, result, stream = op_input.receive("in"), frame(here.stream), here.stream
        shared.append(int(stream))
        if self.ticks >= begins:
            stream = getattr(context, "allocate_cuda_" + "stream")("mine")
            context.synchronize_streams([here.stream], stream)
        launch(stream, MS, lambda out, source: write(out, int(source.view("int64")[0])), result, data)
        op_output.emit(result, "out")

    def compose(app: Any) -> None:
        app.streams, app.seen, app.seconds = {}, [], 0.1 * MS
        first = Step(app, CountCondition(app, FRAMES), outputs=["out"], body=stage, name="first")
        middle = Step(app, inputs=["in"], outputs=["out"], body=body, name="middle")
        app.add_flow(first, middle)
        app.add_flow(middle, Step(app, inputs=["in"], body=stage, name="last"))

    shared: list[int] = []
    app: Any = run(compose, scheduler)
    assert app.seen == list(range(1, FRAMES + 1))
    assert len(set(shared)) == 1
    assert len(set(app.streams["last"])) == 2


def test_an_async_function_shares_no_stream(scheduler: MakeScheduler) -> None:
    """It goes on after an await on the stream on which it began, and so would never leave it."""

    async def double(data: Any) -> Any:
        streams.append(int(here.stream))
        doubled = frame(here.stream)
        launch(
            here.stream, MS, lambda out, source: write(out, 2 * int(source.view("int64")[0])), doubled, data
        )
        return doubled

    def compose(app: Any) -> None:
        app.streams, app.seen, app.seconds = {}, [], MS
        first = Step(app, CountCondition(app, FRAMES), outputs=["out"], body=stage, name="first")
        doubled = op(double)(app, name="doubled")
        app.add_flow(first, doubled)
        app.add_flow(doubled, Step(app, inputs=["in"], body=stage, name="last"))

    streams: list[int] = []
    app: Any = run(compose, scheduler)
    assert app.seen == [2 * number for number in range(1, FRAMES + 1)]
    assert set(streams).isdisjoint(app.streams["first"] + app.streams["last"])


# How much they compute.


def test_operators_part_although_others_of_them_are_idle() -> None:
    """Of 45 operators, five compute: the others do not make their computes shorter."""

    def compose(app: Any) -> None:
        compose_with_sender(app, CountCondition(app, 1), seconds=0.2 * MS)
        sender = next(each for each in app.graph if each.name == "sender")
        for number in range(40):
            idle = Step(app, inputs=["in"], body=lambda self, op_input, op_output: op_input.receive("in"))
            idle.name = f"idle{number}"
            app.add_flow(sender, idle)

    app: Any = run(compose)
    assert app.seen == right(4 * FRAMES)
    assert streams_at_the_end(app) == len(ROW)


def test_operators_share_a_stream_although_one_of_them_seldom_computes(machine: sim.Machine) -> None:
    """The host takes 10 µs for each of their computes, whatever the seldom one finds."""

    def launch_slowly(self: Any, op_input: Any, op_output: Any) -> None:
        receive_more(self, op_input, op_output)
        machine.sleep(0.0125 * MS)

    def compose(app: Any) -> None:
        compose_with_sender(
            app,
            PeriodicCondition(app, "1ms"),
            CountCondition(app, 50),
            body=launch_slowly,
            seconds=0.0,
            frames=1200,
        )

    app: Any = run(compose)
    assert len(app.streams["sender"]) == 50
    assert len({stream for seen in app.streams.values() for stream in seen}) == 1


# What they hold.


def add_state(out: Any, new: Any, source: Any, state: Any) -> None:
    number = int(source.view("int64")[0])
    write(out, number + 1000 * int(state.view("int64")[0]))
    write(new, number)


def smooth(data: Any, state: Any, new: Any) -> Any:
    """Return a frame with the numbers of a frame and of a state, and begin to write the next state."""
    result = frame(here.stream)
    launch(here.stream, MS, add_state, result, new, data, data if state is None else state)
    return result


def make(self: Any, op_input: Any, op_output: Any) -> None:
    made = frame(here.stream)
    launch(here.stream, 0.1 * MS, lambda out, number=self.ticks: write(out, number), made)
    op_output.emit(made, "out")


def in_an_attribute(app: Any) -> tuple[Any, int]:
    def body(self: Any, op_input: Any, op_output: Any) -> None:
        before, self.state = getattr(self, "state", None), frame(here.stream)
        op_output.emit(smooth(op_input.receive("in"), before, self.state), "out")

    return Step(app, inputs=["in"], outputs=["out"], body=body, name="smooth"), 1


def in_a_deque(app: Any) -> tuple[Any, int]:
    def body(self: Any, op_input: Any, op_output: Any) -> None:
        states = vars(self).setdefault("states", deque(maxlen=8))
        before, new = states[0] if states else None, frame(here.stream)
        states.append(new)
        op_output.emit(smooth(op_input.receive("in"), before, new), "out")

    return Step(app, inputs=["in"], outputs=["out"], body=body, name="smooth"), 8


def in_a_closure(app: Any) -> tuple[Any, int]:
    state = None

    def smoothed(data: Any) -> Any:
        nonlocal state
        before, state = state, frame(here.stream)
        return smooth(data, before, state)

    return op(smoothed)(app, name="smooth"), 1


def in_the_application(app: Any) -> tuple[Any, int]:
    def body(self: Any, op_input: Any, op_output: Any) -> None:
        before, app.state = getattr(app, "state", None), frame(here.stream)
        op_output.emit(smooth(op_input.receive("in"), before, app.state), "out")

    return Step(app, inputs=["in"], outputs=["out"], body=body, name="smooth"), 1


class State(Resource):
    frame: Any = None


def in_a_resource(app: Any) -> tuple[Any, int]:
    def body(self: Any, op_input: Any, op_output: Any) -> None:
        before, state.frame = state.frame, frame(here.stream)
        op_output.emit(smooth(op_input.receive("in"), before, state.frame), "out")

    state = State(app, name="state")
    return Step(app, state, inputs=["in"], outputs=["out"], body=body, name="smooth"), 1


of_module: list[Any] = []


def in_a_module(app: Any) -> tuple[Any, int]:
    def smoothed(data: Any) -> Any:
        of_module.append(frame(here.stream))
        return smooth(data, of_module.pop(0) if len(of_module) > 3 else None, of_module[-1])

    return op(smoothed)(app, name="smooth"), 3


@pytest.mark.parametrize(
    "held", [in_an_attribute, in_a_deque, in_a_closure, in_the_application, in_a_resource, in_a_module]
)
def test_memory_that_an_operator_holds_while_it_leaves_is_not_given_away_too_soon(
    held: Callable[[Any], tuple[Any, int]], scheduler: MakeScheduler
) -> None:
    """It was made on the shared stream, and would be the next frame of the first operator when it is released."""
    of_module.clear()

    def compose(app: Any) -> None:
        app.streams, app.seen, app.seconds = {}, [], 0.5 * MS
        first = Step(app, CountCondition(app, FRAMES), outputs=["out"], body=make, name="first")
        smoothing, app.age = held(app)
        app.add_flow(first, smoothing)
        app.add_flow(smoothing, Step(app, inputs=["in"], body=stage, name="last"))

    app: Any = run(compose, scheduler)
    states = [n - app.age if n > app.age else 1 if held is in_a_deque else n for n in range(1, FRAMES + 1)]
    assert app.seen == [n + 1000 * state for n, state in enumerate(states, 1)]
    assert len(set(app.streams["last"])) == 2
    of_module.clear()


def test_the_memory_in_an_object_is_found_alone() -> None:
    """Each array by its owner, in long lists as well; a file that is released must be closed at once."""

    class Owner:
        """As the memory of an allocator that no table of sizes knows."""

    class Array:
        def __init__(self) -> None:
            self.owner = Owner()

    class Arrays(Library):
        name = "Arrays"
        types = (Array,)

        def owner(self, array: Any) -> Any:
            return array.owner

    register_library(Arrays())
    arrays = [Array() for _ in range(3000)]
    found: list[Any] = []
    with open(os.devnull) as file:
        held = {"file": file, "long": deque(arrays[:2000]), "some": (lambda: arrays[2000:])}
        add_memory([held, {"lock": threading.Lock()}], found, 100_000)
    assert set(map(id, found)) == {id(array.owner) for array in arrays}


def test_memory_of_a_pool_that_an_operator_holds_while_it_leaves_comes_back_after_its_work(
    scheduler: MakeScheduler,
) -> None:
    def first(self: Any, op_input: Any, op_output: Any) -> None:
        made = self.fragment.memory.allocate_tensor(8, "int64")
        launch(here.stream, 0.0, lambda out, number=self.ticks: write(out, number), made.owner.buffer)
        op_output.emit(made, "out")

    def body(self: Any, op_input: Any, op_output: Any) -> None:
        before, self.state = getattr(self, "state", None), self.fragment.memory.allocate_tensor(8, "int64")
        old = None if before is None else before.owner.buffer
        op_output.emit(smooth(op_input.receive("in").owner.buffer, old, self.state.owner.buffer), "out")

    def compose(app: Any) -> None:
        app.streams, app.seen, app.seconds = {}, [], 0.5 * MS
        app.memory = BlockMemoryPool(app, "device", 64, 40)
        source = Step(app, CountCondition(app, FRAMES), outputs=["out"], body=first, name="first")
        smoothing = Step(app, inputs=["in"], outputs=["out"], body=body, name="smooth")
        app.add_flow(source, smoothing)
        app.add_flow(smoothing, Step(app, inputs=["in"], body=stage, name="last"))

    app: Any = run(compose, scheduler)
    assert app.seen == [n + 1000 * max(n - 1, 1) for n in range(1, FRAMES + 1)]
    assert len(set(app.streams["last"])) == 2


@pytest.mark.skipif(is_compiled(), reason="compiled modules cannot be patched")
def test_an_operator_whose_state_changes_meanwhile_leaves_at_a_later_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another thread may add to a dict that is being walked."""
    raised = []

    def walk(*arguments: Any) -> None:
        if len(raised) < 8:
            raised.append(RuntimeError("dictionary changed size during iteration"))
            raise raised[-1]
        usual(*arguments)

    usual = node_streams.add_memory
    monkeypatch.setattr(node_streams, "add_memory", walk)
    app: Any = run(that_has_ended)
    assert app.seen == right(4 * FRAMES)
    assert (len(raised), streams_at_the_end(app)) == (8, len(ROW))


def test_what_else_an_operator_holds_is_destroyed_as_soon_as_it_is_released(scheduler: MakeScheduler) -> None:
    class Device:
        def __del__(self) -> None:
            destroyed.append(True)

    destroyed: list[bool] = []
    found: list[bool] = []

    def body(self: Any, op_input: Any, op_output: Any) -> None:
        if self.ticks == FRAMES:
            self.device = None
            found.extend(destroyed)
        elif self.ticks == 1:
            self.device = Device()
        stage(self, op_input, op_output)

    def compose(app: Any) -> None:
        app.streams, app.seen, app.seconds = {}, [], MS
        first = Step(app, CountCondition(app, FRAMES), outputs=["out"], body=stage, name="first")
        app.add_flow(first, Step(app, inputs=["in"], body=body, name="last"))

    app: Any = run(compose, scheduler)
    assert (len(set(app.streams["last"])), found) == (2, [True])


# Graphs that change.


@pytest.mark.skipif(is_compiled(), reason="compiled classes cannot be patched")
def test_what_a_new_receiver_also_gets_is_not_taken_for_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """The receivers of a message share the record that keeps it alive; those that hold a frame look for one."""
    looked_for: list[Any] = []
    begin = Watch.begin

    def note(self: Watch, *args: Any) -> Any:
        looked_for.append(args)
        return begin(self, *args)

    def compose(app: Any) -> None:
        def sender(self: Any, op_input: Any, op_output: Any) -> None:
            if self.ticks == 20:
                app.add_flow(first, Step(app, inputs=["in"], body=receiver, name="new"))
            made = frame(here.stream)
            launch(here.stream, 0.0, write, made, self.ticks)
            op_output.emit(made, "out")

        def receiver(self: Any, op_input: Any, op_output: Any) -> None:
            read_frame(here.stream, 0.0, op_input.receive("in"), seen)

        first = Step(app, CountCondition(app, 200), outputs=["out"], body=sender, name="first")
        app.add_flow(first, Step(app, inputs=["in"], body=receiver, name="one"))

    seen: list[int] = []
    monkeypatch.setattr(Watch, "begin", note)
    run(compose)
    assert set(seen) == set(range(1, 201))
    assert len(seen) > 300
    assert len(looked_for) < len(seen) / 2
