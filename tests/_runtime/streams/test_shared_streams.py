"""Operators on one stream: what they received lives as long as its work, and each runs ahead as far as it may."""

from __future__ import annotations

import gc
import random
from collections import deque
from typing import Any

import pytest

from headrace import CountCondition
from headrace.gpu import sim
from tests.harness import MS, Step, event_based, launch, run
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
