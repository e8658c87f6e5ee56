"""New arrays: how many are made at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headrace.tensor.device_arrays import DeviceLibrary, Extent, Layout, NewArrays

MIB = 1 << 20


class Kind(DeviceLibrary):
    """Stands for a library: its arrays are numbers."""

    def __init__(self) -> None:
        self.made = 0

    def extent(self, layout: Layout) -> Extent:
        return Extent(0, layout.shape[0])

    def making(self, layout: Layout, stream: Any) -> Callable[[], int]:
        def make() -> int:
            self.made += 1
            return self.made

        return make


def made_at_a_time(size: int) -> list[int]:
    """Return how many arrays of a size have been made when each of four is taken."""
    kind, stream = Kind(), None
    new = NewArrays(Layout(kind, (size,), (1,), None, 0), stream)  # type: ignore[arg-type]
    found, taken = [], []
    for _ in range(4):
        taken.append(new.take())
        found.append(kind.made)
    assert sorted(taken) == [1, 2, 3, 4]
    return found


@pytest.mark.parametrize("size", [0, 1, 4096, MIB // 2])
def test_small_arrays_are_made_two_at_a_time(size: int) -> None:
    assert made_at_a_time(size) == [2, 2, 4, 4]


@pytest.mark.parametrize("size", [MIB // 2 + 1, MIB, 100 * MIB])
def test_large_arrays_are_made_when_they_are_needed(size: int) -> None:
    assert made_at_a_time(size) == [1, 2, 3, 4]
