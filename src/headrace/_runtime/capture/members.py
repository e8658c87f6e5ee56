"""Members: the operators of a part, as they compute without capture.

A frame that is not replayed enters the queues that its operators receive from, and each of them computes after
those before it. An operator that has not received all of its messages, or has no room for its own, does not
compute. What it has received stays where it is, and `go_on` goes on with it.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Any

from headrace._runtime.capture.member_node import MemberNode
from headrace._runtime.capture.nodes import Collector
from headrace._runtime.scheduling.notes import note

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace._runtime.capture.border import Border
    from headrace._runtime.messages.queue import Queue
    from headrace._runtime.scheduling.node import Node
    from headrace._runtime.streams.knobs import Knobs

__all__ = ["Members"]


class Members:
    """The operators of a part.

    Parameters
    ----------
    nodes
        Their nodes, each after those that it receives from.
    inputs, outputs
        Where messages enter and leave.
    inner
        Where the messages of an output go inside the part.

    Attributes
    ----------
    nodes
        As given.
    has_left
        Whether messages are left inside, because an operator did not receive at all of its inputs.
    silent
        The operators that emitted nothing to the next in the last frame.
    times
        How long the latest frames took on the host, in nanoseconds.
    """

    def __init__(
        self,
        nodes: list[Node],
        inputs: list[Border],
        outputs: list[Border],
        inner: dict[tuple[Node, str], list[tuple[Node, str]]],
    ) -> None:
        self.nodes = nodes
        self.has_left = False
        self.silent: list[Node] = []
        self.times: deque[int] = deque(maxlen=32)
        self._inputs = inputs
        self._outputs = outputs
        self._inner = inner
        # The queues that they receive from, and those that each sends to inside the segment.
        self._queues = {node: [queue for port in node.input.ports for queue in port.queues] for node in nodes}
        self._behind = {
            node: [
                queue
                for queues in node.output_queues.values()
                for queue in queues
                if isinstance(queue.consumer, MemberNode)
            ]
            for node in nodes
        }
        self._to_other_parts = [
            queue for queues in self._behind.values() for queue in queues if queue.consumer not in nodes
        ]
        # For each output, the first of the operator's queues that leads out of the part.
        self._first_place: dict[str, int] = {}

    def prime(self, queues: dict[str, tuple[Queue, ...]]) -> dict[str, tuple[Queue, ...]]:
        """Return the queues of each output, behind whatever counts and times the messages of its operator.

        Parameters
        ----------
        queues
            The queues of each output themselves.
        """
        found: dict[str, tuple[Queue, ...]] = {}
        for border in self._outputs:
            port = border.node.output.ports[border.port]
            behind = border.node.output_queues[border.port]
            places = [place for place, queue in enumerate(behind) if queue in queues[border.name]]
            found[border.name] = tuple(port.queues[place] for place in places)
            self._first_place[border.name] = places[0]
        return found

    @property
    def has_room(self) -> bool:
        """Whether there is room for what they send to other parts; the engine sees to the rest."""
        return all(len(queue) < queue.limit for queue in self._to_other_parts)

    @property
    def waiting(self) -> str:
        """The name of the operator at which messages were left; an empty text if there is none."""
        return next((node.name for node in self.nodes if any(self._queues[node])), "")

    @property
    def knobs(self) -> list[Knobs]:
        """The knobs of the operators."""
        return [knobs for node in self.nodes if (knobs := node.streams.knobs) is not None]

    def compute(self, items: list[Any]) -> None:
        """Let a frame pass: every operator computes that has received its messages."""
        began = time.perf_counter_ns()
        for border, item in zip(self._inputs, items, strict=True):
            assert border.queue is not None
            border.queue.append(item)
        del items
        self._compute_each()
        self.times.append(time.perf_counter_ns() - began)

    def settle(self) -> bool:
        """Release the frames of the last computes, since none follow; return whether only held ones are left."""
        known = [node.lifetimes for node in self.nodes if node.lifetimes is not None]
        return not [lifetimes for lifetimes in known if not lifetimes.settle()]

    def compute_and_collect(self, items: list[Any], held: Sequence[Any] = ()) -> dict[str, list[Any]]:
        """Let a frame pass, and return what was emitted at each output; values that are held do not change."""
        collected: dict[str, list[Any]] = {}
        before: list[tuple[Any, tuple[Queue, ...]]] = []
        for border in self._outputs:
            port = border.node.output.ports[border.port]
            before.append((port, port.queues))
            place = self._first_place[border.name]
            collector = Collector(port.queues[place])
            collected[border.name] = collector.seen
            port.queues = (*port.queues[:place], collector, *port.queues[place + 1 :])
        for values in held:
            values.is_held = True
        try:
            self.compute(items)
        finally:
            for values in held:
                values.is_held = False
            for port, queues in before:
                port.queues = queues
        return collected

    def go_on(self, takes: list[Callable[[], Any]]) -> bool:
        """Go on with messages that were left inside; take only what there is room for.

        Returns whether there was anything to do.
        """
        has_taken = False
        for border, take in zip(self._inputs, takes, strict=True):
            if not border.queue:
                try:
                    item = take()
                except IndexError:
                    continue
                assert border.queue is not None
                border.queue.append(item)
                has_taken = True
                del item
        return self._compute_each() > 0 or has_taken

    def clear(self) -> None:
        """Release messages that were left inside."""
        for queues in self._queues.values():
            for queue in queues:
                queue.clear()

    def _compute_each(self) -> int:
        """Let every operator compute that has its messages and room for its own; return how many did."""
        computed: list[Node] = []
        for node in self.nodes:
            if (
                node.stop_requested
                or any(len(queue) < queue.min_size for queue in self._queues[node])
                or any(len(queue) >= queue.limit for queue in self._behind[node])
            ):
                continue
            computed.append(node)
            try:
                node.compute(node.input, node.output, node.context)
            except BaseException as error:
                note(error, "compute", node.operator)
                raise
            node.remaining -= 1
            if node.has_details:
                node.clear_details()
        self.has_left = any(map(any, self._queues.values()))
        if len(computed) < len(self.nodes):
            self.silent = [
                node
                for node in computed
                for targets in [self._inner.get((node, port), []) for port in node.output_queues]
                if any(target not in computed for target, _ in targets)
            ]
        return len(computed)
