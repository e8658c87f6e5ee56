"""The figures of random graphs, on one worker and on several, are those of a model that knows what became of a frame.

`figure_graphs` has the graphs and the model, `test_figures` more about chains: ticks, and where the time went.
"""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from headrace.gpu import sim
from tests.harness.application import THOROUGH, App, event_based, greedy
from tests.random_programs.figure_graphs import MS, Graph

PROGRAMS = 600 if THOROUGH else 60
FATES = ("arrived", "late", "failed", "dropped", "lost", "outstanding")


@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_every_figure_of_a_graph_is_the_models(seed: int, tmp_path: Path) -> None:
    on_device = seed % 3 == 0
    graph = Graph(seed, on_device)
    workers = seed % 4
    with sim.Machine("h200") if on_device else nullcontext():
        app = App(graph.compose, event_based if workers else greedy, **({"workers": workers} if workers else {}))
        bound = (seed % 7 + 1) * 5 * MS
        # When the results of replicas are sent, in order, only headrace knows.
        bounds = {name: bound if graph.knows_sending(name) else 1 << 40 for name, plan in graph.plans.items()}
        goals = {pair: app.expect("->".join(pair), max=bounds[pair[0]]) for pair in graph.pairs()}
        tracker = app.track(0, 0)
        outcome = app.run()
    graph.finish(outcome)
    statistics = tracker.statistics
    context = f"seed {seed}"
    for pair, goal in goals.items():
        frames = graph.frames(*pair)
        fates = [frame.fate(bounds[pair[0]]) for frame in frames]
        assert {fate: getattr(goal, fate) for fate in FATES} == {fate: fates.count(fate) for fate in FATES}, (
            f"{context} {goal}"
        )
        assert goal.sent == len(frames)
        latencies = [frame.latency for frame, fate in zip(frames, fates) if fate in ("arrived", "late")]
        if graph.knows_sending(pair[0]):
            assert goal.figure("max") == pytest.approx(max(latencies, default=0)), f"{context} {goal}"
    expected = graph.paths()
    assert {path.name: path.count for path in statistics.paths} == {n: len(l) for n, l in expected.items()}, context
    for path in statistics.paths:
        assert (path.latency.max, path.latency.min) == (max(expected[path.name]), min(expected[path.name])), f"{context} {path.name}"
