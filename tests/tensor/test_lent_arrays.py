"""An array that is sent again: only when nobody refers to it any more, in whatever way."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headrace import gpu
from headrace.gpu.allocation import allocation_at, in_use
from headrace.tensor.device_arrays import DeviceLibrary, Layout
from headrace.tensor.lent_arrays import LentArray, OutputArrays

SIZE = 64


class Memory:
    def __init__(self, owner: Any, address: int) -> None:
        self.owner, self.address = owner, address


class Array:
    """An array like those of CuPy: it refers to a pointer, and the pointer to memory, which keeps an owner."""

    def __init__(self, pointer: list[Memory]) -> None:
        self.pointer, self.shape = pointer, (SIZE,)

    def part(self) -> Array:
        return Array([self.pointer[0]])


class Lasting(DeviceLibrary):
    """Its arrays may be sent again."""

    types = (Array,)

    def itemsize(self, layout: Layout) -> int:
        return 1

    def address(self, array: Array) -> int:
        return array.pointer[0].address

    def at(self, layout: Layout, address: int, owner: Any) -> Array:
        return Array([Memory(owner, address)])

    def links(self, array: Array) -> tuple[Any, ...]:
        return (array, array.pointer, array.pointer[0])

    def state(self, array: Array) -> Any:
        return array.shape, array.pointer


class Passing(Lasting):
    """Each message needs an array of its own."""

    def links(self, array: Array) -> tuple[Any, ...]:
        return ()


@pytest.fixture(params=[Lasting, Passing])
def lent(request: pytest.FixtureRequest) -> Iterator[LentArray]:
    device = gpu.Device(0)
    device.set_current()
    buffer = device.allocate(SIZE, stream=device.default_stream)
    kind = request.param()
    layout = Layout(kind, (SIZE,), (1,), None, 0)
    made = LentArray(layout, kind.at(layout, int(buffer.handle), buffer))
    yield made
    made.close()
    del made
    gc.collect()
    assert int(buffer.handle) not in in_use
    buffer.close()


def exported(array: Array) -> Any:
    """Return what another library keeps of an array: a function that frees it, out of Python's sight."""
    return lambda: array


WAYS: dict[str, Callable[[Array], Any]] = {
    "the array": lambda array: array,
    "a slice": Array.part,
    "a slice of a slice": lambda array: array.part().part(),
    "its pointer": lambda array: array.pointer,
    "its memory": lambda array: array.pointer[0],
    "the owner of its memory": lambda array: array.pointer[0].owner,
    "the allocation at its address": lambda array: allocation_at(array.pointer[0].address),
    "a buffer on the allocation": lambda array: array.pointer[0].owner.buffer,
    "an export": exported,
    "a container of containers": lambda array: {"frames": [(array,)]},
}


@pytest.mark.parametrize("way", WAYS)
def test_an_array_is_back_when_nobody_refers_to_it_in_any_way(lent: LentArray, way: str) -> None:
    for _ in range(3):
        kept = [WAYS[way](lent.lend())]
        assert not lent.is_back()
        kept.clear()
        assert lent.is_back()


def test_an_array_in_a_cycle_is_back_when_the_cycle_is_collected(lent: LentArray) -> None:
    cycle: list[Any] = [lent.lend()]
    cycle.append(cycle)
    del cycle
    assert not lent.is_back()
    gc.collect()
    assert lent.is_back()


def test_a_shape_that_was_changed_in_place_is_not_seen_by_the_next_receiver(lent: LentArray) -> None:
    lent.lend().shape = (2, SIZE // 2)
    assert lent.is_back()
    assert lent.lend().shape == (SIZE,)
    assert allocation_at(lent.address) is not None


def test_a_weak_reference_does_not_lead_to_a_later_message(lent: LentArray) -> None:
    seen = weakref.ref(lent.lend())
    assert lent.is_back()
    assert seen() is None
    array = lent.lend()
    assert seen() is None
    assert array.pointer[0].address == lent.address
    del array
    assert lent.is_back()


def test_what_is_lent_at_the_end_keeps_its_memory(lent: LentArray) -> None:
    array = lent.lend()
    lent.close()
    assert allocation_at(lent.address) is array.pointer[0].owner


# Several of them.


class Stream:
    """Notes what it is told to do."""

    handle = None

    def __init__(self, name: str) -> None:
        self.name = name

    def create_event(self) -> str:
        return f"event of {self.name}"

    def record(self, event: str) -> None:
        done.append(f"record {event}")

    def wait(self, event: str) -> None:
        done.append(f"wait {event}")

    def streams(self) -> list[Any]:
        return [self, own]


class Making(Lasting):
    """Makes arrays on memory of their own."""

    lasts = True

    def __init__(self) -> None:
        self.made = 0

    def new(self, layout: Layout, stream: Any) -> Array:
        self.made += 1
        return Array([Memory(None, 4096 * self.made)])


done: list[str] = []
own = Stream("own")


def read_by(user: Stream, array: Array) -> None:
    allocation = allocation_at(array.pointer[0].address)
    assert allocation is not None
    allocation.add_user(user)


@pytest.fixture
def arrays() -> Iterator[tuple[OutputArrays, Making]]:
    kind = Making()
    done.clear()
    arrays = OutputArrays(Layout(kind, (SIZE,), (1,), None, 0), own)
    kind.made = 0  # it has tried whether there is memory for one
    yield arrays, kind
    arrays.close()


def test_arrays_that_nobody_holds_are_lent_again(arrays: tuple[OutputArrays, Making]) -> None:
    lent, new = arrays
    addresses = [lent.take().pointer[0].address for _ in range(200)]
    assert new.made == len(set(addresses)) == 16


def test_the_writer_comes_after_the_readers_of_what_it_writes(arrays: tuple[OutputArrays, Making]) -> None:
    """It waits for a mark that was made some arrays earlier, and once for several."""
    lent, _ = arrays
    reader = Stream("reader")
    for _ in range(200):
        first, at = len(done), lent.take()
        read_by(reader, at)
        assert len(done) - first <= 2
        del at
    assert done[:3] == ["record event of reader", "wait event of reader", "record event of reader"]
    assert 40 < len(done) < 60


def test_arrays_that_are_held_are_not_lent_again(arrays: tuple[OutputArrays, Making]) -> None:
    """Beyond a limit they are new ones, which are not lent."""
    lent, new = arrays
    held = [lent.take() for _ in range(200)]
    assert new.made == len({array.pointer[0].address for array in held}) == 200
    assert sum(allocation_at(array.pointer[0].address) is not None for array in held) == 48
    held.clear()
    again = {lent.take().pointer[0].address for _ in range(100)}
    assert len(again) <= 48 + 16  # it looks twice, each time after eight new ones


def test_the_memory_of_those_that_are_held_at_the_end_has_to_stay(
    arrays: tuple[OutputArrays, Making],
) -> None:
    lent, _ = arrays
    reader = Stream("reader")
    held, other = lent.take(), lent.take()
    for array in (held, other):
        read_by(reader, array)
    del array, other
    assert [each.address for each in lent.retire()] == [held.pointer[0].address]
    assert done == ["record event of reader", "wait event of reader"]


def test_large_arrays_are_new_ones() -> None:
    kind = Making()
    arrays = OutputArrays(Layout(kind, (1 << 20,), (1,), None, 0), own)
    addresses = [arrays.take().pointer[0].address for _ in range(30)]
    assert len(set(addresses)) == 30
    assert arrays.retire() == []
