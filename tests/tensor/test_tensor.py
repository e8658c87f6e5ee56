"""A Tensor says what it is, and exports as every protocol wants, after the work behind it."""

from __future__ import annotations

import copy
import ctypes
import pickle
import warnings
from typing import Any

import numpy as np
import pytest

from headrace import Tensor, as_tensor, gpu
from headrace.gpu import sim
from tests.harness.processes import run_python
from tests.harness.producers import (
    BF16,
    CPU,
    CUDA,
    CUDA_HOST,
    F32,
    READ_ONLY,
    Interface,
    Library,
    Made,
    OldLibrary,
    Work,
    name_of,
)
from tests.limits import THOROUGH

NUMBERS = (
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128"
)


@pytest.mark.parametrize("name", NUMBERS.split())
def test_what_numpy_calls_it_a_tensor_calls_it(name: str) -> None:
    array = np.ones((2, 3), name)
    tensor = as_tensor(array)
    assert tensor.dtype == array.dtype
    assert tensor.dl_dtype.name == name
    assert (tensor.itemsize, tensor.nbytes) == (array.itemsize, array.nbytes)
    assert (tensor.ndim, tensor.size) == (2, 6)
    assert tensor.__array_interface__["typestr"] == array.dtype.str


@pytest.mark.parametrize(
    ("array", "is_contiguous"),
    [
        (np.zeros(()), True),
        (np.zeros((0,)), True),
        (np.zeros((3, 0, 2))[::-1], True),
        (np.zeros((2, 3)), True),
        (np.zeros((2, 3)).T, False),
        (np.zeros((1, 3)).T, True),
        (np.zeros((4, 3))[::2], False),
        (np.zeros((4, 3))[:, ::-1], False),
        (np.zeros((4, 3))[2:], True),
        (np.zeros((4, 3))[:1, ::-1], False),
        (np.broadcast_to(np.zeros(3), (4, 3)), False),
        (np.broadcast_to(np.zeros(3), (1, 3)), True),
    ],
    ids=lambda value: f"{value.shape}{value.strides}" if isinstance(value, np.ndarray) else "",
)
def test_contiguous_is_row_major_without_gaps(array: Any, is_contiguous: bool) -> None:
    tensor = as_tensor(array)
    assert tensor.is_contiguous() is is_contiguous is array.flags.c_contiguous
    assert (tensor.__array_interface__["strides"] is None) is is_contiguous
    assert np.array_equal(np.asarray(tensor), array)
    assert np.asarray(tensor).shape == array.shape


def test_an_empty_tensor_has_no_address_in_the_array_interfaces() -> None:
    tensor = as_tensor(np.zeros((2, 0, 3)))
    assert (tensor.size, tensor.nbytes) == (0, 0)
    assert tensor.__array_interface__["data"] == (0, False)
    assert np.asarray(tensor).shape == np.from_dlpack(tensor).shape == (2, 0, 3)
    assert as_tensor(Interface(shape=(0,), data=(0, False))).__cuda_array_interface__["data"] == (0, False)


def test_its_text_says_what_matters() -> None:
    array = np.zeros((2, 3), np.float32)
    assert repr(as_tensor(array)) == "Tensor(shape=(2, 3), dtype=float32, device=cpu, of numpy.ndarray)"
    turned = array.T
    turned.flags.writeable = False
    assert repr(as_tensor(turned)) == (
        "Tensor(shape=(3, 2), dtype=float32, device=cpu, strides=(4, 12), read-only, of numpy.ndarray)"
    )
    made = Made(device=(2, 3))
    assert repr(as_tensor(made.capsule, stream=0x5100)) == (
        "Tensor(shape=(2, 3), dtype=float32, device=cuda:3, stream=0x5100, of builtins.PyCapsule)"
    )


def test_a_copy_of_its_owner_is_not_described_by_the_old_address() -> None:
    class Owner:
        def __init__(self) -> None:
            self.array = np.arange(4.0)

        @property
        def __array_interface__(self) -> Any:
            return self.array.__array_interface__

    tensor = as_tensor(Owner())
    assert copy.copy(tensor).owner is tensor.owner
    for duplicate in (copy.deepcopy(tensor), pickle.loads(pickle.dumps(tensor))):
        assert duplicate.data != tensor.data
        np.asarray(tensor)[0] = 7.0
        assert np.asarray(duplicate).tolist() == [0.0, 1.0, 2.0, 3.0]
        np.asarray(tensor)[0] = 0.0


