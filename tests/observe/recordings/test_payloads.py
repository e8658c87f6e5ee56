"""Payloads: every kind of data comes back bit for bit, and no bytes do harm."""

from __future__ import annotations

import pickle
import struct
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from headrace.observe.recordings.payloads import DEEPEST, PayloadError, decode, encode, prepare
from headrace.observe.recordings.snapshots import TensorCopy, TensorMapCopy
from headrace.tensor import DLDataType, DLDevice


def encoded(data: Any, allow_pickle: bool = False) -> bytes:
    return b"".join(encode(prepare(data, allow_pickle)))


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
@example({True: 1, "x": np.zeros((0, 3)), 2: np.array(5, ">i2")})
@settings(max_examples=75, deadline=None)
def test_data_comes_back_bit_for_bit(value: Any) -> None:
    content = encoded(value)
    back = decode(content)
    assert same(value, back)
    assert encoded(back) == content


@given(
    npst.arrays(np.int32, npst.array_shapes(min_dims=1, max_dims=4, max_side=5)),
    st.data(),
)
@settings(max_examples=50, deadline=None)
def test_strides_do_not_matter(array: np.ndarray, data: st.DataObject) -> None:
    steps = data.draw(st.tuples(*[st.sampled_from([1, -1, 2]) for _ in array.shape]))
    view = array[tuple(slice(None, None, step) for step in steps)].transpose(
        data.draw(st.permutations(range(array.ndim)))
    )
    back = decode(encoded(view))
    assert back.dtype == view.dtype
    assert np.array_equal(back, view)
    assert back.flags.writeable
    assert back.flags.aligned


def test_a_column_major_array_stays_one() -> None:
    assert decode(encoded(np.asfortranarray(np.arange(6).reshape(2, 3)))).flags.f_contiguous


@pytest.mark.parametrize(
    "scalar", [np.float32(1.5), np.int8(-3), np.datetime64("2024-01-01", "ns"), np.str_("µ"), np.bool_(True)]
)
def test_a_scalar_of_numpy_stays_one(scalar: Any) -> None:
    back = decode(encoded(scalar))
    assert type(back) is type(scalar)
    assert back.dtype == scalar.dtype
    assert back == scalar


def test_elements_of_ml_dtypes_come_back() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    array = np.arange(5).astype(ml_dtypes.bfloat16)
    assert same(decode(encoded(array)), array)


def test_tensors_keep_their_type_and_place() -> None:
    element, device = DLDataType(4, 16), DLDevice(2, 0)
    memory = np.arange(12, dtype=np.uint8)
    tensor = TensorCopy(memory, 0, (2, 3), (6, 2), element, device, "torch")
    back = decode(encoded(TensorMapCopy(frame=tensor)))
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
        encoded(data)


def test_a_pickle_is_loaded_only_on_request() -> None:
    content = encoded({"seen": {1, 2}}, allow_pickle=True)
    with pytest.raises(PayloadError, match="pickled 'set'.*pickle=True"):
        decode(content)
    assert decode(content, allow_pickle=True) == {"seen": {1, 2}}


def test_what_cannot_be_pickled_is_named() -> None:
    with pytest.raises(PayloadError, match="type function cannot be pickled"):
        encoded(lambda: 1, allow_pickle=True)


def test_containers_have_a_deepest_level() -> None:
    deep: Any = 1
    for _ in range(DEEPEST):
        deep = [deep]
    assert same(decode(encoded(deep)), deep)
    with pytest.raises(PayloadError, match="nested more than 32"):
        encoded([deep])
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(PayloadError, match="nested more than 32"):
        encoded(endless)
    with pytest.raises(PayloadError, match="nested more than 32"):
        decode(b"l\x01" * 5000 + b"N")


@given(st.binary(max_size=200))
@example(b"i\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff")
@example(b"l\xff\xff\xff\xff\x0fN")
@example(b"b\xff\xff\xff\xff\xff\xff\xff\x7f")
@example(b"aC\x03<f8\x02\xff\xff\xff\xff\xff\xff\xff\x7f\x00\x00")
@example(b"aC\x03<f8\x02\xff\xff\xff\xff\xff\xff\xff\x7f\xff\xff\xff\xff\xff\xff\xff\x7f\x00")
@example(b"aC\x02|O\x01\x01\x08AAAAAAAA")
@example(b"aC\x04f8,O\x01\x01\x08AAAAAAAA")
@example(b"aC\x0b[('a','|O')]\x01\x01\x08AAAAAAAA")
@example(b"aC\x14" + b"__import__('os')" + b"aaaa" + b"\x00\x00")
@example(b"aC\xe8\x07" + b"[" * 1000 + b"\x00\x00")
@example(b"d\x01l\x00N")
@example(b"P\x03set" + bytes([len(pickle.dumps({1}))]) + pickle.dumps({1}))
@settings(max_examples=150, deadline=None)
def test_any_bytes_give_a_value_or_a_clear_error(content: bytes) -> None:
    try:
        value = decode(content)
    except PayloadError:
        return
    assert sys.getsizeof(value) < 100_000


@given(VALUES, st.data())
@settings(max_examples=100, deadline=None)
def test_changed_bytes_give_a_value_or_a_clear_error(value: Any, data: st.DataObject) -> None:
    content = bytearray(encoded(value))
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    try:
        assert sys.getsizeof(decode(content)) < 100_000
    except PayloadError:
        return
