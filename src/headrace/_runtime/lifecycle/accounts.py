"""Accounts: what each operator did in a run, derived from state that the run keeps anyway.

The number of computes follows from the number of computes left (`Node.granted`). The queues count dropped and
remaining messages. Counting every message has a cost: one counter in `emit` slowed the step of a chain
by 4 to 6 %. So messages are counted only if a program requests it (`Application.count_messages`), by queues placed
in front of the real ones.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from headrace._runtime.messages.queue import Queue
from headrace._runtime.scheduling.routing import DynamicRouting
from headrace.core.outcome import OperatorOutcome
from headrace.core.ports import IOSpec
from headrace.core.progress import counts_of, drop_reasons_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from headrace._runtime.scheduling.engine import Engine
    from headrace._runtime.scheduling.node import Node


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
