"""Messages as descriptions and memory: what goes in comes out, of every dtype and layout."""

from __future__ import annotations

import itertools
import json
import random
from collections import OrderedDict, deque, namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace import Tensor, TensorMap, as_tensor
from headrace.core.errors import CrossingError, ProtocolError
from headrace.link.codec import decode, encode, encode_array
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


def cross(
    data: Any, acq_timestamp: int | None = None, metadata: Any = None, allow_pickle: bool = True
) -> Any:
    """Return a message after it was encoded, copied and decoded."""
    description, extra, pieces, _ = encode(data, acq_timestamp, metadata, allow_pickle=allow_pickle)
    json.loads(description)
    copies = [np.frombuffer(bytearray(np.ascontiguousarray(piece).tobytes()), np.uint8) for piece in pieces]
    return decode(description, extra, copies, allow_pickle=allow_pickle)


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


@pytest.mark.parametrize("time", [None, 0, -5, 1 << 62])
def test_the_usual_message_is_written_in_one_way_only(time: int | None) -> None:
    """`encode_array` is `encode` in less time: both write the same bytes, or the first leaves it to the other."""
    usual = 0
    for dtype, layout, ndim in itertools.product([*NUMBERS, *TIMES, *TEXTS, *RECORDS], LAYOUTS, range(4)):
        array = layout(np.zeros([3, 1, 2, 0][:ndim], dtype))
        for data in [array, as_tensor(array)] if dtype in map(np.dtype, "bifd") else [array]:
            fast = encode_array(data, time)
            if fast is None:
                continue
            usual += 1
            slow = encode(data, time, None, allow_pickle=True)
            assert fast[:2] == slow[:2]
            (piece,) = slow.pieces
            assert (fast[2].dtype.itemsize, fast[2].shape) == (piece.dtype.itemsize, piece.shape)
            assert fast[2].strides == piece.strides or not piece.size
            assert (
                fast[2].__array_interface__["data"][0] == piece.__array_interface__["data"][0]
                or not piece.size
            )
    assert usual > 500


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
        tensor = cross(as_tensor(array), allow_pickle=False)[0]
        assert type(tensor) is Tensor
        assert tensor.dl_dtype == as_tensor(array).dl_dtype
    same(np.asarray(cross({"a": array}, allow_pickle=True)[0]["a"]), array)


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
def test_plain_data_needs_no_pickle(data: Any, metadata: Any, time: int | None) -> None:
    assert cross(data, time, metadata, allow_pickle=False) == (data, time, metadata or None)


def test_what_json_confuses_arrives_as_it_was() -> None:
    data = {
        1: "int",
        "1": "text",
        (1, "a"): b"tuple",
        None: [True, 1, 1.0, float("inf"), -0.0],
        "bytes": bytearray(b"x"),
    }
    found = cross(data, allow_pickle=False)[0]
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
        allow_pickle=False,
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
    found = cross(scalar, allow_pickle=False)[0]
    assert (type(found), found, found.dtype) == (type(scalar), scalar, scalar.dtype)


def test_scalars_are_no_arrays() -> None:
    boxes = [tuple(np.float32([n, n + 0.25, n + 0.5, n + 0.75])) for n in range(275)]
    assert encode(boxes).pieces == []
    found = cross(boxes, allow_pickle=False)[0]
    assert found == boxes
    assert {type(part) for box in found for part in box} == {np.float32}


@pytest.mark.parametrize("text", ["", "0000803f00", "zz", None, 7])
def test_a_damaged_scalar_is_an_error(text: Any) -> None:
    with pytest.raises(ProtocolError, match="a frame is damaged"):
        decode(json.dumps(["S", text, "<f4"]).encode(), b"", [])


def test_arrays_of_other_libraries_arrive_as_such() -> None:
    torch = pytest.importorskip("torch")
    found = cross(torch.arange(6).reshape(2, 3).T)[0]
    assert isinstance(found, torch.Tensor)
    assert found.tolist() == [[0, 3], [1, 4], [2, 5]]
    found += 1


def test_other_objects_are_pickled_with_their_memory_beside() -> None:
    boxes = Boxes("car", np.arange(1000.0), as_tensor(np.arange(10)))
    encoded = encode(
        [boxes, Point(1, boxes.corners), {1, 2}, np.array(["a", None], object)], allow_pickle=True
    )
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
    with pytest.raises(
        CrossingError, match=r"type .*Boxes can only be pickled, which this link does not allow"
    ):
        encode(Boxes("", np.empty(0), as_tensor(np.empty(0))))
    with pytest.raises(
        CrossingError, match=r"type .*Unshowable cannot be pickled \(RuntimeError: not this\)"
    ):
        encode(Unshowable(), allow_pickle=True)
    with pytest.raises(CrossingError, match=r"lambda.*cannot be pickled"):
        encode({"f": lambda: 1}, allow_pickle=True)
    around: list[Any] = []
    around.append(around)
    with pytest.raises(CrossingError, match="contains itself"):
        encode(around)


DAMAGED = [
    b"",
    b"{}",
    b"[",
    b"[" * 100_000,
    b'["q"]',
    b"[]",
    b'["a",0,"<f8",[1]]',
    b'["a",1,"<f8",[1],null]',
    b'["a",-1,"<f8",[1],null]',
    b'["a",0,"<f8",[9],null]',
    b'["a",0,"<f8",[-1],null]',
    b'["a",0,"<f8",[1.5],null]',
    b'["a",0,"<f8",[2,2],[800,8]]',
    b'["a",0,"<f8",[2,2],[-8,8]]',
    b'["a",0,"O",[1],null]',
    b"[\"a\",0,\"[('a','O')]\",[1],null]",
    b'["a",0,"[__import__(\'os\')]",[1],null]',
    b'["a",0,"nonsense",[1],null]',
    b'["a",0,[2,4096,1],[1],null]',
    b'["t",0,[2,32,1],[99],null,null,""]',
    b'["t",0,[2,32,1],[2],[-4],null,""]',
    b'["t",0,[2,32,1],[1e3],null,null,""]',
    b'["t",0,[2,32,1],[4611686018427387904,4],null,null,""]',
    b'["t",0,[99,0,0],[1],null,null,""]',
    b'["m",["a"],[1]]',
    b'["d",["a"],[]]',
    b'["d",[["l"]],[1]]',
    b'["b",7]',
    b'["s",0,"<U100"]',
    b'["p",0,[],[]]',
]


@pytest.mark.parametrize("description", DAMAGED)
def test_a_damaged_description_is_refused(description: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode(description, b"", [np.zeros(64, np.uint8)])


@pytest.mark.parametrize(
    "extra", [b"x", b"[1]", b'["a",null]', b"[1,2]", b"[true,null]", b'[1,["l"]]', b"[,null]"]
)
def test_damaged_times_and_metadata_are_refused(extra: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode(b"1", extra, [])


def test_the_library_of_a_tensor_is_no_name_to_import() -> None:
    found = decode(b'["t",0,[1,8,1],[4],null,null,"antigravity"]', b"", [np.zeros(4, np.uint8)])[0]
    assert type(found) is Tensor
