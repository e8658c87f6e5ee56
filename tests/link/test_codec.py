"""Messages as descriptions and memory: what goes in comes out, of every dtype and layout."""

from __future__ import annotations

import gc
import itertools
import random
import weakref
from collections import OrderedDict, deque, namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace import Tensor, TensorMap, as_tensor
from headrace.core.errors import CrossingError
from headrace.link.codec import decode, encode
from headrace.link.protocol import MOST_PLACES
from headrace.tensor import DLDataType
from headrace.tensor.types import CPU
from tests.limits import examples

Point = namedtuple("Point", "x y")


class Unshowable:
    def __reduce__(self) -> Any:
        raise RuntimeError("not this")

    def __repr__(self) -> str:
        raise RuntimeError("nor this")


@dataclass
class Boxes:
    label: str
    corners: np.ndarray
    frame: Tensor


def cross(data: Any, acq_timestamp: int | None = None, metadata: Any = None) -> Any:
    """Return a message after it was encoded, copied and decoded."""
    description, pieces, _, extra = encode(data, acq_timestamp, metadata)
    copies = [np.frombuffer(bytearray(np.ascontiguousarray(piece).tobytes()), np.uint8) for piece in pieces]
    return decode(description, copies, extra=extra)


def same(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    assert one.dtype == other.dtype
    assert one.shape == other.shape
    assert np.asarray(one).tobytes() == np.asarray(other).tobytes()


LAYOUTS: list[Callable[[Any], Any]] = [
    lambda array: array,
    np.asfortranarray,
    lambda array: array.T,
    lambda array: array[::-1] if array.ndim else array,
    lambda array: array[..., ::2] if array.ndim else array,
    lambda array: np.moveaxis(array, 0, -1) if array.ndim else array,
    lambda array: np.broadcast_to(array, (2, *array.shape)),
    lambda array: array.swapaxes(0, -1)[:, 1:] if array.ndim > 1 else array,
]
NUMBERS = [np.dtype(code).newbyteorder(order) for code in "?bhilqBHILQefdgFDG" for order in "<>"]
TIMES = [np.dtype(text) for text in ("M8[ns]", "M8[10s]", ">M8[D]", "m8[us]", "m8[7W]", "M8", "m8")]
TEXTS = [np.dtype(text) for text in ("S1", "S5", "<U1", ">U3", "V1", "V7")]
RECORDS = [
    np.dtype([("a", "<i4"), ("b", ">f8", (2,))]),
    np.dtype([("x", [("y", "u1"), ("z", "U2")], (2, 1)), ("t", "M8[ms]")]),
    np.dtype({"names": ["late", "early"], "formats": ["<u2", "<f4"], "offsets": [4, 0], "itemsize": 6}),
]


@pytest.mark.parametrize("dtypes", [NUMBERS, TIMES, TEXTS, RECORDS])
def test_an_array_of_any_dtype_and_layout_comes_as_it_was(dtypes: list[Any]) -> None:
    randomly = random.Random(26)
    for dtype, layout, ndim in itertools.product(dtypes, LAYOUTS, range(5)):
        shape = [randomly.choice((0, 1, 2, 3, 4)) for _ in range(ndim)]
        memory = np.resize(np.arange(251, dtype=np.uint8), int(np.prod(shape)) * dtype.itemsize)
        array = layout(memory.view(dtype).reshape(shape) if memory.size else np.zeros(shape, dtype))
        found, _, _ = cross(array)
        same(found, array)
        assert found.flags.writeable
        assert found.flags.f_contiguous == array.flags.f_contiguous or not array.flags.forc


@pytest.mark.parametrize("time", [None, 0, -5, 1 << 90])
def test_one_array_comes_as_in_a_message_of_several(time: int | None) -> None:
    """The description of a message that is one array is remembered."""
    for dtype, layout, ndim in itertools.product([*NUMBERS, *TIMES, *TEXTS, *RECORDS], LAYOUTS, range(4)):
        values = np.arange(99).astype(dtype) if dtype.kind in "iu" else np.zeros(1, dtype)
        array = layout(np.resize(values, [3, 1, 2, 0][:ndim]))
        for data in [array, as_tensor(array)] if dtype in map(np.dtype, "bifd") else [array]:
            found, acquired, metadata = cross(data, time)
            (expected,), *rest = cross([data], time)
            assert [acquired, metadata] == rest == [time, None]
            same(found, expected)
            assert found.strides == expected.strides or not array.size


@pytest.mark.parametrize("layout", LAYOUTS)
def test_records_with_gaps_keep_their_fields(layout: Callable[[Any], Any]) -> None:
    dtype = np.dtype([("a", "i1"), ("b", "f8")], align=True)
    array = np.zeros((3, 4), dtype)
    array["a"], array["b"] = np.arange(12).reshape(3, 4), np.arange(0, 24, 2).reshape(3, 4)
    found, _, _ = cross(layout(array))
    assert found.dtype == dtype
    assert found.tolist() == layout(array).tolist()


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float4_e2m1fn", "int4"])
def test_types_of_ml_dtypes_travel(name: str) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    array = np.arange(6).astype(getattr(ml_dtypes, name)).reshape(2, 3)
    if name != "int4":  # which DLPack knows under another name
        same(cross(array)[0], array)
        tensor = cross(as_tensor(array))[0]
        assert type(tensor) is Tensor
        assert tensor.dl_dtype == as_tensor(array).dl_dtype
    same(np.asarray(cross({"a": array})[0]["a"]), array)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (2, 3)])
