"""Memory that must not be written to is not written to through a tensor, wherever a consumer can be told."""

from __future__ import annotations

import gc
import warnings
import weakref
from typing import Any

import numpy as np
import pytest

from headrace import as_tensor
from headrace.tensor import DLDataType, libraries
from tests.harness.producers import (
    BF16,
    CPU,
    CUDA,
    CUDA_HOST,
    F32,
    READ_ONLY,
    Interface,
    Library,
    OldLibrary,
    Work,
    name_of,
)

MUST_NOT = "cannot be exported through DLPack: it is read-only, and the requested old form"


def fixed(array: Any) -> Any:
    array.flags.writeable = False
    return array


def of_jax() -> Any:
    return pytest.importorskip("jax.numpy").arange(6.0).reshape(2, 3)


def of_arrow() -> Any:
    return pytest.importorskip("pyarrow").array(range(6))


SOURCES: dict[str, Any] = {
    "numpy": lambda: fixed(np.arange(6.0)),
    "bytes": lambda: np.frombuffer(bytes(24), np.int32),
    "broadcast": lambda: np.broadcast_to(np.arange(3.0), (2, 3)),
    "jax": of_jax,
    "arrow": of_arrow,
    "a capsule": lambda: fixed(np.arange(6.0)).__dlpack__(max_version=(1, 0)),
    "a library": lambda: Library(CPU, flags=READ_ONLY),
    "an array interface": lambda: Interface("__array_interface__", data=bytes(24)),
}


@pytest.fixture(params=SOURCES)
def source(request: pytest.FixtureRequest) -> Any:
    return SOURCES[request.param]()


def test_every_export_that_can_say_so_says_that_it_is_read_only(source: Any) -> None:
    tensor = as_tensor(source)
    assert tensor.is_readonly
    assert ", read-only, of " in repr(tensor)
    assert tensor.__array_interface__["data"] == (tensor.data, True)
    for view in (np.asarray(tensor), np.from_dlpack(tensor), np.asarray(as_tensor(tensor))):
        assert not view.flags.writeable
        assert view.ctypes.data == tensor.data
        assert (view.shape, view.dtype) == (tensor.shape, tensor.dtype)
    again = as_tensor(tensor.__dlpack__(max_version=(1, 0)))
    assert again.is_readonly
    assert (again.data, again.shape, again.dl_dtype) == (tensor.data, tensor.shape, tensor.dl_dtype)
    assert again.device == tensor.device


def test_the_form_that_cannot_say_so_is_refused_with_what_to_do(source: Any) -> None:
    tensor = as_tensor(source)
    for asked in ({}, {"max_version": None}, {"max_version": (0, 8)}, {"copy": False}, {"dl_device": CPU}):
        with pytest.raises(BufferError, match=MUST_NOT) as caught:
            tensor.__dlpack__(**asked)
        assert str(caught.value).startswith(repr(tensor))
        assert "Request it with max_version=(1, 0), or a copy with copy=True; numpy.asarray" in str(
            caught.value
        )


@pytest.mark.parametrize("name", ["numpy", "bytes", "broadcast", "jax"])
def test_a_copy_may_be_written_to(name: str) -> None:
    tensor = as_tensor(SOURCES[name]())
    before = np.array(tensor)
    copied = as_tensor(tensor.__dlpack__(copy=True))
    assert not copied.is_readonly
    np.asarray(copied)[:] = 7
    assert np.array_equal(np.asarray(tensor), before)


def test_jax_never_writes_so_it_takes_what_must_not_be_written_to() -> None:
    jax = pytest.importorskip("jax")
    array = of_jax()
    assert jax.dlpack.from_dlpack(as_tensor(array)).unsafe_buffer_pointer() == array.unsafe_buffer_pointer()
    assert jax.numpy.from_dlpack(as_tensor(fixed(np.arange(3, dtype=np.int32)))).tolist() == [0, 1, 2]
    narrow = array.astype("bfloat16")
    assert jax.numpy.from_dlpack(as_tensor(narrow)).dtype == narrow.dtype


def test_pytorch_does_not_listen_so_the_program_is_warned() -> None:
    torch = pytest.importorskip("torch")
    array = fixed(np.arange(4.0))
    for take in (torch.from_dlpack, torch.as_tensor, torch.asarray):
        with pytest.warns(
            UserWarning, match=r"do not write to .* torch\.from_dlpack\(tensor, copy=True\)"
        ) as caught:
            there = take(as_tensor(array))
        assert there.data_ptr() == array.ctypes.data
        assert [warning.filename for warning in caught] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        own = torch.from_dlpack(as_tensor(array), copy=True)
        own += 1
        torch.from_dlpack(as_tensor(np.arange(4.0)))
    assert array.tolist() == [0, 1, 2, 3]


