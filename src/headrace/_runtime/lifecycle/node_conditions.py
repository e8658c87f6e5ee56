"""NodeConditions: the conditions of one operator in a run, those of its ports included.

They are created once, when the operator becomes part of the run, and keep their state until its end. `attach` lets
them look up the queues of the operator; it is called again when the flows of the operator have changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from headrace._runtime.scheduling.evaluated_conditions import leaves_of
from headrace.core.condition import Condition
from headrace.core.errors import GraphError, add_note, choices
from headrace.core.ports import ConditionType, IOSpec, PortCondition

if TYPE_CHECKING:
    from headrace._runtime.lifecycle.assembly import Supplies
    from headrace._runtime.scheduling.node import Node
    from headrace.core.operator import Operator

_NONE = ConditionType.NONE
_LATEST = IOSpec.QueuePolicy.LATEST


class NodeConditions:
    """The conditions of its ports and of its operator.

    A port has its default condition unless `setup` replaced it, or a condition that was passed to the operator, or
    a condition over several ports, concerns the port. All other conditions must hold together.

    Parameters
    ----------
    node
        The operator in the run.
    supplies
        What creates the conditions of ports.
    """

    def __init__(self, node: Node, supplies: Supplies) -> None:
        self._node = node
        operator, spec = node.operator, node.operator.spec
        given = operator._headrace.conditions
        ports = {**spec.every_output, **spec.every_input}  # an input before an output of the same name
        groups = [[ports[name] for name in names] for names in spec.or_combined]
        combined = {port for group in groups for port in group}
        multi = [_make(operator, wanted, supplies) for wanted in spec.multi_port]
        taken = {port for condition in (*given, *multi) for port in _about(node, condition)}
        # The outputs that wait for room, the inputs that wait for no number of messages, and the inputs that wait
        # for messages as one of several ports.
        self._outputs: list[IOSpec] = []
        self._inputs: list[str] = []
        self._alternatives: dict[str, Any] = {}

        made: dict[IOSpec, list[Condition]] = {}
        for port in (*spec.every_input.values(), *spec.every_output.values()):
            is_output = port.io_type is IOSpec.IOType.OUTPUT
            made[port] = [
                _make(operator, wanted, supplies) for wanted in port.conditions if wanted.kind is not _NONE
            ]
            if port in combined and not port.conditions:
                default = _default(operator, port, node, supplies)
                made[port] = [default]
                if not is_output:
                    self._alternatives[port.name] = default
            is_default = not (port in taken or port in combined or port.conditions)
            if is_output and is_default:
                self._outputs.append(port)
            elif not is_output and not is_default:
                self._inputs.append(port.name)

        alone = [condition for port in made if port not in combined for condition in made[port]]
        any_of = [
            supplies.any_of(
                operator.fragment,
                terms=[condition for port in group for condition in made[port]],
                name=f"any of {', '.join(port.name for port in group)}",
            )
            for group in groups
        ]
        in_groups = {id(term) for condition in given for term in terms_of(condition)}
        outer = [condition for condition in given if id(condition) not in in_groups]
        self._conditions: list[Condition] = [*alone, *any_of, *multi, *outer]

    def __iter__(self) -> Iterator[Condition]:
        return iter(self._conditions)

    def attach(self) -> None:
        """Attach the conditions to the node, with the queues that it has now."""
        node = self._node
        for port in self._outputs:
            _wait_for_room(node, port)
        for name, condition in self._alternatives.items():
            condition.min_size = _least(node, name)
        for name in self._inputs:
            for queue in node.input_queues[name]:
                queue.min_size = 0
        for condition in (*self._conditions, *node.joined):
            condition.attach(node)


def terms_of(condition: Condition) -> list[Condition]:
    """Return the conditions that a condition combines, directly or indirectly, the inner ones too."""
    return [each for term in condition.terms for each in (term, *terms_of(term))]


def _wait_for_room(node: Node, port: IOSpec) -> None:
    """Make a node wait for room behind an output, but not in queues that drop: the default."""
    waits_for_all = node.operator.spec.waits_for_queues_that_drop
    for queue in node.output_queues[port.name]:
        if queue.policy is _LATEST:
            continue
        if queue.drops:
            if waits_for_all and queue.limit:
                node.claim_room(queue, port.name, min(port.size, queue.limit))
            continue
        if port.size > queue.limit:
            raise GraphError(
                f"output {port.name!r} of operator {node.name!r} emits up to {port.size} messages at once, but "
                f"the queue of input {queue.port!r} of operator {queue.consumer.name!r} holds {queue.limit}; "
                f"declare that input with size={port.size} or more"
            )
        node.claim_room(queue, port.name, port.size)


def _about(node: Node, condition: Condition) -> list[IOSpec]:
    """Return the ports that a condition concerns; raise for one that the operator does not have."""
    spec = node.operator.spec
    found = []
    for leaf in leaves_of(condition):
        if leaf.port_role is None:  # a condition of the program, which may name both
            ports = {**spec.every_output, **spec.every_input}
        else:
            ports = spec.every_output if leaf.port_role == "transmitter" else spec.every_input
        for name in leaf.ports_of(node):
            if name not in ports:
                raise GraphError(
                    f"condition {leaf.name!r} of operator {node.name!r} names a port {name!r} "
                    f"that the operator does not have; it has {choices(ports)}"
                )
            found.append(ports[name])
    return found


def _make(operator: Operator, wanted: PortCondition, supplies: Supplies) -> Condition:
    """Create a condition that `setup` declared by its type."""
    kind = operator.fragment._headrace.condition_types.get(wanted.kind) or supplies.conditions[wanted.kind]
    arguments: dict[str, Any] = dict(wanted.arguments)
    if kind.port_role == "receivers":
        arguments.setdefault("receivers", list(wanted.ports))
    elif kind.port_role is not None:
        arguments.setdefault(kind.port_role, wanted.ports[0])
    try:
        return kind(operator.fragment, **arguments)
    except TypeError as error:
        add_note(
            error,
            f"raised for the condition {wanted.kind.name} on {', '.join(map(repr, wanted.ports))} "
            f"of operator {operator.name!r}",
        )
        raise


def _default(operator: Operator, port: IOSpec, node: Node, supplies: Supplies) -> Condition:
    """Create the default condition of a port, to be combined with others."""
    if port.io_type is IOSpec.IOType.OUTPUT:
        kind, least = ConditionType.DOWNSTREAM_MESSAGE_AFFORDABLE, port.size
    else:
        kind, least = ConditionType.MESSAGE_AVAILABLE, _least(node, port.name)
    condition = _make(operator, PortCondition(kind, {"min_size": least}, (port.name,)), supplies)
    condition._headrace.is_default = True
    return condition


def _least(node: Node, name: str) -> int:
    """Return how many messages an input waits for if nothing else is declared."""
    queues = node.input_queues[name]
    return queues[0].min_size if queues else 1
