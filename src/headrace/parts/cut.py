"""Cut: keeps one part of an application, and replaces the flows from and to the other parts by link operators.

A part is a fragment. Each process composes the whole application, so that a flow has the same name and the same
terms at both ends. Then it keeps the operators of its own part. In the place of the rest it has

- a `SendToPart` for each queue of another part that its operators send to, and
- a `ReceiveFromPart` for each of its queues and each other part that sends to it.

What is left is an ordinary graph: every scheduler runs it, and everything that watches a run watches it.

A queue is cut as a whole, and not flow by flow: two operators of one part that share a queue of another part share
its places on their own side. If several parts send to a queue whose producers wait for room, each part has as many
places of its own as the queue has: processes would otherwise have to agree on each place, with a round trip for
each message. The queue itself holds no more than its size. The rest waits where it was sent from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from headrace.core.errors import GraphError, choices
from headrace.core.graph import Flow, queues_of, reachable
from headrace.core.ports import INPUT_EXEC, OUTPUT_EXEC, IOSpec
from headrace.core.values import STOP
from headrace.observe.attachment import prepare_replay
from headrace.parts.cut_flow import CutFlow as CutFlow
from headrace.parts.idleness import PartIdleness
from headrace.parts.link_operators import ReceiveFromPart, SendToPart

if TYPE_CHECKING:
    from headrace.core.control import RunControl
    from headrace.core.graph import Graph, QueueSpec
    from headrace.core.operator import Operator
    from headrace.link.receiver import Receiver
    from headrace.link.sender import Sender
    from headrace.parts.cut_flow import FlowCounts
    from headrace.parts.link_operators import LinkOperator

_FAULT = IOSpec.QueuePolicy.FAULT
_REJECT = IOSpec.QueuePolicy.REJECT


def cut_flows(application: Any) -> tuple[CutFlow, ...]:
    """Return the flows between the parts of a composed application, in the order of the graph.

    Raises
    ------
    GraphError
        If a flow cannot lead from one process to another; the text says what would be right.
    """
    return tuple(cut.flow for cut in _find(application))


class Cut:
    """One part of an application, as it runs in a process of its own.

    While there is a cut, every run and every `compose_graph` of the application composes the whole graph and then
    keeps the part alone.

    Parameters
    ----------
    application
        The application, which consists of fragments.
    part
        The name of the fragment to keep.
    on_composed
        Called each time the application has been composed and checked, before the other parts are removed:
        `outgoing` and `incoming` are known, and ``application.graph`` is still whole. This is where a process can
        compare its graph with that of others, and where it connects its links.
    """

    def __init__(
        self, application: Any, part: str, on_composed: Callable[[Cut], object] | None = None
    ) -> None:
        self.application = application
        self.part = part
        self.outgoing: tuple[CutFlow, ...] = ()
        """The flows to other parts."""
        self.incoming: tuple[CutFlow, ...] = ()
        """The flows from other parts."""
        self.on_failure: Callable[[CutFlow, BaseException], object] = self._fail
        """Called once for each link that fails, from any thread. By default it ends the run with that error."""
        self.left_out: set[str] = set()
        """The operators of all parts that do not run, because a recording is played behind them."""
        self.idleness = PartIdleness()
        """Tells when nothing can run in this part, and does what is decided then."""
        self._on_composed = on_composed
        self._links: dict[str, Any] = {}
        self._operators: dict[str, LinkOperator] = {}
        application._headrace.cut = self

    def connect(self, name: str, link: Sender | Receiver) -> None:
        """Set the link of a flow: before the run, or in a run in which its link has failed (`on_failure`)."""
        flow = next((each for each in (*self.outgoing, *self.incoming) if each.name == name), None)
        if flow is None:
            known = [each.name for each in (*self.outgoing, *self.incoming)]
            raise GraphError(
                f"fragment {self.part!r} has no flow {name!r} to another fragment; it has {choices(known)}"
            )
        self._links[name] = link
        operator = self._operators.get(name)
        if operator is not None:
            operator.connect(link)

    def end_flow(self, name: str) -> None:
        """Let a flow end whose link has failed: the receiver of its messages sees the end of the stream."""
        self._operators[name].give_up()

    def counts(self) -> dict[str, FlowCounts]:
        """Return how many messages this end of each flow has sent or passed on, in this run or the last one."""
        return {name: operator.counts() for name, operator in self._operators.items()}

    def _fail(self, flow: CutFlow, error: BaseException) -> None:
        self.application.fail(error)

    def _leave(self, control: RunControl) -> None:
        """Abandon the links that are left: of operators that were not started, or not even made."""
        links, self._links = self._links, {}
        for operator in self._operators.values():
            operator.leave(control.failure, "stopped")
        for name, link in links.items():
            if name not in self._operators:
                if control.failure is not None:
                    link.abort(control.failure, self.part)
                link.close()

    # Called when the application is composed.

    def apply(self) -> None:
        """Keep the part of a composed application."""
        application = self.application
        parts = application.fragment_graph.fragments
        kept = next((each for each in parts if each.name == self.part), None)
        if kept is None:
            has = choices([each.name for each in parts], self.part)
            raise GraphError(f"{application.name!r} has no fragment {self.part!r}; it has {has}")
        self.left_out = prepare_replay(application)
        found = _find(application)
        self.outgoing = tuple(each.flow for each in found if each.flow.source == self.part)
        self.incoming = tuple(each.flow for each in found if each.flow.target == self.part)
        self._operators = {}
        control = application._headrace.run_control
        if control.is_run:
            control.call_at_end(partial(self._leave, control))
        if self._on_composed is not None:
            self._on_composed(self)
        operators = [each for each in application.graph if _part_of(each) == self.part]
        flows: list[Flow] = []
        replaced = {flow: each for each in found for flow in each.flows}
        links: dict[str, Operator] = {}
        for operator in operators:
            if operator._headrace.dynamic_flows is not None:
                operator._headrace.dynamic_flows.cut = {}
        for flow in application.graph.flows:
            cut = replaced.get(flow)
            if cut is None:
                flows += [flow] if flow.source in operators else []
            elif cut.flow.source == self.part:
                operator = links.get(cut.flow.name) or links.setdefault(cut.flow.name, self._sender(cut))
                flows.append(
                    Flow(flow.source, flow.output, operator, _port_of_link(flow.input), cut.flow.size)
                )
                if flow.source._headrace.dynamic_flows is not None:
                    flow.source._headrace.dynamic_flows.cut[flow] = flows[-1]
            elif cut.flow.target == self.part and cut.flow.name not in links:
                operator = links[cut.flow.name] = self._receiver(cut)
                size = next((each.size for each in cut.flows if each.size is not None), None)
                flows.append(Flow(operator, cut.port, flow.target, flow.input, size, cut.queue.policy))
        senders = [each for each in links.values() if isinstance(each, SendToPart)]
        receivers = [each for each in links.values() if isinstance(each, ReceiveFromPart)]
        for sender in senders:
            behind = _behind(application.graph, sender.flow, lambda part: part != self.part)
            sender._headrace.beyond.leads_to = tuple(
                each for each in receivers if behind.intersection(_operators(each.flow.outputs))
            )
        for receiver in receivers:
            receiver.is_acknowledging = _may_be_lost(kept) and receiver.flow.keeps_places
            if receiver.is_acknowledging:
                receiver.awaited = tuple(
                    each for each in senders if _comes_of(application.graph, each.flow, receiver.flow)
                )
        application.graph.rebuild([*receivers, *operators, *senders], flows)
        self.idleness.compose(senders, receivers)
        self._forget_other_parts(operators)

    def _sender(self, cut: _CutQueue) -> SendToPart:
        operator = SendToPart(
            self.application, cut.flow, _port_of_link(cut.input.name), self._failed(cut.flow), self.idleness
        )
        self._add(operator)
        return operator

    def _receiver(self, cut: _CutQueue) -> ReceiveFromPart:
        if cut.input.size == 0:  # IOSpec.PRECEDING_COUNT: several flows become one
            cut.input.size = cut.queue.least
        operator = ReceiveFromPart(
            self.application, cut.flow, cut.port, self._failed(cut.flow), self.idleness
        )
        self._add(operator)
        return operator

    def _add(self, operator: LinkOperator) -> None:
        name = operator.flow.name
        self._operators[name] = operator
        link = self._links.get(name)
        if link is not None:
            operator.connect(link)

    def _failed(self, flow: CutFlow) -> Callable[[BaseException], object]:
        return lambda error: self.on_failure(flow, error)

    def _forget_other_parts(self, kept: list[Operator]) -> None:
        """Let the run neither start nor look for what belongs to operators that are elsewhere."""
        application = self.application
        application._headrace.made_parts = application._headrace.parts_here
        application._headrace.segments[:] = [
            each
            for each in application._headrace.segments
            if all(operator in kept for operator in each.operators)
        ]
        for pool in application._headrace.thread_pools:
            pool.assignments[:] = [each for each in pool.assignments if each.operator in kept]
        application._headrace.thread_pools[:] = [
            pool for pool in application._headrace.thread_pools if pool.assignments
        ]


@dataclass(frozen=True, slots=True)
class _CutQueue:
    """A queue of one part, and the flows of another part into it."""

    flow: CutFlow
    flows: tuple[Flow, ...]
    queue: QueueSpec
    input: IOSpec

    @property
    def port(self) -> str:
        """The name of the output that stands for those of the other part."""
        return _port_of_link(self.flows[0].output)


def _port_of_link(name: str) -> str:
    """Return the name of a port of a link operator, whose own computes nothing orders."""
    return "then" if name in (INPUT_EXEC, OUTPUT_EXEC) else name


def _part_of(operator: Operator) -> str:
    return operator.fragment.name


def _behind(graph: Graph, flow: CutFlow, within: Callable[[str], bool]) -> set[str]:
    """Return the operators that a flow leads to, directly or through others of the parts that `within` accepts."""

    def following(name: str) -> list[str]:
        targets = [each.target for each in graph.find(name)._headrace.outgoing]
        return [each.name for each in targets if within(_part_of(each))]

    (first,) = _operators([flow.input])
    return set(reachable(first, following))


def _comes_of(graph: Graph, sent: CutFlow, received: CutFlow) -> bool:
    """Return whether what a part sends comes of what it receives, and not the other way round, too, as in a loop.

    If a part waited for answers to anything else, two parts that send to each other would wait for each other.
    """
    here = _behind(graph, received, lambda part: part == received.target)
    anywhere = _behind(graph, sent, lambda part: True)
    return not here.isdisjoint(_operators(sent.outputs)) and anywhere.isdisjoint(_operators([received.input]))


def _operators(ports: Iterable[str]) -> set[str]:
    return {port.rpartition(".")[0] for port in ports}


def _find(application: Any) -> list[_CutQueue]:
    """Return the queues that are cut, in the order of their flows in the graph."""
    found: list[_CutQueue] = []
    for operator in application.graph:
        here = _part_of(operator)
        for port in operator.spec.every_input.values():
            for queue in queues_of(operator, port):
                parts = dict.fromkeys(_part_of(flow.source) for flow in queue.flows)
                others = [part for part in parts if part != here]
                if others:
                    _check(operator, queue)
                found += [_cut_queue(operator, port, queue, part) for part in others]
    order = {flow: place for place, flow in enumerate(application.graph.flows)}
    return sorted(found, key=lambda each: order[each.flows[0]])


def _cut_queue(operator: Operator, port: IOSpec, queue: QueueSpec, part: str) -> _CutQueue:
    flows = tuple(flow for flow in queue.flows if _part_of(flow.source) == part)
    outputs = tuple(f"{flow.source.name}.{flow.output}" for flow in flows)
    target = f"{operator.name}.{port.name}"
    is_shared = len(flows) < len(queue.flows) and _waits(queue)
    keeps_places = is_shared or (_keeps_places(queue) and len(flows) == len(queue.flows))
    flow = CutFlow(
        f"{', '.join(outputs)} -> {target}",
        part,
        _part_of(operator),
        outputs,
        target,
        queue.size,
        queue.policy,
        keeps_places,
        min(sum(_places_awaited(flow.source, flow.output, queue.size) for flow in flows), queue.size),
        is_shared,
        keeps_places and _may_be_lost(flows[0].source.fragment),
    )
    return _CutQueue(flow, flows, queue, port)


def _may_be_lost(part: Any) -> bool:
    """Return whether the run goes on without the process of a part."""
    return bool(part.on_loss != STOP)


def _places_awaited(operator: Operator, output: str, size: int) -> int:
    """Return how many free places an operator waits for, at most, in a queue of a size."""
    port = operator.spec.every_output[output]
    given = operator._headrace.conditions
    if port.conditions or any(each.port_role == "transmitter" or each.terms for each in given):
        return size
    return max(port.size, 1)


def _keeps_places(queue: QueueSpec) -> bool:
    """Return whether a message keeps its place at its sender: POP and LATEST make room by dropping others."""
    return queue.policy in (_FAULT, _REJECT) or _waits_for_room(queue.flows)


def _waits(queue: QueueSpec) -> bool:
    """Return whether the producers of a queue wait for room, because it drops nothing or they say so."""
    return queue.policy is _FAULT or _waits_for_room(queue.flows)


def _waits_for_room(flows: Iterable[Flow]) -> bool:
    return all(flow.source.spec.waits_for_queues_that_drop for flow in flows)


def _check(operator: Operator, queue: QueueSpec) -> None:
    """Raise if a queue that another part sends to cannot be cut."""
    flow = next(flow for flow in queue.flows if _part_of(flow.source) != _part_of(operator))
    where = f"{flow} leads from fragment {_part_of(flow.source)!r} to fragment {_part_of(operator)!r}"
    for each in queue.flows:
        source = each.source
        if _part_of(source) == _part_of(operator):
            continue
        if queue.policy is not _FAULT and not source.spec.waits_for_queues_that_drop:
            _check_conditions(where, source, each.output)


def _check_conditions(where: str, source: Operator, output: str) -> None:
    """Raise if a producer waits by a condition of its own for room in a queue that drops messages."""
    named = [name for group in source.spec.or_combined for name in group]
    named += [name for condition in source.spec.multi_port for name in condition.ports]
    named += [name for condition in source._headrace.conditions for name in condition.port_names]
    own = [each for each in source.spec.every_output[output].conditions if each.kind.name != "NONE"]
    if own or (output in named and output not in source.spec.inputs):
        raise GraphError(
            f"{where}, where the queue drops messages, and operator {source.name!r} has a condition on the room "
            f"behind {output!r}; leave out the condition, or the policy"
        )
