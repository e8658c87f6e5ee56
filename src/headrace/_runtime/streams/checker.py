"""StreamChecker: reports operators whose streams are not ordered after the work they received.

Messages that an operator emits are always ordered after those it received. The kernels that it launches may not be:
a kernel on an unordered stream may read a frame that is not ready. The checker cannot see kernels, but it sees
which streams a compute requested. It reports a compute that requested one of the operator's streams, received a
message that the device is still working on, and ordered none of its streams after that work.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from headrace._runtime.messages.input import messages_in
from headrace.core.errors import UnorderedStreamWarning

if TYPE_CHECKING:
    from headrace._runtime.messages.input import InputPort
    from headrace._runtime.messages.message import Message
    from headrace._runtime.streams.managed_stream import ManagedStream

__all__ = ["StreamChecker"]


class StreamChecker:
    """The streams that the current compute requested and ordered."""

    __slots__ = ("_name", "_ordered", "_uses_own")

    def __init__(self, name: str) -> None:
        self._name = name
        self._uses_own = False
        self._ordered: set[Message] = set()

    def uses_own_stream(self) -> None:
        """Record that the compute requested one of the operator's streams."""
        self._uses_own = True

    def is_ordered(self, item: Any) -> None:
        """Record that a stream was ordered after an item received at a port."""
        self._ordered.update(message for message in messages_in(item) if message is not None)

    def are_ordered(self, ports: Iterable[InputPort], streams: list[ManagedStream]) -> None:
        """Record that a stream was ordered after other streams, which may be those of messages."""
        for port in ports:
            for message in messages_in(port.item):
                if message is not None and all(
                    fences.stream in streams for fences, _, _ in message.all_fences()
                ):
                    self._ordered.add(message)

    def end_compute(self, ports: Iterable[InputPort]) -> None:
        """Report the inputs that the compute should have been ordered after, and reset."""
        uses_own, ordered = self._uses_own, self._ordered
        self._uses_own, self._ordered = False, set()
        if not uses_own:
            return
        for port in ports:
            if port.own is not None:  # ordered as each message was received
                continue
            for message in messages_in(port.item):
                if message is None or message in ordered or message.is_done:
                    continue
                if message.work is not None and message.work.is_exported:
                    continue
                name = port.name
                warnings.warn(
                    f"operator {self._name!r} finished without being ordered after the work that it "
                    f"received at {name!r}; call receive_cuda_stream({name!r}) after receive({name!r})",
                    UnorderedStreamWarning,
                    stacklevel=3,
                )
                break
