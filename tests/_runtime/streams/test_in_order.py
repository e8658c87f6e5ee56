"""Operators that share a stream keep nothing of what they hand to each other, while the device keeps up."""

from __future__ import annotations

import itertools
import random
import sys
from collections import deque
from functools import partial
from types import ModuleType
from typing import Any

import pytest

from headrace import CountCondition, gpu
from headrace._runtime.compiled import is_compiled
from headrace._runtime.streams import in_order, lifetimes
from headrace._runtime.streams.in_order import InOrder
from headrace._runtime.streams.node_streams import NodeStreams
from headrace.conditions import BooleanCondition
from headrace.core import ConditionType, IOSpec, Resource
from headrace.gpu import sim
from headrace.resources import BlockMemoryPool, CudaStreamPool
from headrace.tensor.libraries import owner_sizes
from tests._runtime.streams.rows import (
    FRAMES,
    ROW,
    Plain,
    compose_net,
    compose_row,
    here,
    right,
    right_sums,
)
from tests.harness import (
    MS,
    MakeScheduler,
    Step,
    event_based,
    frame,
    greedy,
    launch,
    read_frame,
    run,
    source,
    write,
)
from tests.harness.internals import node_of

pytestmark = pytest.mark.usefixtures("plain_library")


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether operators go on keeping nothing: they begin early, and ask often."""
    if is_compiled():
        pytest.skip("compiled modules cannot be patched")
    goes_on: list[bool] = []
    end = InOrder.end

    def end_and_tell(self: Any, *args: Any) -> bool:
        goes_on.append(end(self, *args))
        return goes_on[-1]

    monkeypatch.setattr(lifetimes.InFlight, "is_quiet", property(lambda self: self._patience >= 6))
    monkeypatch.setattr(in_order, "_STEPS", (1, 1))
    monkeypatch.setattr(InOrder, "end", end_and_tell)
    return goes_on


@pytest.mark.parametrize("workers", [0, 1, 3, 5])
def test_frames_are_right_while_they_keep_nothing(soon: list[bool], workers: int) -> None:
    make = partial(event_based, workers=workers) if workers else greedy
    app = run(partial(compose_net, seconds=0.0, frames=2 * FRAMES), make)
    assert app.seen == right_sums(2 * FRAMES)
    assert len({stream for seen in app.streams.values() for stream in seen}) == 1
    assert soon
    if workers < 2:  # otherwise, another one may have launched work that the device has not begun
        assert len(soon) > FRAMES
        assert all(soon)


@pytest.mark.parametrize("workers", [0, 2, 5])
def test_they_part_although_they_kept_nothing(soon: list[bool], workers: int) -> None:
    make = partial(event_based, workers=workers) if workers else greedy

    def seconds(name: str, ticks: int) -> float:
        return 0.0 if ticks < FRAMES else MS

    app = run(partial(compose_row, seconds=seconds, frames=3 * FRAMES), make)
    assert app.seen == right(3 * FRAMES)
    assert True in soon
    assert len({seen[-1] for seen in app.streams.values()}) == len(ROW)


@pytest.mark.parametrize("seed", range(2))
def test_frames_are_right_while_they_keep_nothing_and_all_in_turn(
    soon: list[bool], scheduler: MakeScheduler, seed: int
) -> None:
    choose = random.Random(seed)
    paces = [0.0, 0.0, *(choose.choice([0.0, 0.0, 0.01 * MS, MS]) for _ in range(16))]

    def seconds(name: str, ticks: int) -> float:
        return paces[ticks // 20 % 18] * choose.choice([0.2, 1])

    app = run(partial(compose_row, seconds=seconds, frames=6 * FRAMES), scheduler)
    assert app.seen == right(6 * FRAMES)
    assert soon


def test_memory_that_was_made_elsewhere_lives_while_the_shared_stream_reads_it(
    soon: list[bool], scheduler: MakeScheduler
) -> None:
    """The stream that it was made on would use it again as soon as the last receiver lets go of it."""

    def make(self: Any, op_input: Any, op_output: Any) -> None:
        made = frame(common)
        launch(common, 0.0, lambda out, number=self.ticks: write(out, number), made)
        common.stream.sync()
        op_output.emit(made, "out")
        here.stream.stream.sync()  # the device keeps up, but it still read the frame before until now

    def pass_on(self: Any, op_input: Any, op_output: Any) -> None:
        op_output.emit(op_input.receive("in"), "out")

    def read(self: Any, op_input: Any, op_output: Any) -> None:
        read_frame(here.stream, 0.01 * MS, op_input.receive("in"), seen)

    def compose(app: Any) -> None:
        first = Step(app, CountCondition(app, 3 * FRAMES), outputs=["out"], body=make, name="first")
        middle = Step(app, inputs=["in"], outputs=["out"], body=pass_on, name="middle")
        app.add_flow(first, middle)
        app.add_flow(middle, Step(app, inputs=["in"], body=read, name="last"))

    common = gpu.StreamHandle(gpu.Device(0).create_stream())
    seen: list[int] = []
    run(compose, scheduler)
    assert seen == list(range(1, 3 * FRAMES + 1))
    assert soon


@pytest.mark.parametrize("quick", range(150, 158))
def test_what_one_operator_holds_lives_although_another_one_leaves(
    soon: list[bool], quick: int, scheduler: MakeScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who leaves first depends on when the device falls behind.

    The first operator holds memory that was made on a stream elsewhere, which uses it again as soon as it is free.
    """
    monkeypatch.setattr(lifetimes, "monotonic_ns", lambda: 0)
    monkeypatch.setattr(in_order, "monotonic_ns", lambda: 0)
    wrong: list[tuple[int, int]] = []
    streams: set[int] = set()

    def look(number: int, data: Any, seconds: float) -> None:
        def compare(source: Any) -> None:
            if int(source.view("int64")[0]) != number:
                wrong.append((number, int(source.view("int64")[0])))

        launch(here.stream, seconds, compare, data)

    def make(self: Any, op_input: Any, op_output: Any) -> None:
        if self.name == "elsewhere":
            self.fragment.seconds = 0.0 if self.ticks <= quick else MS
        number = self.ticks if self.name == "elsewhere" else 1
        made = frame(here.stream)
        launch(here.stream, self.fragment.seconds / 20, lambda out: write(out, number), made)
        op_output.emit((number, made), "out")

    def hold(self: Any, op_input: Any, op_output: Any) -> None:
        keep_up(self)
        held = vars(self).setdefault("held", deque())
        held.append(op_input.receive("in"))
        if len(held) > 90:
            look(*held.popleft(), 3 * self.fragment.seconds)
        if self.ticks % 8 == 1:
            op_output.emit(self.ticks, "out")

    def leave(self: Any, op_input: Any, op_output: Any) -> None:
        keep_up(self)
        streams.add(int(here.stream))
        op_input.receive("more")
        look(*op_input.receive("in"), self.fragment.seconds / 20)

    def keep_up(self: Any) -> None:
        if not self.fragment.seconds:
            here.stream.stream.sync()  # in virtual time, the device catches up only when it is waited for

    def compose(app: Any) -> None:
        app.seconds = 0.0
        pool, other = CudaStreamPool(app), CudaStreamPool(app)
        count = CountCondition(app, 500), CountCondition(app, 500)
        elsewhere = Step(app, count[0], other, outputs=["out"], body=make, name="elsewhere")
        first = Step(app, pool, inputs=["in"], outputs=["out"], body=hold, name="first")
        source = Step(app, count[1], pool, outputs=["out"], body=make, name="source")
        leaves = Step(app, pool, inputs=["in"], body=leave, name="leaves", setup=also_more)
        app.add_flow(elsewhere, first)
        app.add_flow(source, leaves)
        app.add_flow(first, leaves, {("out", "more")})

    def also_more(spec: Any) -> None:
        spec.input("more", size=3).condition(ConditionType.NONE)

    run(compose, scheduler)
    assert wrong == []
    assert len(streams) == 2
    assert True in soon


