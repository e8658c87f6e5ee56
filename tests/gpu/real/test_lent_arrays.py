"""A CuPy array that a segment sends is not sent again while anything refers to it, as CuPy and PyTorch keep it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headrace.tensor.device_arrays import kind_of, layout_of
from headrace.tensor.lent_arrays import LentArray

cupy: Any = pytest.importorskip("cupy")
pytestmark = pytest.mark.usefixtures("real")


class Other:
    """An array of another library, by its interface."""

    def __init__(self, array: Any) -> None:
        self.array = array

    @property
    def __cuda_array_interface__(self) -> Any:
        return self.array.__cuda_array_interface__


WAYS: dict[str, Callable[[Any], Any]] = {
    "the array": lambda array: array,
    "a slice": lambda array: array[1:],
    "a slice of a slice": lambda array: array[1:][1:],
    "a view": lambda array: array.view("int32"),
    "another shape": lambda array: array.reshape(2, -1),
    "its pointer": lambda array: array.data,
    "its memory": lambda array: array.data.mem,
    "a capsule": lambda array: array.__dlpack__(),
    "an import by DLPack": cupy.from_dlpack,
    "an import by its interface": lambda array: cupy.asarray(Other(array)),
    "a PyTorch tensor": lambda array: pytest.importorskip("torch").from_dlpack(array),
    "a part of a PyTorch tensor": lambda array: pytest.importorskip("torch").from_dlpack(array)[2:],
}


@pytest.mark.parametrize("way", WAYS)
def test_an_array_is_back_when_nobody_refers_to_it_in_any_way(way: str) -> None:
    memory = cupy.zeros(64, cupy.float32)
    assert kind_of(memory) is not None
    lent = LentArray(layout_of(memory), memory)
    first = id(lent.lend())
    for _ in range(3):
        kept = [WAYS[way](lent.lend())]
        assert not lent.is_back()
        kept.clear()
        assert lent.is_back()
    assert id(lent.lend()) == first
    lent.lend().shape = (8, 8)
    assert lent.lend().shape == (64,)
    lent.close()
