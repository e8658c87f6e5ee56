"""What a protocol says wrongly is refused with an error that names it, and never believed."""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import pytest

from headrace import as_tensor
from headrace.tensor import DLDataType, TensorError
from tests.harness.processes import run_forked
from tests.harness.producers import CPU, CUDA, CUDA_HOST, Interface, Library, Made, name_of

HOST_KIND, CUDA_KIND = "__array_interface__", "__cuda_array_interface__"
both_kinds = pytest.mark.parametrize("kind", [HOST_KIND, CUDA_KIND])
both_forms = pytest.mark.parametrize("version", [None, (1, 0)], ids=["legacy", "versioned"])

# -- the array interfaces ----------------------------------------------------------------------------

SOME = (4096, False)

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"shape": ...}, "it has no 'shape'; 'shape', 'typestr', 'data' and 'version' are needed"),
    ({"shape": (-1, 3)}, "its shape is (-1, 3); an extent is 0 or more"),
    ({"shape": (2.0, 3)}, "its shape is (2.0, 3); it should be a tuple of ints"),
    ({"shape": (1 << 40, 1 << 40)}, "which is larger than any memory"),
    ({"shape": (1,) * 65}, "it has 65 dimensions; a tensor has at most 64"),
    ({"strides": (4,)}, "it has 2 dimensions and 1 strides; each dimension needs one"),
    ({"strides": (12.5, 4)}, "its strides is (12.5, 4); it should be a tuple of ints"),
    ({"strides": (1 << 62, 1 << 62)}, "with the shape (2, 3) they reach beyond any memory"),
    ({"data": (0, False)}, "its address is 0, but it has elements; only an empty array may have no address"),
    ({"data": ((1 << 63) - 8, False)}, "where there is no memory"),
    (
        {"data": SOME, "strides": (-4096, 4)},
        "its elements would lie from 0x0 to 0x100c, where there is no memory",
    ),
    ({"data": (4096.0, False)}, "its address is 4096.0; it should be an int"),
    ({"data": (4096, "no")}, "its read-only flag is 'no'; it should be a bool"),
    ({"typestr": 4}, "its typestr is 4; it should be a string such as '<f4'"),
    ({"typestr": "<f3"}, "unsupported dtype '<f3'"),
    ({"typestr": "<i" + "9" * 5000}, "unsupported dtype '<i999"),
    ({"typestr": ">f4"}, "unsupported dtype '>f4': a tensor holds booleans, integers, floats or complex"),
    ({"version": 4}, "its version is 4; it should be 3 (0 to 2 are also supported)"),
    (
        {"mask": np.zeros(6, bool)},
        "it has a mask, which a tensor cannot have: fill the masked elements, or use data and",
    ),
]


@both_kinds
@pytest.mark.parametrize(
    ("entries", "complaint"), WRONG, ids=[f"{next(iter(w))}{n}" for n, (w, _) in enumerate(WRONG)]
)
def test_an_entry_of_an_array_interface_that_cannot_be_is_named(
    kind: str, entries: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(TensorError, match=re.escape(f"{kind}: ") + ".*" + re.escape(complaint)):
        as_tensor(Interface(kind, **entries))


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (..., "it has no 'data'"),
        (None, "its data is None; it should be a tuple of an address and a read-only flag"),
        (4096, "its data is 4096; it should be a tuple of an address and a read-only flag"),
        ((4096,), "its data is (4096,); it should be a tuple"),
        ([4096, False], "its data is [4096, False]; it should be a tuple"),
        (b"bytes", "its data is b'bytes'; it should be a tuple"),
    ],
    ids=str,
)
def test_the_data_of_a_cuda_array_interface_is_an_address_and_a_flag(data: Any, complaint: str) -> None:
    with pytest.raises(TensorError, match=re.escape(f"{CUDA_KIND}: {complaint}")):
        as_tensor(Interface(data=data))


