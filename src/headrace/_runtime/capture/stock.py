"""Stock: new arrays of one layout, made several at a time.

Making an array for a stream means to make that stream current in its library and to go back, which costs as much as
the rest. So small arrays are made two at a time; more would make some frames take much longer than others. The
first ones are made with the stock: if the memory is too little for them, that shows while the segment is recorded.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace import gpu
    from headrace._runtime.capture.device_arrays import Layout

__all__ = ["Stock"]

_MOST = 2
_BYTES = 1 << 20


class Stock:
    """New arrays of one layout.

    Attributes
    ----------
    arrays
        Those that were made and not taken.
    """

    __slots__ = ("_batch", "_current", "_make", "arrays")

    def __init__(self, layout: Layout, stream: gpu.StreamHandle) -> None:
        kind = layout.kind
        self._current = kind.current(stream)
        with self._entered():
            self._make = kind.making(layout, stream)
        self._batch = max(1, min(_MOST, _BYTES // max(kind.extent(layout).size, 1)))
        self.arrays: list[Any] = []
        self._fill()

    def take(self) -> Any:
        """Return a new array."""
        if not self.arrays:
            self._fill()
        return self.arrays.pop()

    def _fill(self) -> None:
        make = self._make
        with self._entered():
            for _ in range(self._batch):
                self.arrays.append(make())

    def _entered(self) -> Any:
        return nullcontext() if self._current is None else self._current
