"""Element types and devices have one name in DLPack, NumPy and ml_dtypes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headrace import as_tensor
from headrace.tensor import DLDataType, DLDevice, DLDeviceType, TensorError
from headrace.tensor.types import element_from_name, element_from_typestr
from tests.harness.processes import run_forked
from tests.harness.producers import Made

NARROW = {
    4: "bfloat16",
    7: "float8_e3m4",
    8: "float8_e4m3",
    9: "float8_e4m3b11fnuz",
    10: "float8_e4m3fn",
    11: "float8_e4m3fnuz",
    12: "float8_e5m2",
    13: "float8_e5m2fnuz",
    14: "float8_e8m0fnu",
}


@pytest.mark.parametrize("code", NARROW)
def test_the_narrow_floats_are_those_of_ml_dtypes(code: int) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    element = DLDataType(code, 16 if code == 4 else 8)
    assert element.name == NARROW[code]
    assert element.typestr is None
    assert element.numpy() == np.dtype(getattr(ml_dtypes, NARROW[code]))
    assert element.itemsize == element.numpy().itemsize
    made = Made(dtype=element)
    assert as_tensor(made.capsule).dtype == element.numpy()


@pytest.mark.parametrize(("code", "bits"), [(15, 6), (16, 6), (17, 4)])
def test_floats_of_less_than_a_byte_have_a_byte_each_if_they_are_padded(code: int, bits: int) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    made = Made(dtype=DLDataType(code, bits), flags=4)
    tensor = as_tensor(made.capsule)
    assert tensor.dtype == np.dtype(getattr(ml_dtypes, tensor.dl_dtype.name))
    assert tensor.itemsize == 1


@pytest.mark.parametrize("name", [*NARROW.values(), "int4", "uint4", "float4_e2m1fn", "float6_e2m3fn"])
@pytest.mark.parametrize("is_readonly", [False, True])
def test_an_array_of_ml_dtypes_is_a_tensor_and_an_array_again(name: str, is_readonly: bool) -> None:
    # NumPy exports none of them, and its array interface calls them void, or one of them a float of 8 bits.
    ml_dtypes = pytest.importorskip("ml_dtypes")
    array = np.arange(12).reshape(3, 4).astype(getattr(ml_dtypes, name))[:, 1::2]
    array.flags.writeable = not is_readonly
    tensor = as_tensor(array)
    assert (tensor.data, tensor.shape, tensor.strides) == (array.ctypes.data, array.shape, array.strides)
    assert (tensor.dl_dtype.name, tensor.dtype, tensor.is_readonly) == (name, array.dtype, is_readonly)
    there = np.asarray(tensor)
    assert (there.dtype, there.ctypes.data, there.strides) == (array.dtype, tensor.data, array.strides)
    assert there.flags.writeable is not is_readonly
    assert np.array_equal(there, array)
    assert not np.shares_memory(np.array(tensor), array)
    assert np.asarray(tensor, np.float32).dtype == np.float32


@pytest.mark.parametrize(
    ("element", "name"),
    [
        (DLDataType(2, 32, 4), "float32_x4"),
        (DLDataType(5, 32), "complex32"),
        (DLDataType(3, 64), "handle64"),
        (DLDataType(99, 8), "type99_8"),
        (DLDataType(2, 8), "float8"),
        (DLDataType(0, 128), "int128"),
    ],
)
def test_an_element_without_a_dtype_has_a_name_all_the_same(element: DLDataType, name: str) -> None:
    assert element.name == name
    assert element.typestr is None


def test_without_ml_dtypes_a_narrow_tensor_can_still_be_passed_on() -> None:
    program = """if True:
        import sys; sys.modules["ml_dtypes"] = None
        from headrace import as_tensor
        from tests.harness.producers import BF16, Library
        tensor = as_tensor(Library((1, 0), dtype=BF16))
        print(tensor.dl_dtype.name, tensor.itemsize, "dltensor" in repr(tensor.__dlpack__()))
        try: tensor.dtype
        except TypeError as error: print(error)
    """
    told = run_forked("-c", program)
    assert told.stdout.splitlines() == [
        "bfloat16 2 True",
        (
            "NumPy has no dtype for bfloat16; ml_dtypes provides one if it is installed. The tensor can be passed "
            "to other libraries without it"
        ),
    ]


@pytest.mark.parametrize(
    "typestr", ["<f1", "<c4", "<i16", "|V2", "<M8[ns]", ">f4", "|O8", "<U3", "", "<b2", "<t4"]
)
def test_what_no_tensor_holds_is_refused(typestr: Any) -> None:
    with pytest.raises(TensorError, match="unsupported dtype"):
        element_from_typestr(typestr)


def test_a_device_is_a_pair_that_prints_itself() -> None:
    assert DLDevice(DLDeviceType.CUDA, 3) == (2, 3)
    assert str(DLDevice(1, 0)) == "cpu"
    assert str(DLDevice(2, 3)) == "cuda:3"


@pytest.mark.parametrize(
    "element",
    [
        *(DLDataType(0, bits) for bits in (8, 16, 32, 64)),
        *(DLDataType(1, bits) for bits in (8, 16, 32, 64)),
        *(DLDataType(2, bits) for bits in (16, 32, 64)),
        *(DLDataType(5, bits) for bits in (64, 128)),
        DLDataType(6, 8),
        *(DLDataType(code, 16 if code == 4 else 8) for code in NARROW),
    ],
    ids=lambda element: element.name,
)
def test_an_element_type_is_found_by_the_name_it_has(element: DLDataType) -> None:
    assert element_from_name(element.name) == element
