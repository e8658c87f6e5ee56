"""Assembly: from what a program declared to the nodes and queues of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.core.condition import Condition, ConditionType
from penstock.core.errors import GraphError, choices
from penstock.core.ports import IOSpec, PortCondition
from penstock.runtime.contexts import ExecutionContext, InputContext, OutputContext
from penstock.runtime.engine import Engine
from penstock.runtime.node import Node
from penstock.runtime.queue import Nowhere, Queue
from penstock.runtime.run_streams import RunStreams
from penstock.runtime.streams import NodeStreams

if TYPE_CHECKING:
    from penstock.core.fragment import Fragment
    from penstock.core.operator import Operator
    from penstock.core.spec import OperatorSpec

__all__ = ["assemble"]

_NONE = ConditionType.NONE


def assemble(fragment: Fragment) -> Engine:
    """Make the engine that runs the composed graph of `fragment`."""
    scheduler = fragment.scheduler()
    scheduler.choose_clock()
    engine = Engine(scheduler)
    nodes: dict[Operator, Node] = {}
    for operator in fragment.graph:
        node = nodes[operator] = Node(engine, operator)
        node.lane = engine.lanes[0]
        operator._node = node
        operator.metadata.node = node
        operator.metadata.clear()
        node.special = False
        engine.nodes.append(node)
    for node in engine.nodes:
        _make_input_queues(node, nodes)
    for node in engine.nodes:
        _find_output_queues(node, nodes)
    for node in engine.nodes:
        _attach_conditions(node)
    for node in engine.nodes:
        for queue in node.inputs:
            if len(queue.feeders) > 1:
                queue.share()
            if len(queue.producers) > 1:
                for producer in queue.producers:
                    producer.shared = (*producer.shared, queue)
        node.input = InputContext(node)
        node.output = OutputContext(node)
        node.context = ExecutionContext(node)
    engine.streams = RunStreams(fragment)
    for node in engine.nodes:
        node.streams = NodeStreams(engine.streams, node)
    return engine


def _make_input_queues(node: Node, nodes: dict[Operator, Node]) -> None:
    operator = node.operator
    for name, port in operator.spec.inputs.items():
        flows = [flow for flow in operator._incoming if flow.input == name]
        policy = port.policy
        if policy is None:
            inherited = {flow.source.spec.outputs[flow.output].policy for flow in flows} - {None}
            if len(inherited) > 1:
                raise GraphError(
                    f"input {name!r} of operator {operator.name!r} is fed by outputs with different queue "
                    "policies; declare the input with policy=..."
                )
            policy = inherited.pop() if inherited else IOSpec.QueuePolicy.FAULT
        if port.is_receivers:
            queues = tuple(Queue(node, name, 1, policy) for _ in flows)
        else:
            limit = port.size or max(len(flows), 1)
            queues = (Queue(node, name, limit, policy),)
            queues[0].min_size = limit
        node.input_queues[name] = queues
    node.inputs = tuple(queue for queues in node.input_queues.values() for queue in queues)


def _find_output_queues(node: Node, nodes: dict[Operator, Node]) -> None:
    operator = node.operator
    needs: dict[Queue, int] = {}
    for name, port in operator.spec.outputs.items():
        queues: list[Queue] = []
        for flow in operator._outgoing:
            if flow.output != name:
                continue
            target = nodes[flow.target]
            behind = target.input_queues[flow.input]
            if target.operator.spec.inputs[flow.input].is_receivers:
                same_port = [other for other in flow.target._incoming if other.input == flow.input]
                queue = behind[next(n for n, other in enumerate(same_port) if other is flow)]
            else:
                queue = behind[0]
            if queue not in queues:
                queues.append(queue)
            if node not in queue.feeders:
                queue.feeders.append(node)
            if not port.conditions:
                _check_room(node, queue, port.size, name)
                # Two outputs into one queue need room for both.
                needs[queue] = min(needs.get(queue, 0) + port.size, queue.limit)
        node.output_queues[name] = tuple(queues) or (Nowhere(),)
    for queue, places in needs.items():
        queue.min_free = max(queue.min_free, places)
        queue.producers.append(node)
    seen: dict[Queue, None] = {}
    for queues_of_port in node.output_queues.values():
        seen.update(dict.fromkeys(queue for queue in queues_of_port if not isinstance(queue, Nowhere)))
    node.outputs = tuple(seen)


def _check_room(node: Node, queue: Queue, places: int, port: str) -> None:
    if places > queue.limit:
        raise GraphError(
            f"output {port!r} of operator {node.name!r} emits up to {places} messages at once and the queue "
            f"of input {queue.port!r} of operator {queue.consumer.name!r} holds {queue.limit}; declare that "
            f"input with size={places} or more"
        )


def _attach_conditions(node: Node) -> None:
    """Give a node the conditions of its ports and of its operator.

    A port has its default condition unless `setup` put another on it, or a condition that was given to the
    operator, or one over several ports, is about it.
    """
    operator = node.operator
    spec = operator.spec
    given = list(operator.conditions.values())
    _check_given(node, given)
    ports = [*spec.inputs.values(), *spec.outputs.values()]
    groups = [[_find(spec, name) for name in names] for names in spec.or_combined]
    combined = {port for group in groups for port in group}
    taken = {spec.inputs[name] for wanted in spec.multi_port for name in wanted.ports}
    taken.update(port for condition in given for port in _about(spec, condition))

    made: dict[IOSpec, list[Condition]] = {}
    for port in ports:
        made[port] = [_make(operator, wanted) for wanted in port.conditions if wanted.kind is not _NONE]
        if port in combined and not port.conditions:
            made[port] = [_default(operator, port, node)]
        if port in taken or port in combined or port.conditions:
            _drop_default(node, port)

    for port, conditions in made.items():
        if port not in combined:
            for condition in conditions:
                condition.attach(node)
    for group in groups:
        _combine(operator, group, [condition for port in group for condition in made[port]]).attach(node)
    for wanted in spec.multi_port:
        _make(operator, wanted).attach(node)
    in_groups = {id(term) for condition in given for term in condition.terms}
    for condition in given:
        if id(condition) not in in_groups:
            condition.attach(node)


def _find(spec: OperatorSpec, name: str) -> IOSpec:
    """Find a port where only a name says which: an input before an output of the same name."""
    return spec.inputs[name] if name in spec.inputs else spec.outputs[name]


def _about(spec: OperatorSpec, condition: Condition) -> list[IOSpec]:
    """Give the ports that a condition is about."""
    if condition.terms:
        return [port for term in condition.terms for port in _about(spec, term)]
    ports = spec.outputs if condition.port_role == "transmitter" else spec.inputs
    return [ports[name] for name in condition.port_names]


def _check_given(node: Node, given: list[Condition]) -> None:
    for condition in given:
        other = condition._node
        if other is not None and other.engine is node.engine:
            raise GraphError(
                f"condition {condition.name!r} was given to the operators {other.name!r} and {node.name!r}; "
                "make one for each"
            )
        for term in condition.terms or (condition,):
            ports = node.output_queues if term.port_role == "transmitter" else node.input_queues
            for name in term.port_names:
                if name not in ports:
                    raise GraphError(
                        f"condition {term.name!r} of operator {node.name!r} is about a port {name!r} "
                        f"that the operator does not have; it has {choices(ports)}"
                    )


def _drop_default(node: Node, port: IOSpec) -> None:
    """Take away the condition that a port has without being asked for."""
    if port.io_type is IOSpec.IOType.INPUT:
        for queue in node.input_queues[port.name]:
            queue.min_size = 0
        return
    for queue in node.output_queues[port.name]:
        if node in queue.producers:
            queue.producers.remove(node)


def _combine(operator: Operator, ports: list[IOSpec], terms: list[Condition]) -> Condition:
    # Imported here: the catalogue builds on runtime, and this is the one thing runtime takes from it.
    from penstock.conditions.either import OrConditionCombiner

    names = ", ".join(port.name for port in ports)
    return OrConditionCombiner(operator.fragment, terms=terms, name=f"any of {names}")


def _make(operator: Operator, wanted: PortCondition) -> Condition:
    """Make a condition that `setup` asked for by its kind."""
    import penstock.conditions  # noqa: F401  (the catalogue registers its kinds)

    kind = Condition.kinds[wanted.kind]
    arguments: dict[str, Any] = dict(wanted.arguments)
    if kind.port_role == "receivers":
        arguments.setdefault("receivers", list(wanted.ports))
    elif kind.port_role is not None:
        arguments.setdefault(kind.port_role, wanted.ports[0])
    try:
        return kind(operator.fragment, **arguments)
    except TypeError as error:
        error.add_note(
            f"raised for the condition {wanted.kind.name} on {', '.join(map(repr, wanted.ports))} "
            f"of operator {operator.name!r}"
        )
        raise


def _default(operator: Operator, port: IOSpec, node: Node) -> Condition:
    """Make the condition that a port has without being asked for, to be combined with others."""
    if port.io_type is IOSpec.IOType.OUTPUT:
        kind, least = ConditionType.DOWNSTREAM_MESSAGE_AFFORDABLE, port.size
    else:
        queues = node.input_queues[port.name]
        kind, least = ConditionType.MESSAGE_AVAILABLE, queues[0].min_size if queues else 1
    return _make(operator, PortCondition(kind, {"min_size": least}, (port.name,)))
