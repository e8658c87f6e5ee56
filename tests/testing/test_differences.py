"""difference: where two values differ, in words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headrace.observe import TensorCopy
from headrace.tensor import DLDataType, DLDevice
from headrace.testing.differences import difference


def tensor(array: np.ndarray, element: DLDataType | None = None) -> TensorCopy:
    dl_dtype = element or DLDataType(2, 8 * array.itemsize, 1)
    return TensorCopy(array.view(f"V{array.itemsize}"), dl_dtype, DLDevice(1, 0), "headrace")


def test_the_first_element_that_differs_is_named_with_the_largest_difference() -> None:
    one = np.zeros((4, 100, 100), np.float32)
    other = one.copy()
    other[1, 20, 3] = 0.25
    other[3, 99, 0] = -8
    assert difference("data", one, other, None, None) == (
        "data[1, 20, 3] was 0.0, and is now 0.25; 2 of 40000 elements differ, most at data[3, 99, 0], by 8.0"
    )


def test_an_array_inside_of_a_message_is_named() -> None:
    one = {"frames": [np.arange(3), (np.arange(3), "x")]}
    other = {"frames": [np.arange(3), (np.array([0, 1, 5]), "x")]}
    assert difference("data", one, other, None, None) == (
        "data['frames'][1][0][2] was 2, and is now 5; 1 of 3 elements differ, "
        "most at data['frames'][1][0][2], by 3"
    )


@pytest.mark.parametrize(
    ("expected", "found", "text"),
    [
        (2.0, 3.0, "data was 2.0, and is now 3.0"),
        (1, True, "data was 1 (int), and is now True (bool)"),
        (0.0, -0.0, "data was 0.0, and is now -0.0"),
        ([1, 2], [1], "data had 2 values, and now has 1"),
        ({"a": 1}, {"b": 1}, "data had the keys ['a'], and now has ['b']"),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, "data had the keys ['a', 'b'], and now has ['b', 'a']"),
        ({"a": (1, 2)}, {"a": (1, 3)}, "data['a'][1] was 2, and is now 3"),
        (
            np.zeros((2, 3)),
            np.zeros((3, 2)),
            "data was an array of float64 of shape (2, 3), and is now an array of float64 of shape (3, 2)",
        ),
        (
            tensor(np.zeros(2, np.float32)),
            tensor(np.zeros(2)),
            "data was a tensor of float32 of shape (2,), and is now a tensor of float64 of shape (2,)",
        ),
        (np.array(2.0), np.array(2.5), "data was 2.0, and is now 2.5"),
        (
            np.array([0.0, np.nan]),
            np.array([-0.0, 1.0]),
            "data[0] was 0.0, and is now -0.0; 2 of 2 elements differ",
        ),
        (
            np.array([1, -(1 << 63)]),
            np.array([0, (1 << 63) - 1]),
            "data[0] was 1, and is now 0; 2 of 2 elements differ, most at data[1], by 18446744073709551615",
        ),
        (
            np.array([1 + 1j, 0]),
            np.array([1 + 1j, 3 + 4j]),
            "data[1] was 0j, and is now (3+4j); 1 of 2 elements differ, most at data[1], by 5.0",
        ),
        (np.array(["a"]), np.array(["b"]), "data[0] was 'a', and is now 'b'; 1 of 1 elements differ"),
        (
            np.array([True, True]),
            np.array([True, False]),
            "data[1] was True, and is now False; 1 of 2 elements differ",
        ),
        (
            tensor(np.array([b"\x01\x02", b"\x03\x04"], "V2"), DLDataType(200, 16, 1)),
            tensor(np.array([b"\x01\x02", b"\x03\x05"], "V2"), DLDataType(200, 16, 1)),
            r"data[1] was b'\x03\x04', and is now b'\x03\x05'; 1 of 2 elements differ",
        ),
    ],
)
def test_what_differs_is_said(expected: Any, found: Any, text: str) -> None:
    assert difference("data", expected, found, None, None) == text


def test_the_order_of_elements_in_memory_is_no_difference() -> None:
    array = np.arange(6.0).reshape(2, 3)
    assert difference("data", array, np.asfortranarray(array), None, None) is None


def test_only_elements_outside_of_the_tolerance_count() -> None:
    one, other = np.array([1.0, 2.0, np.nan]), np.array([1.0 + 1e-9, 2.5, np.nan])
    assert difference("data", one, other, None, 1e-6) == (
        "data[1] was 2.0, and is now 2.5; 1 of 3 elements differ, most at data[1], by 0.5"
    )
    assert difference("data", one, other, 0.3, None) is None
    assert difference("data", 1.0, 1.1, None, 0.05) == "data was 1.0, and is now 1.1"
    assert difference("data", 1.0, 1.1, None, 0.2) is None
