"""The queues of an input: the length, the policy and the flows of each.

An input has one queue for all its flows or, with ``IOSpec.ANY_SIZE``, one queue for each flow. Three places declare
a queue. Its length is the input's ``size``, or the ``size`` in ``add_flow`` if that is larger. Its policy is the
input's policy; if the input has none, the policy in ``add_flow``, or else the output's policy. Flows that share a
queue must agree on its policy. A flow without a policy counts as FAULT, because its producer relies on losing no
message.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.core.errors import GraphError
from headrace.core.ports import IOSpec

if TYPE_CHECKING:
    from headrace.core.graph import Flow
    from headrace.core.operator import Operator

_FAULT = IOSpec.QueuePolicy.FAULT
_LATEST = IOSpec.QueuePolicy.LATEST


@dataclass(frozen=True, slots=True)
class QueueSpec:
    """One queue of an input.

    Attributes
    ----------
    flows
        The flows into it.
    size
        The number of messages it holds.
    least
        The number of messages that the operator waits for, unless it has another condition.
    policy
        What it does when it is full.
    """

    flows: tuple[Flow, ...]
    size: int
    least: int
    policy: IOSpec.QueuePolicy


def queues_of(operator: Operator, port: IOSpec) -> list[QueueSpec]:
    """Return the queues of an input; raise GraphError if the declarations of a queue disagree."""
    flows = [flow for flow in operator._headrace.incoming if flow.input == port.name]
    if port.is_receivers:
        return [_queue(operator, port, (flow,), 1) for flow in flows]
    return [_queue(operator, port, tuple(flows), port.size or max(len(flows), 1))]


def _queue(operator: Operator, port: IOSpec, flows: tuple[Flow, ...], least: int) -> QueueSpec:
    where = f"input {port.name!r} of operator {operator.name!r}"
    policy, size = _policy(where, port, flows), max(_size(where, flows, least), port.capacity)
    if policy is _LATEST:
        if size != 1:
            raise GraphError(
                f"{where} has the policy LATEST, which keeps one message, and room for {size}; leave out the size"
            )
        if operator.spec.is_joined:
            raise GraphError(
                f"{where} has the policy LATEST and is joined with others: a join takes each message once; "
                "use the rule reuse_last() instead"
            )
        least = 0  # it waits for none
    return QueueSpec(flows, size, least, policy)


def _size(where: str, flows: tuple[Flow, ...], least: int) -> int:
    sizes = {flow: flow.size for flow in flows if flow.size is not None}
    if not sizes:
        return least
    if len(set(sizes.values())) > 1:
        listed = ", ".join(f"{flow} with size={size}" for flow, size in sizes.items())
        raise GraphError(f"the flows into {where} share one queue and disagree on its size: {listed}")
    (flow, size) = next(iter(sizes.items()))
    if size < least:
        raise GraphError(
            f"{flow} was connected with size={size}, and {where} takes {least} messages at once; "
            f"give size={least} or more"
        )
    return size


def _policy(where: str, port: IOSpec, flows: tuple[Flow, ...]) -> IOSpec.QueuePolicy:
    if port.policy is not None:
        for flow in flows:
            if flow.policy is not None and flow.policy is not port.policy:
                raise GraphError(
                    f"{flow} was connected with policy={flow.policy.name}, and {where} is declared with "
                    f"policy={port.policy.name}; leave one of them out, or change the input's with "
                    f"queue_policy({port.name!r}, policy=...)"
                )
        return port.policy
    chosen = [flow.policy or flow.source.spec.every_output[flow.output].policy or _FAULT for flow in flows]
    if len(set(chosen)) > 1:
        listed = ", ".join(f"{flow} has {policy.name}" for flow, policy in zip(flows, chosen, strict=True))
        flows[0].target.fragment._headrace.report(
            f"the flows into {where} share one queue and have different policies: {listed}; declare the "
            "input with policy=..., or with size=IOSpec.ANY_SIZE, which gives each flow a queue of its own"
        )
    return next((policy for policy in chosen if policy is not _FAULT), _FAULT)
