"""What is found in a received object, and whether anybody else still holds it."""

from __future__ import annotations

import contextlib
import functools
import gc
import sys
from collections import deque, namedtuple
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from headrace import Application, TensorMap, as_tensor, gpu
from headrace._runtime.streams.lifetimes import HeldFrames
from headrace._runtime.streams.owners import Watch, add_owners, only_kept
from headrace.core import Operator
from headrace.core.metadata import MetadataDictionary
from headrace.tensor.libraries import hidden_users, library_of

pytestmark = pytest.mark.usefixtures("machine")


class Memory:
    """An object that is an owner by itself."""


def new_array() -> Any:
    """Return an array of the simulated device, behind which there is no work."""
    return gpu.arrays().empty(8)


def memory_of(array: Any) -> Any:
    return library_of(type(array)).owner(array)


def owners_of(data: Any) -> list[Any]:
    found: list[Any] = []
    add_owners(data, found)
    return found


@dataclass
class Picture:
    frame: Any


class Slotted:
    __slots__ = ("frame",)

    def __init__(self, frame: Any) -> None:
        self.frame = frame


class Derived(Slotted):
    __slots__ = ("more",)


class Lists(list[Any]):
    pass


class Color(Enum):
    RED = 1


Pair = namedtuple("Pair", "number frame")


class Holder(Operator):
    pass


def generator(frame: Any) -> Any:
    local = frame
    yield 1
    yield local


def started(iterator: Any) -> Any:
    next(iterator)
    return iterator


WRAPPERS: dict[str, Any] = {
    "bare": lambda frame: frame,
    "list": lambda frame: [1, "two", frame],
    "tuple": lambda frame: (None, frame),
    "dict": lambda frame: {"frame": frame, 1: 2},
    "key": lambda frame: {Slotted(frame): 1},
    "set": lambda frame: {Slotted(frame)},
    "frozenset": lambda frame: frozenset([Slotted(frame)]),
    "deque": lambda frame: deque([frame]),
    "nested": lambda frame: [{"a": ({"b": [frame]},)}],
    "dataclass": Picture,
    "slots": Slotted,
    "inherited slots": Derived,
    "namedtuple": lambda frame: Pair(1, frame),
    "namespace": lambda frame: SimpleNamespace(frame=frame),
    "a view of a dict that cannot be changed": lambda frame: MappingProxyType({"frame": frame}),
    "metadata": lambda frame: MetadataDictionary.fromkeys(["frame"], frame),
    "a list of its own": lambda frame: Lists([frame]),
    "iterator": lambda frame: iter([frame]),
    "values": lambda frame: {"a": frame}.values(),
    "map": lambda frame: map(str, [frame]),
    "zip": lambda frame: zip([1], [frame], strict=True),
    "generator": generator,
    "started generator": lambda frame: started(generator(frame)),
    "closure": lambda frame: lambda: frame,
    "default": lambda frame: lambda frame=frame: frame,
    "partial": lambda frame: functools.partial(print, frame),
    "method": lambda frame: Picture(frame).__init__,
    "method of a list": lambda frame: [frame].pop,
    "property": property,
    "array of objects": lambda frame: np.array([Slotted(frame), 1], dtype=object),
    "exception": lambda frame: ValueError(frame),
    "context manager": lambda frame: contextlib.nullcontext(frame),
}


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_the_memory_of_an_array_is_found_in_whatever_it_travels(wrapper: str) -> None:
    array = new_array()
    memory = memory_of(array)
    assert any(owner is memory for owner in owners_of(WRAPPERS[wrapper](array)))


@pytest.mark.parametrize(
    "data", [1, "text", 1.5, None, True, b"bytes", int, Color.RED, np.float32(1), np.dtype("f4"), sys, print]
)
def test_there_is_nothing_to_keep_of_what_holds_no_memory(data: Any) -> None:
    assert owners_of([data, {"a": data}]) == []


def test_operators_and_what_they_hold_are_not_looked_into() -> None:
    app = Application()
    holder = Holder(app, name="holder")
    holder.frame = new_array()
    assert owners_of([holder, app, holder.compute]) == []


def test_a_cycle_is_walked_once() -> None:
    array = new_array()
    first: list[Any] = [array]
    first.append([first, first])
    assert owners_of(first) == [memory_of(array)]


def test_what_a_large_collection_holds_beyond_the_bound_is_kept_with_it() -> None:
    frames = [Memory() for _ in range(5)]
    for size in (10, 100_000):
        large = [*frames, *range(size)]
        found = owners_of([large])
        assert (large in found) is (size > 1024)
    by_name = {number: Memory() for number in range(3000)}
    found = owners_of(by_name)
    assert not any(one is by_name for one in found), "its receiver has a copy"
    assert {id(one) for one in by_name.values()} >= {id(one) for one in found} != set()


def test_a_walk_that_goes_on_and_on_ends() -> None:
    chain: list[Any] = []
    for _ in range(5000):
        chain = [chain]
    found = owners_of(chain)
    assert len(found) == 1  # the rest of the chain, as it is


