"""Routing: the computes of an operator whose computes are ordered, or whose flows are chosen after each of them.

Only the compute of such an operator is wrapped; the others cost nothing. Before the compute, the messages of the
operators before it are received, with their metadata and the order of streams. After it, the operators behind it
are told, unless it failed.

**Flows that are chosen** (:meth:`Composition.set_dynamic_flows`). What the compute emits is collected, with its
fences and metadata. Then the program chooses the flows, and each message goes into the queues of the chosen flows
of its output. Before it computes, the operator waits for room in the queues of all its flows, because it is not
known which ones will be chosen. A message without a flow is dropped, and counted as that of an unconnected output.

A flow that was not declared, where that is allowed, leads into the first queue of its input. The operator does not
wait for room there: a full queue that would raise an error becomes longer.

The wrapper is inside that for errors (`faults`): a compute that is tried again receives again, and is not told of.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from headrace._runtime.messages.queue import Collector, Queue, UnconnectedQueue
from headrace.core.execution import back_flows
from headrace.core.ports import INPUT_EXEC, OUTPUT_EXEC

if TYPE_CHECKING:
    from headrace._runtime.messages.ports import OutputPort
    from headrace._runtime.scheduling.node import Node
    from headrace.core.execution import DynamicFlows
    from headrace.core.graph import Flow


def routing_of(node: Node) -> Routing | None:
    """Return what routes the computes of a node; None if it has only ordinary flows."""
    operator = node.operator
    if operator._headrace.dynamic_flows is not None:
        return DynamicRouting(node, operator._headrace.dynamic_flows)
    is_ordered = INPUT_EXEC in node.input_queues or OUTPUT_EXEC in node.output_queues
    return Routing(node) if is_ordered else None


def compute_of(node: Node) -> Callable[..., None]:
    """Return the compute of a node's operator, with what routes it."""
    compute: Callable[..., None] = node.operator.compute
    return compute if node.routing is None else node.routing.around(compute)


