"""Random graphs with random segments do what they do without capture, and use no more memory for it."""

from __future__ import annotations

import gc
import warnings
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.gpu import sim
from tests.gpu.segment_graphs import Graph, graphs
from tests.gpu.segment_programs import Sink, Source, Stage, chain, run_with
from tests.harness import SCHEDULERS, MakeScheduler, event_based, greedy
from tests.limits import examples


def in_use(machine: sim.Machine) -> int:
    """Return the bytes of the device that are allocated."""
    memory = machine.devices[0].memory
    with memory._lock:
        memory._sort_freed()
        return int(memory.in_use)


def check(graph: Graph, scheduler: MakeScheduler, mode: str) -> list[Any]:
    with sim.Machine("h200", driver=(13, 0)) as machine:
        sim.Device(0).set_current()
        expected = run_with(graph.compose, "off").seen
        gc.collect()
        before = in_use(machine)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            ran = run_with(graph.compose, mode, scheduler)
        assert ran.seen == expected
        states = [segment.state for segment in ran.segments]
        del ran
        gc.collect()
        assert in_use(machine) == before
    return states


@settings(max_examples=examples(24), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graphs(), st.sampled_from(SCHEDULERS), st.sampled_from(["", "", "", "verify", "strict"]))
def test_a_graph_with_segments_does_what_it_does_without(
    graph: Graph, scheduler: MakeScheduler, mode: str
) -> None:
    states = check(graph, scheduler, mode)
    assert "eager" not in states


@settings(max_examples=examples(12), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graphs(frames=40), st.sampled_from(SCHEDULERS))
def test_a_graph_whose_chains_are_found_does_what_it_does_without(
    graph: Graph, scheduler: MakeScheduler
) -> None:
    check(graph, scheduler, "auto")


@pytest.mark.parametrize("scheduler", [greedy, event_based])
def test_memory_is_flat_over_many_frames(scheduler: MakeScheduler, machine: sim.Machine) -> None:
    frames = 300
    used: list[int] = []

    class Meter(Sink):
        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            super().compute(op_input, op_output, context)
            used.append(in_use(machine))

    def compose(app: Any) -> None:
        members = [Stage(app, times=1, plus=k, name=f"s{k}") for k in range(3)]
        source = Source(app, frames=frames, name="source")
        chain(app, source, *members, Meter(app, late=2, name="sink"))
        app.capture(*members)

    ran = run_with(compose, scheduler=scheduler)
    assert ran.segment.replayed > frames - 50
    assert [one.numbers[1][0] for one in ran.seen["sink"]] == [100 * n + 3 for n in range(frames)]
    assert max(used[100:]) == max(used[100:200])
    assert max(used) < 64 << 10
