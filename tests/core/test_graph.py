"""A graph that operators and flows are removed from."""

from __future__ import annotations

from typing import Any

import pytest

from headrace import IOSpec
from headrace.core import Graph, GraphError
from tests.harness import App, Step, run


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


def test_a_removed_node_takes_its_flows_with_it() -> None:
    graph, made = graph_of({(0, 1), (1, 2)})
    graph.remove(made[1])
    assert made[1] not in graph.operators
    assert not graph.flows
    assert not made[0].next_flows
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
