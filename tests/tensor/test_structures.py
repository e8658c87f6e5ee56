"""What a message looks like: its structure, its arrays and values, and the message with others."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.gpu import sim
from headrace.tensor import tree
from headrace.tensor.device_arrays import Unsupported
from headrace.tensor.structures import Same, key_of_object, key_of_value, layouts_of, rebuild, take_apart
from tests.harness.recursion import at_most_deeper

pytestmark = pytest.mark.usefixtures("machine")


class Mode(enum.Enum):
    FAST = 1


class Pair(NamedTuple):
    one: Any
    two: Any


def buffer(size: int = 16) -> Any:
    return sim.Device(0).allocate(size, stream=sim.Device(0).create_stream())


def structure(data: Any) -> Any:
    return take_apart(data, [], [])


def test_arrays_are_leaves_in_order() -> None:
    one, two, three = buffer(), buffer(), buffer(32)
    leaves: list[Any] = []
    values: list[Any] = []
    found = take_apart({"a": [one, (two,)], "b": Pair(three, 5), "c": [1, 2]}, leaves, values)
    assert [leaf is array for leaf, array in zip(leaves, (one, two, three), strict=True)] == [True] * 3
    assert [layout.shape for layout in layouts_of(found)] == [(16,), (16,), (32,)]
    assert values == [5, [1, 2]]
    other = rebuild(found, iter(["x", "y", "z"]), iter([6, None]))
    assert other == {"a": ["x", ("y",)], "b": Pair("z", 6), "c": None}
    assert type(other["b"]) is Pair


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.complex_numbers()
    | st.text()
    | st.binary()
    | st.just(Mode.FAST),
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text() | st.integers(), inner)
        | st.builds(Pair, inner, inner)
    ),
    max_leaves=8,
)


@given(plain)
def test_a_message_is_rebuilt_as_it_was(data: Any) -> None:
    array = buffer()
    arrays: list[Any] = []
    values: list[Any] = []
    found = take_apart([array, data], arrays, values)
    again = rebuild(found, iter(arrays), iter(values))
    assert again[0] is array
    assert repr(again[1]) == repr(data)
    assert structure(again) == found
    assert hash(structure(again)) == hash(found)


@given(plain, plain)
def test_values_of_one_key_are_the_same(one: Any, other: Any) -> None:
    assert (key_of_value(one) == key_of_value(other)) == (repr(one) == repr(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, True),
        (1, 1.0),
        (0.0, -0.0),
        (0j, -0.0 * 1j),
        ([1], (1,)),
        ("1", b"1"),
        ({"a": 1}, {"b": 1}),
        ([], ()),
    ],
)
def test_values_that_are_equal_are_not_always_the_same(one: Any, other: Any) -> None:
    assert key_of_value(one) != key_of_value(other)


def nested(levels: int, data: Any) -> Any:
    for _ in range(levels):
        data = [data]
    return data


@pytest.mark.parametrize("leaf", [buffer, lambda: 5])
def test_levels_are_counted_instead_of_walked_to_the_interpreters_limit(leaf: Callable[[], Any]) -> None:
    """The limit is a few frames above this test; a deeper walk would be a RecursionError."""
    endless: Any = [leaf()]
    endless.append(endless)
    take_apart(nested(tree.DEEPEST, leaf()), [], [])
    key_of_value(nested(tree.DEEPEST, 5))
    with at_most_deeper(120):
        for data in (endless, nested(tree.DEEPEST + 1, leaf())):
            with pytest.raises(Unsupported, match="contains itself, or more than 32"):
                take_apart(data, [], [])
        looped: Any = [5]
        looped.append(looped)
        assert isinstance(key_of_object(looped), Same)
        assert isinstance(key_of_object(nested(tree.DEEPEST + 1, 5)), Same)


@pytest.mark.parametrize("data", [{1, 2}, np.zeros(3), np.float32(1), object(), bytearray(b"x")])
def test_objects_are_values_that_cannot_be_compared(data: Any) -> None:
    values: list[Any] = []
    assert layouts_of(take_apart((buffer(), {"a": data}), [], values)) != []
    assert [value is data for value in (values[0]["a"],)] == [True]
    with pytest.raises(Unsupported):
        key_of_value(data)


def test_what_may_be_tested_by_identity_belongs_to_the_structure() -> None:
    array = buffer()
    assert len({structure((array, value)) for value in (None, True, False, Mode.FAST)}) == 4
    assert structure((array, 1)) == structure((array, 2)) != structure((array, "1"))
    assert structure((array, [1])) == structure((array, [1, 2]))


@pytest.mark.parametrize("value", [np.zeros(3), np.float32(1.5)])
def test_a_value_in_memory_of_the_host_is_refused_with_what_to_do(value: Any) -> None:
    with pytest.raises(Unsupported, match="copy it to the device before the segment"):
        key_of_value(value)
