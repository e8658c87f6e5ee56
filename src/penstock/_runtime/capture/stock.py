"""Stock: new arrays of one layout, made several at a time.

Making an array for a stream means to make that stream current in its library and to go back, which costs as much as
the rest. So small arrays are made two at a time; more would make some frames take much longer than others.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock import gpu
    from penstock._runtime.capture.device_arrays import Layout

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

    def take(self) -> Any:
        """Return a new array."""
        arrays = self.arrays
        if not arrays:
            make = self._make
            with self._entered():
                for _ in range(self._batch):
                    arrays.append(make())
        return arrays.pop()

    def _entered(self) -> Any:
        return nullcontext() if self._current is None else self._current
