"""Arrays of a frame that share memory."""

from __future__ import annotations

from typing import Any

import pytest

from headrace import gpu
from headrace.capture.boundary import Input, place_inputs
from headrace.gpu import sim
from headrace.tensor.device_arrays import groups_of, layout_of, shared_memory, with_shared


@pytest.mark.parametrize(
    ("spans", "groups"),
    [
        ([], []),
        ([(0, 4)], [[0]]),
        ([(0, 4), (4, 8)], [[0], [1]]),
        ([(4, 8), (0, 4)], [[1], [0]]),
        ([(0, 5), (4, 8)], [[0, 1]]),
        ([(4, 8), (0, 5)], [[1, 0]]),
        ([(0, 8), (2, 4), (6, 9), (9, 10)], [[0, 1, 2], [3]]),
        ([(0, 8), (2, 2), (8, 8)], [[0], [1], [2]]),
        ([(0, 8), (2, 2), (4, 10)], [[0, 2], [1]]),
    ],
)
def test_groups_share_memory_also_by_way_of_others(spans: Any, groups: Any) -> None:
    assert groups_of(spans) == groups


def test_those_that_share_memory_with_some(stream: Any) -> None:
    leaves = parts(stream, (0, 4), (10, 10), (3, 5), (30, 10), (19, 3))[1]
    assert with_shared([2], leaves) == {0, 2}
    assert with_shared([1, 3], leaves) == {1, 3, 4}
    assert with_shared([], leaves) == set()


@pytest.fixture
def stream() -> Any:
    with sim.Machine("h200"):
        device = sim.Device(0)
        device.set_current()
        yield gpu.StreamHandle(device.create_stream())


def parts(stream: Any, *places: tuple[int, int]) -> tuple[Any, list[Any]]:
    """Return a buffer, and views of some of its bytes."""
    whole = stream.device.allocate(1024, stream=stream.stream)
    return whole, [
        gpu.Buffer.from_handle(int(whole.handle) + start, size, owner=whole) for start, size in places
    ]


def test_where_an_array_begins_belongs_to_what_is_shared(stream: Any) -> None:
    def shared(*places: tuple[int, int]) -> Any:
        leaves = parts(stream, *places)[1]
        return shared_memory(leaves)

    assert shared((0, 8), (8, 8)) == ()
    assert shared((0, 8), (4, 8)) == shared((100, 8), (104, 8))
    assert shared((0, 8), (4, 8)) != shared((0, 8), (2, 8))
    assert shared((0, 8), (4, 8)) != shared((4, 8), (0, 8))
    assert shared((0, 8), (4, 8), (16, 8)) == shared((0, 8), (4, 8), (64, 8))
    assert shared((0, 8), (4, 8), (16, 8)) != shared((0, 8), (16, 8), (4, 8))


def test_inputs_lie_in_a_recording_as_in_a_frame(stream: Any) -> None:
    whole, leaves = parts(stream, (3, 40), (200, 8), (20, 50), (0, 0))
    inputs = [Input(layout_of(leaf), False) for leaf in leaves]
    place_inputs(inputs, leaves, stream)
    one, apart, two, empty = inputs
    assert two.address - one.address == 17
    assert one.address % 16 == (int(whole.handle) + 3) % 16
    assert [input_.copied for input_ in inputs] == [67, 8, 0, 0]
    assert one.memory is two.memory
    assert apart.memory not in (None, one.memory)
    assert empty.memory is not None
    memory = whole._device.memory
    before = memory.in_use
    for input_ in inputs:
        input_.close(stream)
    stream.stream.sync()
    assert before - memory.in_use >= 67 + 8
    used = memory.in_use
    place_inputs(inputs, leaves, stream)
    for input_ in inputs:
        input_.close(stream)
    stream.stream.sync()
    assert memory.in_use == used