def test_a_bfloat16_of_jax_passes_to_pytorch_marked_read_only() -> None:
    torch = pytest.importorskip("torch")
    tensor = as_tensor(of_jax().astype("bfloat16"))
    assert as_tensor(tensor.__dlpack__(max_version=(1, 0))).is_readonly
    with pytest.warns(UserWarning, match="PyTorch ignores"):
        there = torch.from_dlpack(tensor)
    assert there.dtype is torch.bfloat16
    assert there.tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize("module", ["tensorflow.python.framework.ops", "jaxlib._jax", "pyarrow.lib"])
def test_libraries_whose_arrays_never_change_and_whose_capsules_cannot_say_so(module: str) -> None:
    kind = type("Array", (OldLibrary,), {"__module__": module})
    tensor = as_tensor(kind(CPU, None))
    assert tensor.is_readonly
    assert not np.from_dlpack(tensor).flags.writeable
    assert libraries.library_of(kind).is_immutable
    assert not as_tensor(OldLibrary(CPU, None)).is_readonly


# -- the capsule that says so ------------------------------------------------------------------------


@pytest.mark.parametrize("device", [CPU, CUDA_HOST, CUDA, (2, 3)])
@pytest.mark.parametrize(
    "dtype", [F32, BF16, DLDataType(6, 8), DLDataType(10, 8), DLDataType(0, 64), DLDataType(5, 128)], ids=str
)
def test_a_read_only_capsule_describes_the_same_memory_whatever_it_holds_and_wherever_it_is(
    device: Any, dtype: Any
) -> None:
    tensor = as_tensor(Library(device, flags=READ_ONLY, dtype=dtype, shape=(2, 3), strides=(4, 1)))
    capsule = tensor.__dlpack__(max_version=(1, 1), stream=-1 if tensor.device.is_cuda else None)
    assert name_of(capsule) == "dltensor_versioned"
    again = as_tensor(capsule)
    for name in ("data", "shape", "strides", "dl_dtype", "device", "is_readonly"):
        assert getattr(again, name) == getattr(tensor, name)


@pytest.mark.parametrize("module", ["pyarrow.lib", "jaxlib._jax"])
def test_a_read_only_capsule_keeps_an_owner_alive_that_does_not_export_it_itself(module: str) -> None:
    owner = type("Array", (OldLibrary,), {"__module__": module})(CPU, None)
    gone = weakref.ref(owner)
    tensor = as_tensor(owner)
    capsule, view = tensor.__dlpack__(max_version=(1, 0)), np.from_dlpack(tensor)
    del owner, tensor
    gc.collect()
    assert gone() is not None
    del capsule
    gc.collect()
    assert gone() is not None
    assert view.sum() == 0
    del view
    gc.collect()
    assert gone() is None


def test_a_read_only_capsule_orders_the_consumer_behind_the_work() -> None:
    work = Work()
    tensor = as_tensor(Library(flags=READ_ONLY))._with_pending_work(work)
    tensor.__dlpack__(stream=0x77, max_version=(1, 0))
    assert work.ordered == [0x77]
    with pytest.raises(BufferError, match="stream 0"):
        tensor.__dlpack__(stream=0, max_version=(1, 0))


@pytest.mark.parametrize("dtype", [DLDataType(0, 24), DLDataType(2, 32, 3), DLDataType(2, 128, 2)], ids=str)
def test_what_nothing_makes_a_capsule_of_is_refused(dtype: Any) -> None:
    tensor = as_tensor(Library(CPU, flags=READ_ONLY, dtype=dtype))
    with pytest.raises(BufferError, match=f"no library exports {dtype.name} as read-only"):
        tensor.__dlpack__(max_version=(1, 0))


def test_a_consumer_that_asks_wrongly_is_told_by_type() -> None:
    tensor = as_tensor(fixed(np.zeros(3)))
    for wrong in ("1.0", 1):
        with pytest.raises(TypeError):
            tensor.__dlpack__(max_version=wrong)  # type: ignore[arg-type]
    with pytest.raises((RuntimeError, BufferError, ValueError), match="stream"):
        tensor.__dlpack__(stream=5, max_version=(1, 0))  # memory of the host has none
