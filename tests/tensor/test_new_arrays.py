"""New arrays: how many are made at a time, and which are sent again."""

from __future__ import annotations

from collections.abc import Callable
from sys import getrefcount
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


class Array:
    """Stands for an array of a library that tells who holds it."""


class KindWithHolders(Kind):
    """A library whose arrays are objects."""

    def making(self, layout: Layout, stream: Any) -> Callable[[], Any]:
        def make() -> Array:
            self.made += 1
            return Array()

        return make

    def holders(self, array: Any) -> int:
        return getrefcount(array)


def new_arrays(size: int) -> tuple[KindWithHolders, NewArrays]:
    kind = KindWithHolders()
    return kind, NewArrays(Layout(kind, (size,), (1,), None, 0), None)  # type: ignore[arg-type]


def test_an_array_is_sent_again_when_nobody_holds_it() -> None:
    kind, new = new_arrays(64)
    for _ in range(100):
        new.take()
    assert kind.made == 2


def test_no_array_is_sent_again_while_somebody_holds_it() -> None:
    kind, new = new_arrays(64)
    held = [new.take()]  # for ever
    late: list[Any] = []
    for _ in range(1000):
        late.append(new.take())
        assert len({*map(id, held), *map(id, late)}) == len(held) + len(late)
        del late[:-5]
    assert kind.made < 200


def test_many_or_large_arrays_are_not_kept() -> None:
    _, new = new_arrays(64)
    many = [new.take() for _ in range(1000)]
    assert len({*map(id, many)}) == 1000
    assert len(new._kept) <= 128
    kind, new = new_arrays(9 * MIB)
    for _ in range(10):
        new.take()
    assert kind.made == 10
