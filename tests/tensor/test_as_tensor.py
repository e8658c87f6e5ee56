"""as_tensor takes an array of any library, asks it as its protocol wants, and says what it tried if it cannot."""

from __future__ import annotations

import weakref
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from headrace import Tensor, as_tensor, gpu
from headrace.gpu import sim
from headrace.tensor import TensorError, capsule
from tests.harness.libraries import stand_in
from tests.harness.producers import CPU, CUDA, Interface, Library, Made, OldLibrary


def test_an_array_is_described_not_copied() -> None:
    array = np.arange(12, dtype=np.int32).reshape(3, 4)[::-1, ::2]
    tensor = as_tensor(array)
    assert tensor.data == array.ctypes.data
    assert (tensor.shape, tensor.strides, tensor.dtype) == (array.shape, array.strides, array.dtype)
    assert tensor.owner is array
    assert tensor.device == CPU
    assert not tensor.is_readonly
    assert tensor.stream is None


def test_a_tensor_of_a_tensor_is_that_tensor() -> None:
    tensor = as_tensor(np.zeros(3))
    assert as_tensor(tensor) is tensor


def test_what_was_exported_lives_as_long_as_the_tensor_whoever_owns_it() -> None:
    made: list[Any] = []

    class Fresh:
        def __dlpack_device__(self) -> tuple[int, int]:
            return CPU

        def __dlpack__(self, **asked: Any) -> Any:
            array = np.arange(4.0)
            made.append(weakref.ref(array))
            return array.__dlpack__(**asked)

    tensor = as_tensor(Fresh())
    assert made[0]() is not None
    assert np.asarray(tensor).tolist() == [0, 1, 2, 3]
    del tensor
    assert made[0]() is None


@pytest.mark.parametrize(
    "thing", [None, 3, "text", b"bytes", [1, 2], object(), memoryview(b"x"), SimpleNamespace(shape=(3,))]
)
def test_what_speaks_no_protocol_is_refused_by_type_with_all_that_was_tried(thing: Any) -> None:
    kind = type(thing)
    with pytest.raises(TensorError) as caught:
        as_tensor(thing)
    assert str(caught.value) == (
        f"{kind.__module__}.{kind.__qualname__} cannot be a tensor (__dlpack__: it has none; "
        "__cuda_array_interface__: it has none; __array_interface__: it has none)"
    )
    assert isinstance(caught.value, TypeError)


@pytest.mark.parametrize(
    "array",
    [
        np.array(["text"]),
        np.array([b"bytes"]),
        np.array([object()]),
        np.array(["2026-01-01"], "M8[D]"),
        np.array([3], "m8[s]"),
        np.zeros(2, [("a", "i4"), ("b", "f4")]),
        np.zeros(2, np.dtype("i4").newbyteorder()),
        np.zeros(2, np.dtype("f8").newbyteorder()),
        np.zeros(2, "V3"),
    ],
    ids=lambda array: array.dtype.str,
)
def test_a_dtype_that_no_protocol_has_is_named(array: Any) -> None:
    with pytest.raises(TensorError) as caught:
        as_tensor(array)
    text = str(caught.value)
    assert text.startswith("numpy.ndarray cannot be a tensor (__dlpack__: ")
    assert f"__array_interface__: unsupported dtype {array.dtype.str!r}" in text
    assert "booleans, integers, floats or complex numbers, in this machine's byte order" in text


def test_a_producer_that_raises_is_asked_through_the_next_protocol() -> None:
    class Reluctant(Interface):
        def __dlpack_device__(self) -> tuple[int, int]:
            return CPU

        def __dlpack__(self, **asked: Any) -> Any:
            raise BufferError("not today")

    array = Reluctant("__array_interface__")
    assert as_tensor(array).data == array.address
    array = Reluctant("__cuda_array_interface__")
    assert as_tensor(array).device == CUDA
    with pytest.raises(
        TensorError, match=r"Reluctant cannot be a tensor \(__dlpack__: not today; .*: it has none; .*it"
    ):
        as_tensor(Reluctant("other"))


def test_a_class_is_no_array() -> None:
    with pytest.raises(TensorError, match=r"builtins\.type cannot be a tensor"):
        as_tensor(np.ndarray)


# -- the form of the capsule -------------------------------------------------------------------------


def test_the_newest_form_is_asked_for() -> None:
    array = Library(CPU)
    as_tensor(array)
    assert array.asked == [{"stream": None, "max_version": (1, 1)}]


def test_a_producer_of_the_old_form_is_asked_in_the_old_form_from_then_on() -> None:
    class Old(OldLibrary):
        pass

    first, second = Old(CPU, None), Old(CPU, None)
    as_tensor(first)
    assert first.asked == [{"stream": None}]
    assert Old in capsule._old_style
    assert as_tensor(second).shape == (2, 3)
    assert second.asked == [{"stream": None}]


