"""Changes: flows that are added and removed, and operators that begin, while a run is in progress.

A change is checked in the thread that asks for it, and so an error is raised there. A new operator is started
there, too, so that a slow `start` holds nobody up. The graph changes at once. The run follows at a safe point, when
no operator computes (`gate`): between two computes on one thread, or when the workers have finished theirs.

There the nodes at the ends of the flows that have changed get their queues from the graph, and their conditions
look them up (`connect`). Messages stay in their queues, conditions keep their state, and every node keeps its
contexts, streams and counts. What else depends on the flows has registered to be told (`Engine.followers`). The
blockers of all nodes that may still run are then counted again, as at the
beginning: producers of a shared queue wait in a line, and lines lead from node to node. A node that has ended takes
no part.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from headrace._runtime.lifecycle.accounts import MessageCounter, keeping_counts
from headrace._runtime.lifecycle.assembly import (
    expect_undeclared_flows,
    join_node,
    limit_source,
    make_input_queue,
    make_queue,
    share_rooms,
)
from headrace._runtime.messages.queue import Queue, UnconnectedQueue
from headrace._runtime.scheduling.evaluated_conditions import ENDED, NOTHING, OVER, THROTTLED
from headrace.core.checks import check_operator, check_waits_for_something
from headrace.core.errors import GraphError
from headrace.core.graph import QueueSpec, queues_of
from headrace.core.ports import OperatorStatus
from headrace.gpu.backend import aside

if TYPE_CHECKING:
    from headrace._runtime.lifecycle.assembly import Supplies
    from headrace._runtime.scheduling.engine import Engine
    from headrace._runtime.scheduling.node import Node
    from headrace.core.composition import Composition
    from headrace.core.graph import Flow, PortPairs
    from headrace.core.operator import Operator


class Changes:
    """The changes of one run; any thread may ask for one.

    Parameters
    ----------
    fragment, engine, supplies
        What runs.
    initialize, start
        Initialize operators and their resources, and start one.
    started
        The operators that the run stops at its end.
    """

    def __init__(
        self,
        fragment: Composition,
        engine: Engine,
        supplies: Supplies,
        initialize: Callable[[list[Operator]], None],
        start: Callable[[Operator], None],
        started: list[Operator],
    ) -> None:
        self._fragment = fragment
        self._engine = engine
        self._supplies = supplies
        self._initialize = initialize
        self._start_one = start
        self._started = started
        # Held while a change is prepared; the tear-down waits for it.
        self._lock = threading.RLock()
        # Held while the graph changes, and while the run follows it. Nobody waits for the other lock meanwhile.
        self._graph_lock = threading.Lock()
        # Whether the graph has flows of operators that are being started.
        self._is_preparing = False
        self._is_open = False
        # Set when the run begins, or ends before. The thread that starts its operators cannot wait for that.
        self._has_opened = threading.Event()
        self._starting = threading.get_ident()
        # The operators whose flows have changed since the run followed the last time, and those of them that are
        # not part of the run yet, each with its queues.
        self._changed: dict[Operator, None] = {}
        self._joining: list[tuple[Node, dict[Flow, Queue]]] = []
        self._applied = threading.Condition()
        # The numbers of changes: asked for, made.
        self._asked = self._done = 0

    def open(self) -> None:
        """Allow changes: the run begins."""
        self._is_open = True
        self._has_opened.set()

    def close(self) -> None:
        """Allow no more changes: the run ends. Operators that were about to join it are stopped with the others."""
        with self._lock:
            self._is_open = False
            self._has_opened.set()
            self._adopt()
        with self._applied:
            self._applied.notify_all()

    # From any thread.

    def add_operator(self, operator: Operator) -> None:
        """Start an operator, and let it run."""
        with self._opened():
            self._check(f"add_operator({operator.name!r})", operator)
            self._change(lambda: self._fragment.graph.add(operator), operator)

    def add_flows(self, call: str, flows: list[Flow]) -> None:
        """Connect operators, each of which may be new; all flows or none."""
        with self._opened():
            self._check(call, *(operator for flow in flows for operator in (flow.source, flow.target)))
            moved = [(flow, flow.source._headrace.sender, flow.target._headrace.receiver) for flow in flows]
            operators = [operator for _, *ends in moved for operator in ends]
            for operator in operators:
                node: Any = operator._headrace.node
                if node is not None and not node.may_compute:
                    raise GraphError(
                        f"{call} of {self._fragment.name!r}: operator {operator.name!r} has ended, and does not "
                        "run again in this run; create a new operator"
                    )
            for flow, _, target in moved:
                node = target._headrace.node
                if (
                    node is not None
                    and target.spec.is_joined
                    and any(queue.has_ended for queue in node.input_queues[flow.input])
                ):
                    raise GraphError(
                        f"{call} of {self._fragment.name!r}: operator {target.name!r} joins its inputs, and no "
                        f"more messages come at {flow.input!r}, which has ended; connect it before that"
                    )

            def connect() -> None:
                for flow, source, target in moved:
                    ports = {(flow.output, flow.input)}
                    self._fragment.graph.connect(source, target, ports, flow.size, flow.policy)

            self._change(connect, *operators)

    def remove_flow(self, source: Operator, target: Operator, port_pairs: PortPairs | None) -> None:
        """Disconnect two operators."""
        with self._opened():
            self._check(f"remove_flow({source.name!r}, {target.name!r})", source, target)
            source, target = source._headrace.sender, target._headrace.receiver
            self._change(partial(self._fragment.graph.disconnect, source, target, port_pairs), source, target)

    def wait(self, timeout: float | None) -> bool:
        """Wait until all changes asked for so far are made; return False after `timeout` seconds or at the end."""
        from headrace import waits

        asked = self._asked
        with aside(), self._applied:
            waits.wait_for(self._applied, lambda: self._done >= asked or not self._is_open, timeout)
            return self._done >= asked

    def _opened(self) -> AbstractContextManager[Any]:
        """Return the lock, once the run has begun or ended: its operators may still be starting."""
        from headrace import waits

        if threading.get_ident() != self._starting:
            with aside():
                waits.wait(self._has_opened)
        return self._lock

    def _check(self, call: str, *operators: Operator) -> None:
        name = self._fragment.name
        if not self._is_open:
            raise GraphError(
                f"{call} of {name!r}, which is starting or ending: change its graph in compose(), or while it runs"
            )
        for operator in operators:
            for group in self._engine.groups:
                if operator in group.operators:
                    raise GraphError(
                        f"{call} of {name!r}: operator {operator.name!r} is part of segment {group.name!r}, whose "
                        "frames are recorded; leave it out of the segment to change its flows"
                    )
            if operator._headrace.replication.options is not None and operator._headrace.receiver is operator:
                raise GraphError(
                    f"{call} of {name!r}: a new operator with workers= is created in compose() only"
                )

    def _change(self, change: Callable[[], None], *operators: Operator) -> None:
        """Change the graph, start the operators that are new, and let the run follow; or change nothing."""
        graph, gate = self._fragment.graph, self._engine.gate
        before = list(graph.operators), list(graph.flows)
        try:
            with self._graph_lock:
                self._is_preparing = True
                change()
                for operator in operators:
                    check_operator(operator)
                    _check_queues(operator)
                self._engine.scheduler.check_change(self._fragment)
            new = [operator for operator in operators if operator not in before[0]]
            for operator in new:
                check_waits_for_something(graph, operator)
            if new:
                self._start(list(dict.fromkeys(new)))
        except BaseException:
            with self._graph_lock:
                graph.rebuild(*before)
                self._is_preparing = False
            gate.call(partial(self._follow, self._asked))  # a change before this one may have been put off
            raise
        with self._graph_lock:
            self._is_preparing = False
            self._changed.update(dict.fromkeys(operators))
        self._asked += 1
        gate.call(partial(self._follow, self._asked))

    def _start(self, operators: list[Operator]) -> None:
        engine = self._engine
        joining: list[tuple[Node, dict[Flow, Queue]]] = []
        started: list[Operator] = []
        try:
            for operator in operators:
                queues = join_node(operator, engine, self._supplies)
                node: Any = operator._headrace.node
                joining.append((node, queues))
            self._initialize(operators)
            engine.streams.open(operators)
            for operator in operators:
                started.append(operator)
                self._start_one(operator)
        except BaseException:
            for node, _ in joining:
                node.streams.close()
            _give_up(operators, started)
            raise
        for node, _ in joining:
            engine.prepare(node)
        if engine.watchdog is not None:
            engine.watchdog.start()
        self._started += started
        self._joining += joining

    # At a safe point, with the lock of the engine held.

    def _follow(self, asked: int) -> None:
        """Let the run follow the graph, as so many changes have asked for."""
        if self._engine.gate.calls:
            return  # the last of several changes does it for all
        with self._graph_lock:
            if self._is_preparing:
                return  # that change does it when its operators have started, or have failed to
            self._adopt()
            changed, self._changed = self._changed, {}
            nodes: list[Any] = [operator._headrace.node for operator in changed]
            with keeping_counts(self._engine, nodes):
                connect(self._engine, nodes)
        with self._applied:
            self._done = asked
            self._applied.notify_all()

    def _adopt(self) -> None:
        """Make the nodes of new operators part of the run."""
        engine = self._engine
        joining, self._joining = self._joining, []
        for node, queues in joining:
            engine.nodes.append(node)
            engine.operator_nodes.append(node)
            engine.queues.update(queues)
            engine.alive += 1
            limit_source(node, self._supplies)


def _give_up(operators: list[Operator], started: list[Operator]) -> None:
    """Stop operators that do not join the run after all, and release their conditions."""
    for operator in reversed(started):
        with suppress(Exception):  # the error of its start is raised
            operator.stop()
        operator._headrace.run_phase = OperatorStatus.NOT_STARTED
    for operator in operators:
        for condition in operator._headrace.conditions:
            condition.detach()
        operator._headrace.node = None


def connect(engine: Engine, changed: list[Node]) -> None:
    """Connect nodes as the graph says, and find out anew which nodes can run; nothing computes."""
    for node in changed:
        _connect_inputs(node, engine)
    for node in changed:
        _connect_outputs(node, engine)
    for node in changed:
        if not node.retired:
            _attach(node, engine)
    left = [node for node in engine.nodes if not node.retired]
    # Producers of a queue share its room when its consumer has ended, too.
    sharing = dict.fromkeys((*left, *(queue.consumer for node in left for queue in node.outputs)))
    for node in left:
        node.blockers = node.awaited.blocks
    for node in sharing:
        node.shared_room = None
    for state in dict.fromkeys(queue.state for node in left for queue in (*node.inputs, *node.outputs)):
        state.start_over()
    share_rooms(sharing)
    expect_undeclared_flows(engine)
    for follow in engine.followers:
        follow(changed)
    engine.count_blockers()
    engine.ends.recheck()
    for node in engine.nodes:
        if node.retired:  # others may have released what it received
            engine.let_go(node)
    engine.progress = True
    engine.waiting.wake_all()


def _attach(node: Node, engine: Engine) -> None:
    """Let the conditions of a node look up the queues that it has now."""
    if node.awaited not in (ENDED, OVER, THROTTLED):
        engine.set_awaited(node, NOTHING)
    node.evaluated = None
    node.declared.attach()
    for queues in node.input_queues.values():
        gone = [queue for queue in queues if not queue.feeders]
        if gone and len(gone) == len(queues):  # the longest is the last that is empty: it is waited for
            gone.remove(max(gone, key=len))
        for queue in gone:
            queue.min_size = 0
    if node.ending is not None and node.ending.is_on:
        engine.ends.free(node)


def _connect_inputs(node: Node, engine: Engine) -> None:
    """Find the queues of a node's inputs: those that it had, and new ones for new flows of ``ANY_SIZE`` inputs."""
    for name, port in node.operator.spec.every_input.items():
        before = node.input_queues[name]
        found: list[Queue] = []
        for declared in queues_of(node.operator, port):
            queue = before[0] if not port.is_receivers else engine.queues.get(declared.flows[0])
            if queue is None:
                queue = make_input_queue(node, name, declared, engine.queues, make_queue(engine))
            if declared.flows and not queue.is_fixed:
                queue.fix(declared.policy)
            queue.resize(declared.size)
            queue.min_size = declared.least
            engine.queues.update(dict.fromkeys(declared.flows, queue))
            found.append(queue)
        # What was sent along a flow that is gone is received, but not waited for.
        gone = [queue for queue in before if queue not in found]
        left = [queue for queue in gone if len(queue) or not found]
        node.input_queues[name] = (*found, *left)
        if port.is_receivers:
            node.input.connect(name, node.input_queues[name])
            empty = [queue for queue in gone if queue not in left]
            if empty:
                _let_go(node, name, empty, engine)
    node.inputs = tuple(queue for found in node.input_queues.values() for queue in found)


