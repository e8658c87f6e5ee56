"""What an operator received: memory of headrace's own allocators is found, whatever came with it."""

from __future__ import annotations

from typing import Any

from headrace._runtime.streams.lifetimes import HeldFrames
from headrace._runtime.streams.owners import Watch
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


def test_a_check_keeps_no_allocation() -> None:
    user = User()
    held = HeldFrames(Watch(), user)
    users: list[Any] = []
    held.unsorted += [Allocation(Pool(), Pool(), 16, users), object()]
    released = held.check()
    assert released is not None
    assert [type(each) for each in released] == [object]
    assert users == [user]


def test_nothing_is_left_of_what_is_cleared() -> None:
    held = HeldFrames(Watch(), User())
    held.received.append(object())
    held.unsorted.append(object())
    held.clear()
    assert not held.received
    assert not held.unsorted


def test_many_that_are_held_are_all_looked_at_where_no_compute_follows() -> None:
    """Otherwise they are looked at less often than a few."""
    held = HeldFrames(Watch(), User())
    program = [object() for _ in range(100)]
    held.received += program
    assert not held.check()
    assert not held.check()
    program.clear()
    assert not held.check()
    released = held.check(is_last=True)
    assert released is not None
    assert len(released) == 100
