"""What libraries that are not here give and take, by the protocols they speak.

Each stand-in says exactly what the library says: which keys, which version, which spelling of the type. Where a
library reads an interface, the test reads ours the way it does.
"""

from __future__ import annotations

import ctypes
import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from headrace import as_tensor, gpu
from headrace.gpu import sim
from headrace.tensor import DLDevice, TensorError, capsule, conversion
from tests.harness.devices import use_device

HOST = np.arange(24, dtype=np.float32)


class Gives:
    """An object with an interface and nothing else."""

    def __init__(self, **interface: Any) -> None:
        self.__cuda_array_interface__ = interface


def device_buffer(size: int = 24) -> Gives:
    """RMM's DeviceBuffer: bytes, of a version before there were numbers."""
    return Gives(data=(HOST.ctypes.data, False), shape=(size,), strides=None, typestr="|u1", version=0)


def cudf_column(mask: Any = None, offset: int = 0) -> Gives:
    """A cuDF column, with a mask if some of its values are null."""
    interface: dict[str, Any] = {
        "shape": (len(HOST) - offset,),
        "strides": (HOST.itemsize,),
        "typestr": HOST.dtype.str,
        "data": (HOST.ctypes.data + offset * HOST.itemsize, False),
        "version": 3,
    }
    if mask is not None:
        interface["mask"] = mask
    return Gives(**interface)


def dali_tensor(typestr: str, shape: tuple[int, ...] = (4, 3, 2)) -> Gives:
    """DALI's TensorGPU before it had DLPack: version 2, and types as the buffer protocol spells them."""
    return Gives(typestr=typestr, shape=shape, data=(HOST.ctypes.data, False), version=2, strides=None)


def pycuda_array() -> Gives:
    """PyCUDA's GPUArray: version 2 and strides always."""
    return Gives(
        shape=(4, 6), strides=(24, 4), data=(HOST.ctypes.data, False), typestr=HOST.dtype.str, version=2
    )


# What they give.


def test_an_rmm_buffer_is_bytes() -> None:
    tensor = as_tensor(device_buffer())
    assert (tensor.shape, tensor.dtype, tensor.data) == ((24,), np.uint8, HOST.ctypes.data)
    assert (tensor.stream, tensor.is_readonly, tensor.is_contiguous()) == (None, False, True)


def test_a_cudf_column_is_a_vector_that_may_begin_anywhere() -> None:
    tensor = as_tensor(cudf_column(offset=3))
    assert (tensor.shape, tensor.data - HOST.ctypes.data) == ((21,), 12)
    assert tensor.dtype == np.float32


def test_a_cudf_column_with_nulls_is_refused() -> None:
    with pytest.raises(TensorError, match="it has a mask, which a tensor cannot have"):
        as_tensor(cudf_column(mask=device_buffer(64)))


@pytest.mark.parametrize(
    ("typestr", "name"),
    [
        ("=B", "uint8"),
        ("=b", "int8"),
        ("=H", "uint16"),
        ("=h", "int16"),
        ("=I", "uint32"),
        ("=i", "int32"),
        ("=Q", "uint64"),
        ("=q", "int64"),
        ("=e", "float16"),
        ("=f", "float32"),
        ("=d", "float64"),
        ("=?", "bool"),
    ],
)
def test_a_dali_tensor_may_spell_its_type_its_own_way(typestr: str, name: str) -> None:
    tensor = as_tensor(dali_tensor(typestr))
    assert tensor.dl_dtype.name == name
    assert tensor.dtype == np.dtype(name)
    assert tensor.__cuda_array_interface__["typestr"] == np.dtype(name).str


@pytest.mark.parametrize("typestr", [">f4", "|O8", "|V4", "<M8[ns]", "nonsense", "<U4", "=S"])
def test_what_is_no_number_of_this_machine_stays_refused(typestr: str) -> None:
    with pytest.raises(TensorError, match="unsupported dtype"):
        as_tensor(dali_tensor(typestr))


# cuda.core, which finds out where the memory is, reads version 3 alone; it must never see another.


@pytest.mark.parametrize(
    "given",
    [device_buffer(), cudf_column(), dali_tensor("=f"), pycuda_array()],
    ids=["rmm", "cudf", "dali", "pycuda"],
)
def test_cuda_core_is_given_what_it_reads(monkeypatch: pytest.MonkeyPatch, given: Gives) -> None:
    seen: list[Any] = []

    def view(obj: Any) -> Any:
        interface = obj.__cuda_array_interface__
        assert interface["version"] == 3
        assert np.dtype(interface["typestr"]).str == interface["typestr"]
        assert type(interface["shape"]) is tuple
        seen.append(interface["data"][0])
        return SimpleNamespace(held=obj, __dlpack_device__=lambda: (13, 2))

    use_device(monkeypatch, "cuda")
    monkeypatch.setattr(conversion, "_cuda_view", view)
    tensor = as_tensor(given)
    assert seen == [tensor.data]
    assert tensor.device == DLDevice(13, 2)
    assert tensor.owner is given


# What they take.


@pytest.fixture
def ours() -> Any:
    return as_tensor(pycuda_array())


def test_dali_reads_an_array_and_a_stream(ours: Any) -> None:
    interface = ours.__cuda_array_interface__  # fn.external_source
    assert interface["shape"] == (4, 6)
    assert not hasattr(ours, "__array_interface__")  # which it would look for first
    with sim.Machine("h200"):
        device = sim.Device(0)
        device.set_current()
        handle = gpu.StreamHandle(device.create_stream())
        # Its calls take a stream as a number, by the stream protocol, or as this:
        assert ctypes.c_void_p(handle).value == int(handle)
        assert handle.__cuda_stream__()[1] == int(handle)


# Libraries that are here.


def test_a_refusal_is_not_lost_to_a_warning_about_the_old_form() -> None:
    class Refuses:
        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

        def __dlpack__(self, *, stream: Any = None, max_version: Any = None) -> Any:
            if max_version is None:
                warnings.warn("the old form", DeprecationWarning, stacklevel=2)
            raise TypeError("it has nulls")

    with pytest.raises(TensorError, match="__dlpack__: it has nulls"):
        as_tensor(Refuses())


def test_numpy_refuses_what_it_cannot_read(ours: Any) -> None:
    with pytest.raises(
        TypeError, match=r"NumPy cannot take it: a tensor on cuda:0 has no __array_interface__"
    ):
        np.asarray(ours)
    host = as_tensor(np.arange(3.0))
    assert np.shares_memory(host.__array__(), np.asarray(host))
    assert not np.shares_memory(host.__array__(copy=True), np.asarray(host))
    assert host.__array__(np.int8).dtype == np.int8


@pytest.mark.parametrize(
    ("module", "told"),
    [("jaxlib._jax", [None, 0x1234]), ("tensorflow.python", [None, None]), ("other", [-1, 0x1234])],
)
def test_a_library_is_told_of_streams_as_it_understands_them(module: str, told: list[Any]) -> None:
    heard: list[Any] = []

    class Array:
        def __dlpack_device__(self) -> tuple[int, int]:
            return (2, 0)

        def __dlpack__(self, *, stream: Any = None, max_version: Any = None, copy: Any = None) -> Any:
            heard.append(stream)
            return HOST.__dlpack__(max_version=max_version)

    Array.__module__ = module
    for stream in (-1, 0x1234):
        capsule.request_capsule(Array(), stream, (1, 0))
    assert heard == told
    for stream in (-1, 0x1234):
        capsule.request_copy(Array(), stream, (1, 0), None, False)
    assert heard == told * 2
