"""Operators in a row share a stream until streams of their own pay; then each has one."""

from __future__ import annotations

import itertools
import random
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from headrace import CountCondition, PeriodicCondition, gpu, op
from headrace._runtime.compiled import is_compiled
from headrace._runtime.messages.ports import NOTHING
from headrace._runtime.streams import in_order, lifetimes
from headrace._runtime.streams.branch import Branch, Member
from headrace._runtime.streams.run_streams import RunStreams
from headrace.conditions import CudaStreamCondition, MemoryAvailableCondition
from headrace.gpu import sim
from headrace.observe import Watcher, watch
from headrace.resources import BlockMemoryPool, CudaStreamPool
from headrace.tensor.libraries import owner_sizes
from tests._runtime.streams.rows import (
    FRAMES,
    RIGHT,
    ROW,
    compose_net,
    compose_row,
    here,
    right,
    right_sums,
    stage,
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
    write,
)
from tests.observe.loggers.test_data_loggers import AsyncListing

pytestmark = pytest.mark.usefixtures("plain_library")


def test_neighbours_share_a_stream_while_the_device_keeps_up(
    scheduler: MakeScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[Any] = []
    monkeypatch.setattr(sim.Stream, "wait", lambda self, event: waits.append(event))
    app = run(partial(compose_row, seconds=0.0), scheduler)
    assert len({stream for seen in app.streams.values() for stream in seen}) == 1
    assert (app.seen, waits) == (RIGHT, [])


@pytest.mark.parametrize("seconds", [MS, 0.03 * MS])
def test_each_has_a_stream_of_its_own_once_the_device_is_behind(
    scheduler: MakeScheduler, seconds: float
) -> None:
    app = run(partial(compose_row, seconds=seconds, frames=2 * FRAMES), scheduler)
    assert app.seen == right(2 * FRAMES)
    assert len({seen[0] for seen in app.streams.values()}) == 1
    assert len({seen[-1] for seen in app.streams.values()}) == len(ROW)
    changes = {
        name: sum(one != other for one, other in itertools.pairwise(seen))
        for name, seen in app.streams.items()
    }
    assert changes == dict.fromkeys(ROW, 1), "no stream changes twice"


def test_a_new_stream_waits_for_all_work_on_the_shared_one(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, int, Any]] = []

    def note(name: str) -> None:
        original = getattr(sim.Stream, name)

        def call(self: Any, event: Any) -> Any:
            calls.append((name, int(self.handle), event))
            return original(self, event)

        monkeypatch.setattr(sim.Stream, name, call)

    note("wait")
    note("record")
    app = run(partial(compose_row, seconds=MS))
    shared = app.streams["first"][0]
    for name in ROW[1:]:
        first = next(place for place, call in enumerate(calls) if call[1] == app.streams[name][-1])
        (before, on, recorded), (what, _, event) = calls[first - 1 : first + 1]
        assert (before, on, what) == ("record", shared, "wait")
        assert recorded is event


def test_all_messages_have_fences_before_an_operator_leaves() -> None:
    found: list[tuple[str, bool]] = []
    branch: Any = Branch(may_split=True)
    for name in ("one", "two"):
        branch.join(
            SimpleNamespace(remaining=-1), [], lambda name=name: found.append((name, branch.is_split))
        )
    branch.split()
    assert found == [("one", False), ("two", False)]
    assert branch.is_split


