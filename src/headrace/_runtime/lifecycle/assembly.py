"""Assembly: create the nodes, queues and conditions of a run from a program's declarations.

The conditions of an operator, those of its ports included, are created once, when the operator becomes part of the
run, and keep their state until its end. `NodeConditions.attach` lets them look up the queues of the operator; it is
called again when the flows of the operator have changed.

Supplies: what a run is given from the layers above the runtime, which the runtime does not import.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace._runtime.contexts.execution import ExecutionContext
from headrace._runtime.contexts.input import InputContext
from headrace._runtime.contexts.output import OutputContext
from headrace._runtime.messages.queue import Queue, UnconnectedQueue
from headrace._runtime.scheduling.engine import Engine
from headrace._runtime.scheduling.evaluated_conditions import leaves_of
from headrace._runtime.scheduling.group import Group
from headrace._runtime.scheduling.node import Node
from headrace._runtime.scheduling.queue_state import QueueState, RoomLine, SharedRoom
from headrace._runtime.streams.node_streams import NodeStreams
from headrace._runtime.streams.run_streams import RunStreams
from headrace.core.condition import Condition
from headrace.core.errors import GraphError, add_note, choices
from headrace.core.graph import QueueSpec, is_source, queues_of
from headrace.core.ports import ConditionType, IOSpec, PortCondition
from headrace.core.run_options import read_run_options

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace._runtime.observer import Observer
    from headrace._runtime.scheduling.group import GroupPlan
    from headrace.core.composition import Composition
    from headrace.core.graph import Flow
    from headrace.core.operator import Operator
    from headrace.core.run_options import RunOptions
    from headrace.core.scheduler import Scheduler


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
            _give_conditions(node, supplies)
            limit_source(node, supplies)
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
        scheduled.ready_queue = engine.ready_queues[0]
        _set_node(operator, node)
        engine.operator_nodes.append(node)
        if scheduled not in engine.nodes:
            engine.nodes.append(scheduled)


def _set_node(operator: Operator, node: Node) -> None:
    """Let an operator be in a run, without metadata of an earlier one."""
    node.ready_queue = node.engine.ready_queues[0]
    operator._headrace.node = node
    operator.metadata.node = node
    # Read after the node is set, as in `Operator.async_condition`.
    if operator._headrace.hold_condition is not None:
        node.scheduled.joining.append(operator._headrace.hold_condition)
    operator.metadata.is_joined = operator.spec.is_joined
    operator.metadata.clear()
    node.has_extra_work = False


def _complete(fragment: Composition, engine: Engine) -> None:
    """Create the contexts and the streams of every node, now that the queues exist."""
    share_rooms(engine.nodes)
    captured = [operator for group in engine.groups for operator in group.operators]
    engine.streams = RunStreams(fragment, captured)
    engine.followers.append(engine.streams.follow)
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
        if node.operator._headrace.dynamic_flows is not None
        and node.operator.fragment._headrace.root.allows_undeclared_flows
    ]
    for queue in (queue for node in engine.nodes for queue in node.inputs):
        queue.feeders += [node for node in choosing if node not in queue.feeders]


def _give_conditions(node: Node, supplies: Supplies) -> None:
    """Attach the conditions of a node."""
    node.declared = NodeConditions(node, supplies)
    node.declared.attach()
    node.take_on_conditions()


def limit_source(node: Node, supplies: Supplies) -> None:
    """Limit the computes of a source if the run is limited; when its flows are known."""
    limit = read_run_options().over(supplies.limits).count
    if limit is not None and is_source(node.operator):
        node.limit_count(limit)


def _make_contexts(node: Node, engine: Engine) -> None:
    node.input = InputContext(node)
    node.output = OutputContext(node)
    node.context = ExecutionContext(node)
    node.streams = NodeStreams(engine.streams, node, engine.streams.layout.of(node.operator))


def join_node(operator: Operator, engine: Engine, supplies: Supplies) -> dict[Flow, Queue]:
    """Create the node of an operator that joins a run, and return the queues of its flows.

    Nothing sends to these yet: the run follows the graph later.
    """
    node = Node(engine, operator)
    _set_node(operator, node)
    queues: dict[Flow, Queue] = {}
    _make_input_queues(node, queues, make_queue(engine))
    node.output_queues = {name: (UnconnectedQueue(),) for name in operator.spec.every_output}
    _take_conditions(node)
    _give_conditions(node, supplies)
    _make_contexts(node, engine)
    return queues


def make_queue(engine: Engine) -> Callable[..., Queue]:
    """Return what makes the queues of a run that is in progress."""
    return Queue if engine.observer is None else engine.observer.make_queue


def _make_input_queues(node: Node, queues: dict[Flow, Queue], make_queue: Callable[..., Queue]) -> None:
    for name, port in node.operator.spec.every_input.items():
        node.input_queues[name] = tuple(
            make_input_queue(node, name, declared, queues, make_queue)
            for declared in queues_of(node.operator, port)
        )
    node.inputs = tuple(queue for made in node.input_queues.values() for queue in made)


def make_input_queue(
    node: Node, name: str, declared: QueueSpec, queues: dict[Flow, Queue], make_queue: Callable[..., Queue]
) -> Queue:
    """Create a queue of an input, and add it to `queues` for each of its flows."""
    queue = make_queue(node, name, declared.size, declared.policy)
    queue.min_size = declared.least
    queue.is_fixed = bool(declared.flows)
    queue.state = QueueState(queue)
    queues.update(dict.fromkeys(declared.flows, queue))
    return queue


def _find_output_queues(node: Node, queues: dict[Flow, Queue]) -> None:
    operator = node.operator
    seen: dict[Queue, None] = {}
    for name in operator.spec.every_output:
        behind = dict.fromkeys(queues[flow] for flow in operator._headrace.outgoing if flow.output == name)
        node.output_queues[name] = tuple(behind) or (UnconnectedQueue(),)
        seen.update(behind)
    node.outputs = tuple(seen)
    for queue in node.outputs:
        queue.feeders.append(node)


# Room.


def share_rooms(nodes: Iterable[Node]) -> None:
    """Let the producers of each queue of some nodes that has several share it."""
    for node in nodes:
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
    given = node.operator._headrace.conditions
    terms = [term for condition in given for term in terms_of(condition)]
    for term in terms:
        if sum(term is other for other in terms) > 1:
            raise GraphError(
                f"condition {term.name!r} of operator {node.name!r} is a term more than once; create one for each"
            )
    for condition in {id(condition): condition for condition in (*given, *terms)}.values():
        with _GIVING:
            other = condition._headrace.node
            if other is None:
                condition._headrace.node = node
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


def _give_conditions_back(engine: Engine) -> None:
    """Release the conditions of a run that will not take place."""
    for node in engine.nodes:
        for condition in node.operator._headrace.conditions:
            for each in (condition, *terms_of(condition)):
                if each._headrace.node is not None and each._headrace.node.engine is engine:
                    each._headrace.node = None


@dataclass(frozen=True, slots=True)
class Supplies:
    """What the application gives a run."""

    scheduler: Callable[[Composition, RunOptions], Scheduler]
    """Returns the scheduler of a run of a composed fragment, with what the environment changes."""
    observer: Callable[[Composition], Observer | None]
    """Returns what watches the run, or None if nothing was asked for."""
    groups: Callable[[Composition], Sequence[GroupPlan]]
    """Returns the groups of operators that the run schedules as one."""
    progress: Callable[[Composition], AbstractContextManager[None]]
    """Returns the context in which the progress of the run is shown."""
    conditions: Mapping[ConditionType, type[Condition]]
    """The classes of the conditions that a port selects by name."""
    limits: RunOptions
    """What the call of `run` asks for; the environment comes first."""
    drain: Callable[[Composition], None]
    """Ends the sources of the run, so that it ends when what is under way has been computed."""
    any_of: Callable[..., Condition]
    """Combines the conditions `terms` of a fragment, under a `name`, so that any one of them is enough."""


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
