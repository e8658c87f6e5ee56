"""CarriedWork: the work behind tensors that an operator emitted without choosing a stream for the output.

The message carries a fence on every stream that the operator has used. A library that takes a tensor of the message
knows nothing of messages, so the tensor presents these fences too, beside the work that it names itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace._runtime.messages.managed_stream import is_named
from headrace.tensor import PendingWork, Tensor, TensorMap, stream_of

if TYPE_CHECKING:
    from headrace._runtime.messages.message import Fence

__all__ = ["CarriedWork", "carry_fences"]


class CarriedWork:
    """Fences on the streams of an operator, and the work that a tensor named before.

    It does not change, so all receivers share it.
    """

    __slots__ = ("_earlier", "_fences")

    def __init__(self, earlier: PendingWork | None, fences: list[Fence]) -> None:
        if isinstance(earlier, CarriedWork):
            # A tensor may go round in a circle: the latest fence of each timeline is enough.
            latest = {fence[0]: fence for fence in (*earlier._unfinished(), *fences)}
            fences = list(latest.values())
            earlier = earlier._earlier
        self._earlier: PendingWork | None = earlier
        self._fences = fences

    # The interface for tensors (`headrace.tensor`).

    @property
    def stream_handle(self) -> int:
        """The first of the operator's streams."""
        return int(self._fences[0][0].stream.handle)

    @property
    def stream(self) -> int | None:
        """One of the streams, which comes after all of the work; None if there is nothing to wait for."""
        earlier = None if self._earlier is None else self._earlier.stream
        unfinished = self._unfinished()
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
        unfinished = self._unfinished()
        if unfinished:
            consumer = stream_of(stream)
            for fences, _, event in unfinished:
                if not is_named(fences.stream, stream):
                    consumer.wait(event)

    def _unfinished(self) -> list[Fence]:
        """Return the fences that may be incomplete."""
        return [fence for fence in self._fences if fence[1] > fence[0].completed]


def carry_fences(data: Any, fences: list[Fence]) -> Any:
    """Return emitted data with tensors that present these fences; data without tensors is returned unchanged."""
    if type(data) is Tensor:
        return _carry(data, fences)
    if type(data) is TensorMap:
        data = data.copy()
        for name, tensor in data.items():
            dict.__setitem__(data, name, _carry(tensor, fences))
    return data


def _carry(tensor: Tensor, fences: list[Fence]) -> Tensor:
    if not tensor.device.is_cuda:
        return tensor
    return tensor._with_pending_work(CarriedWork(tensor._pending_work, fences))
