"""The bytes of a knob's value: those that NumPy would store, or an error that says why there are none."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.live_values import KnobType

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float16", "float32", "float64"]


@given(st.sampled_from(INTEGERS), st.integers(-(2**65), 2**65))
def test_an_integer_is_stored_or_named_with_the_range(name: str, value: int) -> None:
    bounds = np.iinfo(name)
    kind = KnobType(name)
    if bounds.min <= value <= bounds.max:
        assert kind.encode(value) == np.array(value, name).tobytes()
    else:
        with pytest.raises(
            ValueError, match=f"{value} does not fit into {name}: it holds {bounds.min} to {bounds.max}"
        ):
            kind.encode(value)


@given(st.sampled_from(FLOATS), st.floats(allow_nan=False))
def test_a_float_is_rounded_but_does_not_become_infinite(name: str, value: float) -> None:
    with np.errstate(over="ignore"):
        expected = np.array(value).astype(name)
    if np.isinf(expected) and not math.isinf(value):
        with pytest.raises(ValueError, match=f"does not fit into {name}: its largest number is"):
            KnobType(name).encode(value)
    else:
        assert KnobType(name).encode(value) == expected.tobytes()


@pytest.mark.parametrize(
    ("dtype", "value", "text"),
    [
        ("uint8", 256, "256 does not fit into uint8: it holds 0 to 255"),
        ("uint8", -1, "-1 does not fit into uint8"),
        ("int32", math.nan, "nan is not an integer, and int32 holds no other numbers"),
        ("int32", math.inf, "inf is not an integer"),
        ("int32", 2.5, "2.5 is not an integer, and int32 holds no other numbers"),
        ("bool", 2, "2 is neither True nor False"),
        ("bool", 0.5, "0.5 is not an integer"),
        ("float32", 1e39, r"1e\+39 does not fit into float32: its largest number is 3.4\d+e\+38"),
        ("float16", 1 << 16, "65536 does not fit into float16: its largest number is 65504.0"),
        ("float64", 1 << 2000, "is too large for any float"),
        ("float32", 1j, "1j is complex, and float32 is not; use complex64 or complex128"),
        ("int8", np.complex64(1), "is complex, and int8 is not"),
        ("complex64", 1e39j, "does not fit into complex64"),
        ("float32", "2", r"a knob is a number, not an object of type 'str' \('2'\)"),
        ("float32", None, "a knob is a number, not an object of type 'NoneType'"),
        ("float32", [1.0], "a knob is a number, not an object of type 'list'"),
        ("float32", np.ones(()), "a knob is a number, not an object of type 'ndarray'"),
        ("float32", np.datetime64("2026-01-01"), "a knob is a number, not an object of type 'datetime64'"),
        ("float32", np.str_("1"), "a knob is a number"),
    ],
)
def test_what_does_not_fit_is_an_error_that_says_why(dtype: str, value: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        KnobType(dtype).encode(value)


def test_bools_are_stored_as_one_byte() -> None:
    for value, data in ((True, b"\1"), (np.False_, b"\0"), (1, b"\1"), (0.0, b"\0")):
        assert KnobType(bool).encode(value) == data


@pytest.mark.parametrize(
    "dtype",
    ["S4", "U1", "datetime64[ns]", "i4,i4", object, ">f4" if np.little_endian else "<f4", np.longdouble],
)
def test_other_dtypes_are_refused_with_those_that_are_right(dtype: Any) -> None:
    with pytest.raises(
        ValueError, match="is not a type of knobs: bool, integers, floats .* such as np.float32"
    ):
        KnobType(dtype)


@pytest.mark.parametrize("dtype", ["flaot32", 3.5, "torch.nothing"])
def test_what_is_no_dtype_is_refused(dtype: Any) -> None:
    with pytest.raises(ValueError, match="is not a dtype; use one such as np.float32"):
        KnobType(dtype)


def test_dtypes_have_many_spellings() -> None:
    for dtype in (np.float32, "float32", "f4", np.dtype("float32"), "torch.float32"):
        assert (KnobType(dtype).name, KnobType(dtype).size) == ("float32", 4)
    assert KnobType(float).name == "float64"


def test_the_small_floats_of_ml_dtypes_are_types_of_knobs() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    kind = KnobType("bfloat16")
    assert kind.encode(1.5) == np.array(1.5, ml_dtypes.bfloat16).tobytes()
    assert kind.encode(ml_dtypes.bfloat16(1.5)) == kind.encode(1.5)
    assert kind.encode(math.inf) == np.array(math.inf, ml_dtypes.bfloat16).tobytes()
    with pytest.raises(ValueError, match=r"3.4\d+e\+38 does not fit into bfloat16"):
        kind.encode(float(np.finfo(np.float32).max))
    assert KnobType(ml_dtypes.float8_e4m3fn).encode(2) == np.array(2, ml_dtypes.float8_e4m3fn).tobytes()
    with pytest.raises(ValueError, match="is not a type of knobs"):
        KnobType(ml_dtypes.int4)


def test_dtypes_of_pytorch_are_taken() -> None:
    torch = pytest.importorskip("torch")
    assert KnobType(torch.float16).name == "float16"
    pytest.importorskip("ml_dtypes")
    assert KnobType(torch.bfloat16).name == "bfloat16"
