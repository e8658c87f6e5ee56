"""Accounts: what each operator did in a run, derived from state that the run keeps anyway.

The number of computes follows from the number of computes left (`Node.granted`). The queues count dropped and
remaining messages. Counting every message would cost each step, if only one counter in `emit`. So messages are
counted only if a program requests it (`Application.count_messages`), by queues placed in front of the real ones.

Starvation: operators that wait, at the end of a run, for something that will never happen.

Most runs end because no operator is ready any more: the sources have ended and every queue is empty. Such a run
finished. A run starved if an operator that has not ended

1. waits for a message at one input (or for a condition) while messages are left at another input, or too few
   messages are at the same input: a join with a source that ended early, a batch that is not full, a feedback loop
   without a first message;
2. never ran, and waits for a condition, or is in a loop in which no operator ever ran; or waits for memory that
   is not coming back (`Condition.starving`);
3. waits for room behind an output in a circle of operators that all wait for room.

A message that an operator sent to itself, directly or through others, does not count as left: a loop that carries
state from frame to frame always has one such message. Nor do messages at an input with ``ConditionType.NONE``,
unless an operator waits for room there. An operator that waits for room at an operator that has ended is not
starved, because the program set that limit.

What an operator waits for is read from the state of the engine: its queues and, if they let it run, `Node.awaited`.
No condition is asked again. Its answer would be to another question: whether a period is over says nothing about an
operator that was never asked again, because there is no room behind it.

Loops and circles may lead through other processes (`headrace.parts`). What one process knows of them is not enough
to tell whether they starve, so they do not: such a run finishes, and counts what was left.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Any

from headrace._runtime.messages.queue import Queue
from headrace._runtime.scheduling.evaluated_conditions import leaves_of
from headrace._runtime.scheduling.routing import DynamicRouting
from headrace.core.outcome import OperatorOutcome, Starved, Waiting, counts_of, drop_reasons_of
from headrace.core.ports import ConditionType, IOSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from headrace._runtime.scheduling.engine import Engine
    from headrace._runtime.scheduling.node import Node
    from headrace._runtime.scheduling.queue_state import QueueState


def operators_of(engine: Engine) -> dict[str, OperatorOutcome]:
    """Return what each operator did; called when the run is over, while the queues still hold their messages."""
    arrived: dict[Queue, int] | None = None
    for group in engine.groups:
        group.runner.count_messages()
    counters = dict(engine.former_counters)
    for node in engine.operator_nodes:
        for name in node.output_queues:
            counters.update(dict.fromkeys(node.output.ports[name].queues))
    for queue in counters:
        if isinstance(queue, MessageCounter):
            arrived = {} if arrived is None else arrived
            arrived[queue.behind] = arrived.get(queue.behind, 0) + queue.passed_on
    return {node.name: _account(node, arrived) for node in engine.operator_nodes}


def _account(node: Node, arrived: dict[Queue, int] | None) -> OperatorOutcome:
    faults = node.faults
    discarded = {} if faults is None else faults.discarded
    dropped = counts_of(node.operator, lambda queue: queue.dropped)
    undelivered = counts_of(node.operator, lambda queue: queue.undelivered)
    received = sent = None
    if arrived is not None:
        received = {
            port: sum(arrived.get(queue, 0) - queue.dropped - queue.undelivered for queue in queues)
            - discarded.get(port, 0)
            for port, queues in node.counted_queues.items()
        }
        sent = {port: _sent(node, port) for port in node.output_queues}
        if isinstance(node.routing, DynamicRouting):
            sent |= {port: node.routing.emitted.get(port, 0) for port in sent}
            if node.operator.spec.dead_letter in sent:
                sent[node.operator.spec.dead_letter] += node.counts.dead_letters
    counts = node.counts
    return OperatorOutcome(
        node.computes,
        counts.skipped,
        counts.restarts,
        counts.last_error,
        received,
        sent,
        dropped,
        dict(discarded),
        undelivered,
        counts.retries,
        counts.dead_letters,
        counts.stuck,
        counts.cut_off,
        drop_reasons_of(node.operator),
    )


def _sent(node: Node, port: str) -> int:
    counter = node.output.ports[port].queues[0]
    besides: int = node.engine.sent_besides.get((node, port), 0)
    # An operator that was about to join when the run ended has no counter, and sent nothing.
    return besides + (counter.passed_on if isinstance(counter, MessageCounter) else 0)


@contextmanager
def keeping_counts(engine: Engine, nodes: Iterable[Node]) -> Iterator[None]:
    """Keep what was counted so far, while the queues behind the outputs of some nodes change."""
    sent: dict[tuple[Node, str], int] = {}
    for node in nodes:
        for name in node.output_queues:
            queues = node.output.ports[name].queues
            if isinstance(queues[0], MessageCounter):
                engine.former_counters.update(dict.fromkeys(queues))
                sent[node, name] = _sent(node, name)
    yield
    for (node, name), count in sent.items():
        engine.sent_besides.pop((node, name), None)
        engine.sent_besides[node, name] = count - _sent(node, name)


def count_messages(engine: Engine) -> None:
    """Count every message of a run."""
    for node in engine.operator_nodes:
        for name in node.output_queues:
            port = node.output.ports[name]
            port.connect(tuple(MessageCounter(queue) for queue in port.queues))


class MessageCounter(Queue):
    """A queue in front of a real one that counts messages of one output; with capacity 0, `offer` gets each."""

    __slots__ = ("behind", "passed_on")

    def __init__(self, behind: Queue) -> None:
        super().__init__(behind.consumer, behind.port, 0, IOSpec.QueuePolicy.REJECT)
        self.behind = behind
        self.passed_on = 0

    def offer(self, item: Any) -> None:
        """Count a message and pass it on."""
        self.passed_on += 1
        self.behind.offer(item)


def find_starved(engine: Engine) -> tuple[Starved, ...]:
    """Return the starved operators; called when nothing can run any more."""
    # The end of a flow from or to another process waits for that process.
    waiting = [node for node in engine.nodes if not node.retired and node.beyond is None]
    loops = _loops(engine.nodes) if waiting else {}
    found = [_examine(node, loops.get(node, frozenset())) for node in waiting]
    found += [_examine_member(node) for group in engine.groups for node in group.members]
    return tuple(starved for starved in found if starved is not None)


def _examine_member(node: Node) -> Starved | None:
    """Return what an operator of a group waits for, if messages are left inside the group; otherwise None."""
    left = {port.name: count for port in node.input.ports if (count := sum(map(len, port.queues)))}
    empty = [port.name for port in node.input.ports if port.name not in left]
    if not left or not empty:
        return None
    senders = {flow.input: flow.source.name for flow in node.operator._headrace.incoming}
    waits_for = tuple(Waiting(port, (f"{senders[port]!r} (emitted nothing)",)) for port in empty)
    return Starved(node.name, node.computes, waits_for, left)


def _examine(node: Node, loop: frozenset[Node]) -> Starved | None:
    """Return what a starved node waits for, or None; `loop` is the loop that the node is part of, if any."""
    empty = _too_short(node)
    conditions = [] if empty else list(node.awaited.conditions)
    if not empty and not conditions:
        return _find_circle(node)
    left = _left(node)
    starving = any(condition.starving for condition in conditions) and not _full_behind(node)
    if not left and not starving:
        if node.computes:
            return None
        # The end of a link may have run in the other process.
        never_ran = bool(loop) and not any(other.computes or other.beyond is not None for other in loop)
        if empty and not never_ran:
            return None
    waits_for = [Waiting(port, tuple(_states(queues, loop))) for port, queues in empty.items()]
    waits_for += [
        Waiting("", reason=condition.starving or f"condition {condition.name!r}") for condition in conditions
    ]
    return Starved(node.name, node.computes, tuple(waits_for), left)


def _too_short(node: Node) -> dict[str, list[Queue]]:
    """Return the queues, by input, that hold fewer messages than the operator waits for."""
    found: dict[str, list[Queue]] = {}
    for port, queues in node.input_queues.items():
        short = [queue for queue in queues if len(queue) < queue.min_size]
        if short:
            found[port] = short
    for condition in node.awaited.conditions:
        leaves = [leaf for leaf in leaves_of(condition) if leaf.port_role != "transmitter"]
        ports = [port for leaf in leaves for port in leaf.ports_of(node) if port in node.input_queues]
        if ports:
            # Too few messages in all, or none at some of the inputs.
            empty = [port for port in ports if not any(map(len, node.input_queues[port]))]
            found.update((port, list(node.input_queues[port])) for port in empty or ports)
    return found


def _left(node: Node) -> dict[str, int]:
    """Count the messages from other nodes that wait at a node's inputs."""
    spec = node.operator.spec
    left: dict[str, int] = {}
    downstream: set[Node] | None = None
    for port, queues in node.input_queues.items():
        is_optional = any(wanted.kind is ConditionType.NONE for wanted in spec.every_input[port].conditions)
        for queue in queues:
            if not len(queue):
                continue
            if is_optional and not any(_places_wanted(feeder, queue) for feeder in queue.feeders):
                continue
            if downstream is None:
                downstream = _downstream_of(node)
            if node.computes and not downstream.isdisjoint(queue.feeders):
                continue  # presumably its own message
            if not downstream.issuperset(queue.feeders):
                left[port] = left.get(port, 0) + len(queue)
    return left


