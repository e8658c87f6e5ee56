"""The figures of random graphs, on one worker and several, are those of a model that knows what became of frames.

`figure_graphs` has the graphs and the model, `test_figures` more about chains: ticks, and where the time went.
"""

from __future__ import annotations

import json
from collections import Counter
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.gpu import sim
from headrace.observe import Statistics, TraceWriter, watch
from tests.harness.application import App, event_based, greedy
from tests.limits import THOROUGH
from tests.observe.traces.traces import load
from tests.random_programs.figure_graphs import MS, Graph
from tests.random_programs.figures import FATES, told_by_a_page

# Also some that found what the others did not: parts of a frame that arrive one after the other, retries on the
# device, and replicas that are held up.
PROGRAMS = range(600) if THOROUGH else [*range(28), 56, 123, 202, 364]


@pytest.mark.parametrize("seed", PROGRAMS)
def test_every_figure_of_a_graph_is_the_models(seed: int, tmp_path: Path) -> None:
    # With several workers, virtual time may pass between two steps of a compute: its times are bounds then.
    workers, on_device = seed % 4, seed % 3 == 0
    graph = Graph(seed, on_device)
    is_exact = workers < 2 and graph.is_serial
    scheduler = {"scheduler": event_based, "workers": workers} if workers else {"scheduler": greedy}
    page: list[dict[str, Any]] = []
    with sim.Machine("h200") if on_device else nullcontext():
        app = App(graph.compose, **scheduler)
        never = 1 << 40
        bound = (seed % 7 + 1) * 5 * MS if is_exact else never
        bounds = {name: bound if graph.knows_sending(name) else never for name in graph.plans}
        goals = {pair: app.expect("->".join(pair), max=bounds[pair[0]]) for pair in graph.pairs()}
        tracker = app.track()
        watch(app, TraceWriter(tmp_path / "trace.json"))
        if seed % 5 == 0:
            told_by_a_page(app, page)
        outcome = app.run()
    graph.finish(outcome)
    statistics = tracker.statistics
    text, told = (
        statistics.to_prometheus(),
        {each["name"]: each for each in json.loads(statistics.to_json())["goals"]},
    )
    trace = load(tmp_path / "trace.json")
    (end,) = trace.of("M", name="end")

    for (first, last), goal in goals.items():
        frames, context = graph.frames(first, last), f"seed {seed}: {goal}"
        fates = Counter(frame.fate(bounds[first]) for frame in frames)
        expected = {"sent": len(frames), **{fate: fates[fate] for fate in (*FATES, "outstanding")}}
        assert {fate: getattr(goal, fate) for fate in expected} == expected, context
        assert (goal.untimed, bool(goal.is_met)) == (0, _is_met(fates)), context
        ended = [frame.latency for frame in frames if frame.fate(bounds[first]) in ("arrived", "late")]
        if is_exact and graph.knows_sending(first):
            assert goal.figure("max") == max(ended, default=0), context
            assert goal.figure("mean") == pytest.approx(np.mean(ended) if ended else 0), context
        assert all(
            sum(part.duration for part in miss.breakdown.parts) == miss.latency for miss in goal.recent
        )
        assert {miss.number - 1 for miss in goal.recent} <= {
            number for number, frame in enumerate(frames) if frame.latency > bounds[first]
        }, context
        for name, count in expected.items():
            assert told[goal.path][name] == getattr(outcome.goals[goal.path], name) == count, context
            if name != "outstanding":
                sample = f'headrace_goal_{name}_total{{application="App",goal="{goal.path}"}} {count}.0'
                assert sample in text, context
        assert end["args"]["goals"][goal.path] == asdict(outcome.goals[goal.path]), context
        for figures in page:
            (shown,) = [each for each in figures["goals"] if each["path"] == f"{first} → {last}"]
            assert [shown[name] for name in ("sent", *FATES)] == [expected[name] for name in ("sent", *FATES)]

    _check_operators(graph, statistics, text, page, is_exact)
    paths = graph.paths()
    in_trace = trace.latencies
    assert {path.name: path.count for path in statistics.paths} == {
        name: len(each) for name, each in paths.items()
    }
    assert {name.replace(" → ", ","): len(each) for name, each in in_trace.items()} == {
        name: len(each) for name, each in paths.items()
    }
    for path in statistics.paths if is_exact else ():
        latencies = paths[path.name]
        assert (path.latency.max, path.latency.min) == (max(latencies), min(latencies)), path.name
        assert path.latency.mean == pytest.approx(np.mean(latencies)), path.name
        name = path.name.replace(",", " → ")
        assert sorted(in_trace[name]) == pytest.approx(sorted(each / 1e3 for each in latencies)), name
        assert (
            f'headrace_path_latency_seconds_count{{application="App",path="{path.name}"}} {path.count}.0'
            in text
        )
    assert len(trace.of("i", cat="drop")) == sum(queue.dropped for queue in statistics.queues)


def _is_met(fates: Counter[str]) -> bool:
    """Return whether a goal is certainly met."""
    return fates["arrived"] > 0 and not (fates["late"] or fates["failed"] or fates["outstanding"])


def _check_operators(
    graph: Graph, statistics: Statistics, text: str, page: list[dict[str, Any]], is_exact: bool
) -> None:
    """Check the figures of operators and queues."""
    for name, computes in graph.by_operator().items():
        operator, took = statistics.operator(name), [each.ended - each.began for each in computes]
        assert (operator.count, operator.retries) == (
            len(computes),
            sum(each.is_retried for each in computes),
        )
        assert f'headrace_computes_total{{application="App",operator="{name}"}} {len(computes)}.0' in text
        if is_exact:
            assert (operator.host.max, operator.host.min) == (max(took), min(took)), name
            assert operator.host.mean == pytest.approx(np.mean(took)), name
        # Its kernels, or a bound.
        kernels = [each.kernel[1] - each.kernel[0] for each in computes if each.kernel]
        if kernels and operator.gpu.is_bound:
            assert operator.gpu.max >= max(kernels), name
        elif kernels:
            assert operator.gpu.max == pytest.approx(max(kernels), abs=10_000), name
        for figures in page:
            (shown,) = [
                found
                for each, found in zip(figures["graph"], figures["operators"], strict=True)
                if each["name"] == name
            ]
            assert (shown["count"], shown["gpu_is_bound"]) == (operator.count, operator.gpu.is_bound)
    for (name, port), (received, waits, dropped) in graph.queues().items():
        queue = statistics.queue(f"{name}.{port}")
        assert (queue.received, queue.dropped) == (received, dropped), queue.name
        if is_exact and waits:
            assert (queue.wait.max, queue.wait.min) == (max(waits), min(waits)), queue.name
