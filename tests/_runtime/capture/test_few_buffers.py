"""Whether frames come in few buffers, which a recording can read where they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from headrace._runtime.capture.few_buffers import FewBuffers
from headrace.gpu import sim

pytestmark = pytest.mark.usefixtures("machine")


def noted(frames: Sequence[Any]) -> FewBuffers:
    buffers = FewBuffers()
    for frame in frames:
        buffers.note([frame])
    return buffers


def made(count: int) -> list[Any]:
    device = sim.Device(0)
    device.set_current()
    return [device.allocate(64, stream=device.default_stream) for _ in range(count)]


@pytest.mark.parametrize("count", [1, 2, 4])
def test_few_buffers_that_come_again_are_found(count: int) -> None:
    frames = made(count)
    buffers = noted(frames * (16 // count))
    assert buffers.is_decided
    assert buffers.found() == [(int(frame.handle),) for frame in frames]


def test_five_are_too_many() -> None:
    buffers = noted(made(5))
    assert buffers.is_decided
    assert buffers.found() == []


def test_all_of_them_have_to_come_again() -> None:
    """A buffer that came once may be a new one like all that follow."""
    one, other = made(2)
    assert noted([*[one] * 15, other]).found() == []
    assert len(noted([*[one] * 14, other, other]).found()) == 2


def test_the_same_address_with_another_owner_is_another_buffer() -> None:
    """The address alone does not tell how long the memory is there."""
    (memory,) = made(1)
    buffers = noted([sim.Buffer.from_handle(memory.handle, 64, owner=memory) for _ in range(2)])
    assert buffers.is_decided
    assert buffers.found() == []


def test_frames_without_arrays_have_no_buffers() -> None:
    buffers = FewBuffers()
    for _ in range(16):
        buffers.note([])
    assert buffers.is_decided
    assert buffers.found() == []
