"""Payloads: every kind of data comes back bit for bit, and no bytes do harm."""

from __future__ import annotations

import json
import pickle
import struct
import sys
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from headrace.observe import PayloadError, TensorCopy, TensorMapCopy, decode, encode
from headrace.observe.recordings.payloads import DEEPEST, pack
from headrace.tensor import DLDataType, DLDevice
from tests.limits import examples


def raw(tree: Any, data: bytes = b"") -> bytes:
    """Return a payload of any tree and data."""
    text = (tree if isinstance(tree, str) else json.dumps(tree)).encode() + b"\0"
    text += bytes(-len(text) % 4)
    return (
        b"\0\1\0\0"
        + struct.pack("<I", len(text.rstrip(b"\0")) + 1)
        + text
        + struct.pack("<I", len(data))
        + data
    )


PLAIN = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.complex_numbers()
    | st.text(st.characters())
    | st.binary()
)
DTYPES = (
    npst.scalar_dtypes()
    | npst.byte_string_dtypes(endianness="?")
    | npst.unicode_string_dtypes(endianness="?")
    | npst.array_dtypes(npst.scalar_dtypes(), max_size=4)
)
ARRAYS = DTYPES.flatmap(
    lambda dtype: npst.arrays(dtype, npst.array_shapes(min_dims=0, min_side=0, max_side=4))
)
VALUES = st.recursive(
    PLAIN | ARRAYS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(max_size=3) | st.integers() | st.booleans(), inner, max_size=4)
    ),
    max_leaves=10,
)


def same(one: Any, other: Any) -> bool:
    """Return whether two values have the same types and the same bits."""
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        return (one.shape, one.dtype) == (other.shape, other.dtype) and one.tobytes() == other.tobytes()
    if isinstance(one, dict):
        return len(one) == len(other) and all(
            same(a, b) and same(one[a], other[b]) for a, b in zip(one, other, strict=True)
        )
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float):
        return struct.pack("d", one) == struct.pack("d", other)
    if isinstance(one, complex):
        return same(one.real, other.real) and same(one.imag, other.imag)
    return bool(one == other)


@given(VALUES)
@example(struct.unpack("<d", bytes.fromhex("0100000000 00f87f".replace(" ", "")))[0])
@example(np.frombuffer(bytes.fromhex("adde0000 0100c07f".replace(" ", "")), np.float32))
@example([10**400, -(10**400), -0.0, "\ud800", {}, (), b"", float("nan")])
@example([np.ndarray((3,), "S0"), np.ndarray((2,), "V0"), np.ndarray((), "U0")])
@example({"$tuple": [1], "other": {"$dict": 2}})
@example({True: 1, "x": np.zeros((0, 3)), 2: np.array(5, ">i2")})
@settings(max_examples=examples(30), deadline=None)
def test_data_comes_back_bit_for_bit(value: Any) -> None:
    content = encode(value)
    back = decode(content)
    assert same(value, back)
    assert encode(back) == content


def test_a_column_major_array_stays_one() -> None:
    assert decode(encode(np.asfortranarray(np.arange(6).reshape(2, 3)))).flags.f_contiguous


def test_elements_of_ml_dtypes_come_back() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    array = np.arange(5).astype(ml_dtypes.bfloat16)
    assert same(decode(encode(array)), array)


def test_tensors_keep_their_type_and_place() -> None:
    element, device = DLDataType(4, 16), DLDevice(2, 0)
    memory = np.arange(12, dtype=np.uint8)
    tensor = TensorCopy(memory.view("V2").reshape(2, 3), element, device, "torch")
    back = decode(encode(TensorMapCopy(frame=tensor)))
    assert type(back) is TensorMapCopy
    assert (back["frame"].dl_dtype, back["frame"].device, back["frame"].library) == (element, device, "torch")
    assert back["frame"].shape == (2, 3)
    assert back["frame"].elements().tobytes() == memory.tobytes()


@pytest.mark.parametrize(
    ("data", "what"),
    [
        ({1, 2}, "type set"),
        ([object()], "type object"),
        (np.array([None]), "dtype object"),
        ((lambda: 1,), "type function"),
    ],
)
def test_other_objects_need_pickle(data: Any, what: str) -> None:
    with pytest.raises(PayloadError, match=f"{what}.*pickle=True"):
        encode(data)


def test_a_pickle_is_loaded_only_on_request() -> None:
    content = encode({"seen": {1, 2}}, allow_pickle=True)
    with pytest.raises(PayloadError, match="pickled 'set'.*pickle=True"):
        decode(content)
    assert decode(content, allow_pickle=True) == {"seen": {1, 2}}


def test_what_cannot_be_pickled_is_named() -> None:
    with pytest.raises(PayloadError, match="type function cannot be pickled"):
        encode(lambda: 1, allow_pickle=True)


