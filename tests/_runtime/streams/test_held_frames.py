"""What an operator received: memory of headrace's own allocators is found, whatever came before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headrace._runtime.streams.held_frames import HeldFrames
from headrace._runtime.streams.watch import Watch
from headrace.gpu.allocation import Allocation


class Pool:
    """A pool of one block, which is its own block."""

    address = 4096

    def give_back(self, block: Any, users: list[Any]) -> None:
        pass

    def collect(self) -> None:
        pass


class User:
    def streams(self) -> list[Any]:
        return []


@pytest.mark.parametrize("others", [0, 1, 2])
@pytest.mark.parametrize("before", [0, 1, 5])
@pytest.mark.parametrize("end", [HeldFrames.look, HeldFrames.keep_once, HeldFrames.clear])
def test_allocations_are_found_after_every_other_frame(
    end: Callable[[HeldFrames], object], before: int, others: int
) -> None:
    user = User()
    held = HeldFrames(Watch(), user)
    users: list[Any] = []
    allocation = Allocation(Pool(), Pool(), 16, users)
    frame = object()
    for _ in range(before):
        held.received.append(frame)
        held.sort_allocations()
    if before:
        end(held)
    left = len(held.received)
    further = [object() for _ in range(others)]
    held.received += [allocation, *further]
    held.sort_allocations()
    assert held.received[left:] == further
    assert users == [user]
    held.sort_allocations()
    assert held.received[left:] == further


def test_a_look_keeps_no_allocation() -> None:
    user = User()
    held = HeldFrames(Watch(), user)
    users: list[Any] = []
    held.received += [Allocation(Pool(), Pool(), 16, users), object()]
    released = held.look()
    assert released is not None
    assert [type(each) for each in released] == [object]
    assert users == [user]
