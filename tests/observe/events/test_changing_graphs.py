"""A run whose graph changes is watched: computes, messages, paths, traces, loggers, the live page."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from headrace import CountCondition, PeriodicCondition
from headrace.core.ports import ConditionType, IOSpec
from headrace.observe import Computes, RunInfo, TraceWriter, Watcher, watch
from tests.harness import App, MakeScheduler, Step, sink


class Arrived(Watcher):
    """Notes what arrived where: for each operator, the output and the compute that each message came from."""

    wants_emissions = True

    def __init__(self, *, of_ports: bool = False) -> None:
        self._of_ports = of_ports

    def begin(self, run: RunInfo) -> None:
        self.run = run
        self.changes = 0
        self.found: dict[str, list[tuple[str, int]]] = {}
        self.computes: dict[str, int] = {}
        self.emitted: dict[str, int] = {}

    def changed(self, run: RunInfo) -> None:
        self.changes += 1

    def computed(self, computes: Computes) -> None:
        name = computes.operator.name
        self.computes[name] = self.computes.get(name, 0) + len(computes.started)
        for arrivals in computes.arrivals:
            found = arrivals.queue.outputs
            outputs = [output.port if self._of_ports else output.operator.name for output in found]
            rows = zip(arrivals.output.tolist(), arrivals.producer.tolist(), strict=True)
            self.found.setdefault(name, []).extend((outputs[place], producer) for place, producer in rows)
        for emissions in computes.emissions:
            self.emitted[name] = self.emitted.get(name, 0) + len(emissions.compute)


def changing(app: Any, count: int, at: dict[int, Any], name: str) -> Step:
    """Return a source of (name, 0), (name, 1); before it emits, it calls what `at` has for the number."""

    def body(self: Any, op_input: Any, op_output: Any) -> None:
        number = self.ticks - 1
        if number in at:
            at[number](app)
        op_output.emit((name, number), "out")

    return Step(app, CountCondition(app, count), outputs=["out"], body=body, name=name)


@pytest.mark.parametrize("seed", range(6))
def test_messages_are_told_apart_through_random_changes(scheduler: MakeScheduler, seed: int) -> None:
    chance = random.Random(seed)
    logs: dict[str, list[tuple[str, int]]] = {}
    any_size: set[str] = set()
    made = {"sources": 0, "sinks": 0}

    def new_sink(app: Any) -> Step:
        made["sinks"] += 1
        name = f"sink {made['sinks']}"
        logs[name] = []
        size = chance.choice([1, 3, IOSpec.ANY_SIZE])
        if size is IOSpec.ANY_SIZE:
            any_size.add(name)

        def body(self: Any, op_input: Any, op_output: Any) -> None:
            data = op_input.receive("in")
            logs[name] += [data] if size == 1 else data

        step = Step(app, inputs=[("in", {"size": size})] if size != 1 else ["in"], body=body, name=name)
        app.sinks.append(step)
        return step

    def new_source(app: Any) -> Step:
        made["sources"] += 1
        at = {number: change for number in range(20) if chance.random() < 0.3} if made["sources"] < 4 else {}
        step = changing(app, 20, at, f"source {made['sources']}")
        app.sources.append(step)
        return step

    def change(app: Any) -> None:
        flows = list(app.graph.flows)
        kind = chance.choice(["sink", "source", "connect", "remove"])
        alive = [step for step in app.sources if step._headrace.node.may_compute]
        if kind == "sink":
            app.add_flow(chance.choice(alive), new_sink(app))
        elif kind == "source" and made["sources"] < 4:
            app.add_flow(new_source(app), chance.choice(app.sinks))
        elif kind == "connect":
            pair = chance.choice(alive), chance.choice(app.sinks)
            if pair not in [(flow.source, flow.target) for flow in flows]:
                app.add_flow(*pair)
        elif flows:
            flow = chance.choice(flows)
            app.remove_flow(flow.source, flow.target)

    def compose(app: Any) -> None:
        app.sources, app.sinks = [], []
        app.add_flow(new_source(app), new_sink(app))

    app = App(compose)
    app.scheduler(scheduler(app))
    arrived = Arrived()
    watch(app, arrived)
    with app.track() as tracker:
        app.run()
    assert arrived.changes or made == {"sources": 1, "sinks": 1}
    for name, log in logs.items():
        found = arrived.found.get(name, [])
        # An input of any size has a queue for each flow, which are shown one after the other.
        in_order = sorted if name in any_size else list
        assert in_order(found) == in_order(log)
    assert app.outcome is not None
    assert arrived.computes == {
        name: outcome.computes for name, outcome in app.outcome.operators.items() if outcome.computes
    }
    counted = sum(path.latency.count for path in tracker.statistics.paths)
    assert counted == sum(map(len, logs.values()))


def test_a_queue_that_has_become_smaller_drops_what_does_not_fit() -> None:
    taken: list[tuple[int, int]] = []

    def compose(app: Any) -> None:
        def emit(self: Any, op_input: Any, op_output: Any) -> None:
            if self.ticks == 2:
                app.remove_flow(many, slow)
                app.add_flow(many, slow, size=2)
            for number in range(4):
                op_output.emit((self.ticks, number), "out")

        many = Step(
            app,
            CountCondition(app, 4),
            PeriodicCondition(app, "1ms"),
            setup=lambda spec: spec.output("out").condition(ConditionType.NONE),
            body=emit,
            name="many",
        )
        slow = Step(
            app,
            PeriodicCondition(app, "100us"),
            inputs=[("in", {"policy": IOSpec.QueuePolicy.REJECT})],
            body=lambda self, op_input, op_output: taken.append(op_input.receive("in")),
            name="slow",
        )
        app.add_flow(many, slow, size=4)

    app = App(compose)
    watch(app, Watcher())
    outcome = app.run()
    assert [tick for tick, _ in taken] == [1] * 4 + [2] * 4 + [3] * 2 + [4] * 2
    assert outcome.operators["slow"].dropped == {"in": 4}


def test_two_outputs_of_one_operator_into_one_queue_are_told_apart(scheduler: MakeScheduler) -> None:
    log: list[tuple[str, int]] = []

    def emit(self: Any, op_input: Any, op_output: Any) -> None:
        for port in ("a", "b") if self.ticks % 2 else ("b", "a"):
            op_output.emit((port, self.ticks - 1), port)

    def compose(app: Any) -> None:
        both = Step(app, CountCondition(app, 6), outputs=["a", "b"], body=emit, name="both")
        taking = Step(
            app,
            inputs=[("in", {"size": 2})],
            body=lambda self, op_input, op_output: log.extend(op_input.receive("in")),
            name="taking",
        )
        app.add_flow(both, taking, {("a", "in"), ("b", "in")})

    app = App(compose)
    app.scheduler(scheduler(app))
    arrived = Arrived(of_ports=True)
    watch(app, arrived)
    app.run()
    assert arrived.found["taking"] == log


def test_an_operator_that_is_added_has_figures_a_trace_and_log_lines(
    tmp_path: Path, scheduler: MakeScheduler
) -> None:
    taken: list[Any] = []

    def add(app: Any) -> None:
        late = sink(app, taken, name="late")
        app.add_flow(app.numbers, late)

    def compose(app: Any) -> None:
        app.numbers = changing(app, 6, {2: add}, "numbers")
        app.add_flow(app.numbers, sink(app, []))

    app = App(compose)
    app.scheduler(scheduler(app))
    goal = app.expect("numbers->sink", p99="1h")
    watch(app, TraceWriter(tmp_path / "trace.json"))
    with app.track() as tracker:
        app.run()
    assert len(taken) == 3
    statistics = tracker.statistics
    assert statistics.operator("late").host.count == 3
    assert statistics.queue("late.in").wait.count == 3
    assert {path.operators: path.latency.count for path in statistics.paths} == {
        ("numbers", "sink"): 6,
        ("numbers", "late"): 3,
    }
    assert goal.count == 6
    events = json.loads((tmp_path / "trace.json").read_text())
    late = [event for event in events if event.get("name") == "late" and event["ph"] in "XB"]
    assert [event["args"]["frame"] for event in late] == [3, 4, 5]
    begun = [event["id"] for event in events if event["ph"] == "s"]
    ended = [event["id"] for event in events if event["ph"] == "f"]
    assert sorted(begun) == sorted(ended)
    assert len(set(begun)) == len(begun)