# -- the array interfaces ----------------------------------------------------------------------------


def test_an_array_interface_is_read_and_its_owner_kept() -> None:
    array = Interface("__array_interface__", shape=(2, 2), typestr="<i2", strides=(8, 2))
    tensor = as_tensor(array)
    assert tensor.data == array.address
    assert (tensor.shape, tensor.strides, tensor.dl_dtype.name) == ((2, 2), (8, 2), "int16")
    assert tensor.owner is array
    assert np.from_dlpack(tensor).ctypes.data == array.address


def test_a_scalar_of_numpy_is_a_tensor_of_memory_that_lasts() -> None:
    scalar = np.float32(3.5)
    tensor = as_tensor(scalar)
    assert (tensor.shape, tensor.owner) == ((), scalar)
    others = [np.float32(n) for n in range(1000)]
    assert np.asarray(tensor) == 3.5
    assert tensor.data == np.asarray(tensor).ctypes.data == np.from_dlpack(tensor).ctypes.data
    del others


def test_a_cuda_array_interface_is_read() -> None:
    array = Interface(shape=[4, 2], typestr="<c8", strides=(16, 8), version=2)
    tensor = as_tensor(array)
    assert (tensor.data, tensor.shape, tensor.strides) == (array.address, (4, 2), (16, 8))
    assert (tensor.dl_dtype.name, tensor.device, tensor.stream) == ("complex64", CUDA, None)
    assert as_tensor(Interface(strides=None)).strides == (12, 4)
    with pytest.raises(BufferError, match="cuda-core, which would export it, finds no GPU"):
        tensor.__dlpack__()


def test_stream_0_in_a_cuda_array_interface_names_no_stream() -> None:
    with pytest.raises(
        TensorError, match=r"Interface cannot .*stream entry is 0, which names no stream: 1 is the leg"
    ):
        as_tensor(Interface(stream=0))


@pytest.mark.parametrize("stream", [1, 2, 0x1234])
def test_the_stream_of_a_cuda_array_interface_is_noted(stream: int) -> None:
    tensor = as_tensor(Interface(stream=stream))
    assert tensor.stream == stream
    assert tensor.__cuda_array_interface__["stream"] == stream


def test_the_environment_says_whether_streams_of_array_interfaces_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    variable = "HEADRACE_ARRAY_INTERFACE_SYNC"
    monkeypatch.delenv(variable, raising=False)
    assert as_tensor(Interface(stream=0x1234)).stream == 0x1234
    monkeypatch.setenv(variable, "0")  # it is read when it matters, not when headrace was imported
    assert as_tensor(Interface(stream=0x1234)).stream is None
    assert as_tensor(Interface(stream=0)).stream is None
    monkeypatch.setenv(variable, "1")
    assert as_tensor(Interface(stream=0x1234)).stream == 0x1234