def test_containers_have_a_deepest_level() -> None:
    deep: Any = 1
    for _ in range(DEEPEST):
        deep = [deep]
    assert same(decode(encode(deep)), deep)
    with pytest.raises(PayloadError, match="nested more than 32"):
        encode([deep])
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(PayloadError, match="nested more than 32"):
        encode(endless)
    with pytest.raises(PayloadError, match="damaged: RecursionError"):
        decode(raw("[" * 100_000 + "]" * 100_000))


HOSTILE = [
    ({"$bytes": [0, 1 << 62]}, b""),
    ({"$bytes": [0, -1]}, b""),
    ([{"$bytes": [0, 4]}, {"$bytes": [0, 4]}], b"abcd"),  # the same block twice
    ([{"$bytes": [2, 2]}, {"$bytes": [0, 2]}], b"abcd"),  # blocks in another order
    ([{"$bytes": [0, 3]}, {"$bytes": [3, -1]}, {"$bytes": [2, 2]}], b"abcd"),  # and one that goes back
    ({"$bytes": [0, 2]}, b"abcd"),  # and bytes that nothing names
    ({"$array": [0, "<f8", [1 << 62], "C"]}, b""),
    ({"$array": [0, "<f8", [1 << 62, 1 << 62], "C"]}, b""),
    ({"$array": [0, "<f8", [1 << 24], "C"]}, b""),
    ({"$array": [0, "<f8", [-1], "C"]}, b""),
    ({"$array": [0, "<f8", [1], "A"]}, bytes(8)),
    ({"$array": [0, "|O", [1], "C"]}, b"AAAAAAAA"),
    ({"$array": [0, "f8,O", [1], "C"]}, b"AAAAAAAA"),
    ({"$array": [0, "[('a','|O')]", [1], "C"]}, b"AAAAAAAA"),
    ({"$array": [0, "__import__('os')", [], "C"]}, b""),
    ({"$array": [0, "[" * 1000, [], "C"]}, b""),
    ({"$array": [0, [9, 99, 9], [], "C"]}, b""),
    ({"$tensor": [0, [1, 1 << 70, 1], [0], 1, "x"]}, b""),
    ({"$tensors": {"a": 1}}, b""),
    ({"$dict": [[[], 1]]}, b""),
    ({"$unknown": 1}, b""),
    ({"$float": "00"}, b""),
    ({"$pickle": [0, len(pickle.dumps({1})), "set"]}, pickle.dumps({1})),
    ("1" * 10_000, b""),
    ("nonsense", b""),
]


@pytest.mark.parametrize(("tree", "data"), HOSTILE)
def test_a_hostile_tree_is_refused(tree: Any, data: bytes) -> None:
    content = raw(tree, data)
    tracemalloc.start()
    try:
        with pytest.raises(PayloadError):
            decode(content)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_elements_that_are_objects_are_refused() -> None:
    for described in ({"$array": [0, "|O", [0], "C"]}, {"$scalar": [0, "O"]}):
        with pytest.raises(PayloadError, match="elements of the dtype object are not in a file"):
            decode(raw(described))


@given(st.binary(max_size=200), st.booleans())
@settings(max_examples=examples(100), deadline=None)
def test_any_bytes_give_a_value_or_a_clear_error(content: bytes, is_image: bool) -> None:
    try:
        value = decode(content, is_image=is_image)
    except PayloadError:
        return
    assert sys.getsizeof(value) < 100_000


@pytest.mark.parametrize(
    ("array", "is_image"),
    [
        (np.ones((4, 5), np.uint8), True),
        (np.ones((4, 5, 3), np.uint8), True),
        (np.ones((4, 5, 4), np.uint8)[::-1], True),
        (np.ones((4, 5), np.float32), True),
        (np.asfortranarray(np.ones((4, 5), np.uint8)), False),
        (np.ones((4, 5, 2), np.uint8), False),
        (np.ones((0, 5), np.uint8), False),
        (np.ones(5, np.uint8), False),
        ([np.ones((4, 5), np.uint8)] * 2, False),
        (b"bytes", False),
    ],
)
def test_one_array_that_is_an_image_is_laid_out_as_one(array: Any, is_image: bool) -> None:
    for data in (array, {"metadata": {"n": 1}, "data": array}):
        found, parts = pack(data, time=5)
        assert found == is_image
        assert same(decode(b"".join(parts), is_image=is_image), data)


@given(VALUES, st.data())
@settings(max_examples=examples(40), deadline=None)
def test_changed_bytes_give_a_value_or_a_clear_error(value: Any, data: st.DataObject) -> None:
    content = bytearray(encode(value))
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    try:
        assert sys.getsizeof(decode(content)) < 100_000
    except PayloadError:
        return