def test_what_was_passed_on_lives_although_the_one_that_kept_it_leaves(
    soon: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last operator kept nothing when it received the frames, and reads them after the other one has left."""
    monkeypatch.setattr(lifetimes, "monotonic_ns", lambda: 0)
    monkeypatch.setattr(in_order, "monotonic_ns", lambda: 0)
    wrong: list[tuple[int, int]] = []
    streams: set[int] = set()
    lefts: list[Any] = []
    counts: list[int] = []

    def make(self: Any, op_input: Any, op_output: Any) -> None:
        self.fragment.seconds = 0.0 if self.ticks <= 150 else MS
        made = frame(here.stream)
        launch(here.stream, 0.0, lambda out, number=self.ticks: write(out, number), made)
        here.stream.stream.sync()
        op_output.emit((self.ticks, made), "out")

    def work(self: Any, op_input: Any, op_output: Any) -> None:
        streams.add(int(here.stream))
        if not self.fragment.seconds:
            here.stream.stream.sync()  # in virtual time, the device catches up only when it is waited for
        pass_on(self, op_input, op_output)

    def hold(self: Any, op_input: Any, op_output: Any) -> None:
        seconds = self.fragment.seconds
        if not seconds:
            here.stream.stream.sync()
        held = vars(self).setdefault("held", deque())
        held.append(op_input.receive("in"))
        if self.ticks == 100:
            assert keeps_nothing(self)
            self.always = held[-1]
        if len(held) > 90:
            number, data = held.popleft()

            def compare(source: Any) -> None:
                if int(source.view("int64")[0]) != number:
                    wrong.append((number, int(source.view("int64")[0])))

            launch(here.stream, 3 * seconds, compare, data)
        lefts[:] = [node_of(self).streams._member.branch.left]
        if lefts[0] is not None:
            counts.append(len(lefts[0]._watched))

    def compose(app: Any) -> None:
        pool, other = CudaStreamPool(app), CudaStreamPool(app)
        outside = Step(app, CountCondition(app, 500), other, outputs=["out"], body=make, name="outside")
        passes = Step(app, pool, inputs=["in"], outputs=["out"], body=work, name="passes")
        app.add_flow(outside, passes)
        app.add_flow(passes, Step(app, pool, inputs=["in"], body=hold, name="holds"))

    run(compose)
    assert wrong == []
    assert len(streams) == 2, "it has left"
    assert counts[0] > 30
    assert counts[-1] == 1, "the others were released meanwhile"
    assert not lefts[0]._watched


@pytest.mark.parametrize("where", ["operator", "module", "other module", "resource", "condition"])
@pytest.mark.parametrize("what", ["received", "made"])
def test_what_an_operator_holds_lives_although_another_one_stays(
    soon: list[bool], scheduler: MakeScheduler, where: str, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that stays would be given the memory as soon as the other one, which has left, releases it."""
    monkeypatch.setattr(lifetimes, "monotonic_ns", lambda: 0)
    monkeypatch.setattr(in_order, "monotonic_ns", lambda: 0)
    wrong: list[tuple[int, int]] = []
    streams: dict[str, set[int]] = {}

    def place(self: Any) -> Any:
        match where:
            case "operator":
                return vars(self).setdefault("held", deque())
            case "module":
                return in_module
            case "other module":
                return other_module.held
            case "resource":
                return self.store.held
        return vars(self.conditions["always"]).setdefault("held", deque())

    def begin(self: Any) -> float:
        streams.setdefault(self.name, set()).add(int(here.stream))
        if self.fragment.frames <= 2 * FRAMES:
            here.stream.stream.sync()  # in virtual time, the device catches up only when it is waited for
            return 0.0
        return MS

    def make(self: Any, op_input: Any, op_output: Any) -> None:
        self.fragment.frames = self.ticks
        seconds = begin(self)
        if self.ticks == FRAMES:
            getattr(gpu, "current_" + "stream")()  # it may go on there
        made = frame(here.stream)
        launch(here.stream, seconds / 20, lambda out, number=self.ticks: write(out, number), made)
        op_output.emit((self.ticks, made), "out")

    def hold(self: Any, op_input: Any, op_output: Any) -> None:
        seconds = begin(self)
        number, data = op_input.receive("in")
        if what == "made":
            made = frame(here.stream)
            launch(here.stream, seconds / 20, lambda out: write(out, number), made)
            data = made
            del made
        place(self).append((number, data))
        if self.ticks > 40:
            earlier, data = place(self).popleft()
            launch(here.stream, 3 * seconds, partial(compare, earlier), data)
        op_output.emit(1, "out")

    def compare(number: int, source: Any) -> None:
        if int(source.view("int64")[0]) != number:
            wrong.append((number, int(source.view("int64")[0])))

    def read(self: Any, op_input: Any, op_output: Any) -> None:
        begin(self)
        op_input.receive("in")

    def compose(app: Any) -> None:
        app.frames = 0
        always = BooleanCondition(app, name="always")
        compose_three(app, make, hold, read, always, frames=6 * FRAMES)
        middle = next(each for each in app.graph if each.name == "middle")
        middle.store = Resource(app, name="store")
        middle.store.held = deque()

    in_module.clear()
    other_module.held.clear()
    run(compose, scheduler)
    assert wrong == []
    assert (len(streams["first"]), len(streams["middle"])) == (1, 2)
    assert True in soon


in_module: deque[Any] = deque()
other_module: Any = ModuleType("other_module")
other_module.held = deque()


def test_an_operator_that_fails_while_they_keep_nothing_ends_the_run(
    soon: list[bool], scheduler: MakeScheduler
) -> None:
    def fail(op_input: Any, operator: Any) -> None:
        if operator.ticks == FRAMES:
            raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        run(partial(compose_row, seconds=0.0, frames=2 * FRAMES, ask=fail), scheduler)
    assert soon


@pytest.mark.skipif(is_compiled(), reason="compiled modules cannot be patched")
def test_what_is_in_order_costs_the_driver_next_to_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    records: list[Any] = []
    record = sim.Stream.record

    def record_and_note(self: Any, *args: Any) -> Any:
        records.append(None)
        return record(self, *args)

    monkeypatch.setattr(sim.Stream, "record", record_and_note)
    monkeypatch.setattr(lifetimes, "monotonic_ns", lambda: 0)
    monkeypatch.setattr(in_order, "monotonic_ns", lambda: 0)
    monkeypatch.setitem(owner_sizes, sim.Buffer, lambda owner: 8)
    before: list[int] = []

    def ask(op_input: Any, operator: Any) -> None:
        if operator.name == "two" and operator.ticks in (400, 800):
            before.append(len(records))

    app = run(partial(compose_row, seconds=0.0, frames=900, ask=ask))
    assert app.seen == right(900)
    assert before[1] - before[0] <= 10  # of 2,000 computes


def test_operators_that_hand_on_no_memory_wait_for_the_device_and_part(
    soon: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would never look if they looked for what they received alone."""
    monkeypatch.setattr(lifetimes, "monotonic_ns", lambda: 0)
    monkeypatch.setattr(in_order, "monotonic_ns", lambda: 0)
    streams: dict[str, list[int]] = {}
    launched = behind = 0
    done: list[None] = []

    def work(self: Any, op_input: Any, op_output: Any) -> None:
        nonlocal launched, behind
        stream, is_quick = here.stream, self.ticks <= 3 * FRAMES
        streams.setdefault(self.name, []).append(int(stream))
        if is_quick:
            stream.stream.sync()  # in virtual time, the device catches up only when it is waited for
        launch(stream, 0.0 if is_quick else MS, lambda out: done.append(None), frame(stream))
        launched += 1
        behind = max(behind, launched - len(done))
        op_output.emit(op_input.receive("in"), "out")

    def compose(app: Any) -> None:
        pool = CudaStreamPool(app)
        before = source(app, range(20 * FRAMES))
        for name in ROW[1:-1]:
            after = Step(app, pool, inputs=["in"], outputs=["out"], body=work, name=name)
            app.add_flow(before, after)
            before = after

    run(compose)
    assert True in soon
    assert behind < 3 * 5 * 48  # of 3,000 computes of three operators
    assert len({seen[-1] for seen in streams.values()}) == 3


@pytest.mark.skipif(is_compiled(), reason="compiled modules cannot be patched")
@pytest.mark.parametrize("hands_on", ["frames", "numbers"])
def test_operators_keep_all_as_long_as_the_device_is_behind(
    monkeypatch: pytest.MonkeyPatch, hands_on: str
) -> None:
    """The last fences of each are from before they kept nothing, and do not show that the device keeps up."""
    now = itertools.count(0, 20_000_000).__next__  # a look is never early
    monkeypatch.setattr(lifetimes, "monotonic_ns", now)
    monkeypatch.setattr(in_order, "monotonic_ns", now)
    monkeypatch.setitem(owner_sizes, sim.Buffer, lambda owner: 8)
    begun: list[None] = []
    begin = InOrder.begin

    def begin_and_note(self: Any, *args: Any) -> None:
        begun.append(None)
        begin(self, *args)

    def work(self: Any, op_input: Any, op_output: Any) -> None:
        data, stream, is_quick = op_input.receive("in"), here.stream, self.ticks <= 6 * FRAMES
        if is_quick:
            stream.stream.sync()  # in virtual time, the device catches up only when it is waited for
        result = frame(stream)
        launch(stream, 0.0 if is_quick else 0.02 * MS, lambda out: None, result)  # too short for them to part
        op_output.emit(result if hands_on == "frames" else data, "out")

    def compose(app: Any) -> None:
        pool = CudaStreamPool(app)
        before = source(app, range(20 * FRAMES))
        for name in ROW[1:-1]:
            after = Step(app, pool, inputs=["in"], outputs=["out"], body=work, name=name)
            app.add_flow(before, after)
            before = after

    monkeypatch.setattr(InOrder, "begin", begin_and_note)
    run(compose)
    assert len(begun) == 2  # the first one receives from outside


# Which operators keep nothing, and what ends it.


def keeps_nothing(operator: Any) -> bool:
    streams = node_of(operator).streams
    found = streams._in_order is not None
    assert {found} == {streams.outputs.is_bare, *(port.is_in_order for port in node_of(operator).input.ports)}
    return found


def unseen_stream(stream: Any) -> Any:
    """Return a stream where nobody looks for one."""
    module = ModuleType("unseen")
    vars(module)["stream"] = stream
    return module


def compose_three(
    app: Any, make: Any, middle: Any, read: Any, *more: Any, flags: int = 0, frames: int = 3 * FRAMES
) -> None:
    pool = CudaStreamPool(app, stream_flags=flags)
    first = Step(app, CountCondition(app, frames), pool, outputs=["out"], body=make, name="first")
    between = Step(app, pool, *more, inputs=["in"], outputs=["out"], body=middle, name="middle")
    app.add_flow(first, between)
    app.add_flow(between, Step(app, pool, inputs=["in"], body=read, name="last"))


def make_frame(self: Any, op_input: Any, op_output: Any) -> None:
    here.stream.stream.sync()  # in virtual time, the device catches up only when it is waited for
    made = frame(here.stream)
    launch(here.stream, 0.0, lambda out, number=self.ticks: write(out, number), made)
    op_output.emit(made, "out")


def pass_on(self: Any, op_input: Any, op_output: Any) -> None:
    op_output.emit(op_input.receive("in"), "out")


class Reads:
    """Reads what it receives, and notes whether it kept nothing then."""

    def __init__(self, seconds: float = 0.01 * MS) -> None:
        self.seconds = seconds
        self.seen: list[int] = []
        self.kept_nothing: list[bool] = []

    def __call__(self, operator: Any, op_input: Any, op_output: Any) -> None:
        read_frame(here.stream, self.seconds, op_input.receive("in"), self.seen)
        self.kept_nothing.append(keeps_nothing(operator))


ALL = list(range(1, 3 * FRAMES + 1))


def test_frames_of_any_size_are_used_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifetimes, "monotonic_ns", lambda: 0)
    in_use: list[int] = []
    allocate = sim.memory_pool.MemoryPool.allocate

    def allocate_and_note(self: Any, *args: Any) -> Any:
        in_use.append(self.in_use // 8)
        return allocate(self, *args)

    monkeypatch.setitem(owner_sizes, sim.Buffer, lambda owner: 8)
    monkeypatch.setattr(sim.memory_pool.MemoryPool, "allocate", allocate_and_note)
    app = run(partial(compose_row, seconds=0.0, frames=8 * FRAMES))
    assert app.seen == right(8 * FRAMES)
    assert max(in_use[len(in_use) // 2 :]) <= 3 + 2  # the state of three, and what is on its way


@pytest.mark.usefixtures("soon")
def test_memory_of_another_kind_is_kept_by_those_that_receive_it(scheduler: MakeScheduler) -> None:
    """Its library may use it again as soon as it is released, as this one does on a stream of its own."""

    class Other:
        def __init__(self, buffer: Any) -> None:
            self.buffer = buffer

        def __del__(self) -> None:
            free.append(self.buffer)

    free: list[Any] = []
    reads = Reads()

    def make(self: Any, op_input: Any, op_output: Any) -> None:
        here.stream.stream.sync()
        if self.ticks <= FRAMES:
            make_frame(self, op_input, op_output)
            return
        made = Other(free.pop() if free else gpu.Device(0).allocate(8, stream=common.stream.stream))
        launch(common.stream, 0.0, lambda out, number=self.ticks: write(out, number), made.buffer)
        common.stream.stream.sync()
        op_output.emit(made, "out")

    def read(self: Any, op_input: Any, op_output: Any) -> None:
        got = op_input.receive("in")
        data = got.buffer if isinstance(got, Other) else got
        read_frame(here.stream, reads.seconds, data, reads.seen)
        reads.kept_nothing.append(keeps_nothing(self))

    common = unseen_stream(gpu.StreamHandle(gpu.Device(0).create_stream()))
    run(partial(compose_three, make=make, middle=pass_on, read=read), scheduler)
    assert reads.seen == ALL
    assert True in reads.kept_nothing[:FRAMES]
    assert True not in reads.kept_nothing[FRAMES + 1 :]


class Lent:
    """Memory that anybody may use again as soon as it is released."""

    def __init__(self, free: list[Any]) -> None:
        self.free = free
        self.buffer = free.pop()

    def __del__(self) -> None:
        self.free.append(self.buffer)


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize(("step", "maker"), [(1, "first"), (48, "first"), (1, "middle")])
@pytest.mark.parametrize(
    ("lent", "held"), [(ALL, []), (range(1, 21), []), ([1], [1]), ([FRAMES], []), ([FRAMES], [FRAMES])]
)
def test_one_object_with_memory_of_another_kind_ends_it_for_the_operator(
    monkeypatch: pytest.MonkeyPatch, lent: Any, held: list[int], step: int, maker: str
) -> None:
    """Whether it comes before they keep nothing, or later, and whether the operator holds it."""
    monkeypatch.setattr(in_order, "_STEPS", (step, step))
    # After several looks at which nothing of that kind is left.
    monkeypatch.setattr(lifetimes.InFlight, "is_quiet", property(lambda self: self._patience >= 24))
    side = unseen_stream(gpu.StreamHandle(gpu.Device(0).create_stream()))
    unseen = unseen_stream([frame(side.stream) for _ in range(60)])
    reads = Reads()

    def make(self: Any, op_input: Any, op_output: Any) -> None:
        if self.name == "middle":
            op_input.receive("in")
        if self.ticks not in lent:
            make_frame(self, op_input, op_output)
            return
        made = Lent(unseen.stream)
        launch(side.stream, 0.0, lambda out, number=self.ticks: write(out, number), made.buffer)
        side.stream.stream.sync()
        op_output.emit(made, "out")
        here.stream.stream.sync()  # the device keeps up, but it still read the frame before until now

    def read(self: Any, op_input: Any, op_output: Any) -> None:
        got = op_input.receive("in")
        if self.ticks in held:
            self.held = got
        read_frame(here.stream, reads.seconds, got.buffer if isinstance(got, Lent) else got, reads.seen)
        reads.kept_nothing.append(keeps_nothing(self))

    bodies = (make, pass_on) if maker == "first" else (make_frame, make)
    run(partial(compose_three, make=bodies[0], middle=bodies[1], read=read))
    assert reads.seen == ALL
    assert (True in reads.kept_nothing) is (lent[0] > 1)
    assert True not in reads.kept_nothing[lent[0] :]


@pytest.mark.usefixtures("soon")
def test_a_compute_that_fails_after_that_leaves_nothing_behind_either() -> None:
    counts: list[int] = []
    ways: list[tuple[str, bool]] = []
    free = [frame(gpu.StreamHandle(gpu.Device(0).create_stream()))]

    def make(self: Any, op_input: Any, op_output: Any) -> None:
        here.stream.stream.sync()
        op_output.emit(Lent(free) if self.ticks == FRAMES else frame(here.stream), "out")

    def fail_once(self: Any, op_input: Any, op_output: Any) -> None:
        if self.ticks in (FRAMES, FRAMES + 1):
            ways.append((node_of(self).compute.__name__, keeps_nothing(self)))
        op_output.emit(op_input.receive("in"), "out")
        if self.ticks == FRAMES + 2:
            raise ValueError("once")
        if self.ticks > FRAMES + 2:
            counts.append(len(getattr(op_input, "receive_" + "cuda_streams")("in")))

    def receive(self: Any, op_input: Any, op_output: Any) -> None:
        op_input.receive("in")

    def compose(app: Any) -> None:
        compose_three(app, make, fail_once, receive)
        next(each for each in app.graph if each.name == "middle").on_error = "skip"

    run(compose)
    assert ways == [("compute_in_order", True), ("compute_steadily", False)]
    assert set(counts) == {1}


@pytest.mark.usefixtures("soon")
def test_memory_of_an_allocator_is_held_no_longer_than_the_compute_that_receives_it() -> None:
    """The operator may compute no more."""
    free: list[int] = []

    def make(self: Any, op_input: Any, op_output: Any) -> None:
        here.stream.stream.sync()
        made = frame(here.stream)
        if self.ticks == FRAMES:
            made = self.pool.allocate_tensor(8, "uint8", stream=here.stream)
        op_output.emit(made, "out")
        del made
        if self.ticks > FRAMES:
            free.append(self.pool.free_blocks)

    def receive(self: Any, op_input: Any, op_output: Any) -> None:
        if self.ticks == FRAMES:
            assert keeps_nothing(self)
        op_input.receive("in")

    def compose(app: Any) -> None:
        compose_three(app, make, pass_on, receive)
        first = next(each for each in app.graph if each.name == "first")
        first.pool = BlockMemoryPool(app, storage_type=1, block_size=64, num_blocks=2)

    run(compose)
    assert free[0] == 2


@pytest.mark.usefixtures("soon")
def test_what_an_operator_held_before_it_kept_nothing_is_gone_when_it_lets_go() -> None:
    counts: list[tuple[int, int]] = []

    def read(self: Any, op_input: Any, op_output: Any) -> None:
        got = op_input.receive("in")
        if self.ticks == 1:
            self.held, self.other = got, object()
        elif self.ticks == FRAMES:
            assert keeps_nothing(self)
            counts.append((sys.getrefcount(self.held), sys.getrefcount(self.other)))

    run(partial(compose_three, make=make_frame, middle=pass_on, read=read))
    ((held, other),) = counts
    assert held == other


@pytest.mark.usefixtures("soon")
def test_operators_keep_nothing_once_no_memory_of_an_allocator_is_in_use() -> None:
    reads = Reads()

    def make(self: Any, op_input: Any, op_output: Any) -> None:
        if self.ticks == 1:
            self.block = self.pool.allocate(8)
        elif self.ticks == FRAMES:
            self.pool.free(self.block)
        make_frame(self, op_input, op_output)

    def compose(app: Any) -> None:
        compose_three(app, make, pass_on, reads)
        first = next(each for each in app.graph if each.name == "first")
        first.pool = BlockMemoryPool(app, storage_type=1, block_size=64, num_blocks=2)

    run(compose)
    assert reads.seen == ALL
    assert True not in reads.kept_nothing[: FRAMES - 1]
    assert reads.kept_nothing[-1]


@pytest.mark.usefixtures("soon")
def test_operators_keep_what_they_receive_if_looks_find_the_device_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    choose = NodeStreams._choose_whether_to_keep
    monkeypatch.setattr(
        NodeStreams, "_choose_whether_to_keep", lambda self, keeps_up, member: choose(self, False, member)
    )
    reads = Reads()
    run(partial(compose_three, make=make_frame, middle=pass_on, read=reads))
    assert reads.seen == ALL
    assert True not in reads.kept_nothing


@pytest.mark.usefixtures("soon")
def test_what_comes_with_a_fence_is_kept() -> None:
    """Its sender has left the shared stream, or is about to."""
    kept: list[int] = []

    def make(self: Any, op_input: Any, op_output: Any) -> None:
        if self.ticks == FRAMES:
            node_of(self).streams.outputs.send_fences()
        make_frame(self, op_input, op_output)

    def receive(self: Any, op_input: Any, op_output: Any) -> None:
        data = op_input.receive("in")
        if self.ticks in (FRAMES - 1, FRAMES):
            assert keeps_nothing(self)
            kept.append(node_of(self).streams.lifetimes.frames_in_flight)
        op_output.emit(data, "out")

    run(partial(compose_three, make=make, middle=receive, read=Reads()))
    assert kept == [0, 1]


@pytest.mark.usefixtures("soon")
def test_what_comes_with_metadata_from_an_operator_with_a_stream_of_its_own_is_kept() -> None:
    reads = Reads()
    side = gpu.StreamHandle(gpu.Device(0).create_stream())

    def make(self: Any, op_input: Any, op_output: Any) -> None:
        made = frame(side)
        launch(side, 0.0, lambda out, number=self.ticks: write(out, number), made)
        side.stream.sync()
        self.metadata.set("number", self.ticks)
        op_output.emit(made, "out")
        here.stream.stream.sync()  # the device keeps up, but it still read the frame before until now

    def compose(app: Any) -> None:
        app.enable_metadata(True)
        compose_three(app, make, pass_on, reads)

    run(compose)
    assert reads.seen == ALL
    assert reads.kept_nothing[-1]


@pytest.mark.usefixtures("soon")
def test_an_operator_keeps_what_it_receives_if_one_with_a_stream_of_its_own_also_sends_to_it() -> None:
    """Its messages have no fences, since they share a stream."""
    side = gpu.StreamHandle(gpu.Device(0).create_stream())
    kept_nothing: list[bool] = []
    seen: list[int] = []

    def make_aside(self: Any, op_input: Any, op_output: Any) -> None:
        op_input.receive("in")
        made = frame(side)
        launch(side, 0.0, lambda out, number=self.ticks: write(out, number), made)
        side.stream.sync()
        op_output.emit(made, "out")
        here.stream.stream.sync()  # the device keeps up, but it still read the frame before until now

    def read(self: Any, op_input: Any, op_output: Any) -> None:
        kept_nothing.append(keeps_nothing(self))
        for data in op_input.receive("in")[1:]:
            read_frame(here.stream, 0.01 * MS, data, seen)

    def receive(self: Any, op_input: Any, op_output: Any) -> None:
        op_input.receive("in")

    def compose(app: Any) -> None:
        def make(self: Any, op_input: Any, op_output: Any) -> None:
            if self.ticks == FRAMES:
                self.fragment.add_flow(aside, reads)
            make_frame(self, op_input, op_output)

        pool = CudaStreamPool(app)
        first = Step(app, CountCondition(app, 3 * FRAMES), pool, outputs=["out"], body=make, name="first")
        aside = Step(app, pool, inputs=["in"], outputs=["out"], body=make_aside, name="aside")
        reads = Step(app, pool, body=read, name="reads", setup=any_size)
        app.add_flow(first, aside)
        app.add_flow(first, reads)
        app.add_flow(aside, Step(app, pool, inputs=["in"], body=receive, name="last"))

    def any_size(spec: Any) -> None:
        spec.input("in", size=IOSpec.ANY_SIZE)

    run(compose)
    assert len(seen) > FRAMES
    assert seen == list(range(seen[0], seen[0] + len(seen)))
    assert kept_nothing[FRAMES - 2]
    assert True not in kept_nothing[FRAMES + 2 :]


class Engine:
    """Makes frames on a stream that it was given."""

    def __init__(self, stream: Any) -> None:
        self.its = stream

    def make(self, number: int) -> Any:
        made = frame(self.its)
        launch(self.its, 0.0, lambda out: write(out, number), made)
        self.its.stream.sync()
        return made


class Wrapper:
    """Makes frames with something else."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine

    def make(self, number: int) -> Any:
        return self.engine.make(number)


class NamesStream:
    """Makes frames, and names a stream."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine

    def make(self, number: int) -> Any:
        return self.engine.stream.make(number)

    def unused(self) -> None:
        cupy.cuda.ExternalStream(0)  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize(
    "how",
    [
        *("closure", "attribute", "list", "deque", "object", "object in an object", "method", "partial"),
        *("fragment", "resource", "name", "name in an object", "class", "module"),
    ],
)
def test_what_comes_from_an_operator_with_a_stream_of_its_own_is_kept(how: str) -> None:
    """That stream uses the memory again as soon as it is released."""
    reads = Reads()
    side = gpu.StreamHandle(gpu.Device(0).create_stream())
    unseen = unseen_stream(Engine(side))
    held: dict[str, Any] = {
        "attribute": side,
        "list": {"a": side},
        "deque": deque([side]),
        "object": Engine(side),
        "object in an object": [Wrapper(Engine(side))],
        "method": Engine(side).make,
        "partial": partial(Engine.make, Engine(side)),
        "name": NamesStream(unseen),
        "name in an object": Wrapper(NamesStream(unseen)),
    }

    def emit(self: Any, op_output: Any, engine: Any) -> None:
        op_output.emit(engine.make(self.ticks), "out")
        here.stream.stream.sync()  # the device keeps up, but it still read the frame before until now

    by_how = {
        "closure": lambda self, op_input, op_output: emit(self, op_output, Engine(side)),
        "class": lambda self, op_input, op_output: emit(self, op_output, NamesStream(unseen)),
        "fragment": lambda self, op_input, op_output: emit(self, op_output, self.fragment.engine),
        "module": lambda self, op_input, op_output: emit(self, op_output, helpers.opened()),
    }
    helpers: Any = ModuleType("helpers")
    helpers.__file__, helpers.opened = "helpers.py", lambda: NamesStream(unseen)

    def compose(app: Any) -> None:
        app.engine = Engine(side)
        body = by_how.get(how, lambda self, op_input, op_output: emit(self, op_output, unseen.stream))
        compose_three(app, body, pass_on, reads)
        first = next(each for each in app.graph if each.name == "first")
        if how in held:
            first.held = held[how]
        elif how == "resource":
            first.add_arg(Resource(app, name="store"))
            first.resources["store"].engine = Engine(side)

    run(compose)
    assert reads.seen == ALL
    assert reads.kept_nothing[-1]  # the one before it keeps what it passes on


@pytest.mark.usefixtures("soon")
def test_the_current_stream_of_a_thread_is_not_taken_for_a_stream_of_an_operator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reads = Reads()

    def keep_up(self: Any, op_input: Any, op_output: Any) -> None:
        here.stream.stream.sync()
        pass_on(self, op_input, op_output)

    monkeypatch.setattr(here, "stream", gpu.StreamHandle(gpu.Device(0).create_stream()))
    run(partial(compose_three, make=make_frame, middle=keep_up, read=reads))
    assert reads.seen == ALL
    assert reads.kept_nothing[-1]


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("flags", [0, 1])
def test_memory_of_the_default_stream_is_in_order_with_the_shared_one(
    scheduler: MakeScheduler, flags: int
) -> None:
    """The program has made frames before the run. It uses their memory as soon as they are released."""
    default = gpu.StreamHandle(gpu.LEGACY_DEFAULT_STREAM)
    before = []
    for number in ALL:
        before.append(frame(default))
        launch(default, 0.0, lambda out, number=number: write(out, number), before[-1])
    default.stream.sync()
    reads = Reads()
    used: list[Any] = []

    def make(self: Any, op_input: Any, op_output: Any) -> None:
        here.stream.stream.sync()
        op_output.emit(before.pop(0), "out")
        use()

    def use() -> None:
        used[:] = [frame(outside.stream)]
        launch(outside.stream, 0.0, lambda out: write(out, -1), used[0])

    outside = unseen_stream(default)
    run(partial(compose_three, make=make, middle=pass_on, read=reads, flags=flags), scheduler)
    assert reads.seen == ALL
    assert reads.kept_nothing[-1] is (flags == 0)


@pytest.mark.usefixtures("soon")
def test_what_comes_from_outside_lives_while_others_of_the_branch_read_it(scheduler: MakeScheduler) -> None:
    reads = Reads()

    def compose(app: Any) -> None:
        pool, other = CudaStreamPool(app), CudaStreamPool(app)
        first = Step(
            app, CountCondition(app, len(ALL)), other, outputs=["out"], body=make_frame, name="first"
        )
        before = first
        for name in ("one", "two"):
            after = Step(app, pool, inputs=["in"], outputs=["out"], body=keep_up, name=name)
            app.add_flow(before, after)
            before = after
        app.add_flow(before, Step(app, pool, inputs=["in"], body=reads, name="last"))

    def keep_up(self: Any, op_input: Any, op_output: Any) -> None:
        here.stream.stream.sync()
        pass_on(self, op_input, op_output)

    run(compose, scheduler)
    assert reads.seen == ALL
    assert reads.kept_nothing[-1]


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("holder", ["middle", "last"])
def test_what_came_from_outside_lives_after_its_flow_is_gone(scheduler: MakeScheduler, holder: str) -> None:
    """The outside uses the memory again, on its own stream, as soon as it is released."""
    wrong: list[tuple[int, int]] = []

    def make_outside(self: Any, op_input: Any, op_output: Any) -> None:
        made = frame(here.stream)
        launch(here.stream, 0.0, lambda out, number=self.ticks: write(out, number), made)
        here.stream.stream.sync()
        op_output.emit((self.ticks, made), "out")

    def receive(self: Any, op_input: Any, op_output: Any) -> None:
        here.stream.stream.sync()
        op_input.receive("in")
        got = op_input.receive("more")
        if self.ticks == 10:
            outside = next(each for each in self.fragment.graph if each.name == "outside")
            self.fragment.remove_flow(outside, self, {("out", "more")})
        if holder == "middle":
            hold(self, got)
        op_output.emit(got, "out")

    def read(self: Any, op_input: Any, op_output: Any) -> None:
        got = op_input.receive("in")
        if holder == "last":
            hold(self, got)

    def hold(self: Any, got: Any) -> None:
        held = vars(self).setdefault("held", deque())
        if got is not None:
            held.append(got)
        if self.ticks > FRAMES and held:
            number, data = held.popleft()
            launch(here.stream, 5 * MS, partial(compare, number), data)

    def compare(number: int, source: Any) -> None:
        if int(source.view("int64")[0]) != number:
            wrong.append((number, int(source.view("int64")[0])))

    def also_more(spec: Any) -> None:
        spec.input("more", policy=IOSpec.QueuePolicy.POP).condition(ConditionType.NONE)

    def compose(app: Any) -> None:
        pool, other = CudaStreamPool(app), CudaStreamPool(app)
        counts = CountCondition(app, len(ALL)), CountCondition(app, len(ALL))
        first = Step(app, counts[0], pool, outputs=["out"], body=make_frame, name="first")
        outside = Step(app, counts[1], other, body=make_outside, name="outside", setup=optional)
        middle = Step(app, pool, inputs=["in"], outputs=["out"], body=receive, name="middle", setup=also_more)
        app.add_flow(first, middle, {("out", "in")})
        app.add_flow(outside, middle, {("out", "more")})
        app.add_flow(middle, Step(app, pool, inputs=["in"], body=read, name="last"))

    def optional(spec: Any) -> None:
        spec.output("out").condition(ConditionType.NONE)

    run(compose, scheduler)
    assert wrong == []


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("shape", ["dict", "list", "metadata"])
def test_messages_of_several_parts_are_in_order(scheduler: MakeScheduler, shape: str) -> None:
    reads = Reads()

    def make(self: Any, op_input: Any, op_output: Any) -> None:
        here.stream.stream.sync()
        made = frame(here.stream)
        launch(here.stream, 0.0, lambda out, number=self.ticks: write(out, number), made)
        if shape == "metadata":
            self.metadata.set("frame", made)
        op_output.emit({"dict": {"a": made}, "list": [1, made], "metadata": 1}[shape], "out")

    def read(self: Any, op_input: Any, op_output: Any) -> None:
        got = op_input.receive("in")
        data = {"dict": lambda: got["a"], "list": lambda: got[1], "metadata": lambda: self.metadata["frame"]}[
            shape
        ]()
        read_frame(here.stream, reads.seconds, data, reads.seen)
        reads.kept_nothing.append(keeps_nothing(self))

    def compose(app: Any) -> None:
        app.enable_metadata(True)
        compose_three(app, make, pass_on, read)

    run(compose, scheduler)
    assert reads.seen == ALL
    assert reads.kept_nothing[-1]


@pytest.mark.usefixtures("soon")
def test_a_compute_that_fails_leaves_nothing_behind() -> None:
    """The operator is tried again, with the next message."""
    reads = Reads()

    def fail_at_times(self: Any, op_input: Any, op_output: Any) -> None:
        data = op_input.receive("in")
        if self.ticks % 7 == 0:
            raise ValueError("now and then")
        op_output.emit(data, "out")

    def compose(app: Any) -> None:
        compose_three(app, make_frame, fail_at_times, reads)
        next(each for each in app.graph if each.name == "middle").on_error = "skip"

    run(compose)
    assert reads.seen == [number for number in ALL if number % 7]
    assert reads.kept_nothing[-1]


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("step", [1, 48])
def test_an_operator_that_asks_for_its_stream_gets_it_and_keeps_what_it_receives(
    scheduler: MakeScheduler, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    monkeypatch.setattr(in_order, "_STEPS", (step, step))
    reads = Reads()
    given: list[tuple[int, int]] = []

    def ask(self: Any, op_input: Any, op_output: Any) -> None:
        data = op_input.receive("in")
        if self.ticks in (FRAMES, FRAMES + 1):
            assert keeps_nothing(self) is (self.ticks == FRAMES)
            given.append((int(getattr(op_input, "receive_" + "cuda_stream")("in")), int(here.stream)))
            assert len(getattr(op_input, "receive_" + "cuda_streams")("in")) == 1
        op_output.emit(data, "out")

    run(partial(compose_three, make=make_frame, middle=ask, read=reads), scheduler)
    assert reads.seen == ALL
    assert [one == other for one, other in given] == [True, True]


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("step", [1, 48])
def test_an_operator_that_asks_for_a_further_stream_finds_the_messages_of_each_compute(
    monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    monkeypatch.setattr(in_order, "_STEPS", (step, step))
    counts: list[int] = []

    def make(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        here.stream.stream.sync()
        if self.ticks == FRAMES:
            assert keeps_nothing(self)
            getattr(context, "allocate_cuda_" + "stream")("mine")
            assert node_of(self).streams._in_order is None
        op_output.emit(self.ticks, "out")

    def ask(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        if self.ticks == FRAMES // 2:
            assert keeps_nothing(self)
            getattr(context, "allocate_cuda_" + "stream")("mine")
        data = op_input.receive("in")
        if self.ticks >= FRAMES // 2:
            counts.append(len(getattr(op_input, "receive_" + "cuda_streams")("in")))
        op_output.emit(data, "out")

    def receive(self: Any, op_input: Any, op_output: Any) -> None:
        op_input.receive("in")

    run(partial(compose_three, make=make, middle=ask, read=receive))
    assert set(counts) == {1}


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("where", ["operator", "fragment", "resource"])
def test_what_an_operator_holds_lives_while_a_further_stream_reads_it(
    scheduler: MakeScheduler, where: str
) -> None:
    """It was received in order, and kept by nobody."""
    wrong: list[int] = []

    def place(self: Any) -> Any:
        places = {"operator": self, "fragment": self.fragment, "resource": self.resources["store"]}
        return vars(places[where]).setdefault("held", deque())

    def read_late(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        place(self).append(op_input.receive("in"))
        op_output.emit(self.ticks, "out")  # first, or the shared stream would wait for the further one
        if self.ticks == FRAMES:
            assert keeps_nothing(self)
        if self.ticks >= FRAMES:
            mine = getattr(context, "allocate_cuda_" + "stream")("mine")
            context.synchronize_streams([here.stream], mine)
            number = self.ticks - len(place(self)) + 1
            launch(
                mine,
                MS,
                lambda source: wrong.extend({int(source.view("int64")[0])} - {number}),
                place(self).popleft(),
            )

    def receive(self: Any, op_input: Any, op_output: Any) -> None:
        op_input.receive("in")

    def compose(app: Any) -> None:
        compose_three(app, make_frame, read_late, receive, Resource(app, name="store"))
        next(each for each in app.graph if each.name == "middle").max_in_flight = 100

    run(compose, scheduler)
    assert wrong == []


@pytest.mark.usefixtures("soon")
def test_an_operator_that_asks_for_a_knob_keeps_nothing_again_after_a_while() -> None:
    kept_nothing: list[bool] = []

    def make(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        kept_nothing.append(keeps_nothing(self))
        here.stream.stream.sync()
        if self.ticks >= FRAMES:
            context.knob("gain", "int64", 1)
        op_output.emit(self.ticks, "out")

    def receive(self: Any, op_input: Any, op_output: Any) -> None:
        op_input.receive("in")

    run(partial(compose_three, make=make, middle=pass_on, read=receive))
    assert kept_nothing[FRAMES - 1]
    assert not kept_nothing[FRAMES]
    assert kept_nothing[-1]


@pytest.mark.usefixtures("soon")
def test_an_operator_that_leaves_another_stream_current_does_not_disturb_the_others() -> None:
    """It names a stream, so the others make sure of theirs after it."""
    other = gpu.StreamHandle(gpu.Device(0).create_stream())
    streams: dict[str, set[int]] = {}

    def note(self: Any, op_input: Any, op_output: Any) -> None:
        streams.setdefault(self.name, set()).add(int(here.stream))
        if self.name == "first":
            make_frame(self, op_input, op_output)
        else:
            pass_on(self, op_input, op_output)

    def disturb(self: Any, op_input: Any, op_output: Any) -> None:
        note(self, op_input, op_output)
        here.stream = other

    def read(self: Any, op_input: Any, op_output: Any) -> None:
        streams.setdefault(self.name, set()).add(int(here.stream))
        op_input.receive("in")

    run(partial(compose_three, make=note, middle=disturb, read=read))
    assert len(set().union(*streams.values())) == 1


@pytest.mark.usefixtures("soon")
def test_an_operator_finds_its_stream_right_after_one_that_leaves_another_stream_current() -> None:
    other = gpu.StreamHandle(gpu.Device(0).create_stream())
    streams: set[int] = set()
    kept_nothing: list[bool] = []

    def note(self: Any, op_input: Any, op_output: Any) -> None:
        streams.add(int(here.stream))
        kept_nothing.append(keeps_nothing(self))
        make_frame(self, op_input, op_output)

    def disturb(self: Any, op_input: Any, op_output: Any) -> None:
        op_input.receive("in")
        here.stream = other

    run(partial(compose_three, make=note, middle=pass_on, read=disturb))
    assert len(streams) == 1
    assert kept_nothing[-1]


@pytest.mark.usefixtures("soon")
def test_a_stream_stays_current_while_only_operators_compute_that_name_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sets: list[None] = []
    usual = Plain.set_stream

    def set_and_count(self: Plain, state: Any) -> None:
        sets.append(None)
        usual(self, state)

    def read(self: Any, op_input: Any, op_output: Any) -> None:
        op_input.receive("in")
        if self.ticks in (FRAMES, 2 * FRAMES):
            sets_then.append(len(sets))

    sets_then: list[int] = []
    monkeypatch.setattr(in_order, "_STEPS", (20, 20))
    monkeypatch.setattr(Plain, "set_stream", set_and_count)
    run(partial(compose_three, make=make_frame, middle=pass_on, read=read))
    assert sets_then[0] < sets_then[1] <= sets_then[0] + 3 * FRAMES // 20, "once in a step of each of them"


@pytest.mark.usefixtures("soon")
def test_the_current_stream_is_that_of_each_operator_while_they_keep_nothing() -> None:
    """An operator that asks for it unseen keeps it, and the others leave."""

    def seconds(name: str, ticks: int) -> float:
        return 0.0 if ticks < FRAMES else MS

    def ask(op_input: Any, operator: Any) -> None:
        if operator.name == "two" and operator.ticks == FRAMES // 2:
            assert keeps_nothing(operator)
            getattr(gpu, "current_" + "stream")()

    app = run(partial(compose_row, seconds=seconds, frames=3 * FRAMES, ask=ask))
    assert app.seen == right(3 * FRAMES)
    assert {name: len(set(seen)) for name, seen in app.streams.items()} == {
        name: 1 if name == "two" else 2 for name in ROW
    }


@pytest.mark.parametrize("step", [1, 24])
def test_a_stream_that_a_program_leaves_current_unseen_is_not_so_for_long(
    soon: list[bool], monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    monkeypatch.setattr(in_order, "_STEPS", (step, step))
    other = unseen_stream(gpu.StreamHandle(gpu.Device(0).create_stream()))
    streams: list[int] = []

    def disturb(self: Any, op_input: Any, op_output: Any) -> None:
        pass_on(self, op_input, op_output)
        streams.append(int(here.stream))
        if self.ticks == FRAMES:
            assert keeps_nothing(self)
            here.stream = other.stream

    run(partial(compose_three, make=make_frame, middle=disturb, read=Reads()))
    assert soon
    assert streams.count(int(other.stream)) <= step
    assert streams[-1] == streams[0]


@pytest.mark.usefixtures("soon")
def test_a_library_that_is_imported_later_gets_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    entered: list[str] = []

    def imports(self: Any, op_input: Any, op_output: Any) -> None:
        if self.ticks == FRAMES:
            monkeypatch.setitem(sys.modules, "headrace_test_module", ModuleType("headrace_test_module"))
            entered.append("import")
        pass_on(self, op_input, op_output)

    from headrace.gpu.lasting_stream import LastingStream

    find = LastingStream._find_libraries
    monkeypatch.setattr(LastingStream, "_find_libraries", lambda self: entered.append("find") or find(self))
    run(partial(compose_three, make=make_frame, middle=imports, read=Reads()))
    assert entered.index("import") < len(entered) - 1, "libraries are looked for again"
    assert entered[-1] == "find"


@pytest.mark.usefixtures("soon")
def test_memory_of_an_allocator_ends_it(scheduler: MakeScheduler) -> None:
    reads = Reads()

    def make(self: Any, op_input: Any, op_output: Any) -> None:
        if self.ticks == FRAMES:
            self.block = self.pool.allocate(8)
        make_frame(self, op_input, op_output)

    def compose(app: Any) -> None:
        compose_three(app, make, pass_on, reads)
        first = next(each for each in app.graph if each.name == "first")
        first.pool = BlockMemoryPool(app, storage_type=1, block_size=64, num_blocks=2)

    run(compose, scheduler)
    assert reads.seen == ALL
    assert True in reads.kept_nothing
    assert not reads.kept_nothing[-1]


def test_operators_of_a_tracked_run_keep_nothing_and_look(soon: list[bool], scheduler: MakeScheduler) -> None:
    reads = Reads()

    def compose(app: Any) -> None:
        compose_three(app, make_frame, pass_on, reads)
        app.tracker = app.track(0, 0)

    app = run(compose, scheduler)
    assert reads.seen == ALL
    assert reads.kept_nothing[-1]
    assert soon
    for name in ("first", "middle", "last"):
        assert app.tracker.statistics.operator(name).count == len(ALL)