def _downstream_of(node: Node) -> set[Node]:
    """Return the nodes downstream of this one, including itself only if it is in a loop."""
    found: set[Node] = set()
    open_ = [node]
    while open_:
        for consumer in _consumers(open_.pop()):
            if consumer not in found:
                found.add(consumer)
                open_.append(consumer)
    return found


def _consumers(node: Node) -> set[Node]:
    """Return the nodes that receive what a node sends; through other processes, too."""
    found: set[Node] = {queue.consumer for queue in node.outputs}
    if node.beyond is not None:
        returning: Any = [operator._headrace.node for operator in node.beyond.leads_to]
        found.update(returning)
    return found


def _loops(nodes: list[Node]) -> dict[Node, frozenset[Node]]:
    """Return the loop that each node is part of; nodes in no loop are left out."""
    after = {node: _consumers(node) for node in nodes}
    before = {node: {feeder for queue in node.inputs for feeder in queue.feeders} for node in nodes}
    for node in nodes:
        for consumer in after[node] if node.beyond is not None else ():
            before[consumer].add(node)
    # First leave out what is behind or before all loops, so that the cost of a graph without any grows linearly.
    left = set(nodes)
    for graph in (after, before):
        sorter = TopologicalSorter(graph)
        with suppress(CycleError):  # it sorts nevertheless, as far as there are no cycles
            sorter.prepare()
        while ready := sorter.get_ready():
            left.difference_update(ready)
            sorter.done(*ready)
    reached = {node: _downstream_of(node) for node in left}
    return {
        node: frozenset(other for other in reached[node] & left if node in reached[other])
        for node in left
        if node in reached[node]
    }


