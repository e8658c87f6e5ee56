"""Whatever its layout, an array of NumPy comes back from a tensor as the memory it was."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headrace import as_tensor
from tests.tensor.layouts import Array, arrays, check_described, check_same, few, many


class ThroughInterface:
    """An array that has nothing but its array interface."""

    def __init__(self, array: Array) -> None:
        self._array = array
        self.__array_interface__ = array.__array_interface__


class ThroughCuda:
    """An array of the host, said to be on a device: nothing reads it there."""

    def __init__(self, array: Array) -> None:
        interface = dict(array.__array_interface__, version=3)
        del interface["descr"]
        self.__cuda_array_interface__ = interface
        self._array = array


WAYS_IN: dict[str, Any] = {
    "itself": lambda array: array,
    "array interface": ThroughInterface,
    "capsule": lambda array: array.__dlpack__(max_version=(1, 0)),
    "old capsule": lambda array: array.__dlpack__(),
    "tensor": as_tensor,
    "capsule of a tensor": lambda array: as_tensor(array).__dlpack__(max_version=(1, 1)),
}
WAYS_OUT: dict[str, Any] = {
    "array interface": np.asarray,
    "DLPack": np.from_dlpack,
    "another tensor": lambda tensor: np.asarray(as_tensor(tensor.__dlpack__(max_version=(1, 0)))),
    "old capsule": lambda tensor: np.from_dlpack(as_tensor(tensor.__dlpack__())),
}


@many
@given(st.sampled_from(list(WAYS_IN)), st.sampled_from(list(WAYS_OUT)), st.data())
def test_an_array_comes_back_as_it_was(way_in: str, way_out: str, data: st.DataObject) -> None:
    is_old = "old capsule" in (way_in, way_out)  # which cannot say that memory must not be written to
    # What lies backwards goes in through every protocol, and out through the array interfaces alone.
    is_exported = way_in == "capsule of a tensor" or way_out != "array interface"
    array = data.draw(arrays(read_only=not is_old, negative=not is_exported))
    tensor = as_tensor(WAYS_IN[way_in](array))
    check_described(tensor, array)
    check_same(WAYS_OUT[way_out](tensor), array)


@few
@given(arrays(negative=False))
def test_the_cuda_array_interface_says_what_it_was_told(array: Array) -> None:
    given_interface = ThroughCuda(array)
    tensor = as_tensor(given_interface)
    check_described(tensor, array)
    interface = tensor.__cuda_array_interface__
    again = as_tensor(type("Again", (), {"__cuda_array_interface__": interface, "kept": tensor})())
    check_described(again, array)
