"""What a message looks like: its signature, its arrays, and the message with other arrays."""

from __future__ import annotations

import enum
import math
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace._runtime.capture.device_arrays import Unsupported, kind_of, span_of
from headrace._runtime.capture.structure import differing_values, flatten, layouts_of, rebuild
from headrace.gpu import sim

pytestmark = pytest.mark.usefixtures("machine")


class Mode(enum.Enum):
    FAST = 1


class Pair(NamedTuple):
    one: Any
    two: Any


def buffer(size: int = 16) -> Any:
    return sim.Device(0).allocate(size, stream=sim.Device(0).create_stream())


def signature(data: Any) -> Any:
    return flatten(data, [])


def test_arrays_are_leaves_in_order() -> None:
    one, two, three = buffer(), buffer(), buffer(32)
    leaves: list[Any] = []
    found = flatten({"a": [one, (two,)], "b": Pair(three, 5)}, leaves)
    assert [leaf is array for leaf, array in zip(leaves, (one, two, three), strict=True)] == [True] * 3
    assert [layout.shape for layout in layouts_of(found)] == [(16,), (16,), (32,)]
    other = rebuild(found, iter(["x", "y", "z"]))
    assert other == {"a": ["x", ("y",)], "b": Pair("z", 5)}
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
    found = signature(data)
    again = rebuild(found, iter(()))
    assert repr(again) == repr(data)
    assert signature(again) == found
    assert hash(signature(again)) == hash(found)
    assert layouts_of(found) == []


@given(plain, plain)
def test_messages_of_one_signature_are_the_same(one: Any, other: Any) -> None:
    assert (signature(one) == signature(other)) == (repr(one) == repr(other))


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
    assert signature(one) != signature(other)


def test_nan_is_the_same_as_itself() -> None:
    assert signature((math.nan, complex(math.nan, 1))) == signature((float("nan"), complex(float("nan"), 1)))


@pytest.mark.parametrize(
    ("data", "match"),
    [
        ({1, 2}, "an object of type 'set'"),
        (np.zeros(3), "an array in memory of the host"),
        (np.float32(1), "a NumPy scalar"),
        (object(), "an object of type 'object'"),
        ({(1,): 2}, "neither text nor numbers"),
        ({True: 2}, "neither text nor numbers"),
        (bytearray(b"x"), "an object of type 'bytearray'"),
    ],
)
def test_what_is_not_understood(data: Any, match: str) -> None:
    for wrapped in (data, [data], (1, {"a": data})):
        with pytest.raises(Unsupported, match=match):
            signature(wrapped)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (1, 2, True),
        (1, 1, False),
        (1, "1", False),
        ((1, 5), (2, 5), True),
        ({"a": 1}, {"b": 1}, True),
        ({"a": 1}, {"a": 1, "b": 1}, False),
        ([1], [1, 2], False),
    ],
)
def test_signatures_that_differ_in_values_alone(one: Any, other: Any, expected: bool) -> None:
    assert differing_values(signature(one), signature(other)) is expected
    assert differing_values((signature(one),), (signature(other),)) is expected


def test_arrays_of_another_size_differ_in_more_than_values() -> None:
    assert not differing_values(signature(buffer(16)), signature(buffer(32)))
    assert signature(buffer(16)) == signature(buffer(16))


def test_the_span_of_an_array() -> None:
    array = buffer(24)
    begin, end = span_of(array)
    assert (begin, end - begin) == (int(array.handle), 24)


def test_kinds_are_found_by_type() -> None:
    assert kind_of(buffer()) is kind_of(buffer())
    assert kind_of(3) is None
    assert kind_of("text") is None
