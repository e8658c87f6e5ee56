"""What counts as a difference between two arrays of a device, and how it is put into words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headrace import gpu
from headrace.gpu import sim
from headrace.tensor.copies import upload
from headrace.tensor.device_arrays import layout_of, span_of
from headrace.tensor.device_memory import _difference_of_arrays

pytestmark = pytest.mark.usefixtures("machine")

F32, F64 = np.float32, np.float64


def difference(replayed: Any, ordinary: Any) -> str:
    device = sim.Device(0)
    device.set_current()
    stream = gpu.StreamHandle(device.create_stream())
    one, two = (upload(np.asarray(array), stream) for array in (replayed, ordinary))
    return _difference_of_arrays(layout_of(one), span_of(one)[0], layout_of(two), span_of(two)[0], stream)


@pytest.mark.parametrize(
    ("replayed", "ordinary"),
    [
        (np.arange(5), np.arange(5)),
        (np.zeros((0, 3)), np.zeros((0, 3))),
        (np.array(3), np.array(3)),
        (np.array([1, np.nan, np.inf], F32), np.array([1, np.nan, np.inf], F32)),
        (np.array([1.00001], F32), np.array([1.0], F32)),  # added in another order
        (np.array([1e-12, 1.0], F64), np.array([0.0, 1.0], F64)),
        (np.array([1 + 1e-6j], np.complex64), np.array([1 + 0j], np.complex64)),
        (np.array([True, False]), np.array([True, False])),
        (np.array([-0.0]), np.array([0.0])),
        (np.array([1.001], np.float16), np.array([1.0], np.float16)),
    ],
)
def test_results_that_are_the_same(replayed: Any, ordinary: Any) -> None:
    assert difference(replayed, ordinary) == ""


@pytest.mark.parametrize(
    ("replayed", "ordinary", "text"),
    [
        (
            [1, 2, 3],
            [1, 5, 3],
            "1 of 3 elements, the worst at [1]: 5 in the compute, 2 in the replay",
        ),
        (
            [[1, 2], [3, 4]],
            [[1, 2], [9, 5]],
            "2 of 4 elements, the worst at [1, 0]: 9 in the compute, 3 in",
        ),
        (
            np.array(3),
            np.array(4),
            "1 of 1 elements, the worst at []: 4 in the compute, 3 in the replay",
        ),
        (np.array([1.1], F32), np.array([1.0], F32), "1 of 1 elements"),
        (np.array([1e-3], F64), np.array([0.0], F64), "1 of 1 elements"),
        (np.array([np.nan]), np.array([1.0]), "the worst at [0]: 1.0 in the compute, nan in the replay"),
        (np.array([1.0, 2.0]), np.array([1.0, np.inf]), "the worst at [1]: inf in the compute"),
        (np.array([np.inf]), np.array([-np.inf]), "1 of 1 elements"),
        (np.array([True]), np.array([False]), "False in the compute, True in the replay"),
        (np.array([1j], np.complex64), np.array([-1j], np.complex64), "1 of 1 elements"),
        (np.array([0], np.uint8), np.array([255], np.uint8), "255 in the compute, 0 in the replay"),
        (
            np.array([1], np.int32),
            np.array([1], np.int64),
            "elements of type int64 in the compute, int32 in the replay",
        ),
        (np.array([2**62]), np.array([2**62 + 1]), "1 of 1 elements"),
    ],
)
def test_results_that_differ(replayed: Any, ordinary: Any, text: str) -> None:
    assert text in difference(replayed, ordinary)