@pytest.mark.skipif(is_compiled(), reason="compiled modules cannot be patched")
def test_they_cannot_part_while_one_of_them_chooses_how_to_send(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would send without fences for good, after all others were told that nobody does."""

    def is_handed_on(self: Any, operator: Any, receivers: Any) -> bool:
        are_locked.append(self.branches[operator].lock.locked())
        return usual(self, operator, receivers)

    are_locked: list[bool] = []
    usual = RunStreams.is_handed_on
    monkeypatch.setattr(RunStreams, "is_handed_on", is_handed_on)
    run(partial(compose_row, seconds=MS))
    assert are_locked
    assert all(are_locked)


@pytest.mark.parametrize("seed", range(2))
def test_frames_are_right_while_they_part_at_any_pace(scheduler: MakeScheduler, seed: int) -> None:
    choose = random.Random(seed)
    weights = {name: choose.choice([0.01, 0.1, 1, 5]) * MS for name in ROW}

    def seconds(name: str, ticks: int) -> float:
        return weights[name] * choose.choice([0.2, 1, 3])

    app = run(partial(compose_row, seconds=seconds), scheduler)
    assert app.seen == RIGHT
    assert any(len(set(seen)) == 2 for seen in app.streams.values())


@pytest.mark.parametrize("per", ["operator", "auto", "branch"])
def test_a_row_overlaps_as_with_a_stream_for_each(machine: sim.Machine, per: str) -> None:
    run(partial(compose_row, seconds=MS, per=per, frames=4 * FRAMES))
    frame_ms = machine.now / MS / (4 * FRAMES)
    assert frame_ms <= {"operator": 1.2, "auto": 2, "branch": 6}[per]


@pytest.mark.turns("seconds")
@pytest.mark.parametrize("seconds", [MS, 0.03 * MS])
@pytest.mark.parametrize("limit", [1, 2])
def test_a_row_with_a_small_limit_overlaps(machine: sim.Machine, limit: int, seconds: float) -> None:
    def compose(app: Any) -> None:
        compose_row(app, seconds=seconds, frames=4 * FRAMES)
        app.max_in_flight = limit

    assert run(compose).seen == right(4 * FRAMES)
    assert machine.now / seconds / (4 * FRAMES) <= 2.5  # five, if nothing overlapped


def test_frames_that_others_may_use_again_stay_alive_while_an_operator_leaves(
    scheduler: MakeScheduler,
) -> None:
    def make(self: Any, op_input: Any, op_output: Any) -> None:
        made = frame(common)
        launch(common, 0.0, lambda out, number=self.ticks: write(out, number), made)
        common.stream.sync()
        op_output.emit(made, "out")

    def read(self: Any, op_input: Any, op_output: Any) -> None:
        streams.append(int(here.stream))
        read_frame(here.stream, MS, op_input.receive("in"), seen)

    def compose(app: Any) -> None:
        first = Step(app, CountCondition(app, FRAMES), outputs=["out"], body=make, name="first")
        app.add_flow(first, Step(app, inputs=["in"], body=read, name="last"))

    common = gpu.StreamHandle(gpu.Device(0).create_stream())
    seen: list[int] = []
    streams: list[int] = []
    run(compose, scheduler)
    assert (seen, len(set(streams))) == (list(range(1, FRAMES + 1)), 2)


@pytest.mark.parametrize("name", ["two", "last"])
def test_a_row_overlaps_although_one_of_it_waits_for_the_device(machine: sim.Machine, name: str) -> None:
    def waits(self: Any, op_input: Any, op_output: Any) -> None:
        stage(self, op_input, op_output)
        here.stream.stream.sync()

    def compose(app: Any) -> None:
        compose_row(app, seconds=MS, frames=4 * FRAMES, bodies={name: waits})

    run(compose, event_based)
    assert machine.now / MS / (4 * FRAMES) <= 3  # five, if nothing overlapped


def keep_in_machine_time(monkeypatch: pytest.MonkeyPatch, machine: sim.Machine) -> None:
    """Let looks at what operators keep, which is small, depend on the time of the device."""
    for module in (lifetimes, in_order):
        monkeypatch.setattr(module, "monotonic_ns", lambda: int(machine.now * 1e9))
    monkeypatch.setitem(owner_sizes, sim.Buffer, lambda owner: 8)


class SomeFences:
    """Fences that the device has passed after a compute, or not."""

    def __init__(self, is_busy: bool) -> None:
        self.last, self.is_busy, self.is_current = 0, is_busy, False

    def make_device_current(self) -> None:
        self.is_current = True

    def insert(self) -> None:
        assert self.is_current
        self.last += 1

    def probe(self, member: Member, compute: Any) -> None:
        member.probing(compute, self, self.make_device_current)(None, None, None)  # type: ignore[arg-type]

    def has_passed(self, number: int) -> bool:
        assert number == self.last > 0
        return not self.is_busy


class Spans:
    """A member of a branch of five operators, in spans of computes of a given length."""

    def __init__(self) -> None:
        self.branch: Any = Branch(may_split=True)
        self.nodes = [SimpleNamespace(remaining=left) for left in (-1, 400, 500, -1, 600)]
        self.ports = [[SimpleNamespace(item=NOTHING, received_in=None)] for _ in self.nodes]
        for node, ports in zip(self.nodes, self.ports, strict=True):
            self.branch.join(node, ports, list)
        self.member = Member(self.branch, self.nodes[0].remaining, 0)
        self.now = self.probes = 0
        # Called before a compute of the member that probes, and in it.
        self.before: Any = lambda: None
        self.during: Any = lambda: None

    def compute(self, microseconds: int, fences: SomeFences) -> None:
        for node in self.nodes:
            node.remaining -= 1
        self.now += 1_000 * microseconds * len(self.nodes)
        if self.member.probes:
            self.probes += 1
            self.before()
            fences.probe(self.member, self.receive)

    def receive(self, *_: Any) -> None:
        self.ports[0][0].item = 1
        self.during()
        self.ports[0][0].item = NOTHING

    def span(self, microseconds: int, is_behind: bool = False, is_busy: bool = False) -> bool:
        for computes in (6, 2):  # the device is found behind every other time
            for _ in range(computes):
                self.compute(microseconds, SomeFences(is_busy))
            keeps_up = not is_behind or computes == 6
            split = self.member.is_to_split(keeps_up, self.nodes[0].remaining, self.now)
        return split


def is_split(*spans: tuple[Any, ...]) -> bool:
    row = Spans()
    return [row.span(*each) for each in spans][-1]


def test_a_row_parts_when_streams_of_their_own_pay() -> None:
    """By what a compute of the row takes, whether the device is behind, and whether four spans in a row agree."""
    assert not is_split(*[(24, True)] * 40)
    assert is_split(*[(26, True)] * 4)
    assert not is_split(*[(26, True)] * 3, (26, False), *[(26, True)] * 3)
    assert not is_split((10_000, True), *[(10, True)] * 40), "as at the beginning, when kernels are loaded"


def test_a_row_parts_when_probes_find_the_device_busy() -> None:
    """As if one of the row waited for the device: it is never behind then."""
    busy, idle = (61, False, True), (61, False, False)
    assert not is_split(*[(59, False, True)] * 40)
    assert not is_split(*[busy] * 4)
    assert is_split(*[busy] * 5), "the first of them only begins with probes"
    assert not is_split(*[idle] * 2000), "the host is slow, or the source"
    assert not is_split(*[busy] * 4, idle, *[busy] * 4)
    assert not is_split(*[busy] * 4, (59, False, True)), "a quick span does not count"


def test_probes_that_find_nothing_become_rare() -> None:
    row = Spans()
    counts = []
    for _ in range(2_500):
        row.span(61)
        counts.append(row.probes)
    assert (counts[0], counts[1]) == (0, 8)
    assert counts[-1] < 100, "of 20,000 computes"
    for _ in range(600):
        split = row.span(61, False, True)
    assert split, "the device has become busy"


def test_a_row_parts_when_the_device_is_behind_or_probes_find_it_busy() -> None:
    """Probes go on while the device is behind, unless the computes are short."""
    assert is_split(*[(61, True), (61, False, True)] * 3)
    assert not is_split(*[(61, True, True), (61, False, False)] * 40), "each span counts its own probes"
    row = Spans()
    row.span(61)
    row.span(61, True)
    assert row.member.probes
    row.span(24, True)
    assert not row.member.probes


def test_probes_that_all_begin_count_from_then_on() -> None:
    row = Spans()
    for _ in range(2):
        row.span(61)
    assert not row.member.probes, "it rests"
    for _ in range(100):
        row.compute(10, SomeFences(False))  # together
    row.member.begin_probes(row.nodes[0].remaining, row.now)
    assert [row.span(61, False, True) for _ in range(4)] == [False] * 3 + [True]


def test_probes_end_when_the_row_parts() -> None:
    row = Spans()
    row.span(61)
    row.branch.split()
    assert row.member.is_to_split(True, row.nodes[0].remaining, row.now)
    assert not row.member.probes


@pytest.mark.parametrize("keeps_nothing", [False, True])
def test_a_row_parts_when_others_compute_meanwhile(keeps_nothing: bool) -> None:
    """Operators that wait for the device on several threads."""

    def begin() -> None:
        if keeps_nothing:
            row.ports[3][0].received_in = row.nodes[3].remaining
        else:
            row.ports[3][0].item = 1

    def end() -> None:
        row.ports[3][0].item, row.ports[3][0].received_in = NOTHING, None

    def compute() -> None:
        row.nodes[3].remaining -= 1

    for before, during in ((begin, end), (end, begin), (end, compute), (end, end)):
        row = Spans()
        row.before, row.during = before, during
        for _ in range(5):
            split = row.span(90)
        assert split is (during is not before)


@pytest.mark.skipif(is_compiled(), reason="compiled modules cannot be patched")
def test_operators_that_wait_on_several_threads_part_however_often_each_computes(
    monkeypatch: pytest.MonkeyPatch, machine: sim.Machine
) -> None:
    """They probe at different times."""

    keep_in_machine_time(monkeypatch, machine)
    seen: dict[str, list[int]] = {"often": [], "seldom": []}
    streams: dict[str, list[int]] = {"often": [], "seldom": []}

    def first(self: Any, op_input: Any, op_output: Any) -> None:
        made = frame(here.stream)
        launch(here.stream, 0.0, lambda out, number=self.ticks: write(out, number), made)
        op_output.emit(made, "often")
        if self.ticks % 2 == 0:
            op_output.emit(made, "seldom")

    def wait(self: Any, op_input: Any, op_output: Any) -> None:
        streams[self.name].append(int(here.stream))
        read_frame(here.stream, 5 * MS, op_input.receive("in"), seen[self.name])
        machine.sleep(0.02 * MS)
        here.stream.stream.sync()

    def compose(app: Any) -> None:
        pool = CudaStreamPool(app)
        period, count = PeriodicCondition(app, "33ms"), CountCondition(app, 4 * FRAMES)
        sends = Step(app, period, count, pool, outputs=list(seen), body=first, name="first")
        for name in seen:
            app.add_flow(sends, Step(app, pool, inputs=["in"], body=wait, name=name), {(name, "in")})

    run(compose, event_based)
    assert seen == {"often": list(range(1, 4 * FRAMES + 1)), "seldom": list(range(2, 4 * FRAMES + 1, 2))}
    assert streams["often"][-1] != streams["seldom"][-1]


@pytest.mark.parametrize(("device", "streams"), [(10, 1), (20, 1), (40, len(ROW)), (100, len(ROW))])
def test_a_row_shares_its_stream_if_the_host_takes_as_long_as_the_device(
    machine: sim.Machine, device: int, streams: int
) -> None:
    """Each compute takes 20 µs of the host."""

    def launch_slowly(self: Any, op_input: Any, op_output: Any) -> None:
        stage(self, op_input, op_output)
        machine.sleep(0.02 * MS)

    bodies = dict.fromkeys(ROW, launch_slowly)
    app = run(partial(compose_row, seconds=device / 1000 * MS, frames=4 * FRAMES, bodies=bodies))
    assert len({seen[-1] for seen in app.streams.values()}) == streams


@pytest.mark.parametrize(("device", "streams"), [(10, 1), (200, len(ROW))])
def test_a_slow_host_does_not_part_a_row(
    machine: sim.Machine, scheduler: MakeScheduler, device: int, streams: int
) -> None:
    """Each compute takes 100 µs of the host."""

    def launch_slowly(self: Any, op_input: Any, op_output: Any) -> None:
        stage(self, op_input, op_output)
        machine.sleep(0.1 * MS)

    bodies = dict.fromkeys(ROW, launch_slowly)
    app = run(partial(compose_row, seconds=device / 1000 * MS, frames=8 * FRAMES, bodies=bodies), scheduler)
    assert len({seen[-1] for seen in app.streams.values()}) == streams
    assert app.seen == right(8 * FRAMES)


def compose_slow_source(app: Any, machine: sim.Machine, **more: Any) -> None:
    """Compose a row of computes that take 20 µs of the host, at 30 frames a second."""

    def launch_soon(self: Any, op_input: Any, op_output: Any) -> None:
        stage(self, op_input, op_output)
        machine.sleep(0.02 * MS)

    compose_row(app, bodies=dict.fromkeys(ROW, launch_soon), **more)
    first = next(operator for operator in app.graph if operator.name == "first")
    first.add_arg(PeriodicCondition(app, "33ms"))


def test_a_slow_source_does_not_part_a_row(machine: sim.Machine) -> None:
    app = run(partial(compose_slow_source, machine=machine, seconds=0.01 * MS, frames=8 * FRAMES))
    assert len({seen[-1] for seen in app.streams.values()}) == 1


@pytest.mark.skipif(is_compiled(), reason="compiled modules cannot be patched")
def test_all_operators_that_kept_together_probe(
    monkeypatch: pytest.MonkeyPatch, machine: sim.Machine
) -> None:
    """The kernels become long when each of them would rest. At looks, the device always keeps up."""

    def seconds(name: str, ticks: int) -> float:
        return 0.01 * MS if ticks <= 2 * FRAMES else 5 * MS

    keep_in_machine_time(monkeypatch, machine)
    app = run(partial(compose_slow_source, machine=machine, seconds=seconds, frames=5 * FRAMES))
    assert app.seen == right(5 * FRAMES)
    assert len({seen[2 * FRAMES] for seen in app.streams.values()}) == 1
    assert len({seen[-1] for seen in app.streams.values()}) == len(ROW)


@pytest.mark.skipif(is_compiled(), reason="compiled modules cannot be patched")
def test_an_operator_probes_for_few_computes(monkeypatch: pytest.MonkeyPatch, machine: sim.Machine) -> None:
    """Before, its looks were as far apart as possible, because the device kept up."""
    probes: dict[Member, int] = {}
    usual = Member.probing

    def probing(self: Member, *args: Any) -> Any:
        compute = usual(self, *args)

        def compute_and_count(*contexts: Any) -> None:
            probes[self] = probes.get(self, 0) + 1
            compute(*contexts)

        return compute_and_count

    def stage_of_slow_host(self: Any, op_input: Any, op_output: Any) -> None:
        stage(self, op_input, op_output)
        machine.sleep((0.02 if self.ticks < 2 * FRAMES else 0.1) * MS)

    keep_in_machine_time(monkeypatch, machine)
    monkeypatch.setattr(Member, "probing", probing)
    bodies = dict.fromkeys(ROW, stage_of_slow_host)
    run(partial(compose_row, seconds=0.01 * MS, frames=5 * FRAMES, bodies=bodies))
    assert len(probes) == len(ROW)
    assert max(probes.values()) <= 20


def test_an_operator_with_a_further_stream_does_not_probe(machine: sim.Machine) -> None:
    def ask(op_input: Any, operator: Any) -> None:
        if operator.name == "two":
            getattr(operator._headrace.node.context, "allocate_cuda_" + "stream")("mine")

    app = run(partial(compose_slow_source, machine=machine, seconds=0.01 * MS, ask=ask))
    assert app.seen == RIGHT


@pytest.mark.parametrize("hasty", ROW[1:])
def test_an_operator_waits_until_all_it_receives_has_a_fence(scheduler: MakeScheduler, hasty: str) -> None:
    def compose(app: Any) -> None:
        compose_row(app, seconds=MS)
        for (
            operator
        ) in app.graph:  # one of them looks at every compute, and splits the row before the others look
            operator.max_in_flight = 3 if operator.name == hasty else 8

    assert run(compose, scheduler).seen == RIGHT


def test_a_moment_behind_does_not_part_them() -> None:
    app = run(partial(compose_row, seconds=lambda name, ticks: 3 * MS if ticks == 30 else 0.0))
    assert len({stream for seen in app.streams.values() for stream in seen}) == 1
    assert app.seen == RIGHT


def test_an_operator_that_was_given_its_stream_keeps_it(scheduler: MakeScheduler) -> None:
    def ask(op_input: Any, operator: Any) -> None:
        if operator.name == "two":
            asked.append(int(getattr(op_input, "receive_" + "cuda_stream")("in")))

    asked: list[int] = []
    app = run(partial(compose_row, seconds=MS, ask=ask), scheduler)
    assert app.seen == RIGHT
    assert set(asked) == set(app.streams["two"]) == {app.streams["first"][0]}
    assert len(set(app.streams["three"])) == 2, "the others leave"


def test_a_pool_without_further_streams_leaves_them_together(scheduler: MakeScheduler) -> None:
    app = run(partial(compose_row, seconds=MS, pool_size=3), scheduler)
    assert app.seen == RIGHT
    assert len({stream for seen in app.streams.values() for stream in seen}) == 3


def test_an_error_while_they_part_ends_the_run(scheduler: MakeScheduler) -> None:
    def ask(op_input: Any, operator: Any) -> None:
        if operator.name == "three" and len(set(operator.fragment.streams["two"])) == 2:
            raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        run(partial(compose_row, seconds=MS, ask=ask), scheduler)


@pytest.mark.parametrize("per", ["auto", "branch"])
def test_messages_that_replicas_are_handed_unopened_are_ordered(scheduler: MakeScheduler, per: str) -> None:
    def double(data: Any) -> Any:
        result = frame(here.stream)
        launch(
            here.stream, MS, lambda out, source: write(out, 2 * int(source.view("int64")[0])), result, data
        )
        return result

    def compose(app: Any) -> None:
        app.streams, app.seen, app.seconds, app.stream_per = {}, [], MS, per
        first = Step(app, CountCondition(app, FRAMES), outputs=["out"], body=stage, name="first")
        doubled = op(double)(app, workers=2, name="doubled")
        app.add_flow(first, doubled)
        app.add_flow(doubled, Step(app, inputs=["in"], body=stage, name="last"))

    assert run(compose, scheduler).seen == [2 * number for number in range(1, FRAMES + 1)]


def reads_stream(self: Any, op_input: Any, op_output: Any) -> None:
    here.mine = gpu.current_stream()
    stage(self, op_input, op_output)


class Engine:
    """An object of a program that keeps the stream of its first use."""

    def infer(self) -> None:
        here.mine = gpu.current_stream()


engine = Engine()


def reads_through_an_object(self: Any, op_input: Any, op_output: Any) -> None:
    engine.infer()
    stage(self, op_input, op_output)


@pytest.mark.parametrize("reads_stream", [reads_stream, reads_through_an_object])
def test_an_operator_that_reads_the_current_stream_has_its_own(reads_stream: Any) -> None:
    def compose(app: Any) -> None:
        app.streams, app.seen, app.seconds = {}, [], MS
        pool = CudaStreamPool(app)
        before = Step(app, CountCondition(app, FRAMES), pool, outputs=["out"], body=stage, name="first")
        for name in ROW[1:]:
            body, outputs = (reads_stream if name == "two" else stage), ([] if name == "last" else ["out"])
            after = Step(app, pool, inputs=["in"], outputs=outputs, body=body, name=name)
            app.add_flow(before, after)
            before = after

    app = run(compose)
    assert len(set(app.streams["two"])) == 1
    assert app.streams["first"][0] == app.streams["one"][0] != app.streams["two"][0]
    assert app.seen == RIGHT


class Exported(np.ndarray):
    """An array as PyTorch's tensors are: exporting one reads the current stream."""

    def __dlpack__(self, **options: Any) -> Any:
        return gpu.current_stream()


def test_an_operator_that_holds_an_array_shares_its_stream() -> None:
    def compose(app: Any) -> None:
        compose_row(app, seconds=0.0)
        for operator in app.graph:
            operator.held = np.zeros(1).view(Exported)

    app = run(compose)
    assert len({stream for seen in app.streams.values() for stream in seen}) == 1


def test_an_operator_that_reads_the_current_stream_unseen_keeps_it(scheduler: MakeScheduler) -> None:
    def ask(op_input: Any, operator: Any) -> None:
        if operator.name == "two" and operator.ticks == 1:
            kept.append(getattr(gpu, "current_" + "stream")())

    kept: list[Any] = []
    app = run(partial(compose_row, seconds=MS, ask=ask), scheduler)
    assert app.seen == RIGHT
    assert set(app.streams["two"]) == set(map(int, kept))
    assert len(set(app.streams["three"])) == 2, "the others leave"


def test_memory_of_a_pool_does_not_keep_operators_together() -> None:
    def ask(op_input: Any, operator: Any) -> None:
        operator.fragment.memory.allocate_tensor(8, "int64")

    def compose(app: Any) -> None:
        compose_row(app, seconds=MS, ask=ask, memory=BlockMemoryPool(app, "device", 64, 8))

    app = run(compose)
    assert len({seen[-1] for seen in app.streams.values()}) == len(ROW)


def test_memory_of_a_pool_comes_back_after_the_work_on_the_new_stream(scheduler: MakeScheduler) -> None:
    def first(self: Any, op_input: Any, op_output: Any) -> None:
        made = self.fragment.memory.allocate_tensor(8, "int64")
        launch(here.stream, 0.0, lambda out, number=self.ticks: write(out, number), made.owner.buffer)
        op_output.emit(made, "out")

    def last(self: Any, op_input: Any, op_output: Any) -> None:
        read_frame(here.stream, MS, op_input.receive("in").owner.buffer, self.fragment.seen)

    def compose(app: Any) -> None:
        app.seen = []
        app.memory = BlockMemoryPool(app, "device", 64, 4)
        pool = CudaStreamPool(app)
        room = MemoryAvailableCondition(app, app.memory, min_blocks=1)
        before = Step(app, CountCondition(app, FRAMES), room, pool, outputs=["out"], body=first, name="first")
        app.add_flow(before, Step(app, pool, inputs=["in"], body=last, name="last"))

    assert run(compose, scheduler).seen == list(range(1, FRAMES + 1))


def numbered(streams: dict[str, list[int]]) -> dict[str, list[int]]:
    """Return the streams of each compute, numbered in the order in which they appear."""
    numbers = {
        stream: number for number, stream in enumerate(dict.fromkeys(itertools.chain(*streams.values())))
    }
    return {name: [numbers[stream] for stream in seen] for name, seen in streams.items()}


@pytest.mark.parametrize("seconds", [0.0, MS])
def test_a_tracked_run_has_the_streams_and_the_order_of_an_untracked_one(
    monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    # On a busy machine, a look would come earlier in one of the runs, and record an event more.
    monkeypatch.setattr(lifetimes, "monotonic_ns", lambda: 0)
    monkeypatch.setattr(in_order, "monotonic_ns", lambda: 0)
    orders: list[Any] = []
    for name in ("record", "wait"):
        usual = getattr(sim.Stream, name)
        monkeypatch.setattr(
            sim.Stream, name, lambda self, event, usual=usual: orders.append(self) or usual(self, event)
        )
    found = []
    for is_tracked in (False, True):
        orders.clear()

        def compose(app: Any, is_tracked: bool = is_tracked) -> None:
            compose_row(app, seconds)
            if is_tracked:
                watch(app, Counting())

        app = run(compose)
        assert app.seen == RIGHT
        found.append((numbered(app.streams), len(orders)))
    assert found[0] == found[1]


class Counting(Watcher):
    wants_gpu_times = False


def test_times_are_right_while_operators_share_a_stream_and_after_they_part(scheduler: MakeScheduler) -> None:
    def compose(app: Any) -> None:
        compose_row(app, MS)
        app.tracker = app.track(0, 0)

    app = run(compose, scheduler)
    assert app.seen == RIGHT
    for name in ROW[1:]:
        shown = app.tracker.statistics.operator(name).gpu
        assert shown.count >= FRAMES // 2  # a burst is timed as a whole, the rest is sampled
        assert (shown.p50, shown.is_bound) == (pytest.approx(MS * 1e9), False)


def test_messages_that_are_logged_have_fences_on_the_stream_that_operators_share(
    monkeypatch: pytest.MonkeyPatch, scheduler: MakeScheduler
) -> None:
    logged: list[Any] = []
    waits: list[Any] = []
    wait = sim.Stream.wait
    monkeypatch.setattr(sim.Stream, "wait", lambda self, event: waits.append(event) or wait(self, event))

    class Fenced(Watcher):
        wants_data = True

        def emitted(self, output: Any, item: Any, time: int) -> None:
            logged.append(item.fences is not None)

    def compose(app: Any) -> None:
        compose_row(app, seconds=0.0)
        watch(app, Fenced())

    app = run(compose, scheduler)
    assert len({stream for seen in app.streams.values() for stream in seen}) == 1
    assert (app.seen, logged) == (RIGHT, [True] * FRAMES * (len(ROW) - 1))
    assert waits == []  # a stream needs no order after itself


@pytest.mark.turns("scheduler", "seconds")
@pytest.mark.parametrize("seconds", [0.0, MS])
def test_frames_are_logged_when_their_work_on_the_shared_stream_is_done(
    scheduler: MakeScheduler, seconds: float
) -> None:
    logger = AsyncListing(log_inputs=False)

    def compose(app: Any) -> None:
        compose_row(app, seconds)
        app.add_data_logger(logger)

    assert run(compose, scheduler).seen == RIGHT
    logged = [data.elements().view("int64")[0] for port, data in logger.seen if port == "three.out"]
    assert logged == RIGHT


def test_the_frames_kept_are_bounded_while_they_part() -> None:
    most: list[int] = []

    def ask(op_input: Any, operator: Any) -> None:
        most.append(operator._headrace.node.context.frames_in_flight)

    run(partial(compose_row, seconds=MS, ask=ask), greedy)
    assert max(most) <= 2 * 8


# Connected operators, with forks and joins.


def test_operators_that_fork_and_join_share_a_stream_while_the_device_keeps_up(
    scheduler: MakeScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[Any] = []
    monkeypatch.setattr(sim.Stream, "wait", lambda self, event: waits.append(event))
    app = run(partial(compose_net, seconds=0.0), scheduler)
    assert len({stream for seen in app.streams.values() for stream in seen}) == 1
    assert (app.seen, waits) == (right_sums(FRAMES), [])


@pytest.mark.parametrize("workers", [1, 2, 3, 5])
def test_operators_that_fork_and_join_part_once_the_device_is_behind(workers: int) -> None:
    app = run(partial(compose_net, seconds=MS, frames=2 * FRAMES), partial(event_based, workers=workers))
    assert app.seen == right_sums(2 * FRAMES)
    assert len({seen[0] for seen in app.streams.values()}) == 1
    assert len({seen[-1] for seen in app.streams.values()}) == len(app.streams)


def test_a_chain_alone_shares_a_stream_per_branch() -> None:
    app = run(partial(compose_net, seconds=MS, stream_per="branch"))
    streams = {name: set(seen) for name, seen in app.streams.items()}
    assert streams["join"] == streams["last"]
    assert len(set().union(*streams.values())) == len(streams) - 1
    assert app.seen == right_sums(FRAMES)


def test_an_operator_that_waits_for_the_gpu_shares_no_stream(scheduler: MakeScheduler) -> None:
    """It would find no fence to wait for at the messages of operators on its own stream."""

    def compose(app: Any) -> None:
        compose_net(app, seconds=MS)
        join = next(each for each in app.graph if each.name == "join")
        join.add_arg(CudaStreamCondition(app, receiver="from_left"))

    app = run(compose, scheduler)
    assert app.seen == right_sums(FRAMES)
    others = {stream for name, seen in app.streams.items() if name != "join" for stream in seen}
    assert others.isdisjoint(app.streams["join"])
