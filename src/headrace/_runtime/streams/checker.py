"""StreamChecker: reports operators whose streams are not ordered after the work they received.

Messages that an operator emits are always ordered after those it received. The kernels that it launches may not be:
a kernel on an unordered stream may read a frame that is not ready. The checker cannot see kernels, but it sees
which streams an operator has requested. A program may keep a stream that it requested once, so from then on every
compute counts as using it. The checker reports a compute of such an operator that received a message which the
device is still working on, and ordered none of the operator's streams after that work.

A stream that came with a message needs no order after the work of its own operator. So if an operator uses only
streams that came with messages, it is reported for messages from other streams.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING

from headrace._runtime.messages.managed_stream import is_default
from headrace._runtime.messages.ports import messages_in
from headrace.core.errors import UnorderedStreamWarning

if TYPE_CHECKING:
    from headrace._runtime.messages.envelope import Envelope
    from headrace._runtime.messages.managed_stream import ManagedStream
    from headrace._runtime.messages.ports import InputPort


class StreamChecker:
    """The streams that an operator has requested, and what the current compute has ordered."""

    __slots__ = ("_came", "_joined", "_name", "_ordered", "_uses_own")

    def __init__(self, name: str) -> None:
        self._name = name
        # Since the first compute, because programs keep streams.
        self._uses_own = False
        self._came: set[ManagedStream] = set()
        # In this compute: the messages that a stream was ordered after, and those whose work is all on one stream,
        # because that was asked for and waits for the others.
        self._ordered: set[Envelope] = set()
        self._joined: set[Envelope] = set()

    def uses_own_stream(self) -> None:
        """Record that the operator has requested a stream of its pool."""
        self._uses_own = True

    def uses_stream_of_others(self, stream: ManagedStream) -> None:
        """Record that the operator has requested a stream that came with a message, or the default stream."""
        self._came.add(stream)

    def uses_stream_of(self, message: Envelope) -> None:
        """Record that the operator has requested the stream of a message, which waits for all work behind it."""
        assert message.fences is not None
        self._came.add(message.fences.stream)
        self._joined.add(message)

    def are_ordered_after_all(self, ports: Iterable[InputPort]) -> None:
        """Record that a stream was ordered after everything that this compute has received so far."""
        for port in ports:
            self._ordered.update(messages_in(port.item))

    def are_ordered(self, ports: Iterable[InputPort], streams: list[ManagedStream]) -> None:
        """Record that a stream was ordered after other streams, which may be those of messages."""
        for port in ports:
            for message in messages_in(port.item):
                if all(stream in streams for stream in self._streams_of(message)):
                    self._ordered.add(message)

    def end_compute(self, ports: Iterable[InputPort]) -> None:
        """Report the inputs that the compute should have been ordered after, and reset."""
        if self._uses_own or self._came:
            self._check(ports)
        self._ordered.clear()
        self._joined.clear()

    def _check(self, ports: Iterable[InputPort]) -> None:
        for port in ports:
            if port.own is not None:  # ordered as each message was received
                continue
            for message in messages_in(port.item):
                if message in self._ordered or message.is_done:
                    continue
                if not self._uses_own and self._is_of_streams_that_came(message):
                    continue
                if message.work is not None and message.work.is_exported:
                    continue
                name = port.name
                warnings.warn(
                    f"operator {self._name!r} finished without being ordered after the work that it "
                    f"received at {name!r}; call receive_cuda_stream({name!r}) after receive({name!r})",
                    UnorderedStreamWarning,
                    stacklevel=4,
                )
                break

    def _is_of_streams_that_came(self, message: Envelope) -> bool:
        """Return whether the operator may work on a message without a wait, on streams that came with messages."""
        # CUDA itself orders most streams with the default stream of their device.
        defaults = {stream.device_id for stream in self._came if is_default(stream.handle)}
        return all(
            stream in self._came or (stream.device_id in defaults and stream.handle.follows_default)
            for stream in self._streams_of(message)
        )

    def _streams_of(self, message: Envelope) -> list[ManagedStream]:
        """Return the streams that a stream has to be ordered after to be ordered after a message."""
        if message in self._joined and message.fences is not None:
            return [message.fences.stream]
        return [fences.stream for fences, _, _ in message.all_fences()]
