"""Executable graphs for frames at changing addresses: each launch has its own, however far the host is ahead."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headrace import gpu
from headrace.gpu.capture import captured_frontier
from headrace.gpu.executables import AddressTable, Executables
from tests.gpu.bench import Bench
from tests.gpu.kernels import spin
from tests.gpu.test_graphs import building
from tests.gpu.test_recorded_copy import contents, filled, upload

SIZE = 64


@pytest.fixture
def stream(bench: Bench) -> Any:
    bench.device.set_current()
    return gpu.StreamHandle(bench.device.create_stream())


class Passing:
    """A graph through which bytes pass: from one address outside to memory of its own, from there to another."""

    def __init__(self, bench: Bench, stream: Any, size: int = SIZE) -> None:
        self.inside = filled(bench, stream.stream, size, 0)
        addresses = AddressTable(stream)
        with building(stream.stream) as builder:
            addresses.begin(stream)
            addresses.copy(stream, int(self.inside.handle), size, enters=True)
            self.frontier = captured_frontier(stream.stream)
            addresses.copy(stream, int(self.inside.handle), size, enters=False)
        addresses.open(stream)
        self.executables = Executables(builder.graph_definition, addresses)


def test_every_launch_has_the_addresses_that_were_written_for_it(bench: Bench, stream: Any) -> None:
    """Also if the host is far ahead: the table is used again, half by half, after the device has passed it."""
    count = 1000
    values = np.random.default_rng(1).integers(0, 256, (count, SIZE), np.uint8)
    source = upload(bench, stream.stream, values.reshape(-1))
    target = filled(bench, stream.stream, count * SIZE, 0)
    passing = Passing(bench, stream)
    order = np.random.default_rng(2).permutation(count)
    for place in order.tolist():
        at = place * SIZE
        passing.executables.launch([int(source.handle) + at, int(target.handle) + at], stream)
    assert (contents(bench, stream.stream, target) == values.reshape(-1)).all()
    passing.executables.close()


def test_rows_are_used_again_after_the_device_has_taken_them(bench: Bench, stream: Any) -> None:
    """The device is busy with each half. The host goes on until all rows of the table are in use."""
    if not bench.is_simulated:
        pytest.skip("the first launch is complete before so many are under way")
    source, target = (filled(bench, stream.stream, SIZE, value) for value in (1, 2))
    passing = Passing(bench, stream)
    taken = []  # an event after each launch
    for number in range(257):
        if number in (0, 129):
            bench.launch(stream.stream, spin, np.int64(100_000_000))
        if number == 256:
            assert not taken[0].is_done
        passing.executables.launch([int(source.handle), int(target.handle)], stream)
        taken.append(stream.stream.record())
    assert taken[127].is_done
    assert not taken[129].is_done  # the other half is not waited for
    stream.stream.sync()
    passing.executables.close()


def test_a_launch_that_failed_takes_no_addresses(bench: Bench, stream: Any) -> None:
    source, other, target = (filled(bench, stream.stream, SIZE, value) for value in (1, 2, 3))
    passing = Passing(bench, stream)
    executables: Any = passing.executables
    usual = executables._executable

    class Fails:
        def launch(self, stream: Any) -> None:
            raise RuntimeError("refused by the driver")

    executables._executable = Fails()
    with pytest.raises(RuntimeError, match="refused"):
        executables.launch([int(source.handle), int(target.handle)], stream)
    executables._executable = usual
    executables.launch([int(other.handle), int(target.handle)], stream)
    assert set(contents(bench, stream.stream, target)) == {2}
    executables.close()


def test_a_graph_on_a_slice_of_the_sms(bench: Bench) -> None:
    with bench.partitions(8, 16) as (small, *_):
        stream = gpu.StreamHandle(small.create_stream())
        source, other, target = (filled(bench, stream.stream, 10_000, value) for value in (1, 2, 3))
        passing = Passing(bench, stream, 10_000)
        for changed, value in ((source, 1), (other, 2)):
            passing.executables.launch([int(changed.handle), int(target.handle)], stream)
            assert set(contents(bench, stream.stream, target)) == {value}
        passing.executables.close()