@pytest.mark.parametrize("data", [4096, [4096, False], "text", 1.5])
def test_the_data_of_an_array_interface_may_also_be_a_buffer_and_nothing_else(data: Any) -> None:
    with pytest.raises(
        TensorError,
        match=rf"its data is {type(data).__name__}; it should be a tuple of an address and a read-only flag, or a",
    ):
        as_tensor(Interface(HOST_KIND, data=data))


@pytest.mark.parametrize("interface", [None, 3, [("shape", (2,))], "text"])
@both_kinds
def test_an_array_interface_is_a_dict(kind: str, interface: Any) -> None:
    array = Interface("other")
    setattr(array, kind, interface)
    with pytest.raises(TensorError, match=f"{kind}: it is {type(interface).__name__}; it should be a dict"):
        as_tensor(array)
    setattr(array, kind, MappingProxyType(Interface(kind).__dict__[kind]))  # or what reads like one
    assert as_tensor(array).shape == (2, 3)


@pytest.mark.parametrize("stream", [-1, 2.5, "1", True, [1]], ids=str)
def test_the_stream_of_a_cuda_array_interface_is_a_handle(stream: Any) -> None:
    with pytest.raises(
        TensorError,
        match=re.escape(f"its stream entry is {stream!r}; it should be a stream handle (an int) or None"),
    ):
        as_tensor(Interface(stream=stream))


@both_kinds
def test_numbers_of_numpy_are_ints_too(kind: str) -> None:
    array = Interface(kind)
    tensor = as_tensor(
        Interface(
            kind,
            shape=[np.int64(2), np.uint8(3)],
            strides=tuple(np.array([12, 4])),
            data=(np.uint64(array.address), np.True_),
            version=np.int32(3),
        )
    )
    assert (tensor.shape, tensor.strides, tensor.data) == ((2, 3), (12, 4), array.address)
    assert all(type(number) is int for number in (*tensor.shape, *tensor.strides, tensor.data))
    assert tensor.is_readonly is True


# -- buffers -----------------------------------------------------------------------------------------


def test_memory_that_an_array_interface_holds_as_a_buffer_is_shared() -> None:
    memory = bytearray(range(24))
    tensor = as_tensor(Interface(HOST_KIND, shape=(2, 3), typestr="|u1", data=memory, offset=4))
    assert np.asarray(tensor).tolist() == [[4, 5, 6], [7, 8, 9]]
    assert not tensor.is_readonly
    np.asarray(tensor)[0, 0] = 99
    assert memory[4] == 99
    fixed = as_tensor(Interface(HOST_KIND, shape=(2, 3), data=bytes(24)))
    assert fixed.is_readonly
    assert not np.asarray(fixed).flags.writeable
    with pytest.raises(BufferError, match="Existing exports"):
        memory.append(1)  # its memory is kept, so it may not move
    assert as_tensor(Interface(HOST_KIND, shape=(0, 3), data=b"")).size == 0


class Own(bytearray):
    """An object whose interface says nothing of its memory: that is its own buffer."""

    __array_interface__: ClassVar[Any] = {"shape": (4,), "typestr": "<u2", "version": 3}


def test_an_object_may_be_the_buffer_itself() -> None:
    tensor = as_tensor(Own(range(8)))
    assert np.asarray(tensor).tobytes() == bytes(range(8))
    with pytest.raises(TensorError, match="its elements lie from byte 0 to byte 8 of a buffer of 7 bytes"):
        as_tensor(Own(range(7)))


@pytest.mark.parametrize(
    "entries",
    [{"offset": 1}, {"offset": -1}, {"shape": (2, 4)}, {"strides": (-12, 4)}, {"strides": (16, 4)}],
    ids=str,
)
def test_elements_outside_a_buffer_are_refused(entries: dict[str, Any]) -> None:
    with pytest.raises(
        TensorError, match=r"its elements lie from byte -?\d+ to byte \d+ of a buffer of 24 bytes"
    ):
        as_tensor(Interface(HOST_KIND, data=bytes(24), **entries))


