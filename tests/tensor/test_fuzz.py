"""Whatever is thrown at as_tensor, it gives a tensor that holds together or raises a TensorError.

Hypothesis makes up dicts for both array interfaces, capsules field by field and objects that break every rule. What
would end the process is looked for in a process of its own, which runs these tests from a fixed seed. More of it:

    HEADRACE_FUZZ=20000 python -m pytest tests/tensor/test_fuzz.py
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace import Tensor, as_tensor
from headrace.tensor import DLDataType, TensorError
from tests.harness.producers import Interface, Made
from tests.limits import examples

# How many examples of each; set in the process of its own.
EXAMPLES = os.environ.get("HEADRACE_FUZZ")
IS_APART = EXAMPLES is not None
apart = pytest.mark.skipif(not IS_APART, reason="runs in a process of its own")
fuzz = settings(
    max_examples=int(EXAMPLES or 1),
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)

MEMORY = ctypes.create_string_buffer(1 << 16)
MIDDLE = ctypes.addressof(MEMORY) + (1 << 15)


class Rude:
    """An object that raises whatever it is asked."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __repr__(self) -> str:
        raise RuntimeError("repr")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("eq")

    def __index__(self) -> int:
        raise ValueError("index")

    __hash__ = None  # type: ignore[assignment]


TYPESTRS = (
    "<f4",
    "|u1",
    "<i8",
    "<c16",
    "|b1",
    ">f4",
    "=f",
    "<f16",
    "<U2",
    "|O8",
    "|V3",
    "<i²",
    "<i04",
    "f4,f4",
    "?",
)

numbers = st.one_of(
    st.integers(-4, 8),
    st.sampled_from([2**31, 2**32 - 1, 2**62, 2**63 - 1, 2**63, 2**64, -(2**63), 10**5000]),
    st.integers(),
    st.floats(),
    st.booleans(),
    st.sampled_from([np.int64(3), np.uint8(2), np.float32(2.5), np.True_, np.array([1, 2]), np.array(3)]),
)
anything = st.one_of(
    st.none(),
    numbers,
    st.text(max_size=4),
    st.binary(max_size=40),
    st.builds(bytearray, st.binary(max_size=40)),
    st.builds(Rude),
    st.builds(object),
    st.lists(numbers, max_size=3),
    st.tuples(numbers, numbers),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
    st.sampled_from([int, np.ndarray, iter([1]), (), [], {}, Ellipsis, range(3), memoryview(b"abcd")]),
)
dimensions = st.one_of(
    st.tuples(), st.lists(st.integers(-1, 5), max_size=5).map(tuple), st.lists(numbers, max_size=4), anything
)
addresses = st.one_of(st.just(MIDDLE), st.just(0), numbers)
entries: dict[str, st.SearchStrategy[Any]] = {
    "shape": dimensions,
    "typestr": st.one_of(
        st.sampled_from(TYPESTRS),
        anything,
    ),
    "data": st.one_of(
        st.tuples(addresses, st.booleans()), st.tuples(addresses, anything), st.just(bytes(64)), anything
    ),
    "version": st.one_of(st.integers(0, 3), anything),
}
optional: dict[str, st.SearchStrategy[Any]] = {
    "strides": st.one_of(st.none(), dimensions, st.lists(st.integers(-40, 40), max_size=5).map(tuple)),
    "stream": st.one_of(st.none(), st.integers(1, 9), anything),
    "mask": st.one_of(st.none(), anything),
    "offset": st.one_of(st.integers(-2, 20), anything),
    "descr": anything,
}
interfaces = st.one_of(
    st.fixed_dictionaries(entries, optional=optional),  # type: ignore[arg-type]
    st.fixed_dictionaries({}, optional={**entries, **optional}),  # type: ignore[arg-type]
    anything,
)


