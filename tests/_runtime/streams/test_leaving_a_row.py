"""Messages that leave a row of operators by other ways than its flows still come after the work behind them."""

from __future__ import annotations

from typing import Any

import pytest

from headrace import CountCondition, Fragment, gpu
from headrace._runtime.streams.placement import find_branches, place
from headrace.gpu import sim
from headrace.operators import ResultsOp
from headrace.tensor import register_library
from headrace.topics.operators import ExportTopicOp
from tests._runtime.streams.rows import Plain, here
from tests.harness import MS, App, MakeScheduler, Step, frame, greedy, launch, read_frame, run, write
from tests.harness.libraries import fresh_registry

FRAMES = 60


@pytest.fixture(autouse=True)
def library(monkeypatch: pytest.MonkeyPatch) -> None:
    fresh_registry(monkeypatch)
    register_library(Plain())


def produce(self: Any, op_input: Any, op_output: Any) -> None:
    made = frame(here.stream)
    launch(here.stream, MS, lambda out, number=self.ticks: write(out, number), made)
    op_output.emit(made, "out")


def change(self: Any, op_input: Any, op_output: Any) -> None:
    made = frame(here.stream)
    launch(
        here.stream, MS, lambda out, of: write(out, int(of.view("int64")[0])), made, op_input.receive("in")
    )
    op_output.emit(made, "out")


def consume(self: Any, op_input: Any, op_output: Any) -> None:
    read_frame(here.stream, MS, op_input.receive("in"), self.fragment.seen.setdefault(self.name, []))


def producer(app: Any, name: str = "producer", frames: int = FRAMES) -> Step:
    app.seen = {}
    return Step(app, CountCondition(app, frames), outputs=["out"], body=produce, name=name)


def consumer(app: Any, name: str) -> Step:
    return Step(app, inputs=["in"], body=consume, name=name)


def test_results_that_a_program_takes_out_come_after_their_work(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[Any] = []
    monkeypatch.setattr(sim.Stream, "wait", lambda self, event: waits.append(self))
    app: Any = App(lambda app: app.add_flow(producer(app), ResultsOp(app, name="found")), greedy)
    mine = gpu.Device(0).create_stream()
    with app.running():
        results = app.results("found")
        results.stream = mine
        taken = sum(1 for _ in results)
    assert taken == waits.count(mine) == FRAMES


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("per", ["auto", "branch"])
def test_replicas_come_after_the_work_of_the_operator_before_them(
    scheduler: MakeScheduler, per: str, workers: int
) -> None:
    def compose(app: Any) -> None:
        app.stream_per = per
        middle = Step(app, inputs=["in"], outputs=["out"], body=change, name="middle", workers=workers)
        app.add_flow(producer(app), middle)
        for name in ("one", "two"):
            app.add_flow(middle, consumer(app, name))

    app: Any = run(compose, scheduler)
    assert app.seen == {name: list(range(1, FRAMES + 1)) for name in ("one", "two")}


def test_a_flow_that_was_not_declared_comes_after_the_work_behind_it(
    scheduler: MakeScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(App, "allows_undeclared_flows", True)

    def compose(app: Any) -> None:
        first, usual, other = producer(app), consumer(app, "usual"), consumer(app, "other")
        app.add_flow(first, usual)
        app.add_flow(producer(app, "idle", 0), other)
        app.set_dynamic_flows(first, lambda op: op.add_dynamic_flow(usual if op.ticks % 2 else other))

    app: Any = run(compose, scheduler)
    assert app.seen == {"usual": list(range(1, FRAMES + 1, 2)), "other": list(range(2, FRAMES + 1, 2))}


def test_fragments_with_and_without_a_slice_share_no_stream() -> None:
    def note_slice(self: Any, op_input: Any, op_output: Any) -> None:
        found.setdefault(self.name, here.stream.stream.resources.sm.sm_count)
        (produce if self._outputs else consume)(self, op_input, op_output)

    class Sliced(Fragment):
        def compose(self) -> None:
            self.add_default_green_context_pool(0, [16])
            count = CountCondition(self, FRAMES)
            self.add_operator(Step(self, count, outputs=["out"], body=note_slice, name="first"))

    class Whole(Fragment):
        def compose(self) -> None:
            self.seen: dict[str, list[int]] = {}
            self.add_operator(Step(self, inputs=["in"], body=note_slice, name="last"))

    def compose(app: Any) -> None:
        app.whole = Whole(app, name="whole")
        app.add_flow(Sliced(app, name="sliced"), app.whole, {("first.out", "last.in")})

    found: dict[str, int] = {}
    app: Any = run(compose)
    assert found["sliced.first"] < found["whole.last"] == 132
    assert app.whole.seen == {"whole.last": list(range(1, FRAMES + 1))}


def test_a_topic_has_its_own_stream() -> None:
    def compose(app: Any) -> None:
        app.export_topic("frames", producer(app), "out")

    app: Any = App(compose)
    app.compose_graph()
    assert any(isinstance(operator, ExportTopicOp) for operator in app.graph)
    assert not find_branches(place(app.graph), app.graph, (), may_split=False)
