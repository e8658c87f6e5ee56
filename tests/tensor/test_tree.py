"""Messages as trees: their leaves and containers, and a walk that visits each object once."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque, namedtuple
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from headrace.tensor import TensorMap, as_tensor, tree

Pair = namedtuple("Pair", "left right")


@dataclass(frozen=True, slots=True)
class Frame:
    number: int
    picture: Any
    made: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "made", True)


@dataclass
class Loose:
    value: Any


class Positive(Pair):
    """A named tuple whose constructor takes something else."""

    __slots__ = ()

    def __new__(cls, both: int) -> Positive:
        return super().__new__(cls, both, both)


MESSAGES: dict[str, tuple[Any, list[Any]]] = {
    "a leaf": (3, [3]),
    "None": (None, [None]),
    "list": ([1, 2], [1, 2]),
    "tuple": ((1, (2,), ()), [1, 2]),
    "dict in its own order": ({"b": 1, "a": [2, 3]}, [1, 2, 3]),
    "ordered dict": (OrderedDict(b=1, a=[2, 3]), [1, 2, 3]),
    "deque": (deque([1, (2,)], 3), [1, 2]),
    "named tuple": (Pair(1, [2]), [1, 2]),
    "named tuple with a constructor of its own": (Positive(4), [4, 4]),
    "dataclass": (Frame(7, {"x": 8}), [7, 8, True]),
    "mixed": ({"f": Frame(1, (2, Loose([3])))}, [1, 2, 3, True]),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_the_leaves_of_a_message_and_back(name: str) -> None:
    message, leaves = MESSAGES[name]
    assert tree.leaves(message) == leaves
    again = tree.map(lambda leaf: leaf, message)
    assert again == message
    assert type(again) is type(message)


def test_the_order_of_a_dict_is_kept() -> None:
    assert list(tree.map(str, {"z": 1, "a": 2})) == ["z", "a"]
    assert list(tree.map(str, OrderedDict(z=1, a=2)).items()) == [("z", "1"), ("a", "2")]
    assert tree.map(str, deque([1, 2], 2)).maxlen == 2


def test_a_tensor_map_holds_what_it_is_given() -> None:
    message = TensorMap(a=np.zeros(3), b=np.ones(2))
    assert tree.leaves(message) == [message["a"], message["b"]]
    again = tree.map(lambda tensor: tensor.shape, message)
    assert type(again) is TensorMap
    assert dict(again) == {"a": (3,), "b": (2,)}


class Lists(list[Any]):
    pass


class Extra(Pair):
    pass


@dataclass
class Owning:
    """Owns memory, which its end gives back."""

    memory: int

    def __del__(self) -> None:
        pass


def test_objects_that_may_hold_more_than_their_items_are_leaves() -> None:
    loose = Loose(1)
    loose.more = 2  # type: ignore[attr-defined]
    extra = Extra(1, 2)
    extra.more = 3
    ordered = OrderedDict(a=1)
    ordered.more = 4  # type: ignore[attr-defined]
    unset = object.__new__(Frame)
    for leaf in (
        Lists([1]),
        ordered,
        defaultdict(int, a=1),
        {1, 2},
        loose,
        extra,
        Owning(1),
        unset,
        Loose,
        np.zeros(3),
        as_tensor(np.zeros(3)),
    ):
        (found,) = tree.leaves(leaf)
        assert found is leaf


class Shy:
    """An object that objects to being looked at."""

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError(f"nobody need ask for {name}")


def test_a_leaf_is_not_looked_at() -> None:
    shy = Shy()
    (again,) = tree.map(lambda leaf: leaf, [shy])
    assert again is shy


def test_the_caller_says_what_else_is_a_leaf() -> None:
    assert tree.leaves([(1, 2), [3]], lambda data: type(data) is tuple) == [(1, 2), 3]
    assert tree.map(str, [(1, 2), [3]], lambda data: type(data) is tuple) == ["(1, 2)", ["3"]]


def test_a_container_that_is_too_deep_is_a_leaf() -> None:
    inside: list[Any] = []
    inside.append(inside)
    deep: Any = "bottom"
    for _ in range(tree.DEEPEST):
        deep = [deep]
    assert tree.leaves(deep) == ["bottom"]
    (found,) = tree.leaves(inside)
    assert found is inside


def test_each_object_is_visited_once_even_in_cycles() -> None:
    one, two, three = ["one"], ["two"], ["three"]
    leads = {id(one): [two, three, one], id(two): [three, one], id(three): [two, 5]}

    def visit(data: Any, found: list[Any]) -> list[Any]:
        found.append(data[0])
        return leads[id(data)]

    def walk(items: list[Any], most: int = 10, **options: Any) -> list[Any]:
        found: list[Any] = []
        tree.once(items, {list: visit}, found, most, skipped={int}, **options)
        return found

    assert walk([one, one]) == ["one", "two", "three"]
    assert walk([one], most=2) == ["one", "two", three, three], "what is not visited is there itself"
    assert walk([one, 5], seen={id(two)}) == ["one", "three"]
