"""Frames on a GPU between two processes, by CUDA IPC: right, in green contexts too, and after kill -9."""

from __future__ import annotations

import pytest

from benchmarks import device_link
from tests.gpu.bench import Bench


@pytest.mark.parametrize("is_green", [False, True])
def test_frames_that_are_read_late_are_right(real: Bench, is_green: bool) -> None:
    size = 4 * device_link.MIB
    found = device_link.pair(("read", size, 200, 1_000_000, is_green), ("write", size, 200, 0.0, is_green))
    assert (found["frames"], found["wrong"]) == (200, 0)


def test_frames_that_go_through_the_host_are_right(real: Bench) -> None:
    size = 4 * device_link.MIB
    found = device_link.pair(("read", size, 50, 100_000, False, False), ("write", size, 50, 0.0, False))
    assert (found["frames"], found["wrong"]) == (50, 0)


@pytest.mark.parametrize(
    "point", ["before the copy", "while it copies", "when the reader has it", "while the reader reads"]
)
def test_a_writer_that_is_killed_harms_nobody(real: Bench, point: str) -> None:
    found = device_link.pair(("survivor_reader", point), ("doomed_writer", point), 20)
    assert (found["told"], found["wrong"], found["device works"]) == ("PeerLost", 0, True)


@pytest.mark.parametrize("point", ["before it maps", "when it has a frame", "while it reads"])
def test_a_reader_that_is_killed_harms_nobody(real: Bench, point: str) -> None:
    found = device_link.pair(("survivor_writer", point), ("doomed_reader", point), 20)
    assert (found["told"], found["wrong"], found["device works"]) == ("PeerLost", 0, True)
