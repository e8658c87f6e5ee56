"""Device state: what is in the arrays that operators keep on the device, saved and put back.

An operator may keep an array that every compute changes in place: a running mean, a previous frame. A frame that is
replayed and computed as well, to compare both, would change it twice. So these arrays are saved before the replay
and put back after it, and what both leave in them is compared like what they emit.

The arrays are those that the code of compute names (`host_state`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from headrace._runtime.capture.device_arrays import Layout, Unsupported, kind_of
from headrace._runtime.capture.graphs import AddressedMemory, copy
from headrace._runtime.capture.refusal import Refusal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace import gpu

__all__ = ["DeviceState", "KeptArray"]


class KeptArray(NamedTuple):
    """An array that an operator keeps.

    Attributes
    ----------
    operator, label
        The name of the operator, and what its program calls the array.
    array
        The array.
    """

    operator: str
    label: str
    array: Any


class _Saved(NamedTuple):
    kept: KeptArray
    layout: Layout
    address: int
    size: int
    memory: AddressedMemory


class DeviceState:
    """Copies of arrays, made in the order of a stream.

    Parameters
    ----------
    arrays
        The arrays; those in memory of the host are left out.
    stream
        The stream, which is ordered after the work on the arrays.
    """

    def __init__(self, arrays: Iterable[KeptArray], stream: gpu.StreamHandle) -> None:
        self._stream = stream
        self._saved: list[_Saved] = []
        seen: set[tuple[int, int]] = set()
        try:
            for kept in arrays:
                self._save(kept, seen)
        except Exception as error:
            self.close()
            raise Refusal(
                "there is too little memory for a copy of the arrays that its operators keep, with which it is "
                f"verified ({error}); free some, or set verify=0"
            ) from error

    def _save(self, kept: KeptArray, seen: set[tuple[int, int]]) -> None:
        kind = kind_of(kept.array)
        if kind is None:
            return
        try:
            layout = kind.layout(kept.array)
        except Unsupported:
            return
        before, size = kind.extent(layout)
        address = kind.address(kept.array) - before
        if size and (address, size) not in seen:
            seen.add((address, size))
            memory = AddressedMemory(self._stream, size)
            self._saved.append(_Saved(kept, layout, address, size, memory))
            copy(self._stream, memory.address, address, size)

    @property
    def layouts(self) -> list[tuple[KeptArray, Layout]]:
        """The arrays, and what they look like."""
        return [(saved.kept, saved.layout) for saved in self._saved]

    def restore(self) -> None:
        """Put back what was in the arrays, in the order of the stream."""
        for saved in self._saved:
            copy(self._stream, saved.address, saved.memory.address, saved.size)

    def synchronize(self) -> None:
        """Wait until it is done, whatever works on the arrays next, on whatever stream."""
        if self._saved:
            self._stream.stream.sync()

    def close(self) -> None:
        """Free the copies, in the order of the stream."""
        while self._saved:
            self._saved.pop().memory.close(self._stream)