# -- masked arrays -----------------------------------------------------------------------------------


@pytest.mark.parametrize("mask", [[0, 1, 0], [0, 0, 0], np.ma.nomask], ids=["some", "none", "nomask"])
def test_a_masked_array_is_refused_with_what_to_do(mask: Any) -> None:
    masked = np.ma.masked_array([1.0, 2.0, 3.0], mask)
    with pytest.raises(TensorError) as caught:
        as_tensor(masked)
    assert str(caught.value) == (
        "numpy.ma.MaskedArray cannot be a tensor: it is a masked array, and a tensor has no mask: use "
        "array.filled(value), or array.data and numpy.ma.getmaskarray(array) as two arrays"
    )
    assert as_tensor(masked.filled(0)).shape == as_tensor(np.ma.getmaskarray(masked)).shape == (3,)
    assert as_tensor(masked.data).data == masked.ctypes.data


# -- capsules ----------------------------------------------------------------------------------------


def wrong(version: Any, **fields: Any) -> Made:
    """A capsule with fields of its DLTensor set to something else."""
    said = {key: fields.pop(key) for key in ("shape", "strides", "dtype", "byte_offset") if key in fields}
    made = Made(version=version, **said)
    tensor = made.managed.tensor
    for name, value in fields.items():
        setattr(tensor, name, value)
    return made


WRONG_FIELDS: list[tuple[dict[str, Any], str]] = [
    ({"shape": (2, 3), "ndim": -1}, "the capsule has -1 dimensions; a tensor has 0 to 64"),
    ({"shape": (2, -3)}, r"its shape is \(2, -3\); an extent is 0 or more"),
    ({"shape": (1 << 40, 1 << 40)}, "which is larger than any memory"),
    ({"strides": (1 << 62, 1 << 62)}, "they reach beyond any memory"),
    ({"shape": (2, 3), "data": None}, "its address is 0, but it has elements"),
    ({"byte_offset": 1 << 63}, "where there is no memory"),
    (
        {"dtype": DLDataType(2, 0)},
        "unsupported dtype: the capsule has elements of 0 bits and 1 lanes",
    ),
    (
        {"dtype": DLDataType(2, 32, 0)},
        "unsupported dtype: the capsule has elements of 32 bits and 0 lanes",
    ),
    ({"dtype": DLDataType(2, 7)}, "unsupported dtype float7: its elements share bytes"),
]


@both_forms
@pytest.mark.parametrize(
    ("fields", "complaint"), WRONG_FIELDS, ids=[f"{n}" for n in range(len(WRONG_FIELDS))]
)
def test_a_field_of_a_capsule_that_cannot_be_is_named_and_the_capsule_left_to_its_maker(
    version: Any, fields: dict[str, Any], complaint: str
) -> None:
    made = wrong(version, **fields)
    with pytest.raises(TensorError, match=complaint):
        as_tensor(made.capsule)
    assert not name_of(made.capsule).startswith("used")
    assert made.freed == []


@both_forms
def test_a_capsule_without_a_shape_is_refused(version: Any) -> None:
    # In a process of its own: this is what used to end it.
    program = f"""if True:
        from headrace import as_tensor
        from headrace.tensor import TensorError
        from tests.harness.producers import Library, Made
        made = Made(version={version})
        made.managed.tensor.shape = None
        for strides in (None, made.managed.tensor.data):
            made.managed.tensor.strides = strides
            try:
                as_tensor(made.capsule)
            except TensorError as error:
                print(error)
    """
    ended = run_forked("-c", program)
    told = "the capsule has 2 dimensions but no shape: its pointer to the shape is NULL\n"
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, 2 * told, "")


@both_forms
def test_no_dimensions_need_no_shape_and_no_elements_no_address(version: Any) -> None:
    scalar = Made((), version=version)
    assert as_tensor(scalar.capsule).shape == ()
    empty = Made((0, 3), version=version)
    empty.managed.tensor.data = None
    tensor = as_tensor(empty.capsule)
    assert (tensor.data, tensor.shape, tensor.strides) == (0, (0, 3), (12, 4))
    assert np.asarray(tensor).shape == (0, 3)


