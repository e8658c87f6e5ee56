"""Messages as trees: their leaves and containers, and a walk that visits each object once."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque, namedtuple
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    found, structure = tree.flatten(message)
    assert found == leaves
    again = tree.unflatten(structure, found)
    assert again == message
    assert type(again) is type(message)
    assert tree.map(lambda leaf: leaf, message) == message
    assert tree.flatten(again)[1] == structure
    assert hash(tree.flatten(again)[1]) == hash(structure)


def test_the_order_of_a_dict_is_kept() -> None:
    assert list(tree.map(str, {"z": 1, "a": 2})) == ["z", "a"]
    assert list(tree.map(str, OrderedDict(z=1, a=2)).items()) == [("z", "1"), ("a", "2")]
    assert tree.map(str, deque([1, 2], 2)).maxlen == 2
    assert tree.flatten({"z": 1, "a": 2})[1] != tree.flatten({"a": 2, "z": 1})[1]


def test_a_tensor_map_holds_what_it_is_given() -> None:
    message = TensorMap(a=np.zeros(3), b=np.ones(2))
    leaves, structure = tree.flatten(message)
    assert leaves == [message["a"], message["b"]]
    again = tree.unflatten(structure, ["one", "two"])
    assert type(again) is TensorMap
    assert dict(again) == {"a": "one", "b": "two"}


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
        found, structure = tree.flatten(leaf)
        assert found[0] is leaf
        assert structure is tree.LEAF


class Shy:
    """An object that objects to being looked at."""

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError(f"nobody need ask for {name}")


def test_a_leaf_is_not_looked_at() -> None:
    shy = Shy()
    leaves, structure = tree.flatten([shy])
    assert leaves[0] is shy
    assert tree.unflatten(structure, leaves)[0] is shy


def test_the_caller_says_what_else_is_a_leaf() -> None:
    leaves, _ = tree.flatten([(1, 2), [3]], lambda data: type(data) is tuple)
    assert leaves == [(1, 2), 3]
    assert tree.map(str, [(1, 2), [3]], lambda data: type(data) is tuple) == ["(1, 2)", ["3"]]


def test_a_container_in_itself_is_an_error_and_a_leaf_for_map() -> None:
    inside: list[Any] = []
    inside.append(inside)
    with pytest.raises(RecursionError, match="contains itself, or more than 32"):
        tree.flatten(inside)
    deep: Any = "bottom"
    for _ in range(tree.DEEPEST):
        deep = [deep]
    assert tree.flatten(deep)[0] == ["bottom"]
    seen: list[Any] = []
    tree.map(seen.append, inside)
    assert seen == [inside]


_messages = st.recursive(
    st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=2), inner, max_size=3)
        | st.builds(Pair, inner, inner)
        | st.builds(Loose, inner)
    ),
    max_leaves=12,
)


@given(message=_messages)
def test_flatten_and_unflatten_are_inverse(message: Any) -> None:
    leaves, structure = tree.flatten(message)
    assert tree.unflatten(structure, leaves) == message
    numbers = tree.unflatten(structure, range(len(leaves)))
    assert tree.flatten(numbers) == (list(range(len(leaves))), structure)
    assert tree.map(repr, message) == tree.unflatten(structure, map(repr, leaves))


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
