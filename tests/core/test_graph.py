"""Questions about a graph, compared with a plain reading of its flows."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace import IOSpec
from headrace.core import Graph, GraphError
from tests.harness import App, Step, run
from tests.limits import examples

EDGES = st.sets(st.tuples(st.integers(0, 5), st.integers(0, 5)).filter(lambda edge: edge[0] < edge[1]))


def graph_of(edges: set[tuple[int, int]]) -> tuple[Graph, list[Any]]:
    """Return a graph of six operators, with an edge from a lower to a higher number for each pair."""
    made: list[Any] = []

    def compose(app: App) -> None:
        made[:] = [
            Step(app, inputs=[("in", {"size": IOSpec.ANY_SIZE})], outputs=["out"], name=f"n{number}")
            for number in range(6)
        ]
        for operator in made:
            app.add_operator(operator)
        for source, target in sorted(edges):
            app.add_flow(made[source], made[target])

    app = App(compose)
    return app.compose_graph(), made


@settings(max_examples=examples(25))
@given(EDGES)
def test_what_is_before_and_behind_a_node(edges: set[tuple[int, int]]) -> None:
    graph, made = graph_of(edges)
    assert graph.get_nodes() == made
    assert graph.get_root_nodes() == [made[n] for n in range(6) if all(n != target for _, target in edges)]
    for number, node in enumerate(made):
        behind = [made[target] for source, target in sorted(edges) if source == number]
        assert graph.get_next_nodes(node) == behind
        assert graph.get_previous_nodes(node) == [made[s] for s, t in sorted(edges) if t == number]
        assert graph.is_leaf(node) is not bool(behind)
    inputs, outputs = graph.get_port_connectivity_maps()
    pairs = {(f"n{source}.out", f"n{target}.in") for source, target in edges}
    assert {(output, name) for name, found in inputs.items() for output in found} == pairs
    assert {(name, input_) for name, found in outputs.items() for input_ in found} == pairs
    described = yaml.safe_load(graph.port_map_description())
    assert described == {"input_to_output": inputs or None, "output_to_input": outputs or None}


def test_a_removed_node_takes_its_flows_with_it() -> None:
    graph, made = graph_of({(0, 1), (1, 2)})
    graph.remove(made[1])
    assert made[1] not in graph.get_nodes()
    assert graph.is_leaf(made[0])
    assert graph.is_root(made[2])
    with pytest.raises(GraphError, match="operator 'n1' is not in the graph"):
        graph.remove(made[1])


def test_a_flow_that_was_removed_in_compose_is_not_run() -> None:
    ticks: list[str] = []

    def compose(app: App) -> None:
        def body(op: Step, i: Any, o: Any) -> None:
            ticks.append(op.name)
            op.stop_execution()

        first = Step(app, outputs=["out"], body=body, name="first")
        second = Step(app, outputs=["out"], body=body, name="second")
        app.add_operator(first)
        app.add_operator(second)
        app._headrace.made.remove(second)
        app.graph.remove(second)

    run(compose)
    assert ticks == ["first"]