@pytest.mark.parametrize("setting", ["yes", "2", "false"])
def test_another_setting_is_an_error_that_lists_the_choices(
    setting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_ARRAY_INTERFACE_SYNC", setting)
    with pytest.raises(TensorError, match=f"HEADRACE_ARRAY_INTERFACE_SYNC='{setting}': must be one of 0, 1"):
        as_tensor(Interface(stream=1))
    assert as_tensor(Interface()).stream is None  # where no stream is named, nobody asks


# -- the handshake over streams ----------------------------------------------------------------------


def test_a_library_is_told_the_stream_that_its_data_shall_be_ready_on(machine: Any) -> None:
    stream = sim.Device(0).create_stream()
    for array in (Library(), OldLibrary(version=None)):
        tensor = as_tensor(array, stream=stream.handle)
        assert [asked["stream"] for asked in array.asked] == [stream.handle]
        assert tensor.stream == stream.handle


def test_without_a_stream_a_library_is_told_the_default_stream() -> None:
    array = Library()
    assert as_tensor(array).stream == 1
    assert array.asked[0]["stream"] == 1


def test_without_a_stream_a_library_is_told_the_current_one(machine: Any) -> None:
    stream = sim.Device(0).create_stream()
    array = Library()
    with gpu.use_stream(stream):
        tensor = as_tensor(array)
    assert array.asked[0]["stream"] == tensor.stream == stream.handle
    assert type(array.asked[0]["stream"]) is int  # PyTorch takes no other kind


@pytest.mark.parametrize("device", [(3, 0), (13, 0)])
def test_pinned_and_managed_memory_have_streams_too(device: Any) -> None:
    array = Library(device)
    tensor = as_tensor(array)
    assert (tensor.stream, array.asked[0]["stream"]) == (1, 1)
    assert tensor.device.is_cuda
    assert tensor.device.is_host
    assert tensor.__array_interface__["data"] == tensor.__cuda_array_interface__["data"]


def test_memory_of_the_host_has_no_stream(machine: Any) -> None:
    handle = sim.Device(0).create_stream().handle
    array = Library(CPU)
    tensor = as_tensor(array, stream=handle)
    assert array.asked[0]["stream"] is None
    assert tensor.stream is None
    assert as_tensor(tensor, stream=handle) is tensor
    assert as_tensor(np.zeros(3), stream=handle).stream is None
    made = Made()
    assert as_tensor(made.capsule, stream=handle).stream is None


@pytest.mark.parametrize("library", ["cupy", "torch"])
def test_a_library_whose_current_stream_can_be_asked_is_not_told_one(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    if library == "cupy":
        cuda = SimpleNamespace(
            get_current_stream=lambda index: asked.append(index) or SimpleNamespace(ptr=0x40)
        )
    else:
        cuda = SimpleNamespace(
            current_stream=lambda index: asked.append(index) or SimpleNamespace(cuda_stream=0x40)
        )
    stand_in(monkeypatch, library, cuda=cuda)
    name = "ndarray" if library == "cupy" else "Tensor"
    attributes = {"__module__": f"{library}.inside", "untyped_storage": lambda array: array}
    kind = type(name, (Library,), attributes)
    kind = type("Mine", (kind,), {})  # a class of the program's own is of that library all the same
    array = kind((2, 3))
    tensor = as_tensor(array)
    assert asked == [3]
    assert tensor.stream == 0x40
    assert array.asked[0]["stream"] == -1


def test_the_default_stream_of_such_a_library_is_called_1(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = SimpleNamespace(current_stream=lambda index: SimpleNamespace(cuda_stream=0))
    stand_in(monkeypatch, "torch", cuda=cuda)
    kind = type("Tensor", (Library,), {"__module__": "torch", "untyped_storage": lambda array: array})
    tensor = as_tensor(kind())
    assert tensor.stream == 1


class Waits:
    """Which stream was told to wait for which, by handle."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[tuple[int, int]] = []
        original = sim.Stream.wait

        def wait(stream: Any, other: Any) -> None:
            self.seen.append((stream.handle, other.handle))
            original(stream, other)

        monkeypatch.setattr(sim.Stream, "wait", wait)


def test_a_stream_given_with_a_cuda_array_interface_waits_for_the_stream_in_it(
    machine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = Waits(monkeypatch)
    theirs, ours = (sim.Device(0).create_stream() for _ in range(2))
    array = Interface(stream=theirs.handle)
    assert as_tensor(array, stream=ours.handle).stream == ours.handle
    assert waits.seen == [(ours.handle, theirs.handle)]
    assert as_tensor(array, stream=theirs.handle).stream == theirs.handle
    assert as_tensor(Interface(), stream=ours.handle).stream == ours.handle
    assert len(waits.seen) == 1  # on the same stream, or with nothing to wait for, there is no wait


def test_a_stream_given_with_a_tensor_waits_for_the_work_behind_it(
    machine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = Waits(monkeypatch)
    theirs, ours = (sim.Device(0).create_stream() for _ in range(2))
    tensor = as_tensor(Interface(stream=theirs.handle))
    later = as_tensor(tensor, stream=ours.handle)
    assert waits.seen == [(ours.handle, theirs.handle)]
    assert (later.stream, tensor.stream) == (ours.handle, theirs.handle)
    assert (later.data, later.owner) == (tensor.data, tensor.owner)
    as_tensor(Interface(), stream=ours.handle)
    assert len(waits.seen) == 1


def test_a_tensor_keeps_the_stream_it_was_made_on(machine: Any) -> None:
    stream = sim.Device(0).create_stream()
    tensor = as_tensor(Library(), stream=gpu.StreamHandle(stream))
    other = sim.Device(0).create_stream()
    del stream
    tensor.__dlpack__(stream=other.handle)  # would find no such stream, were it gone


def test_a_capsule_is_made_ready_on_the_stream_that_is_given() -> None:
    made = Made(device=CUDA)
    assert as_tensor(made.capsule, stream=0x70).stream == 0x70
    made = Made(device=CUDA)
    assert as_tensor(made.capsule).stream is None  # whoever made it was told a stream then


def test_a_tensor_is_what_as_tensor_gives_and_nothing_else() -> None:
    with pytest.raises(TypeError, match=r"create a Tensor with headrace\.as_tensor"):
        Tensor(np.zeros(3))
