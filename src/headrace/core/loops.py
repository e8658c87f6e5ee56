"""Loops of execution flows: which flows lead back, and what that means for the head of a loop.

An operator waits for all that come before it. The head of a loop, to which the loop leads back, would wait for
itself. So it runs after each of them, one at a time. The flows back to it come first, and have room for all
messages that the loop can hold: a message from outside enters the loop only if none waits there. So the operators
of a loop never wait for each other's room.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.core.condition_types import ConditionType
from headrace.core.graph import is_source
from headrace.core.graph_queries import edges_back
from headrace.core.metadata import MetadataPolicy
from headrace.core.ports import INPUT_EXEC

if TYPE_CHECKING:
    from headrace.core.graph import Flow, Graph
    from headrace.core.operator import Operator


def settle_execution(graph: Graph) -> None:
    """Let the heads of loops run after each of the operators before them; when the graph is complete."""
    if not any(INPUT_EXEC in operator.spec.every_input for operator in graph):
        return
    sources = [operator for operator in graph if is_source(operator)]
    for flow in edges_back((*sources, *graph), _leaving):
        if flow.input != INPUT_EXEC:
            continue
        head, larger = flow.target, replace(flow, size=len(graph) + len(graph.flows))
        for flows in (graph.flows, flow.source._headrace.outgoing, head._headrace.incoming):
            flows[flows.index(flow)] = larger
        if not any(condition.ports == (INPUT_EXEC,) for condition in head.spec.multi_port):
            head.spec.multi_port_condition(
                ConditionType.MULTI_MESSAGE_AVAILABLE, [INPUT_EXEC], sampling_mode="SumOfAll", min_sum=1
            )
        if head.metadata_policy is MetadataPolicy.DEFAULT:
            # What it sets comes back to it.
            head.metadata_policy = MetadataPolicy.UPDATE


def _leaving(operator: Operator) -> list[tuple[Flow, Operator]]:
    return [(flow, flow.target) for flow in operator._headrace.outgoing]


def back_flows(operator: Operator) -> list[Flow]:
    """Return the flows by which loops lead back to an operator and order its computes."""
    return [
        flow for flow in operator._headrace.incoming if flow.input == INPUT_EXEC and flow.size is not None
    ]