def _let_go(node: Node, name: str, empty: list[Queue], engine: Engine) -> None:
    """Keep only the counts of queues whose flows are gone."""
    for flow in [flow for flow, queue in engine.queues.items() if queue in empty]:
        del engine.queues[flow]
    engine.former_queues.setdefault((node, name), []).extend(empty)


def _connect_outputs(node: Node, engine: Engine) -> None:
    """Find the queues behind a node's outputs."""
    for queue in node.outputs:
        queue.state.forget(node)
        if node in queue.feeders:
            queue.feeders.remove(node)
    # One that watches counts, too.
    operator = node.operator
    counts = operator.fragment.count_messages and engine.observer is None
    seen: dict[Queue, None] = {}
    for name in operator.spec.every_output:
        behind = dict.fromkeys(
            engine.queues[flow] for flow in operator._headrace.outgoing if flow.output == name
        )
        # What counts the messages that went nowhere is kept.
        unconnected = [queue for queue in node.output_queues[name] if isinstance(queue, UnconnectedQueue)]
        if not behind and not unconnected:
            unconnected.append(UnconnectedQueue())
        node.output_queues[name] = (*behind, *unconnected)
        port = node.output.ports[name]
        fronts = {queue.behind: queue for queue in port.queues if isinstance(queue, MessageCounter)}
        port.connect(
            tuple(
                fronts[queue] if queue in fronts else MessageCounter(queue) if counts else queue
                for queue in behind or unconnected
            )
        )
        seen.update(behind)
    node.outputs = tuple(seen)
    for queue in node.outputs:
        queue.feeders.append(node)


