"""Operators on one stream: what they received lives as long as its work, and each runs ahead as far as it may."""

from __future__ import annotations

import gc
import random
from collections import deque
from typing import Any

import pytest

from headrace import CountCondition, gpu
from headrace.gpu import sim
from headrace.resources import BlockMemoryPool, CudaStreamPool
from tests.harness import MS, MakeScheduler, Step, event_based, launch, run
from tests.harness.libraries import here, new_array, use_arrays
from tests.limits import examples

FRAMES = 30
every_layout = pytest.mark.parametrize("per", ["operator", "branch", "program"])


@pytest.fixture(autouse=True)
def _arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    use_arrays(monkeypatch)


@pytest.mark.parametrize("seed", range(examples(40)))
def test_operators_of_several_threads_on_one_stream_free_nothing_early_and_keep_nothing_for_ever(
    seed: int, machine: sim.Machine
) -> None:
    """They hold frames for a while, pass them on, and read them late."""
    chance = random.Random(seed)
    mistakes: list[tuple[int, int]] = []
    reads: list[int] = []
    in_use: list[int] = []

    def read(frame: Any, number: int) -> None:
        def compare(source: Any) -> None:
            reads.append(number)
            if source.view("int64")[0] != number:
                mistakes.append((number, int(source.view("int64")[0])))

        launch(here.stream, chance.choice([0.01, 0.1, 1, 3]) * MS, compare, frame.memory)

    def send(self: Any, op_input: Any, op_output: Any) -> None:
        op_output.emit((self.ticks, new_array().fill(self.ticks, MS / 10)), "out")
        in_use.append(machine.devices[0].memory.in_use // 8)

    def work(self: Any, op_input: Any, op_output: Any) -> None:
        held = self.__dict__.setdefault("held", deque(maxlen=self.holds))
        number, frame = op_input.receive("in")
        held.append((number, frame))
        read(frame, number)
        for earlier, old in held:
            if chance.random() < 0.5:
                read(old, earlier)
        op_output.emit((number, frame), "out")

    def compose(app: Any) -> None:
        app.stream_per = "program"
        first = Step(app, CountCondition(app, FRAMES), outputs=["out"], body=send, name="first")
        for branch in range(chance.randint(1, 3)):
            last: Any = first
            for place in range(chance.randint(1, 3)):
                stage = Step(app, inputs=["in"], outputs=["out"], body=work, name=f"stage {branch} {place}")
                stage.holds = chance.choice([1, 2, 5])
                app.add_flow(last, stage)
                last = stage

    app = run(compose, lambda app: event_based(app, workers=chance.choice([2, 3, 5])))
    assert mistakes == []
    assert len(reads) >= FRAMES
    assert max(in_use) <= 9 * (5 + 8 + 6)
    for operator in app.graph:
        vars(operator).pop("held", None)
    gc.collect()
    assert machine.devices[0].memory.in_use == 0


@every_layout
@pytest.mark.parametrize(("limits", "emits"), [((3, 8), False), ((1, 2), False), ((2, 5), True)])
def test_each_operator_runs_ahead_as_far_as_it_may_on_a_stream_of_its_own_or_a_shared_one(
    limits: tuple[int, int], emits: bool, per: str, scheduler: MakeScheduler
) -> None:
    launched: dict[str, int] = {}
    finished: dict[str, int] = {}
    most: dict[str, int] = {}

    def work(self: Any, op_input: Any, op_output: Any) -> None:
        name = self.name

        def done() -> None:
            finished[name] = finished.get(name, 0) + 1

        launch(here.stream, 10 * MS, done)
        launched[name] = launched.get(name, 0) + 1
        most[name] = max(most.get(name, 0), launched[name] - finished.get(name, 0))
        if emits:
            op_output.emit(self.ticks, "out")

    def compose(app: Any) -> None:
        app.stream_per = per
        for name, limit in zip("ab", limits, strict=True):
            operator = Step(app, CountCondition(app, FRAMES), outputs=["out"], body=work, name=name)
            operator.max_in_flight = limit
            app.add_operator(operator)

    run(compose, scheduler)
    assert most == dict(zip("ab", limits, strict=True))
    assert finished == {"a": FRAMES, "b": FRAMES}


@every_layout
def test_operators_on_one_stream_do_not_wait_for_each_other_on_the_device(
    per: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[Any] = []
    original = sim.Stream.wait
    monkeypatch.setattr(sim.Stream, "wait", lambda self, other: (waits.append(other), original(self, other)))
    seen: list[int] = []

    def compose(app: Any) -> None:
        app.stream_per = per
        source = Step(
            app,
            CountCondition(app, FRAMES),
            outputs=["out"],
            body=lambda self, i, o: o.emit(new_array().fill(self.ticks, MS), "out"),
            name="source",
        )
        sink = Step(app, inputs=["in"], body=lambda self, i, o: i.receive("in").read(seen, MS), name="sink")
        app.add_flow(source, sink)

    run(compose)
    assert seen == list(range(1, FRAMES + 1))
    assert len(waits) == (FRAMES if per == "operator" else 0)


@every_layout
def test_the_only_block_of_a_pool_comes_back_after_each_compute(per: str) -> None:
    """The producer would raise without one."""
    taken: list[Any] = []

    def compose(app: Any) -> None:
        app.stream_per = per
        memory = BlockMemoryPool(app, "device", 64, 1)
        streams = CudaStreamPool(app, stream_flags=1)

        def send(self: Any, op_input: Any, op_output: Any) -> None:
            op_output.emit(memory.allocate_tensor(8, "int64"))

        def take(self: Any, op_input: Any, op_output: Any) -> None:
            taken.append(op_input.receive().shape)

        first = Step(app, CountCondition(app, FRAMES), streams, outputs=["out"], body=send, name="first")
        app.add_flow(first, Step(app, streams, inputs=["in"], body=take, name="last"))

    run(compose)
    assert taken == [(8,)] * FRAMES


@every_layout
def test_a_frame_with_several_receivers_lives_while_one_of_them_holds_it(
    per: str, scheduler: MakeScheduler
) -> None:
    seen: dict[str, list[int]] = {"drops": [], "holds": [], "too": []}

    def take(self: Any, op_input: Any, op_output: Any) -> None:
        held = self.__dict__.setdefault("held", deque())
        held.append(op_input.receive("in"))
        if self.name != "holds" or len(held) > 20:
            held.popleft().read(seen[self.name], MS)

    def compose(app: Any) -> None:
        app.stream_per = per
        source = Step(
            app,
            CountCondition(app, 60),
            outputs=["out"],
            body=lambda self, i, o: o.emit(new_array().fill(self.ticks), "out"),
            name="source",
        )
        for name in seen:
            app.add_flow(source, Step(app, inputs=["in"], body=take, name=name))

    run(compose, scheduler)
    assert seen == {"drops": list(range(1, 61)), "holds": list(range(1, 41)), "too": list(range(1, 61))}


def test_each_receiver_has_a_copy_of_a_map_of_its_own() -> None:
    taken: dict[str, list[Any]] = {"one": [], "other": []}

    def compose(app: Any) -> None:
        app.stream_per = "program"

        def send(self: Any, op_input: Any, op_output: Any) -> None:
            frame = new_array(gpu.current_stream())
            op_output.emit({"frame": frame} if self.ticks % 2 else frame, "out")

        def take(self: Any, op_input: Any, op_output: Any) -> None:
            item = op_input.receive()
            taken[self.name].append(item.pop("frame", None) if isinstance(item, dict) else item)

        first = Step(app, CountCondition(app, FRAMES), outputs=["out"], body=send, name="first")
        for name in taken:
            app.add_flow(first, Step(app, inputs=["in"], body=take, name=name))

    run(compose)
    assert None not in taken["one"]
    assert taken["one"] == taken["other"]


def test_an_operator_that_fails_as_it_joins_frees_nothing_of_those_on_its_stream(
    machine: sim.Machine,
) -> None:
    """They go on, and what they received stays until the stream has read it."""
    seen: list[int] = []

    def read(self: Any, op_input: Any, op_output: Any) -> None:
        op_input.receive("in").read(seen, 2 * MS)
        if self.ticks % 3 == 0:
            late = Failing(self.fragment, name=f"late {self.ticks}")
            with pytest.raises(ValueError, match="no camera"):
                self.fragment.add_operator(late)

    class Failing(Step):
        def start(self) -> None:
            raise ValueError("no camera")

    def compose(app: Any) -> None:
        app.stream_per = "program"
        pool = CudaStreamPool(app, reserved_size=1, max_size=1)
        first = Step(
            app,
            CountCondition(app, FRAMES),
            outputs=["out"],
            body=lambda self, i, o: o.emit(new_array().fill(self.ticks, 0.2 * MS), "out"),
            name="first",
        )
        first.add_arg(pool)
        app.add_flow(first, Step(app, inputs=["in"], body=read, name="reader"))

    run(compose)
    assert seen == list(range(1, FRAMES + 1))


def test_what_a_slow_operator_received_goes_although_a_fast_one_finds_out_first_what_is_done(
    machine: sim.Machine,
) -> None:
    most: list[int] = []

    def send(self: Any, op_input: Any, op_output: Any) -> None:
        frame = new_array().fill(self.ticks, MS / 1000)
        op_output.emit(frame, "fast")
        if self.ticks % 8 == 0:
            op_output.emit(frame, "slow")

    def work(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        op_input.receive("in")
        most.append(context.frames_in_flight)

    def compose(app: Any) -> None:
        app.stream_per = "program"
        first = Step(app, CountCondition(app, 800), outputs=["fast", "slow"], body=send, name="first")
        for name in ("fast", "slow"):
            app.add_flow(first, Step(app, inputs=["in"], body=work, name=name), {(name, "in")})

    run(compose)
    assert len(most) == 900
    assert max(most) <= 3 * 16
