"""Execution flows: an operator runs after each compute of others, and no data passes between them.

An operator that comes before others has the output ``__output_exec__``, on which the run sends an empty message
after each of its computes. An operator that comes after others has the input ``__input_exec__``, with a queue for
each of them; the run takes these messages before each of its computes. In everything else they are ordinary ports:
in their queues, in room and ends, in metadata, and in the order of streams.

An operator waits for all that come before it, except for the head of a loop. After a compute, a program
may choose which flows its messages take (`DynamicFlows`).

The head of a loop, to which the loop leads back, would wait for itself. So it runs after each of those before it,
one at a time. The flows back to it come first, and have room for all messages that the loop can hold: a message
from outside enters the loop only if none waits there. So the operators of a loop never wait for each other's room.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headrace.core.errors import GraphError
from headrace.core.graph import edges_back, is_source
from headrace.core.metadata import MetadataPolicy
from headrace.core.ports import INPUT_EXEC, ConditionType
from headrace.core.wiring import Port

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.core.graph import Flow, Graph
    from headrace.core.operator import Operator


class DynamicFlows:
    """The flows that an operator has chosen for what it emits in one compute.

    Attributes
    ----------
    choose
        Called with the operator after each compute; it calls :meth:`Operator.add_dynamic_flow`.
    chosen
        The flows chosen so far; None while the operator does not compute.
    cut
        By each flow to another process, as the program declared it: the flow to the link operator in its place.
    """

    __slots__ = ("_operator", "choose", "chosen", "cut")

    def __init__(self, operator: Any, choose: Callable[[Any], object]) -> None:
        self._operator = operator
        self.choose = choose
        self.chosen: list[Any] | None = None
        self.cut: dict[Any, Any] = {}

    @property
    def flows(self) -> list[Any]:
        """The flows that may be chosen, as the program declared them."""
        declared = {instead: flow for flow, instead in self.cut.items()}
        return [declared.get(flow, flow) for flow in self._operator._headrace.outgoing]

    def add(self, given: tuple[Any, ...]) -> None:
        """Choose flows, in one of the forms of :meth:`Operator.add_dynamic_flow`."""
        operator = self._operator
        if self.chosen is None:
            raise GraphError(
                f"operator {operator.name!r}: add_dynamic_flow is called after a compute, in the function that "
                "set_dynamic_flows was given"
            )
        if len(given) == 1 and isinstance(given[0], (list, tuple)):
            for one in given[0]:
                self.add((one,))
            return
        for named in self._named(given):
            flow = self.cut.get(named, named)
            if flow not in self.chosen:
                self.chosen.append(flow)

    def _named(self, given: tuple[Any, ...]) -> list[Any]:
        operator = self._operator
        flows = self.flows
        if len(given) == 1 and given[0] in flows:
            return [given[0]]
        output = given[0] if given and isinstance(given[0], str) else None
        rest = given if output is None else given[1:]
        end = rest[0] if rest else None
        target, input_ = (end.owner, end.name) if isinstance(end, Port) else (end, None)
        if len(rest) == 2 and isinstance(rest[1], str):
            input_ = rest[1] or None
        if len(rest) > 2 or (len(rest) == 2 and not isinstance(rest[1], str)) or not hasattr(target, "spec"):
            raise TypeError(
                f"operator {operator.name!r}: add_dynamic_flow takes an operator, a flow, or the names of the "
                f"ports and the operator: ('out', operator, 'in'); not {', '.join(map(repr, given))}"
            )
        in_graph = getattr(getattr(target, "_headrace", None), "receiver", target)  # of one with workers=
        found = [
            flow
            for flow in flows
            if flow.target in (target, in_graph)
            and (not output or flow.output == output)
            and (not input_ or flow.input == input_)
        ]
        return found or [
            operator.fragment._headrace.undeclared_flow(operator, output or "", target, input_ or "")
        ]


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