def _find_circle(node: Node) -> Starved | None:
    """Return the room that a node waits for, if it is part of a circle of such nodes; otherwise None."""
    full = _full_behind(node)
    if node not in _waiting_for_room([queue.consumer for queue in full]):
        return None
    reasons = [
        f"room at {queue.port!r} of {queue.consumer.name!r}, which waits for it in turn" for queue in full
    ]
    waits_for = tuple(Waiting("", reason=reason) for reason in reasons)
    waiting = {port: sum(map(len, queues)) for port, queues in node.input_queues.items()}
    left = {port: count for port, count in waiting.items() if count}
    return Starved(node.name, node.computes, waits_for, left)


def _waiting_for_room(open_: list[Node]) -> set[Node]:
    """Return those of some nodes that take nothing though they could, and the nodes where they wait for room."""
    seen: set[Node] = set()
    while open_:
        consumer = open_.pop()
        if consumer in seen or consumer.retired or _too_short(consumer):
            continue
        seen.add(consumer)
        open_ += [queue.consumer for queue in _full_behind(consumer)]
    return seen


def _full_behind(node: Node) -> list[Queue]:
    return [queue for queue in node.outputs if _places_wanted(node, queue)]


def _places_wanted(node: Node, queue: Queue) -> int:
    """Return how many places a producer waits for in a queue that has fewer, or 0."""
    state: QueueState = queue.state
    for request in state.requests:
        if request.node is node and request.places > queue.limit - len(queue):
            return request.places
    return 0


def _states(queues: list[Queue], loop: frozenset[Node]) -> list[str]:
    """Return, for each operator that feeds `queues`, why it sends nothing."""
    feeders = {feeder: queue for queue in queues for feeder in queue.feeders}
    return [f"{feeder.name!r} ({_state(feeder, queue, loop)})" for feeder, queue in feeders.items()]


def _state(node: Node, queue: Queue, loop: frozenset[Node]) -> str:
    computes = f"{node.computes} compute{'' if node.computes == 1 else 's'}"
    if node.retired:
        return f"ended after {computes}"
    places = _places_wanted(node, queue)
    if places:
        return f"waits for room for {places} messages there, after {computes}"
    if node in loop:
        return f"waits for it in turn, after {computes}"
    return f"waits itself, after {computes}"