class Routing:
    """Orders the computes of one operator among those of others."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._comes_after = INPUT_EXEC in node.input_queues
        self._comes_before = node.operator._headrace.emits_order and OUTPUT_EXEC in node.output_queues
        back = back_flows(node.operator)
        if back:
            port = next(port for port in node.input.ports if port.name == INPUT_EXEC)
            port.take_one_at_a_time([node.engine.queues[flow] for flow in back])

    def around(self, compute: Callable[..., None]) -> Callable[..., None]:
        """Return a compute that receives from the operators before it, and tells those behind it."""

        def ordered_compute(op_input: Any, op_output: Any, context: Any) -> None:
            if self._comes_after:
                op_input.receive(INPUT_EXEC)
            compute(op_input, op_output, context)
            if self._comes_before:
                op_output.emit(None, OUTPUT_EXEC)

        return ordered_compute

    def around_end(self, end: Callable[..., Any]) -> Callable[..., Any]:
        """Return an `end` whose messages are routed as well."""
        return end


class DynamicRouting(Routing):
    """Routes what an operator emits along the flows that it chooses.

    Attributes
    ----------
    emitted
        The number of messages emitted at each output; dead letters, which are not routed, do not count.
    """

    def __init__(self, node: Node, flows: DynamicFlows) -> None:
        super().__init__(node)
        self._flows = flows
        self.emitted: dict[str, int] = {}
        self._collected: list[tuple[str, Any]] = []
        self._nowhere: dict[str, UnconnectedQueue] = {}
        for name, queues in node.output_queues.items():
            unconnected = [queue for queue in queues if isinstance(queue, UnconnectedQueue)]
            self._nowhere[name] = unconnected[0] if unconnected else UnconnectedQueue()
            if not unconnected:
                node.output_queues[name] = (*queues, self._nowhere[name])
        self._collectors = {name: (Collector(name, self._collected),) for name in node.output_queues}

    def around(self, compute: Callable[..., None]) -> Callable[..., None]:
        """Return a compute whose messages go along the flows that the program chooses after it."""

        def routed_compute(op_input: Any, op_output: Any, context: Any) -> None:
            if self._comes_after:
                op_input.receive(INPUT_EXEC)
            self._route(lambda: compute(op_input, op_output, context), tells=self._comes_before)

        return routed_compute

    def around_end(self, end: Callable[..., Any]) -> Callable[..., Any]:
        """Return an `end` whose messages go along the flows that the program chooses after each of its steps."""

        def routed_end(op_input: Any, op_output: Any, context: Any) -> Any:
            steps = self._route(lambda: end(op_input, op_output, context))
            return self._steps(steps) if isinstance(steps, Generator) else None

        return routed_end

    def _steps(self, steps: Generator[Any, Any, Any]) -> Generator[None, None, None]:
        over = object()
        try:
            while self._route(lambda: next(steps, over)) is not over:
                yield
        finally:
            steps.close()

    def _route(self, work: Callable[[], Any], tells: bool = False) -> Any:
        """Collect what `work` emits, let the program choose, and send it; return the result of `work`."""
        node, flows, output = self._node, self._flows, self._node.output
        ports: dict[str, tuple[OutputPort, tuple[Queue, ...]]] = {}
        for name, collector in self._collectors.items():
            port = output.ports[name]
            ports[name] = port, port.queues
            port.connect(collector)
        chosen = flows.chosen = []
        try:
            result = work()
            flows.choose(node.operator)
            if tells and any(flow.output == OUTPUT_EXEC for flow in chosen):
                output.emit(None, OUTPUT_EXEC)
        except BaseException:
            if node.faults is None or not node.faults.policy.retries:  # otherwise they are emitted again
                for name, message in self._collected:
                    self._nowhere[name].offer(message)
            self._collected.clear()
            raise
        finally:
            flows.chosen = None
            for port, queues in ports.values():
                port.connect(queues)
        collected, self._collected[:] = self._collected[:], []
        found = {name: self._queues(name, queues, chosen) for name, (_, queues) in ports.items()}
        for name, message in collected:
            self.emitted[name] = self.emitted.get(name, 0) + 1
            output.pass_to(message, found[name] or (self._nowhere[name],))
        return result

    def _queues(self, output: str, queues: tuple[Queue, ...], chosen: list[Flow]) -> tuple[Queue, ...]:
        """Return the queues behind an output that the chosen flows lead to, in the place of `queues` in a run."""
        known = self._node.engine.queues
        behind = self._node.output_queues[output]
        found: dict[Queue, None] = {}
        for flow in chosen:
            if flow.output != output:
                continue
            queue = known.get(flow)
            if queue in behind:
                # What counts messages, or holds them back, has the place of the queue.
                found[queues[behind.index(queue)]] = None
            elif flow not in self._node.operator._headrace.outgoing:
                found[self._late_queue(flow)] = None
            # A flow that was added in this compute takes effect when it is over.
        return tuple(found)

    def _late_queue(self, flow: Flow) -> Queue:
        """Return the queue of a flow that was not declared; its consumer is looked at after this compute."""
        node = self._node
        target: Any = flow.target._headrace.node
        queues = () if target is None else target.input_queues[flow.input]
        if not queues:
            from headrace.core.errors import GraphError

            raise GraphError(
                f"operator {node.name!r}: add_dynamic_flow: {flow} was not declared, and nothing else leads to "
                "that input; declare the flow by add_flow"
            )
        queue: Queue = queues[0]
        if queue not in node.outputs:
            with node.engine.lock:
                queue.share()
                node.outputs = (*node.outputs, queue)
                node.output_states = (*node.output_states, queue.state)
                for state in node.output_states:
                    state.is_sole = False
        if not queue.drops and len(queue) >= queue.limit:
            with node.engine.lock:
                queue.resize(len(queue) + 1)
        return queue
