"""A tensor in an expression is what its array would be; the result is an array of the library that computes."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import as_tensor
from headrace.tensor import libraries
from tests.harness.libraries import fresh_registry
from tests.harness.producers import CUDA, Interface, Library

BINARY = [
    *(operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod),
    *(operator.pow, operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift),
    *(operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne, divmod),
]
IN_PLACE = [
    *(operator.iadd, operator.isub, operator.imul, operator.ifloordiv, operator.imod, operator.ipow),
    *(operator.iand, operator.ior, operator.ixor, operator.ilshift, operator.irshift),
]
UNARY = [operator.neg, operator.pos, operator.abs, operator.invert]


def values() -> np.ndarray:
    return np.arange(1, 7).reshape(2, 3)


@pytest.mark.parametrize("operation", BINARY, ids=lambda one: one.__name__)
def test_an_operator_gives_what_the_arrays_give(operation: Any) -> None:
    array, other = values(), np.array([2, 1, 3])
    wanted, reverse = operation(array, other), operation(other, array)
    tensor = as_tensor(array)
    for got in (
        operation(tensor, other),
        operation(tensor, as_tensor(other)),
        operation(array, as_tensor(other)),
    ):
        assert type(got) is type(wanted)
        assert np.array_equal(got, wanted)
    assert np.array_equal(operation(other, tensor), reverse)
    assert np.array_equal(operation([2, 1, 3], tensor), reverse)
    assert np.array_equal(operation(2, tensor), operation(2, array))
    assert np.array_equal(operation(np.int64(2), tensor), operation(np.int64(2), array))


@pytest.mark.parametrize("operation", IN_PLACE, ids=lambda one: one.__name__)
def test_an_operator_in_place_changes_the_memory_and_keeps_the_tensor(operation: Any) -> None:
    array, wanted = values(), operation(values(), 2)
    tensor = as_tensor(array)
    assert operation(tensor, as_tensor(np.array(2))) is tensor
    assert np.array_equal(array, wanted)


@pytest.mark.parametrize("operation", UNARY, ids=lambda one: one.__name__)
def test_an_operator_of_one_operand(operation: Any) -> None:
    assert np.array_equal(operation(as_tensor(values())), operation(values()))


def test_matrices_and_floats() -> None:
    array = values() * 1.0
    tensor = as_tensor(array)
    assert np.array_equal(tensor @ array.T, array @ array.T)
    assert np.array_equal(array.T @ tensor, array.T @ array)
    tensor /= 2
    square = as_tensor(np.eye(2))
    square @= as_tensor(np.ones((2, 2)))
    assert np.array_equal(array, values() / 2)
    assert np.array_equal(np.asarray(square), np.ones((2, 2)))


@given(st.data())
def test_indexing_gives_what_the_array_gives(data: Any) -> None:
    array = values()
    rows = st.integers(-2, 1) | st.slices(2) | st.just(...) | st.none() | st.just([1, 0])
    key = data.draw(rows | st.tuples(st.slices(2), st.slices(3)) | st.just(array > 3))
    tensor = as_tensor(array)
    assert np.array_equal(tensor[key], array[key])
    if isinstance(key, np.ndarray):
        assert np.array_equal(tensor[as_tensor(key)], array[key])
    wanted = array.copy()
    wanted[key] = 9
    tensor[key] = as_tensor(np.array(9))
    assert np.array_equal(array, wanted)


def test_what_python_asks_of_an_array() -> None:
    tensor = as_tensor(values())
    assert len(tensor) == 2
    assert [row.tolist() for row in tensor] == values().tolist()
    assert 4 in tensor
    assert 9 not in tensor
    number = as_tensor(np.array(3))
    assert (int(number), float(number), complex(number), operator.index(number)) == (3, 3.0, 3 + 0j, 3)
    assert number
    assert not as_tensor(np.zeros(1))
    with pytest.raises(ValueError, match="ambiguous"):
        bool(tensor)
    with pytest.raises(TypeError, match="without dimensions"):
        len(number)
    with pytest.raises(IndexError):
        tensor[2]


def test_a_tensor_is_a_key_by_its_identity() -> None:
    first, second = as_tensor(values()), as_tensor(values())
    assert {first: 1, second: 2}[first] == 1
    assert len({first, second, first}) == 2


def test_functions_of_numpy_take_tensors_and_fill_them() -> None:
    array, out = values(), np.zeros((2, 3), np.int64)
    tensor = as_tensor(out)
    assert np.add(array, as_tensor(array), out=tensor) is tensor
    assert np.array_equal(out, 2 * array)
    assert np.add.reduce(as_tensor(array), axis=None) == array.sum()
    array += as_tensor(array)
    assert np.array_equal(array, out)
    quotient, rest = np.divmod(as_tensor(array), 3)
    assert np.array_equal(3 * quotient + rest, array)
    assert np.array_equal(
        np.add(tensor, 1, where=as_tensor(array > 6), out=np.zeros(6, int).reshape(2, 3)) > 0, array > 6
    )


def test_read_only_memory_is_not_changed() -> None:
    tensor = as_tensor(np.frombuffer(bytes(4), np.uint8))
    changes: list[Any] = [
        lambda: operator.iadd(tensor, 1),
        lambda: operator.setitem(tensor, 0, 1),
        lambda: np.add(1, 1, out=tensor),
    ]
    for change in changes:
        with pytest.raises(ValueError, match=r"Tensor\(.*read-only"):
            change()
    assert (tensor + 1).tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize("name", ["torch", "jax.numpy"])
def test_the_library_of_the_other_operand_computes(name: str) -> None:
    module = pytest.importorskip(name)
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    other = module.ones((2, 3))
    tensor = as_tensor(array)
    for got in (
        tensor + other,
        other + tensor,
        tensor * other,
        other - tensor,
        tensor > other,
        other == tensor,
    ):
        assert isinstance(got, type(other))
    assert np.array_equal(np.asarray(other - tensor), 1 - array)
    tensor += other
    tensor[0] = other[0]
    assert array.tolist() == [[1, 1, 1], [4, 5, 6]]


def test_memory_that_is_not_the_simulated_devices_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    fresh_registry(monkeypatch)
    for array in (Interface(), Library(CUDA)):
        with pytest.raises(BufferError, match="is not memory of the simulated device"):
            as_tensor(array) + 1


def test_without_a_library_for_the_gpu_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fresh_registry(monkeypatch)

    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(libraries, "library_named", missing)
    libraries.computing_library.cache_clear()
    with pytest.raises(ImportError, match=r"pip install cupy-cuda12x.*PyTorch with CUDA"):
        libraries.computing_library()