class NoStreams:
    def streams(self) -> list[Any]:
        return []


class Held:
    """What a holder does with what an operator received."""

    def __init__(self) -> None:
        self.frames = HeldFrames(Watch(), NoStreams())

    def receive(self, data: Any) -> None:
        add_owners(data, self.frames.received)

    def end_compute(self) -> int:
        """Return how many were let go, and keep none of them."""
        return len(self.frames.check() or [])


def test_an_array_that_nobody_holds_is_let_go() -> None:
    held = Held()
    held.receive([new_array(), (new_array(),)])
    assert held.end_compute() == 2
    assert not held.frames.watched


@pytest.mark.parametrize(
    "hold", [lambda array: array, lambda array: array[1:], lambda array: [memory_of(array)]]
)
def test_an_array_is_held_by_whoever_has_its_memory(hold: Any) -> None:
    held = Held()
    array: Any = new_array()
    held.receive(array)
    array = hold(array)
    for _ in range(3):
        assert held.end_compute() == 0
    assert len(held.frames.watched) == 1
    del array
    assert held.end_compute() == 1
    assert held.end_compute() == 0
    assert not held.frames.watched


def test_an_array_that_comes_twice_is_let_go_once() -> None:
    held = Held()
    array = new_array()
    held.receive((array, array[1:]))
    held.receive([array])
    del array
    assert held.end_compute() == 1


@pytest.mark.parametrize(
    "make", [lambda: np.arange(8), lambda: np.arange(8)[2:], lambda: np.from_dlpack(np.arange(8))]
)
@pytest.mark.parametrize(
    "hold", [lambda a: a, lambda a: a[1:], lambda a: a[1:][1:].T, memoryview, np.from_dlpack, as_tensor]
)
def test_an_array_of_numpy_is_held_by_its_views(make: Any, hold: Any) -> None:
    held = Held()
    array = make()
    held.receive({"frame": array, "number": 1})
    array = hold(array)
    gc.collect()
    assert held.end_compute() == 0
    del array
    gc.collect()
    assert sum(held.end_compute() for _ in range(3)) == 1
    assert not held.frames.watched


class Lender:
    """Lends its memory to an array, and has a `base`, which is something of its own."""

    def __init__(self) -> None:
        self._memory = np.arange(8)
        self.__array_interface__ = self._memory.__array_interface__

    @property
    def base(self) -> Any:
        return self


def test_an_array_that_was_lent_its_memory_is_held_by_its_views() -> None:
    held = Held()
    array = np.asarray(Lender())
    held.receive(array)
    array = array[2:]
    assert held.end_compute() == 0
    del array
    assert held.end_compute() == 1


@pytest.mark.parametrize("kind", ["itself", "view", "view of a view", "dlpack", "numpy", "storage", "graph"])
def test_a_tensor_of_pytorch_is_held_by_whatever_shares_its_storage(kind: str) -> None:
    torch = pytest.importorskip("torch")
    hold = {
        "itself": lambda tensor: tensor,
        "view": lambda tensor: tensor[1:],
        "view of a view": lambda tensor: tensor[1:].reshape(-1).detach(),
        "dlpack": torch.from_dlpack,
        "numpy": lambda tensor: tensor.detach().numpy(),
        "storage": lambda tensor: tensor.untyped_storage(),
        "graph": lambda tensor: tensor * torch.ones(8, requires_grad=True),
    }[kind]
    held = Held()
    tensor: Any = torch.zeros(8)
    held.receive([tensor])
    tensor = hold(tensor)
    assert held.end_compute() == 0
    assert held.end_compute() == 0
    del tensor
    gc.collect()
    assert held.end_compute() == 1
    held.receive(torch.zeros(8)[2:])
    assert held.end_compute() == 1


def test_a_library_counts_users_that_reference_counts_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    class Storage:
        users = 1

    monkeypatch.setitem(hidden_users, Storage, lambda owners: max(owner.users for owner in owners))
    for others in ([], [Storage], [object], [Storage, object]):
        owners: list[Any] = [Storage(), *[make() for make in others]]
        assert only_kept(owners)
        owners[0].users = 2
        assert not only_kept(owners)


def test_a_map_of_tensors_is_held_by_its_arrays() -> None:
    held = Held()
    tensors: Any = TensorMap(frame=new_array(), host=np.zeros(3))
    held.receive(tensors)
    kept = tensors["frame"]
    del tensors
    gc.collect()
    assert sum(held.end_compute() for _ in range(4)) == 1
    del kept
    assert held.end_compute() == 1
    assert not held.frames.watched


def test_records_that_are_gone_do_not_pile_up() -> None:
    watch = Watch()
    kept = [watch.begin(Memory()) for _ in range(50)]
    # Alive together, so that each has an identity of its own.
    for owner in [Memory() for _ in range(10_000)]:
        watch.begin(owner)
    assert len(watch._watched) <= 3 * 50 + 64
    assert all(watch.begin(record.owner) is record for record in kept)
