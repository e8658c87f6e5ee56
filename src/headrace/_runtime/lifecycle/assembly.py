"""Assembly: create the nodes and queues of a run from a program's declarations."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from headrace._runtime.contexts.execution import ExecutionContext
from headrace._runtime.contexts.input import InputContext
from headrace._runtime.contexts.output import OutputContext
from headrace._runtime.messages.queue import Queue, UnconnectedQueue
from headrace._runtime.scheduling.engine import Engine
from headrace._runtime.scheduling.evaluated_conditions import leaves_of
from headrace._runtime.scheduling.group import Group
from headrace._runtime.scheduling.node import Node
from headrace._runtime.scheduling.queue_state import QueueState
from headrace._runtime.scheduling.room_sharing import RoomLine, SharedRoom
from headrace._runtime.streams.node_streams import NodeStreams
from headrace._runtime.streams.run_streams import RunStreams
from headrace.core.condition import Condition
from headrace.core.condition_types import ConditionType
from headrace.core.errors import GraphError, choices
from headrace.core.notes import add_note
from headrace.core.ports import IOSpec, PortCondition
from headrace.core.queues import queues_of
from headrace.core.run_options import read_run_options

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace._runtime.lifecycle.supplies import Supplies
    from headrace.core.composition import Composition
    from headrace.core.graph import Flow
    from headrace.core.operator import Operator

_NONE = ConditionType.NONE
_FAULT = IOSpec.QueuePolicy.FAULT
_LATEST = IOSpec.QueuePolicy.LATEST

# Held while a condition is assigned to a node, because two applications may be assembled at once.
_GIVING = threading.Lock()


def assemble(fragment: Composition, supplies: Supplies, make_queue: Callable[..., Queue]) -> Engine:
    """Create the engine that runs the composed graph of `fragment`."""
    options = read_run_options().over(supplies.limits)
    engine = Engine(supplies.scheduler(fragment, options))
    engine.groups = [Group(engine, plan) for plan in supplies.groups(fragment)]
    _make_nodes(fragment, engine)
    for node in engine.operator_nodes:
        _make_input_queues(node, engine.queues, make_queue)
    for node in engine.operator_nodes:
        _find_output_queues(node, engine.queues)
    for group in engine.groups:
        group.connect()
    try:
        for node in engine.nodes:
            _take_conditions(node)
        for node in engine.nodes:
            attach_conditions(node, supplies)
            node.take_on_conditions()
            if options.count is not None and not node.inputs and not node.operator._is_link:
                node.limit_count(options.count)
        _complete(fragment, engine)
    except BaseException:
        _give_conditions_back(engine)
        raise
    return engine


def _make_nodes(fragment: Composition, engine: Engine) -> None:
    """Create a node for every operator, and one that is scheduled for every group."""
    of = {operator: group for group in engine.groups for operator in group.operators}
    for operator in fragment.graph:
        group = of.get(operator)
        node = Node(engine, operator) if group is None else group.make_member(operator)
        scheduled = node if group is None else group.node
        node.ready_queue = scheduled.ready_queue = engine.ready_queues[0]
        _set_node(operator, node)
        operator.metadata.is_joined = operator.spec.is_joined
        operator.metadata.clear()
        node.has_extra_work = False
        engine.operator_nodes.append(node)
        if scheduled not in engine.nodes:
            engine.nodes.append(scheduled)


def _set_node(operator: Operator, node: Node) -> None:
    operator._node = node
    operator.metadata.node = node
    # Read after the node is set, as in `Operator.async_condition`.
    if operator._hold_condition is not None:
        node.scheduled.joining.append(operator._hold_condition)


def _complete(fragment: Composition, engine: Engine) -> None:
    """Create the contexts and the streams of every node, now that the queues exist."""
    share_rooms(engine)
    engine.streams = RunStreams(fragment, captured_in(engine))
    of_groups = {group.node for group in engine.groups}
    for node in engine.nodes:
        if node not in of_groups:
            _make_contexts(node, engine)
    for group in engine.groups:
        group.complete(engine.streams)
    expect_undeclared_flows(engine)


def expect_undeclared_flows(engine: Engine) -> None:
    """Let no input end before the operators that may choose to send to it, although no flow says so."""
    choosing = [
        node
        for node in engine.nodes
        if node.operator._dynamic_flows is not None and node.operator.fragment._root.allows_undeclared_flows
    ]
    for queue in (queue for node in engine.nodes for queue in node.inputs):
        queue.feeders += [node for node in choosing if node not in queue.feeders]


def captured_in(engine: Engine) -> list[Operator]:
    """Return the operators of the segments of a run."""
    return [operator for group in engine.groups for operator in group.operators]


def _make_contexts(node: Node, engine: Engine) -> None:
    node.input = InputContext(node)
    node.output = OutputContext(node)
    node.context = ExecutionContext(node)
    node.streams = NodeStreams(engine.streams, node, engine.streams.layout.of(node.operator))


def join_node(operator: Operator, engine: Engine) -> Node:
    """Create the node of an operator that joins a run; it is not connected yet."""
    node = Node(engine, operator)
    node.ready_queue = engine.ready_queues[0]
    _set_node(operator, node)
    operator.metadata.clear()
    node.has_extra_work = False
    for name, port in operator.spec.every_input.items():
        size = max(port.size, 1)
        node.input_queues[name] = (
            () if port.is_receivers else (make_queue(engine)(node, name, size, port.policy or _FAULT),)
        )
    node.inputs = tuple(queue for made in node.input_queues.values() for queue in made)
    node.output_queues = {name: (UnconnectedQueue(),) for name in operator.spec.every_output}
    _take_conditions(node)
    _make_contexts(node, engine)
    return node


def make_queue(engine: Engine) -> Callable[..., Queue]:
    """Return what makes the queues of a run that is in progress."""
    return Queue if engine.observer is None else engine.observer.make_queue


def _make_input_queues(node: Node, queues: dict[Flow, Queue], make_queue: Callable[..., Queue]) -> None:
    for name, port in node.operator.spec.every_input.items():
        made = []
        for declared in queues_of(node.operator, port):
            queue = make_queue(node, name, declared.size, declared.policy)
            queue.min_size = declared.least
            queue.state = QueueState(queue)
            queues.update(dict.fromkeys(declared.flows, queue))
            made.append(queue)
        node.input_queues[name] = tuple(made)
    node.inputs = tuple(queue for made in node.input_queues.values() for queue in made)


def _find_output_queues(node: Node, queues: dict[Flow, Queue]) -> None:
    operator = node.operator
    seen: dict[Queue, None] = {}
    for name in operator.spec.every_output:
        behind = dict.fromkeys(queues[flow] for flow in operator._outgoing if flow.output == name)
        node.output_queues[name] = tuple(behind) or (UnconnectedQueue(),)
        seen.update(behind)
    node.outputs = tuple(seen)
    for queue in node.outputs:
        queue.feeders.append(node)


# Room.


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


def share_rooms(engine: Engine) -> None:
    """Let the producers of each queue that has several share it."""
    for node in engine.nodes:
        for queue in node.inputs:
            if len(queue.feeders) > 1:
                queue.share()
                if queue.state.requests:
                    _share(queue)


def _share(queue: Queue) -> None:
    """Make the producers of a queue that has several reserve the room that they need."""
    state: QueueState = queue.state
    line = state.line = RoomLine(state)
    state.set_waiting(False)
    for request in state.requests:
        request.line = line
        _shared_room(request.node).requests.append(request)
    for node in dict.fromkeys((*queue.feeders, queue.consumer)):
        _shared_room(node).lines.append(line)
    _shared_room(queue.consumer).emptied.append(line)


def _shared_room(node: Node) -> SharedRoom:
    if node.shared_room is None:
        node.shared_room = SharedRoom()
    return node.shared_room


# Conditions.


def _take_conditions(node: Node) -> None:
    """Assign the conditions of an operator to its node alone."""
    given = list(node.operator.conditions.values())
    terms = [term for condition in given for term in _terms(condition)]
    for term in terms:
        if sum(term is other for other in terms) > 1:
            raise GraphError(
                f"condition {term.name!r} of operator {node.name!r} is a term more than once; create one for each"
            )
    for condition in {id(condition): condition for condition in (*given, *terms)}.values():
        with _GIVING:
            other = condition._node
            if other is None:
                condition._node = node
                continue
        if other.engine is node.engine:
            raise GraphError(
                f"condition {condition.name!r} was passed to the operators {other.name!r} and {node.name!r}; "
                "create one for each"
            )
        raise GraphError(
            f"condition {condition.name!r} of operator {node.name!r} is in use by operator {other.name!r} of "
            f"{other.operator.fragment.name!r}, which is running; create one for each"
        )


def _terms(condition: Condition) -> list[Condition]:
    """Return a condition and, recursively, the conditions that it combines."""
    return [each for term in condition.terms for each in (term, *_terms(term))]


def _give_conditions_back(engine: Engine) -> None:
    """Release the conditions of a run that will not take place."""
    for node in engine.nodes:
        for condition in node.operator.conditions.values():
            for each in (condition, *_terms(condition)):
                if each._node is not None and each._node.engine is engine:
                    each._node = None


def attach_conditions(node: Node, supplies: Supplies, held: Sequence[Condition] = ()) -> None:
    """Attach the conditions of its ports and of its operator to a node; those in `held` instead of new ones.

    A port has its default condition unless `setup` replaced it, or a condition that was passed to the operator, or
    a condition over several ports, concerns the port. All other conditions must hold together.
    """
    operator = node.operator
    spec = operator.spec
    given = list(operator.conditions.values())
    ports = {**spec.every_output, **spec.every_input}  # an input before an output of the same name
    groups = [[ports[name] for name in names] for names in spec.or_combined]
    combined = {port for group in groups for port in group}
    stays = {type(condition): condition for condition in held}
    multi = [
        stays.get(supplies.conditions[wanted.kind]) or _make(operator, wanted, supplies)
        for wanted in spec.multi_port
    ]
    taken = {port for condition in (*given, *multi) for port in _about(node, condition)}

    made: dict[IOSpec, list[Condition]] = {}
    for port in (*spec.every_input.values(), *spec.every_output.values()):
        made[port] = [
            _make(operator, wanted, supplies) for wanted in port.conditions if wanted.kind is not _NONE
        ]
        if port in combined and not port.conditions:
            made[port] = [_default(operator, port, node, supplies)]
        is_default = not (port in taken or port in combined or port.conditions)
        if port.io_type is IOSpec.IOType.OUTPUT:
            if is_default:
                _wait_for_room(node, port)
        elif not is_default:
            for queue in node.input_queues[port.name]:
                queue.min_size = 0

    for port, conditions in made.items():
        if port not in combined:
            for condition in conditions:
                condition.attach(node)
    for group in groups:
        terms = [condition for port in group for condition in made[port]]
        names = ", ".join(port.name for port in group)
        supplies.any_of(operator.fragment, terms=terms, name=f"any of {names}").attach(node)
    for condition in multi:
        condition.attach(node)
    in_groups = {id(term) for condition in given for term in _terms(condition)}
    for condition in given:
        if id(condition) not in in_groups:
            condition.attach(node)
    for condition in node.joined:
        condition.attach(node)


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
    kind = operator.fragment._condition_types.get(wanted.kind) or supplies.conditions[wanted.kind]
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
        queues = node.input_queues[port.name]
        kind, least = ConditionType.MESSAGE_AVAILABLE, queues[0].min_size if queues else 1
    condition = _make(operator, PortCondition(kind, {"min_size": least}, (port.name,)), supplies)
    condition.is_default = True
    return condition
