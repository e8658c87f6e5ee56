"""Copies of arrays of a device, to be put back or compared later."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.tensor.device_arrays import span_of
from headrace.tensor.device_memory import DeviceMemory, copy

if TYPE_CHECKING:
    from headrace import gpu


class KeptArray(NamedTuple):
    """An array, and what a program calls it."""

    label: str
    array: Any


class Saved:
    """Copies of arrays, made in the order of a stream.

    Attributes
    ----------
    kept, memories
        The arrays, and the memory that holds a copy of each.
    """

    def __init__(self, arrays: Iterable[KeptArray], stream: gpu.StreamHandle) -> None:
        self._stream = stream
        self.kept: list[KeptArray] = []
        self.memories: list[DeviceMemory] = []
        seen: set[tuple[int, int]] = set()
        try:
            for each in arrays:
                begin, end = span_of(each.array)
                if end > begin and (begin, end) not in seen:
                    seen.add((begin, end))
                    self.memories.append(DeviceMemory(stream, end - begin))
                    self.kept.append(each)
                    copy(stream, self.memories[-1].address, begin, end - begin)
        except BaseException:
            self.close()
            raise

    def restore(self) -> None:
        """Put back what was in the arrays, in the order of the stream."""
        for each, memory in zip(self.kept, self.memories, strict=True):
            copy(self._stream, span_of(each.array)[0], memory.address, memory.size)

    def close(self) -> None:
        """Free the copies, in the order of the stream."""
        while self.memories:
            self.memories.pop().close(self._stream)
