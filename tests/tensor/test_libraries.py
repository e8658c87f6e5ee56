"""Tensors pass to and from each library that is installed, without a copy, for whatever the library can hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import as_tensor
from headrace.tensor import TensorError
from tests.tensor.layouts import NUMBERS, Array, arrays, check_described, check_same, few

# -- PyTorch -----------------------------------------------------------------------------------------

TORCH_NARROW = "bfloat16 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu"


@pytest.fixture(scope="module")
def torch() -> Any:
    return pytest.importorskip("torch")


# PyTorch has no memory that must not be written to, and test_read_only.py has what becomes of it there.
@few
@given(array=arrays(negative=False, read_only=False))
def test_to_pytorch_and_back(torch: Any, array: Array) -> None:
    tensor = as_tensor(array)
    there = torch.from_dlpack(tensor)
    assert tuple(there.shape) == array.shape
    assert str(there.dtype) == f"torch.{array.dtype.name}"
    if array.size:
        assert there.data_ptr() == array.ctypes.data
    back = as_tensor(there)
    check_same(np.asarray(back), array)
    check_same(np.from_dlpack(back), array)
    if array.size:
        assert back.data == array.ctypes.data
    assert back.owner is there


@pytest.mark.parametrize("name", TORCH_NARROW.split())
def test_the_narrow_floats_of_pytorch(torch: Any, name: str) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    there = torch.arange(1, 13).reshape(3, 4).to(getattr(torch, name)).T
    tensor = as_tensor(there)
    assert tensor.data == there.data_ptr()
    assert tensor.shape == (4, 3)
    assert tensor.itemsize == there.element_size()
    assert tensor.strides == tuple(step * tensor.itemsize for step in there.stride())
    assert tensor.dtype == np.dtype(getattr(ml_dtypes, name))
    assert not hasattr(tensor, "__array_interface__")
    back = torch.from_dlpack(tensor)
    assert back.dtype == there.dtype
    assert back.data_ptr() == there.data_ptr()
    assert torch.equal(back.float(), there.float())


def test_what_pytorch_will_not_export_is_refused_with_its_reason(torch: Any) -> None:
    with pytest.raises(TensorError, match=r"torch\.Tensor cannot .*__dlpack__: .*require gradient"):
        as_tensor(torch.zeros(3, requires_grad=True))
    with pytest.raises(TensorError, match=r"torch\.Tensor cannot .*__dlpack__: .*strided"):
        as_tensor(torch.eye(3).to_sparse())


# -- JAX ---------------------------------------------------------------------------------------------

JAX_NARROW = (
    "bfloat16 float8_e3m4 float8_e4m3 float8_e4m3b11fnuz float8_e4m3fn float8_e4m3fnuz float8_e5m2 "
    "float8_e5m2fnuz float8_e8m0fnu"
)
# Without a setting of its own JAX makes numbers of 64 bits into numbers of 32, which copies them.
JAX_NUMBERS = tuple(
    dtype for dtype in NUMBERS if dtype.name not in ("int64", "uint64", "float64", "complex128")
)


@pytest.fixture(scope="module")
def jax() -> Any:
    pytest.importorskip("jax")
    import jax

    return jax


@few
@given(array=arrays(JAX_NUMBERS, compact=True))
def test_to_jax_and_back(jax: Any, array: Array) -> None:
    there = jax.dlpack.from_dlpack(as_tensor(array))
    assert there.shape == array.shape
    assert there.dtype == array.dtype
    if array.size:
        assert there.unsafe_buffer_pointer() == array.ctypes.data
    assert np.array_equal(np.asarray(there), array)
    back = as_tensor(there)
    assert back.owner is there
    assert back.is_readonly
    check_same(np.asarray(back), array, read_only=False)
    check_same(np.from_dlpack(back), array, read_only=False)
    assert not (array.size and np.from_dlpack(back).flags.writeable)


@pytest.mark.parametrize("name", JAX_NARROW.split())
def test_the_narrow_floats_of_jax(jax: Any, name: str) -> None:
    if not hasattr(jax.numpy, name):
        pytest.skip(f"this JAX has no {name}")
    there = jax.numpy.arange(1, 9).reshape(2, 4).astype(getattr(jax.numpy, name))
    tensor = as_tensor(there)
    assert tensor.data == there.unsafe_buffer_pointer()
    assert (tensor.shape, tensor.itemsize, tensor.dtype) == ((2, 4), there.dtype.itemsize, there.dtype)
    back = jax.dlpack.from_dlpack(tensor)
    assert back.dtype == there.dtype
    assert back.unsafe_buffer_pointer() == there.unsafe_buffer_pointer()
    assert np.array_equal(np.asarray(back).view(np.uint8), np.asarray(there).view(np.uint8))


@pytest.mark.parametrize("name", ["bool", "int8", "uint32", "float16", "float32", "complex64", "bfloat16"])
def test_from_jax_to_pytorch_and_back(jax: Any, torch: Any, name: str) -> None:
    there = jax.numpy.arange(12).reshape(3, 4).astype(name)
    with pytest.warns(UserWarning, match="PyTorch ignores that this memory is read-only"):
        middle = torch.from_dlpack(as_tensor(there))
    assert middle.data_ptr() == there.unsafe_buffer_pointer()
    back = jax.dlpack.from_dlpack(as_tensor(middle))
    assert back.unsafe_buffer_pointer() == there.unsafe_buffer_pointer()
    assert back.dtype == there.dtype
    assert bool((back == there).all())


# -- PyArrow -----------------------------------------------------------------------------------------

ARROW_NUMBERS = tuple(dtype for dtype in NUMBERS if dtype.kind in "iuf")


@pytest.fixture(scope="module")
def pa() -> Any:
    return pytest.importorskip("pyarrow")


@few
@given(array=arrays(ARROW_NUMBERS, compact=True, dimensions=1), data=st.data())
def test_to_an_arrow_array_and_back(pa: Any, array: Array, data: st.DataObject) -> None:
    array = array.reshape(-1)
    there = pa.array(np.asarray(as_tensor(array)))
    if array.size:
        assert there.buffers()[1].address == array.ctypes.data
    first = data.draw(st.integers(0, len(there)))
    part = there[first:]  # an offset into the same memory
    tensor = as_tensor(part)
    assert tensor.owner is part
    assert tensor.shape == (len(part),)
    if len(part):
        assert tensor.data == array.ctypes.data + first * array.itemsize
    assert tensor.is_readonly  # as what Arrow holds is
    check_same(np.asarray(tensor), array[first:], read_only=False)
    assert not (len(part) and np.asarray(tensor).flags.writeable)


@few
@given(array=arrays(ARROW_NUMBERS, negative=False))
def test_to_an_arrow_tensor_and_back(pa: Any, array: Array) -> None:
    there = pa.Tensor.from_numpy(np.asarray(as_tensor(array)))
    assert there.shape == array.shape
    if array.size:
        assert there.is_mutable == array.flags.writeable
    back = as_tensor(there.to_numpy())
    if array.size:
        check_described(back, array)
    check_same(np.asarray(back), array)


def test_what_arrow_will_not_export_is_refused_with_its_reason(pa: Any) -> None:
    for array in (pa.array([1, None, 3]), pa.array([True, False]), pa.array(["text"])):
        with pytest.raises(TensorError, match=r"pyarrow\.lib\.\w+Array cannot be a tensor \(__dlpack__: "):
            as_tensor(array)