# -- the forms of a capsule --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("max_version", "name"),
    [
        (None, "dltensor"),
        ((0, 8), "dltensor"),
        ((1, 0), "dltensor_versioned"),
        ((1, 9), "dltensor_versioned"),
    ],
)
def test_the_consumer_gets_the_form_it_reads(max_version: Any, name: str) -> None:
    tensor = as_tensor(np.arange(3))
    assert name_of(tensor.__dlpack__(max_version=max_version)) == name
    assert name_of(as_tensor(np.arange(3).__dlpack__()).__dlpack__(max_version=max_version)) == name


class Lazy(Library):
    """An array that puts its elements into new memory whenever it is asked."""

    def __dlpack__(self, **asked: Any) -> Any:
        self._said["memory"] = (ctypes.c_uint8 * 4096)()
        return super().__dlpack__(**asked)


@pytest.mark.parametrize("device", [CPU, CUDA, CUDA_HOST])
@pytest.mark.parametrize("flags", [0, READ_ONLY])
@pytest.mark.parametrize("dtype", [F32, BF16], ids=["float32", "bfloat16"])
def test_every_consumer_gets_the_memory_that_the_tensor_describes(
    device: Any, flags: int, dtype: Any
) -> None:
    array = Lazy(device, shape=(2, 3), strides=(4, 1), dtype=dtype, flags=flags)
    tensor = as_tensor(array)
    for asked in ({}, {"copy": False}, {"dl_device": device}):
        again = as_tensor(tensor.__dlpack__(max_version=(1, 1), **asked))
        for name in ("data", "shape", "strides", "dl_dtype", "device", "is_readonly"):
            assert getattr(again, name) == getattr(tensor, name)
    assert len(array.asked) == 1
    if device == CPU and not flags:
        copied = as_tensor(tensor.__dlpack__(copy=True))
        assert copied.data not in (tensor.data, 0)
        assert len(array.asked) == 1


def test_a_numpy_array_that_is_reshaped_in_place_is_exported_as_it_was() -> None:
    array = np.arange(6.0)
    tensor = as_tensor(array)
    with warnings.catch_warnings(action="ignore"):  # NumPy advises against it
        array.shape = (2, 3)
    there = np.from_dlpack(tensor)
    assert (there.shape, there.ctypes.data) == (tensor.shape, tensor.data)


def test_pytorch_gives_a_tensor_other_memory_and_ours_keeps_the_old() -> None:
    torch = pytest.importorskip("torch")
    array = torch.arange(6.0)
    tensor = as_tensor(array)
    array.data = torch.zeros(6)
    there = torch.from_dlpack(tensor)
    assert there.data_ptr() == tensor.data
    assert there.tolist() == list(range(6))


def test_memory_of_the_host_has_no_stream() -> None:
    with pytest.raises(BufferError, match="memory of the host has no streams, and stream 5 was requested"):
        as_tensor(Library(CPU)).__dlpack__(stream=5)


def test_the_tensor_says_where_it_is() -> None:
    assert as_tensor(np.zeros(3)).__dlpack_device__() == CPU
    made = [Made(device=(kind, 2)) for kind in (2, 3, 13, 8, 99)]
    tensors = [as_tensor(one.capsule) for one in made]
    assert [str(tensor.device) for tensor in tensors] == [
        "cuda:2",
        "cuda_host:2",
        "cuda_managed:2",
        "metal:2",
        "device type 99:2",
    ]
    assert [tensor.__dlpack_device__() for tensor in tensors] == [(kind, 2) for kind in (2, 3, 13, 8, 99)]
    assert [tensor.device.is_cuda for tensor in tensors] == [True, True, True, False, False]
    assert [tensor.device.is_host for tensor in tensors] == [False, True, True, False, False]


# -- the array interfaces ----------------------------------------------------------------------------


def test_each_array_interface_is_there_where_the_memory_is() -> None:
    host, device, pinned = as_tensor(np.zeros(3)), as_tensor(Interface()), as_tensor(Library(CUDA_HOST))
    assert hasattr(host, "__array_interface__")
    with pytest.raises(AttributeError, match="a tensor on cpu has no __cuda_array_interface__"):
        _ = host.__cuda_array_interface__
    assert hasattr(device, "__cuda_array_interface__")
    with pytest.raises(
        AttributeError, match="a tensor on cuda:0 has no __array_interface__: the host cannot read it"
    ):
        _ = device.__array_interface__
    assert hasattr(pinned, "__array_interface__")
    assert hasattr(pinned, "__cuda_array_interface__")


def test_the_cuda_array_interface_is_complete() -> None:
    array = Interface(shape=(2, 3), typestr="<f8", strides=(64, 8), stream=0x99)
    assert as_tensor(array).__cuda_array_interface__ == {
        "shape": (2, 3),
        "typestr": "<f8",
        "data": (array.address, False),
        "strides": (64, 8),
        "version": 3,
        "stream": 0x99,
    }


