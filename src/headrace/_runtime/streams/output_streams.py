"""OutputStreams: the stream that each output's messages carry, after which receivers are ordered.

If a stream was chosen for an output, every message emitted there carries a fence on that stream. The stream first
waits for received work that it is not ordered after. If no stream was chosen, a message carries the fences of all
the operator's work on its streams and of all messages it received.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace._runtime.messages.message import fenced_message, stamping
from headrace._runtime.streams.default_stream import is_default

if TYPE_CHECKING:
    from headrace._runtime.messages.message import Fence
    from headrace._runtime.scheduling.node import Node
    from headrace._runtime.streams.allocation import StreamAllocation
    from headrace._runtime.streams.lifetimes import Lifetimes
    from headrace._runtime.streams.managed_stream import ManagedStream
    from headrace._runtime.streams.order import Order

__all__ = ["OutputStreams"]


class OutputStreams:
    """The streams that the messages of one operator's outputs carry.

    All fields are changed in the operator's computes, which never run concurrently.

    Attributes
    ----------
    is_only
        Whether the operator's own stream orders all emitted messages.
    """

    __slots__ = ("_allocation", "_chosen", "_lifetimes", "_node", "_order", "is_only")

    def __init__(self, node: Node, allocation: StreamAllocation, order: Order, lifetimes: Lifetimes) -> None:
        self._node = node
        self._allocation = allocation
        self._order = order
        self._lifetimes = lifetimes
        self._chosen: dict[str, ManagedStream] = {}
        self.is_only = False

    def chosen(self, port: str) -> ManagedStream | None:
        """Return the stream that was chosen for an output."""
        return self._chosen.get(port)

    def choose(self, port: str, stream: ManagedStream) -> None:
        """Choose the stream for messages emitted at an output; `update` puts it into effect."""
        self._chosen[port] = stream

    def choose_for_others(self, stream: ManagedStream) -> None:
        """Choose the stream for all outputs without one; `update` puts it into effect."""
        for port in self._node.output_queues:
            self._chosen.setdefault(port, stream)

    def update(self) -> None:
        """Update how each output port sends messages, after a change of the streams."""
        node, allocation, order = self._node, self._allocation, self._order
        streams = {port: self._chosen.get(port) or allocation.borrowed for port in node.output_queues}
        own = allocation.own
        self._set_only(own is not None and all(stream is own for stream in streams.values()))
        for name, stream in streams.items():
            port = node.output.ports[name]
            port.stream = stream
            if stream is not None:
                port.stamp = stamping(order.fences_on(stream))
                port.pending = order.pending
                port.settle = self._settling(stream)
            else:
                has_work = order.has_received or bool(self._lifetimes.readers)
                port.stamp = self._carry if has_work else None
                port.pending = {}

    def _set_only(self, is_only: bool) -> None:
        if self.is_only and not is_only:
            # Another stream will be emitted too. It must come after everything that the own stream is ordered
            # after.
            assert self._allocation.own is not None
            fences = self._order.fences_on(self._allocation.own)
            event = fences.insert()
            self._order.add(fences, fences.last, event)
        self.is_only = is_only

    def _settling(self, stream: ManagedStream) -> Callable[[], None]:
        """Return a function that orders a stream after all received work; it is called before an emit."""

        def settle() -> None:
            self._order.settle(stream, self.is_only)

        return settle

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
        received = self._order.pending_fences(turn)
        if not fences and received:
            # The message carries the stream that was received last, as if it had been sent directly from there.
            fences.append(received.pop())
        fences += received
        if not (fences or default):
            return data
        return fenced_message(data, fences[0] if fences else None, (*fences[1:], *default))