def _check_queues(operator: Operator) -> None:
    """Raise if an output may emit more messages at once than a queue behind it holds, or a queue would change."""
    for flow in (*operator._headrace.outgoing, *operator._headrace.incoming):
        needed = flow.source.spec.every_output[flow.output].size
        for queue in queues_of(flow.target, flow.target.spec.every_input[flow.input]):
            if flow not in queue.flows:
                continue
            _check_policy(flow, queue)
            if needed > queue.size and queue.policy.name == "FAULT":
                raise GraphError(
                    f"output {flow.output!r} of operator {flow.source.name!r} emits up to {needed} messages at "
                    f"once, but the queue of input {flow.input!r} of operator {flow.target.name!r} holds "
                    f"{queue.size}; declare that input with size={needed} or more"
                )


def _check_policy(flow: Flow, declared: QueueSpec) -> None:
    """Raise if the queue that an input has in this run would get another policy."""
    node: Any = flow.target._headrace.node
    if node is None or node.retired or flow.target.spec.every_input[flow.input].is_receivers:
        return  # an operator that has ended refuses what is sent to it
    (queue,) = node.input_queues[flow.input]
    if queue.is_fixed and queue.policy is not declared.policy:
        raise GraphError(
            f"{flow} would change the policy of the queue of input {flow.input!r} of operator "
            f"{flow.target.name!r} from {queue.policy.name} to {declared.policy.name}, and a queue keeps its "
            f"policy in a run; give the flow policy=IOSpec.QueuePolicy.{queue.policy.name}, or connect another "
            "operator"
        )