# -- ordering on export ------------------------------------------------------------------------------


def behind(work: Any, owner: Any) -> Tensor:
    """A tensor of an array, with that work behind it."""
    return as_tensor(owner)._with_pending_work(work)


@pytest.mark.parametrize(("asked", "ordered"), [(0x77, [0x77]), (1, [1]), (2, [2]), (None, [1]), (-1, [])])
@pytest.mark.parametrize("kind", [Library, OldLibrary])
def test_the_consumers_stream_is_ordered_after_the_work_and_nothing_else_is(
    asked: int | None, ordered: list[int], kind: Any
) -> None:
    work, owner = Work(), kind(version=None)
    tensor = behind(work, owner)
    owner.asked.clear()
    tensor.__dlpack__(stream=asked)
    assert work.ordered == ordered
    assert owner.asked == []


def test_stream_0_names_no_stream() -> None:
    work, owner = Work(), Library()
    tensor = behind(work, owner)
    for asked in ({}, {"copy": True}, {"dl_device": CPU}):
        with pytest.raises(
            BufferError, match=r"stream 0 is not valid in DLPack; 1 is the legacy default stream, 2"
        ):
            tensor.__dlpack__(stream=0, **asked)  # type: ignore[arg-type]
    assert work.ordered == []
    with pytest.raises(BufferError, match="stream 0"):
        behind(None, owner).__dlpack__(stream=0)


def test_a_stream_is_ordered_after_work_on_another(machine: Any) -> None:
    from tests.harness import MS, launch

    theirs, ours = (sim.Device(0).create_stream() for _ in range(2))
    done: list[str] = []
    seen: list[list[str]] = []
    launch(gpu.StreamHandle(theirs), MS, lambda: done.append("made"))
    tensor = as_tensor(Library(), stream=theirs.handle)
    tensor.__dlpack__(stream=ours.handle)
    launch(gpu.StreamHandle(ours), MS / 10, lambda: seen.append(list(done)))
    ours.sync()
    assert seen == [["made"]]


# -- a copy, or another device -----------------------------------------------------------------------


def test_memory_of_the_host_is_copied() -> None:
    array = np.arange(4.0)
    tensor = as_tensor(array)
    copied = np.from_dlpack(tensor, copy=True)
    assert np.array_equal(copied, array)
    assert not np.shares_memory(copied, array)
    assert np.shares_memory(np.from_dlpack(tensor, copy=False), array)
    assert np.shares_memory(np.from_dlpack(tensor, device="cpu"), array)


def test_an_owner_that_cannot_copy_says_so() -> None:
    tensor = as_tensor(OldLibrary(CUDA, None))
    for asked in ({"copy": True}, {"dl_device": CPU}):
        with pytest.raises(
            BufferError, match=r"producers\.OldLibrary does not support copying or another device"
        ):
            tensor.__dlpack__(**asked)


@pytest.mark.parametrize("asked", [{"copy": True}, {"dl_device": CPU}, {"dl_device": CPU, "copy": True}])
def test_a_copy_is_made_on_the_stream_of_the_data(machine: Any, asked: Any) -> None:
    stream = sim.Device(0).create_stream()
    current: list[Any] = []

    class Copying(Library):
        def __dlpack__(self, **asked: Any) -> Any:
            current.append(gpu.current_stream())
            return super().__dlpack__(**asked)

    owner = Copying()
    work = Work(stream.handle)
    behind(work, owner).__dlpack__(stream=0x77, **asked)
    assert work.ordered == [0x77]
    assert current[-1] == stream.handle
    assert owner.asked[-1] == {"stream": 0x77, "max_version": None, **asked}
    assert gpu.current_stream() is None
    behind(None, owner).__dlpack__(stream=0x77, **asked)
    assert current[-1] is None


# -- what would end the process ----------------------------------------------------------------------

BACKWARDS = {
    "reversed": np.arange(4.0)[::-1],
    "rows reversed": np.arange(6.0).reshape(2, 3)[::-1],
    "one axis of three": np.arange(24.0).reshape(2, 3, 4)[:, ::-1],
    "read-only": np.frombuffer(bytes(24), np.float64)[::-1],
}


