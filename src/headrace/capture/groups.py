"""Which operators a segment may have, and in which order they run."""

from __future__ import annotations

from collections.abc import Sequence
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING

from headrace.core.graph import operators_before, queues_of
from headrace.core.ports import IOSpec

if TYPE_CHECKING:
    from headrace.core.operator import Operator


def in_order(operators: Sequence[Operator]) -> list[Operator]:
    """Return operators without a cycle, each after those that it receives from."""
    members = dict.fromkeys(operators)
    sources = {
        operator: [one for one in operators_before(operator) if one in members] for operator in operators
    }
    return list(TopologicalSorter(sources).static_order())


def why_not_in_group(operator: Operator) -> str:
    """Return why an operator cannot run as a part of a group, as its declarations say; an empty text if it can."""
    if operator.on_error != "stop":
        return f"it has on_error={operator.on_error!r}, and a replay does not call its compute"
    if operator.conditions:
        return (
            f"it has the condition {next(iter(operator.conditions))!r}; an operator of a segment runs for "
            "each frame"
        )
    spec = operator.spec
    if operator._headrace.dynamic_flows is not None:
        return "its flows are chosen after each compute, and a replay does not call its compute"
    if not spec.every_input:
        return "it has no input, and a segment runs when it receives"
    for port in (*spec.every_input.values(), *spec.every_output.values()):
        if port.is_execution:
            return "it orders the computes of others, or is ordered by them, and a replay does not call its compute"
        if port.conditions:
            return f"port {port.name!r} has a condition of its own"
        if port.size != 1:
            return f"port {port.name!r} does not carry one message at a time"
    if spec.or_combined or spec.multi_port:
        return "it has a condition over several ports"
    if any(operator in pool.operators for pool in operator.fragment._headrace.thread_pools):
        return "it is assigned to a thread pool, and a segment runs on one thread"
    return ""


def why_not_a_group(operators: Sequence[Operator]) -> str:
    """Return why operators cannot run as one, as the flows between them say; an empty text if they can."""
    members = set(operators)
    for operator in operators:
        for queue in (
            queue for port in operator.spec.every_input.values() for queue in queues_of(operator, port)
        ):
            if queue.policy is IOSpec.QueuePolicy.LATEST:
                return f"operator {operator.name!r} receives a message several times, at a queue with LATEST"
        for name in operator.spec.every_input:
            flows = [flow for flow in operator._headrace.incoming if flow.input == name]
            inner = [flow for flow in flows if flow.source in members]
            if inner and len(flows) > 1:
                return f"operator {operator.name!r}: several flows lead to input {name!r}"
            for flow in inner:
                sent = flow.source.spec.every_output[flow.output].policy
                policy = flow.policy or operator.spec.every_input[name].policy or sent
                if (flow.size or 1) > 1 or policy not in (None, IOSpec.QueuePolicy.FAULT):
                    return (
                        f"{flow} has a size or a policy of its own, and messages do not wait inside a segment"
                    )
    return ""


def chains_of(operators: Sequence[Operator]) -> list[list[Operator]]:
    """Return the longest chains of two or more of these operators; no message forks, joins or waits in one."""
    follows: dict[Operator, Operator | None] = {}
    for operator in operators:
        targets = {flow.target for flow in operator._headrace.outgoing}
        target = targets.pop() if len(targets) == 1 else None
        follows[operator] = target if target is not None and _follows_only(target, operator) else None
    later = set(follows.values())
    found: list[list[Operator]] = []
    for first in follows:
        chain: list[Operator] = []
        one: Operator | None = first
        while first not in later and one is not None and one in follows and one not in chain:
            chain.append(one)
            one = follows[one]
        if len(chain) > 1:
            found.append(chain)
    return found


def _follows_only(target: Operator, operator: Operator) -> bool:
    """Return whether an operator receives from another alone, and no message waits between them."""
    inputs = [flow.input for flow in target._headrace.incoming]
    waits = any((flow.size or 1) > 1 or flow.policy is not None for flow in target._headrace.incoming)
    waits = waits or any(port.policy is not None for port in target.spec.every_input.values())
    return (
        {flow.source for flow in target._headrace.incoming} == {operator} != {target}
        and len(set(inputs)) == len(inputs)
        and not waits
    )