def test_a_tensor_arrives_as_a_tensor_that_can_be_written_to(shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    array.flags.writeable = False
    found = cross(as_tensor(array))[0]
    assert type(found) is Tensor
    assert not found.is_readonly
    same(np.asarray(found), array)
    np.asarray(found)[...] = 1.0
    assert (np.from_dlpack(found) == 1.0).all()


def test_a_tensor_of_vectors_travels() -> None:
    memory = np.arange(24, dtype=np.uint8)
    element = DLDataType(2, 32, 3)
    tensor = Tensor._at((memory.ctypes.data, (2,), (12,), element, CPU, False), memory)
    found = cross(tensor)[0]
    assert (found.dl_dtype, found.shape, found.nbytes) == (element, (2,), 24)


def test_a_tensor_keeps_the_order_of_its_axes_and_loses_gaps() -> None:
    array = np.arange(24, dtype=np.int16).reshape(2, 3, 4)
    assert cross(as_tensor(array.transpose(2, 0, 1)))[0].strides == (2, 24, 8)
    assert cross(as_tensor(array[:, ::2]))[0].strides == (16, 8, 2)
    found = cross(as_tensor(array[::-1]))[0]
    same(np.asarray(found), array[::-1])
    assert min(found.strides) > 0


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.complex_numbers(allow_nan=False),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text() | st.integers() | st.tuples(st.integers()), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=examples(60), deadline=None)
@given(
    data=plain,
    metadata=st.dictionaries(st.text(), plain, max_size=2),
    time=st.none() | st.integers(0, 1 << 62),
)
def test_plain_data_comes_as_it_was(data: Any, metadata: Any, time: int | None) -> None:
    assert cross(data, time, metadata) == (data, time, metadata or None)


def test_what_json_confuses_arrives_as_it_was() -> None:
    data = {
        1: "int",
        "1": "text",
        (1, "a"): b"tuple",
        None: [True, 1, 1.0, float("inf"), -0.0],
        "bytes": bytearray(b"x"),
    }
    found = cross(data)[0]
    assert repr(found) == repr(data)
    assert np.isnan(cross(float("nan"))[0])


def test_arrays_in_containers_and_metadata_travel() -> None:
    boxes = np.arange(8.0).reshape(2, 4)
    found, time, metadata = cross(
        {
            "boxes": boxes,
            "map": TensorMap(frame=boxes),
            "list": [boxes[0], (boxes[1],)],
            "scalar": np.float32(1.5),
        },
        12,
        {"mask": boxes > 2},
    )
    same(found["boxes"], boxes)
    assert type(found["map"]) is TensorMap
    same(np.asarray(found["map"]["frame"]), boxes)
    same(found["list"][1][0], boxes[1])
    assert type(found["scalar"]) is np.float32
    assert time == 12
    same(metadata["mask"], boxes > 2)


@pytest.mark.parametrize(
    "scalar",
    [
        np.float32(1.5),
        np.int8(-3),
        np.bool_(True),
        np.complex128(1 + 2j),
        np.datetime64("2026-01-01T00:00:00.5"),
        np.str_("text"),
        np.str_(""),
        np.bytes_(b"x" * 500),
        np.array([(1, 2.5)], [("a", "i4"), ("b", "f8")])[0],
    ],
    ids=repr,
)
def test_a_scalar_travels_as_it_is(scalar: Any) -> None:
    found = cross(scalar)[0]
    assert (type(found), found, found.dtype) == (type(scalar), scalar, scalar.dtype)


