"""What the SDK's graphs answer, compared with a plain reading of their flows; and its names of metadata."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace_holoscan.core import Application, IOSpec, MetadataDictionary, MetadataPolicy, Operator

EDGES = st.sets(st.tuples(st.integers(0, 5), st.integers(0, 5)).filter(lambda edge: edge[0] < edge[1]))


class Node(Operator):
    """Receives from any number of operators."""

    def setup(self, spec: Any) -> None:
        spec.input("in", size=IOSpec.ANY_SIZE)
        spec.output("out")


@settings(max_examples=25)
@given(EDGES)
def test_what_is_before_and_behind_a_node(edges: set[tuple[int, int]]) -> None:
    app: Any = Application()
    made = [Node(app, name=f"n{number}") for number in range(6)]
    for operator in made:
        app.add_operator(operator)
    for source, target in sorted(edges):
        app.add_flow(made[source], made[target])
    graph = app.graph
    assert graph.get_nodes() == made
    assert graph.get_root_nodes() == [made[n] for n in range(6) if all(n != target for _, target in edges)]
    for number, node in enumerate(made):
        behind = [made[target] for source, target in sorted(edges) if source == number]
        assert graph.get_next_nodes(node) == behind
        assert graph.get_previous_nodes(node) == [made[s] for s, t in sorted(edges) if t == number]
        assert graph.is_leaf(node) is not bool(behind)
    inputs, outputs = graph.get_port_connectivity_maps()
    pairs = {(f"n{source}.out", f"n{target}.in") for source, target in edges}
    assert {(output, name.partition(":")[0]) for name, found in inputs.items() for output in found} == pairs
    assert {(name, each.partition(":")[0]) for name, found in outputs.items() for each in found} == pairs
    described = yaml.safe_load(graph.port_map_description())
    assert described == {"input_to_output": inputs or None, "output_to_input": outputs or None}


def test_a_parameter_of_the_receivers_kind_is_an_input() -> None:
    class Joined(Operator):
        def setup(self, spec: Any) -> None:
            spec.param("receivers", kind="receivers")

    assert Joined(Application(), name="joined").spec.inputs["receivers"].is_receivers


def filled(**entries: Any) -> Any:
    metadata = MetadataDictionary()
    metadata.update(entries)
    return metadata


def test_entries_are_inserted_merged_swapped_and_erased() -> None:
    metadata, other = filled(a=1, b=2), filled(b=3, c=4)
    metadata.insert(other)
    assert (dict(metadata), dict(other)) == ({"a": 1, "b": 2, "c": 4}, {"b": 3, "c": 4})
    metadata, other = filled(a=1, b=2), filled(b=3, c=4)
    metadata.merge(other)
    assert (dict(metadata), dict(other)) == ({"a": 1, "b": 2, "c": 4}, {"b": 3})
    metadata.swap(other)
    assert (dict(metadata), dict(other)) == ({"b": 3}, {"a": 1, "b": 2, "c": 4})
    assert metadata.has_key("b")
    assert [metadata.erase("b"), metadata.erase("b")] == [True, False]
    assert metadata.size() == 0
    assert filled(a=1, b="x").type_dict() == {"a": "int", "b": "str"}
    assert type(metadata.copy()) is MetadataDictionary
    assert type(Operator(Application(), name="op").metadata) is MetadataDictionary


def test_values_are_stored_as_plain_objects_on_demand() -> None:
    metadata = filled()
    metadata.set("list", np.array([1, 2]), dtype=np.dtype("float32"), cast_to_cpp=True)
    assert metadata["list"] == [1.0, 2.0]
    metadata.policy = MetadataPolicy.RAISE
    with pytest.raises(RuntimeError, match="already set"):
        metadata.set("list", 1)
