"""The work behind tensors that an operator emitted, as the tensors present it to other libraries.

A receiver that called `receive_cuda_stream` is ordered after that work, so a library that works on the same stream
needs no further order. A library with its own streams, such as JAX, names one of them when it takes a tensor. That
stream is then ordered after the work, and after the receivers' work on the tensor since (`EmittedWork`).

If no stream was chosen for the output, the message carries a fence on every stream that the operator has used. The
tensors present these fences too, beside the work that they name themselves (`CarriedWork`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from headrace._runtime.messages.managed_stream import is_named
from headrace.tensor import PendingWork, Tensor, stream_of
from headrace.tensor.tensor_map import MAPPINGS

if TYPE_CHECKING:
    from headrace._runtime.messages.envelope import Envelope, Fence
    from headrace._runtime.messages.fences import Fences
    from headrace._runtime.messages.managed_stream import ManagedStream


class EmittedWork:
    """The work on a stream up to the fence that `emit` inserts after it has converted the data.

    Each of several receivers has its own, because one receiver may be ordered while the others are not. The sender
    fills it in before the message is queued; from then on only the receiver changes it, in its computes. Only
    `_ordered_streams` is shared by several receivers, which append to it.

    Attributes
    ----------
    is_exported
        Whether a stream was ordered after the work through the tensors; for the checker.
    """

    __slots__ = (
        "_event",
        "_fences",
        "_is_receiver_ordered",
        "_more_fences",
        "_number",
        "_ordered_streams",
        "_stream",
        "is_exported",
    )

    def __init__(self, stream: ManagedStream) -> None:
        self._stream = stream
        self._fences: Fences | None = None
        self._number = 0
        self._event: Any = None
        # Fences on other streams that the sender used.
        self._more_fences: tuple[Fence, ...] = ()
        # Whether this receiver was ordered after the fence, and the streams of all receivers that were.
        self._is_receiver_ordered = False
        self._ordered_streams: list[ManagedStream] = []
        self.is_exported = False

    def attach(self, message: Envelope) -> None:
        """Copy the fences of a message; keeping the message itself would keep its tensors alive."""
        self._fences, self._number, self._event = message.fences, message.number, message.event
        self._more_fences = message.more_fences or ()
        message.work = self

    def for_other_receiver(self) -> EmittedWork:
        """Return the same work, for one of several receivers."""
        other = EmittedWork(self._stream)
        other._ordered_streams = self._ordered_streams
        return other

    def note_ordered(self, stream: ManagedStream) -> None:
        """Record that a stream of the receiver has been ordered after the fences."""
        # A message that is received again is noted again.
        if not self._is_receiver_ordered or stream not in self._ordered_streams:
            self._ordered_streams.append(stream)
        self._is_receiver_ordered = True

    # The interface for tensors (`headrace.tensor`).

    @property
    def stream_handle(self) -> int:
        """The sender's stream."""
        return int(self._stream.handle)

    @property
    def stream(self) -> int | None:
        """The sender's stream, or None once the receiver is ordered after the fences or they are complete."""
        if self._is_receiver_ordered or (self._is_complete and not _unfinished(self._more_fences)):
            return None
        # A library waits for this one stream, so it has to come after the others.
        for fences, _, event in _unfinished(self._more_fences):
            if fences.stream is not self._stream:
                self._stream.wait(event)
        return self._stream.handle

    def order(self, stream: int) -> None:
        """Make a stream wait for the work, unless it already does."""
        self.is_exported = True
        if self._fences is not None and self._fences.is_over:
            return
        ordered = tuple(self._ordered_streams)
        for other in ordered:
            if is_named(other, stream):
                return
        consumer = stream_of(stream)
        # Use events of the stream's own device: the consumer's device may differ.
        if not is_named(self._stream, stream) and not self._is_complete:
            consumer.wait(self._stream.now() if self._event is None else self._event)
        _wait_for(self._more_fences, consumer, stream)
        for other in ordered:
            consumer.wait(other.now())

    @property
    def _is_complete(self) -> bool:
        return self._fences is not None and self._number <= self._fences.completed


class CarriedWork:
    """Fences on the streams of an operator, and the work that a tensor named before.

    It does not change, so all receivers share it.
    """

    __slots__ = ("_earlier", "_fences")

    def __init__(self, earlier: PendingWork | None, fences: list[Fence]) -> None:
        if isinstance(earlier, CarriedWork):
            # A tensor may go round in a circle: the latest fence of each timeline is enough.
            latest = {fence[0]: fence for fence in (*_unfinished(earlier._fences), *fences)}
            fences = list(latest.values())
            earlier = earlier._earlier
        self._earlier: PendingWork | None = earlier
        self._fences: list[Fence] = fences

    # The interface for tensors (`headrace.tensor`).

    @property
    def stream_handle(self) -> int:
        """The first of the operator's streams."""
        return int(self._fences[0][0].stream.handle)

    @property
    def stream(self) -> int | None:
        """One of the streams, which comes after all of the work; None if there is nothing to wait for."""
        earlier = None if self._earlier is None else self._earlier.stream
        unfinished = _unfinished(self._fences)
        if not unfinished:
            return earlier
        # A library waits for this one stream.
        first = unfinished[0][0].stream
        for fences, _, event in unfinished[1:]:
            if fences.stream is not first:
                first.wait(event)
        if earlier is not None and not is_named(first, earlier):
            first.wait(stream_of(earlier))
        return first.handle

    def order(self, stream: int) -> None:
        """Make a stream wait for the work."""
        if self._earlier is not None:
            self._earlier.order(stream)
        if _unfinished(self._fences):
            _wait_for(self._fences, stream_of(stream), stream)


def carry_fences(data: Any, fences: list[Fence]) -> Any:
    """Return emitted data with tensors that present these fences; data without tensors is returned unchanged."""
    if type(data) is Tensor:
        return _carry(data, fences)
    if type(data) in MAPPINGS and Tensor in map(type, data.values()):
        data = data.copy()
        for name, value in data.items():
            if type(value) is Tensor:
                dict.__setitem__(data, name, _carry(value, fences))
    return data


def _carry(tensor: Tensor, fences: list[Fence]) -> Tensor:
    if not tensor.device.is_cuda:
        return tensor
    return tensor._with_pending_work(CarriedWork(tensor._pending_work, fences))


def _unfinished(fences: Iterable[Fence]) -> list[Fence]:
    """Return the fences that may be incomplete."""
    return [fence for fence in fences if fence[1] > fence[0].completed]


def _wait_for(fences: Iterable[Fence], consumer: Any, stream: int) -> None:
    """Make a stream, given with its handle, wait for fences on other streams."""
    for timeline, _, event in _unfinished(fences):
        if not is_named(timeline.stream, stream):
            consumer.wait(event)