@pytest.mark.parametrize("array", BACKWARDS.values(), ids=BACKWARDS)
@pytest.mark.parametrize("asked", [{}, {"max_version": (1, 0)}, {"copy": False}, {"dl_device": CPU}], ids=str)
def test_what_lies_backwards_is_not_exported_through_dlpack(array: Any, asked: Any) -> None:
    tensor = as_tensor(array)
    with pytest.raises(BufferError) as caught:
        tensor.__dlpack__(**asked)
    assert str(caught.value) == (
        f"{tensor!r} cannot be exported through DLPack: it has a negative stride, and some libraries abort "
        "the process on one. Send numpy.ascontiguousarray(array) or array.copy() instead; numpy.asarray accepts it "
        "as it is"
    )
    assert np.array_equal(np.asarray(tensor), array)
    assert np.array_equal(np.from_dlpack(tensor, copy=True), array)
    for remedy in (np.ascontiguousarray(array), array.copy()):
        assert np.array_equal(np.from_dlpack(as_tensor(remedy)), array)


def test_the_cuda_array_interface_keeps_pytorch_from_what_lies_backwards() -> None:
    # PyTorch refuses what is read-only, and would end the process on the strides; CuPy and Numba take either.
    array = Library(CUDA, shape=(2, 3), strides=(-3, 1), byte_offset=64)
    interface = as_tensor(array).__cuda_array_interface__
    assert (interface["strides"], interface["data"][1]) == ((-12, 4), True)
    assert not as_tensor(array).is_readonly
    for shape in ((1, 3), (0, 3)):
        never_taken = as_tensor(Library(CUDA, shape=shape, strides=(-3, 1)))
        assert never_taken.__cuda_array_interface__["data"][1] is False


HOSTILE = """if True:
    import sys
    import warnings
    import numpy as np
    from headrace import as_tensor
    from headrace.tensor import DLDataType, TensorError
    from tests.harness.producers import Library

    warnings.simplefilter("ignore")
    strided = np.lib.stride_tricks.as_strided
    said = dict(
        backwards=dict(shape=(3,), strides=(-1,), byte_offset=64),
        far=dict(shape=(2,), strides=(2**62,)),
        farther=dict(shape=(2, 2), strides=(2**63 - 1, 2**63 - 1)),
        offset=dict(byte_offset=2**63),
        huge=dict(shape=(2**62,), strides=(0,)),
        empty=dict(shape=(0, 2**62, 2**62), strides=(0, 0, 0)),
        negative=dict(shape=(-1, 3)),
        many=dict(shape=(1,) * 2000),
        lanes=dict(dtype=DLDataType(2, 32, 2)),
        nothing=dict(dtype=DLDataType(2, 0)),
        handle=dict(dtype=DLDataType(3, 64)),
        unknown=dict(dtype=DLDataType(99, 8)),
        scalar=dict(shape=()),
        none=dict(shape=(0, 3)),
        elsewhere=dict(device=(99, 0)),
        rocm=dict(device=(10, 0)),
        broadcast=dict(shape=(3,), strides=(0,)),
        plain={},
    )
    arrays = {name: Library(one.pop("device", (1, 0)), None, **one) for name, one in said.items()}
    arrays |= {
        "reversed": np.arange(4.0)[::-1],
        "as strided": strided(np.zeros(1), (2, 2), (2**62, 8)),
        "long": np.zeros(2, np.longdouble),
        "read-only": np.frombuffer(bytes(8), np.int32),
        "64": np.zeros((1,) * 64),
        "unaligned": np.zeros(33, np.uint8)[1:].view(np.float64),
    }
    for take in (TAKES,):
        for name, array in arrays.items():
            print(name, flush=True)
            try:
                take(as_tensor(array))
            except Exception as error:
                print(" ", type(error).__name__)
    print("end")
"""


@pytest.mark.parametrize(
    ("library", "takes"),
    [
        ("numpy", "np.from_dlpack, np.asarray"),
        ("torch", "__import__('torch').from_dlpack, __import__('torch').asarray"),
        ("jax", "__import__('jax').dlpack.from_dlpack"),
        ("pyarrow", "__import__('pyarrow').Tensor.from_dlpack"),
    ],
)
def test_no_tensor_ends_the_process_of_a_library_that_takes_it(
    library: str, takes: str, capsys: pytest.CaptureFixture[str]
) -> None:
    module = pytest.importorskip(library)
    if library == "pyarrow" and not hasattr(module.Tensor, "from_dlpack"):
        pytest.skip("this PyArrow takes no DLPack")
    program = HOSTILE.replace("TAKES", takes)
    if not THOROUGH:  # here the library is imported; if this process ends, so does the test
        with warnings.catch_warnings(action="ignore"):
            exec(program, {"__name__": "__main__"})
        assert capsys.readouterr().out.splitlines()[-1] == "end"
        return
    ended = run_python("-c", program, JAX_PLATFORMS="cpu")
    assert (ended.returncode, ended.stdout.splitlines()[-1]) == (0, "end"), (
        ended.stdout + ended.stderr[-2000:]
    )