def test_there_is_no_limit_to_scalars_arrays_bytes_numbers_and_depth() -> None:
    boxes = [tuple(np.float32([n, n + 0.25, n + 0.5, n + 0.75])) for n in range(275)]
    found = cross(boxes)[0]
    assert found == boxes
    assert {type(part) for box in found for part in box} == {np.float32}
    arrays = [np.full(2000, number, np.int16) for number in range(1100)]
    encoded = encode(arrays)
    assert len(encoded.pieces) < MOST_PLACES
    for number, each in enumerate(cross(arrays)[0]):
        same(each, arrays[number])
        assert each.flags.writeable
    deep: Any = None
    for _ in range(100):
        deep = [deep]
    assert cross(deep)[0] == deep
    assert cross(7**9000)[0] == 7**9000
    assert cross(bytes(1 << 20))[0] == bytes(1 << 20)


def test_what_a_message_has_twice_it_has_once_with_two_names() -> None:
    frame = np.arange(1000.0)
    encoded = encode({"left": frame, "right": frame})
    assert len(encoded.pieces) == 1
    found = cross({"left": frame, "right": frame})[0]
    assert found["left"] is found["right"]
    around: list[Any] = []
    around.append(around)
    found = cross(around)[0]
    assert found[0] is found


def test_arrays_of_other_libraries_arrive_as_such() -> None:
    torch = pytest.importorskip("torch")
    found = cross(torch.arange(6).reshape(2, 3).T)[0]
    assert isinstance(found, torch.Tensor)
    assert found.tolist() == [[0, 3], [1, 4], [2, 5]]
    found += 1


def test_other_objects_are_pickled_with_their_memory_beside() -> None:
    boxes = Boxes("car", np.arange(1000.0), as_tensor(np.arange(10)))
    encoded = encode([boxes, Point(1, boxes.corners), {1, 2}, np.array(["a", None], object)])
    assert max(piece.nbytes for piece in encoded.pieces) == 8000
    assert sum(piece.nbytes for piece in encoded.pieces) < 2 * 8000 + 2000
    ordered, queue = cross([OrderedDict(b=boxes.frame, a=1), deque([boxes.frame], 2)])[0]
    assert (type(ordered), list(ordered)) == (OrderedDict, ["b", "a"])
    same(np.asarray(ordered["b"]), np.arange(10))
    assert (type(queue), queue.maxlen) == (deque, 2)
    same(np.asarray(queue[0]), np.arange(10))
    found = cross([boxes, Point(1, boxes.corners)])[0]
    assert found[0].label == "car"
    same(found[0].corners, boxes.corners)
    assert found[0].corners.flags.writeable
    same(np.asarray(found[0].frame), np.arange(10))
    assert type(found[1]) is Point


def test_what_cannot_be_sent_is_named() -> None:
    with pytest.raises(CrossingError, match=r"Unshowable.* cannot be pickled \(RuntimeError: not this\)"):
        encode(Unshowable())
    with pytest.raises(CrossingError, match=r"lambda.*cannot be pickled"):
        encode({"f": lambda: 1})
    deep: Any = None
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(CrossingError, match=r"cannot be pickled \(RecursionError"):
        encode(deep)
    while deep:  # level by level
        deep = deep[0]


class OnlyThere:
    """An object whose class is not in the process that it is sent to."""

    def __reduce__(self) -> Any:
        return not_here, ()


def not_here() -> None:
    raise ImportError("no such class")


@pytest.mark.parametrize(
    "description", [b"", b"{}", encode([1, 2]).description[:-4], encode(OnlyThere()).description]
)
def test_what_cannot_be_unpickled_is_an_error_of_the_message(description: bytes) -> None:
    with pytest.raises(CrossingError, match="an object that another process sent cannot be unpickled"):
        decode(description, [])


def test_an_array_does_not_reach_beyond_its_memory() -> None:
    description = encode(np.zeros(1000)).description
    with pytest.raises(CrossingError, match="buffer is too small"):
        decode(description, [np.zeros(7999, np.uint8)])


def test_a_message_is_kept_by_nobody_who_encoded_or_decoded_it() -> None:
    """No circle of references: the memory of frames would come back when Python's collector runs."""
    gc.collect()
    gc.disable()
    try:
        frame = np.arange(1000.0)
        gone = [weakref.ref(frame)]
        encoded = encode({"frame": frame, "tensor": as_tensor(frame[:500]), "set": {1}})
        copies = [np.frombuffer(bytearray(piece.tobytes()), np.uint8) for piece in encoded.pieces]
        found = decode(encoded.description, copies)
        gone += map(weakref.ref, copies)
        del frame, encoded, copies
        assert found[0]["tensor"].shape == (500,)
        del found
        assert [each() for each in gone] == [None, None, None]
    finally:
        gc.enable()
