"""Assembly: create the nodes and queues of a run from a program's declarations.

Supplies: what a run is given from the layers above the runtime, which the runtime does not import.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace._runtime.contexts.execution import ExecutionContext
from headrace._runtime.contexts.input import InputContext
from headrace._runtime.contexts.output import OutputContext
from headrace._runtime.lifecycle.node_conditions import NodeConditions, terms_of
from headrace._runtime.messages.queue import Queue, UnconnectedQueue
from headrace._runtime.scheduling.engine import Engine
from headrace._runtime.scheduling.group import Group
from headrace._runtime.scheduling.node import Node
from headrace._runtime.scheduling.queue_state import QueueState, RoomLine, SharedRoom
from headrace._runtime.streams.node_streams import NodeStreams
from headrace._runtime.streams.run_streams import RunStreams
from headrace.core.errors import GraphError
from headrace.core.graph import QueueSpec, is_source, queues_of
from headrace.core.run_options import read_run_options

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace._runtime.observer import Observer
    from headrace._runtime.scheduling.group import GroupPlan
    from headrace.core.composition import Composition
    from headrace.core.condition import Condition
    from headrace.core.graph import Flow
    from headrace.core.operator import Operator
    from headrace.core.ports import ConditionType
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
