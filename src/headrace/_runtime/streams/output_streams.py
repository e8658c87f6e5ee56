"""OutputStreams: the streams that each output's messages carry, after which receivers are ordered.

A message carries a fence on every stream that the operator has used: a program may keep a stream and use it in any
compute, and only the program knows which of them made the data. Most operators use one stream, and their messages
carry one fence.

If a stream was chosen for an output, its fence comes first. The stream first waits for received work that it is not
ordered after. If no stream was chosen, a message also carries the fences of all received messages.

A stream that came with a message belongs to another operator, which may have launched more on it since. So its
fence is left out if the program itself has ordered the chosen stream after it in this compute. The default stream
counts as the operator's own: the program may launch more there after it has ordered the chosen stream.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from headrace._runtime.messages.emitted_work import carry_fences
from headrace._runtime.messages.envelope import make_envelope, stamping
from headrace._runtime.messages.managed_stream import is_default

if TYPE_CHECKING:
    from headrace._runtime.messages.envelope import Fence
    from headrace._runtime.messages.fences import Fences
    from headrace._runtime.messages.managed_stream import ManagedStream
    from headrace._runtime.streams.allocation import StreamAllocation
    from headrace._runtime.streams.lifetimes import Lifetimes
    from headrace._runtime.streams.order import Order
    from headrace._runtime.streams.run_streams import RunStreams
    from headrace._runtime.streams.running_operator import RunningOperator


class OutputStreams:
    """The streams that the messages of one operator's outputs carry.

    All fields are changed in the operator's computes, which never run concurrently. Other threads may only call
    `send_fences`. The work behind a message that it comes too late for is on the shared stream already, and an
    operator that leaves after the call waits for it.

    Attributes
    ----------
    chosen
        The stream that was chosen for each output; `choose` does that.
    is_bare
        Whether the receivers of a message share no record of it, since they keep nothing as a rule (`in_order`).
    is_only
        Whether the operator's own stream orders all emitted messages.
    """

    __slots__ = ("_allocation", "_lifetimes", "_node", "_order", "_run", "chosen", "is_bare", "is_only")

    def __init__(
        self,
        run: RunStreams,
        node: RunningOperator,
        allocation: StreamAllocation,
        order: Order,
        lifetimes: Lifetimes,
    ) -> None:
        self._run = run
        self._node = node
        self._allocation = allocation
        self._order = order
        self._lifetimes = lifetimes
        self.chosen: dict[str, ManagedStream] = {}
        self.is_bare = self.is_only = False

    def choose(self, port: str, stream: ManagedStream) -> None:
        """Choose the stream for messages emitted at an output; `update` puts it into effect."""
        self.chosen[port] = stream

    def choose_for_others(self, stream: ManagedStream) -> None:
        """Choose the stream for all outputs without one; `update` puts it into effect."""
        for port in self._node.output_queues:
            self.chosen.setdefault(port, stream)

    def replace(self, before: ManagedStream, stream: ManagedStream) -> None:
        """Choose another stream in place of one; `update` puts it into effect."""
        for port, chosen in self.chosen.items():
            if chosen is before:
                self.chosen[port] = stream

    def update(self) -> None:
        """Update how each output port sends messages, after a change of the streams."""
        branch = self._run.branches.get(self._node.operator)
        with nullcontext() if branch is None else branch.lock:
            self._update(branch is not None and not branch.is_split)

    def _update(self, may_share: bool) -> None:
        node, allocation, order = self._node, self._allocation, self._order
        streams = {port: self.chosen.get(port) or allocation.borrowed for port in node.output_queues}
        own = allocation.own
        self.is_only = own is not None and all(stream is own for stream in streams.values())
        receivers = [queue.consumer.operator for queue in node.outputs if queue.consumer is not None]
        is_handed_on = (
            may_share
            and self.is_only
            and all(reader.fences.stream is own for reader in self._lifetimes.readers)
            and self._run.is_handed_on(node.operator, receivers)
        )
        for name, stream in streams.items():
            port = node.output.ports[name]
            port.stream = stream
            port.fences = None
            if stream is not None:
                fences = order.fences_on(stream)
                is_used_alone = all(reader.fences is fences for reader in self._lifetimes.readers)
                port.stamp = stamping(fences) if is_used_alone else self._joining(fences)
                port.fences = fences if is_used_alone and not is_handed_on else None
                port.pending = order.pending
                port.settle = self._settling(stream)
            else:
                has_work = order.has_received or bool(self._lifetimes.readers)
                port.stamp = self._carry if has_work else None
                port.pending = {}
            if (
                is_handed_on
            ):  # the receivers of a message share the record that keeps it alive, if each keeps it
                port.stamp_object = make_envelope if len(port.queues) > 1 and not self.is_bare else None
            else:
                port.stamp_object = port.stamp

    def send_fences(self) -> None:
        """Send each message with a fence from now on; may be called while the operator computes elsewhere."""
        for port in self._node.output.ports.values():
            port.stamp_object = port.stamp

    def _settling(self, stream: ManagedStream) -> Callable[[], None]:
        """Return a function that orders a stream after all received work; it is called before an emit."""

        def settle() -> None:
            self._order.settle(stream, self.is_only)

        return settle

    def _joining(self, fences: Fences) -> Callable[[Any], Any]:
        """Return a function that makes messages with the fences of all streams, that of the chosen one first."""
        node, order, allocation = self._node, self._order, self._allocation
        stream = fences.stream
        stamp_first = stamping(fences)
        others = [
            (reader.fences, allocation.has(reader.fences.stream) or is_default(reader.fences.stream.handle))
            for reader in self._lifetimes.readers
            if reader.fences is not fences
        ]

        def stamp(data: Any) -> Any:
            message = stamp_first(data)
            more: list[Fence] = []
            for other, is_ours in others:
                if not is_ours and order.is_ordered_by_hand(stream, other.stream, node.remaining):
                    continue
                event = other.insert()
                more.append((other, other.last, event))
            message.set_more_fences(tuple(more))
            return message

        return stamp

    def _carry(self, data: Any) -> Any:
        """Return a message with the fences of the operator's work and of received work that was not ordered."""
        turn = self._node.remaining
        fences: list[Fence] = []
        default: list[Fence] = []
        for reader in self._lifetimes.readers:
            timeline = reader.fences
            event = timeline.insert()
            (default if is_default(timeline.stream.handle) else fences).append(
                (timeline, timeline.last, event)
            )
        own = fences + default
        if own:
            data = carry_fences(data, own)
        received = self._order.pending_fences(turn)
        if not fences and received:
            # The message carries the stream that was received last, as if it had been sent directly from there.
            fences.append(received.pop())
        fences += received
        if not (fences or default):
            return data
        message = make_envelope(data)
        if fences:
            message.fences, message.number, message.event = fences[0]
        message.set_more_fences((*fences[1:], *default))
        return message