# -- objects that break the rules --------------------------------------------------------------------


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("it cannot be told")


@pytest.mark.parametrize("answer", [None, (), (1,), "cpu", ("cpu", 0), ([], 0), 7], ids=str)
def test_an_answer_that_names_no_device_is_refused(answer: Any) -> None:
    class Lost(Library):
        def __dlpack_device__(self) -> Any:
            return answer

        def __dlpack__(self, **asked: Any) -> Any:
            raise Mute

    with pytest.raises(TensorError, match=r"Lost cannot be a tensor \(__dlpack__: "):
        as_tensor(Lost())


@pytest.mark.parametrize(
    ("named", "found", "text"),
    [
        (CPU, CUDA, r"names cpu, but the memory in its capsule is on cuda:0"),
        (CUDA, CPU, r"names cuda:0, but the memory in its capsule is on cpu"),
        (CUDA, (2, 1), r"names cuda:0, but the memory in its capsule is on cuda:1"),
        (CPU, CUDA_HOST, r"names cpu, but the memory in its capsule is on cuda_host:0"),
        ((99, 0), CPU, r"names device type 99:0, but the memory in its capsule is on cpu"),
    ],
)
def test_a_device_that_the_capsule_contradicts_is_refused(named: Any, found: Any, text: str) -> None:
    class Liar(Library):
        def __dlpack_device__(self) -> Any:
            return named

    array = Liar(found)
    with pytest.raises(
        TensorError, match=rf"Liar cannot be a tensor \(__dlpack__: its __dlpack_device__ {text}"
    ):
        as_tensor(array)
    assert [len(made.freed) for made in array.made] == [1]


@pytest.mark.parametrize(
    ("named", "found"), [((1, 3), CPU), ((3, 1), (3, 0)), (CUDA_HOST, CPU), ([2, 0], CUDA)]
)
def test_two_names_of_one_device_contradict_nothing(named: Any, found: Any) -> None:
    class Array(Library):
        def __dlpack_device__(self) -> Any:
            return named

    assert as_tensor(Array(found)).device == found


class Asking(Library):
    """An array that asks for a tensor of another one, or of itself, when it is asked for its memory."""

    other: Any = None

    def __dlpack__(self, **asked: Any) -> Any:
        self.asked.append(asked)
        return as_tensor(self if self.other is None else self.other).__dlpack__(**asked)


def test_an_array_that_asks_for_a_tensor_of_itself_is_refused() -> None:
    array, one, two = Asking(CPU), Asking(CPU), Asking(CPU)
    with pytest.raises(TensorError, match="Asking cannot be a tensor: it asks as_tensor for itself"):
        as_tensor(array)
    assert len(array.asked) == 1
    one.other, two.other = two, one
    with pytest.raises(TensorError, match="it asks as_tensor for itself, directly or through others"):
        as_tensor(one)
    assert (len(one.asked), len(two.asked)) == (1, 1)
    two.other = np.arange(3)
    assert as_tensor(one).shape == (3,)  # nothing of it is left behind


@pytest.mark.parametrize("name", ["__dlpack_device__", CUDA_KIND, HOST_KIND])
def test_any_protocol_that_asks_for_a_tensor_of_its_array_is_refused(name: str) -> None:
    def ask(self: Any) -> Any:
        return as_tensor(self)

    kind = type("Asks", (Library,) if "dlpack" in name else (), {name: property(ask)})
    with pytest.raises(TensorError, match=r"Asks cannot be a tensor \(.*it asks as_tensor for itself"):
        as_tensor(kind())


def test_an_error_that_cannot_be_told_is_told_by_its_type() -> None:
    class Silent(Library):
        def __dlpack__(self, **asked: Any) -> Any:
            raise Mute

    with pytest.raises(TensorError, match="__dlpack__: Mute;"):
        as_tensor(Silent())