def check(obj: Any) -> None:
    """as_tensor refuses an object with a TensorError, or gives a tensor that holds together."""
    try:
        tensor = as_tensor(obj)
    except TensorError:
        return
    assert type(tensor) is Tensor
    assert all(type(number) is int for number in (tensor.data, *tensor.shape, *tensor.strides))
    assert len(tensor.shape) == len(tensor.strides) <= 64
    assert min(tensor.shape, default=0) >= 0
    assert 0 <= tensor.nbytes < 2**63
    assert tensor.data or not tensor.size
    assert repr(tensor).startswith("Tensor(shape=")
    assert type(tensor.is_readonly) is bool
    described = (tensor.shape, tensor.strides, tensor.dl_dtype)
    for asked in ({}, {"max_version": (1, 0)}):
        try:
            capsule = tensor.__dlpack__(**asked)  # type: ignore[arg-type]
        except (BufferError, RuntimeError):
            continue
        again = as_tensor(capsule)
        assert again.shape == tensor.shape
        assert again.dl_dtype == tensor.dl_dtype
        assert again.is_readonly == tensor.is_readonly
    if hasattr(tensor, "__array_interface__"):
        view = np.asarray(tensor)
        assert (view.shape, view.dtype) == (tensor.shape, tensor.dtype)
        assert not (tensor.size and tensor.is_readonly and view.flags.writeable)
    assert (tensor.shape, tensor.strides, tensor.dl_dtype) == described


@apart
@pytest.mark.parametrize("kind", ["__array_interface__", "__cuda_array_interface__"])
@fuzz
@given(interfaces)
def test_interfaces(kind: str, interface: Any) -> None:
    array = Interface("other")
    setattr(array, kind, interface)
    check(array)


@st.composite
def capsules(draw: st.DrawFn) -> Made:
    """A capsule whose fields say anything; its pointers lead to memory, or nowhere."""
    shape = tuple(
        draw(st.lists(st.one_of(st.integers(0, 4), st.sampled_from([-1, 2**40, 2**63 - 1])), max_size=5))
    )
    steps = st.one_of(st.integers(-8, 8), st.sampled_from([2**62, -(2**63), 2**40]))
    strides = draw(st.none() | st.lists(steps, min_size=len(shape), max_size=len(shape)).map(tuple))
    made = Made(
        shape,
        strides,
        DLDataType(
            draw(st.integers(0, 20)),
            draw(st.sampled_from([0, 1, 4, 8, 16, 24, 32, 64, 128, 255])),
            draw(st.sampled_from([1, 1, 1, 0, 2, 65535])),
        ),
        (draw(st.sampled_from([1, 1, 1, 2, 3, 10, 13, 0, -1, 99])), draw(st.integers(-2, 3))),
        draw(st.sampled_from([None, (1, 0), (1, 1), (1, 99), (0, 8), (2, 0)])),
        draw(st.sampled_from([0, 1, 2, 4, 2**40])),
        draw(st.sampled_from([0, 0, 8, 1, 2**63, 2**64 - 1])),
        memory=MEMORY,
    )
    tensor = made.managed.tensor
    tensor.data = draw(st.sampled_from([MIDDLE, MIDDLE, MIDDLE, None, 2**64 - 8]))
    tensor.ndim = draw(st.sampled_from([len(shape)] * 4 + [-1, 0, 65, 2**31 - 1]))
    if draw(st.integers(0, 7)) == 0:
        tensor.shape = None
    return made


@apart
@fuzz
@given(capsules())
def test_capsules(made: Made) -> None:
    capsule = made.capsule
    check(capsule)
    del capsule
    made.capsule = None
    assert len(made.freed) <= 1


@apart
@fuzz
@given(capsules(), st.one_of(st.just((1, 0)), st.just((2, 0)), anything), st.booleans())
def test_arrays_with_dlpack(made: Made, place: Any, raises: bool) -> None:
    class Array:
        def __dlpack_device__(self) -> Any:
            return place

        def __dlpack__(self, *, stream: Any = None, max_version: Any = None) -> Any:
            if raises:
                raise TypeError(place)
            return made.capsule

    check_description(Array())


def check_description(obj: Any) -> None:
    """As `check`, of an array whose exports are its own affair."""
    try:
        tensor = as_tensor(obj)
    except TensorError:
        return
    assert len(tensor.shape) == len(tensor.strides) <= 64
    assert min(tensor.shape, default=0) >= 0
    assert repr(tensor)


@apart
@fuzz
@given(anything)
def test_anything(thing: Any) -> None:
    check(thing)


@pytest.mark.skipif(IS_APART, reason="it is what runs the others")
def test_as_tensor_gives_a_tensor_or_a_tensor_error_and_never_crashes() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__],
        cwd=Path(__file__).parents[2],
        env={
            **os.environ,
            "HEADRACE_FUZZ": str(examples(100)),
            "HEADRACE_DEVICE": "sim",
            "PYTHONPATH": ":".join(path for path in sys.path if path),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-6000:] + ended.stderr[-2000:]
    assert "5 passed, 1 skipped" in ended.stdout
