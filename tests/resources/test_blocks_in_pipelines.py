"""Blocks of a pool in pipelines: each goes to its next user after the work of those that had it."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

from headrace.conditions import CountCondition
from headrace.gpu import sim
from tests.harness import MS, Step, launch, read_frame, run, write, write_frame
from tests.resources.pools import FRAME, Camera, Reader, pool, workers

pytestmark = pytest.mark.usefixtures("machine")
each_number_of_workers = pytest.mark.parametrize("count", [0, 1, 2, 3])


@each_number_of_workers
@pytest.mark.parametrize("blocks", [1, 2, 3, 5])
def test_frames_of_a_small_pool_are_all_right_with_a_slow_reader(count: int, blocks: int) -> None:
    def compose(app: Any) -> None:
        app.memory = pool(app, blocks)
        camera = Camera(app, app.memory, 40, name="camera")
        camera.seconds = MS / 20
        app.reader = Reader(app, name="reader")
        app.reader.seconds = 2 * MS
        app.camera = camera
        app.add_flow(camera, app.reader)

    app = run(compose, workers(count))
    assert app.reader.seen == list(range(40))
    assert app.camera.most <= blocks  # memory is bounded by the pool, however slow the reader
    assert app.memory.free_blocks == blocks
    assert app.now < 0.1e9  # it is woken when a block returns, not when its patience ends


@each_number_of_workers
def test_what_the_maker_drops_while_its_kernel_writes_goes_to_nobody_before_that(count: int) -> None:
    """Two makers share a pool. One drops its frames with the kernel still running; the other must not be hit."""

    def compose(app: Any) -> None:
        app.memory = pool(app, 3)
        dropper = Camera(app, app.memory, 30, name="dropper")
        dropper.seconds, dropper.drops = 7 * MS, 10**6
        camera = Camera(app, app.memory, 30, name="camera")
        camera.seconds = MS / 50
        app.reader = Reader(app, name="reader")
        app.add_flow(camera, app.reader)
        app.add_flow(dropper, Step(app, inputs=["in"], body=lambda self, i, o: i.receive("in"), name="bin"))

    assert run(compose, workers(count)).reader.seen == list(range(30))


@each_number_of_workers
def test_a_frame_for_two_readers_returns_after_both(count: int) -> None:
    def compose(app: Any) -> None:
        app.memory = pool(app, 1)
        camera = Camera(app, app.memory, 20, name="camera")
        app.readers = []
        for number, seconds in enumerate((MS / 10, 5 * MS)):
            reader = Reader(app, name=f"reader{number}")
            reader.seconds = seconds
            app.readers.append(reader)
            app.add_flow(camera, reader)

    for reader in run(compose, workers(count)).readers:
        assert reader.seen == list(range(20))


@each_number_of_workers
def test_a_frame_that_is_kept_returns_when_it_is_dropped(count: int) -> None:
    def compose(app: Any) -> None:
        app.memory = pool(app, 4)
        app.reader = Reader(app, name="reader")
        app.reader.keeps = 2
        app.add_flow(Camera(app, app.memory, 25, name="camera"), app.reader)

    app = run(compose, workers(count))
    assert app.reader.seen == list(range(25))
    assert app.memory.free_blocks == 4


@each_number_of_workers
def test_operators_that_share_a_pool_never_run_for_the_same_block(count: int) -> None:
    """Each finds a block free. What one has found must still be there when it runs."""

    def compose(app: Any) -> None:
        memory = pool(app, 2)
        app.readers = []
        for number in range(3):
            reader = Reader(app, name=f"reader{number}")
            app.readers.append(reader)
            app.add_flow(Camera(app, memory, 20, name=f"camera{number}"), reader)

    for reader in run(compose, workers(count)).readers:
        assert reader.seen == list(range(20))


WRAPPINGS = {
    "a tensor": lambda data: data,
    "a dict": lambda data: {"frame": data},
    "a list": lambda data: [data],
    "the allocation's buffer": lambda data: data.owner.buffer,
}


@each_number_of_workers
@pytest.mark.parametrize("wrapping", WRAPPINGS)
def test_however_a_frame_is_sent_its_block_returns_in_order(count: int, wrapping: str) -> None:
    def compose(app: Any) -> None:
        app.memory, app.seen = pool(app, 9 if wrapping == "the allocation's buffer" else 2), []

        def send(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            stream = context.allocate_cuda_stream("mine")
            op_output.set_cuda_stream(stream, "out")
            data = app.memory.allocate_tensor(8, "int64", stream=stream, operator="send")
            write_frame(stream, MS / 20, data, self.ticks)
            op_output.emit(WRAPPINGS[wrapping](data), "out")

        def take(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            data = op_input.receive("in")
            data = data["frame"] if wrapping == "a dict" else data[0] if wrapping == "a list" else data
            read_frame(op_input.receive_cuda_stream("in"), 2 * MS, data, app.seen)

        from headrace.conditions import MemoryAvailableCondition

        waits = MemoryAvailableCondition(app, app.memory, min_blocks=1)
        source = Step(app, CountCondition(app, 30), waits, outputs=["out"], body=send, name="send")
        app.add_flow(source, Step(app, inputs=["in"], body=take, name="take"))

    assert run(compose, workers(count)).seen == list(range(1, 31))


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_pinned_frames_that_other_libraries_carry_come_back_at_once(library: str) -> None:
    """An export hides the allocation. It is found by its address, so that one block is enough."""
    pytest.importorskip(library)

    def compose(app: Any) -> None:
        from headrace.conditions import MemoryAvailableCondition
        from headrace.resources import BlockMemoryPool

        app.memory, app.seen = BlockMemoryPool(app, "host", FRAME, 1), []

        def send(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            data = app.memory.allocate_tensor(8, "int64", operator="send")
            frame: Any = np.from_dlpack(data)
            frame[0] = self.ticks
            if library == "torch":
                import torch

                frame = torch.from_dlpack(data)[:4]
            op_output.emit([frame], "out")

        def take(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            (data,) = op_input.receive("in")
            view = np.asarray(data)
            launch(context.allocate_cuda_stream("own"), MS, lambda: app.seen.append(int(view[0])))

        waits = MemoryAvailableCondition(app, app.memory, min_blocks=1)
        source = Step(app, CountCondition(app, 20), waits, outputs=["out"], body=send, name="send")
        app.add_flow(source, Step(app, inputs=["in"], body=take, name="take"))

    app = run(compose)
    gc.collect()
    assert len(app.seen) == 20
    assert app.memory.free_blocks == 1


def test_a_second_stream_of_the_maker_is_waited_for_where_it_is_recorded(machine: sim.Machine) -> None:
    memory = pool(blocks=1)
    first, second, third = (_stream() for _ in range(3))
    seen: list[int] = []
    data = memory.allocate_tensor(8, "int64", stream=first)
    write_frame(first, MS, data, 1)
    second.stream.wait(first.stream.record())
    read_frame(second, 5 * MS, data, seen)
    memory.record_stream(data, second)
    del data
    data = memory.allocate_tensor(8, "int64", stream=third)
    write_frame(third, MS, data, 2)
    machine.sleep(0.1)
    assert seen == [1]


def test_the_host_waits_for_the_device_before_it_has_a_block_again(machine: sim.Machine) -> None:
    from headrace.resources import BlockMemoryPool

    memory = BlockMemoryPool(None, "host", FRAME, 1)
    stream = _stream()
    data = memory.allocate_tensor(8, "int64", stream=stream)
    launch(stream, 5 * MS, lambda out: write(out, 7), data)
    del data
    data = memory.allocate_tensor(8, "int64")
    assert machine.now >= 5 * MS
    np.asarray(data)[0] = 3
    machine.sleep(0.1)
    assert np.asarray(data)[0] == 3


def test_the_same_stream_never_waits_for_itself_nor_the_host(machine: sim.Machine) -> None:
    memory = pool(blocks=1)
    stream = _stream()
    for number in range(10):
        write_frame(stream, MS, memory.allocate_tensor(8, "int64", stream=stream), number)
    assert machine.now < MS


def test_without_a_stream_device_memory_is_used_on_the_default_stream(machine: sim.Machine) -> None:
    memory = pool(blocks=1)
    default, other = sim.Device(0).default_stream, _stream()
    data = memory.allocate_tensor(8, "int64")
    kernel = sim.Kernel("late", 5 * MS, lambda out: write(out, 7))
    sim.launch(default, sim.LaunchConfig(grid=1, block=32), kernel, data)
    del data
    data = memory.allocate_tensor(8, "int64", stream=other)
    write_frame(other, MS, data, 8)
    machine.sleep(0.1)
    assert sim.host_view(data).view(np.int64)[0] == 8


def _stream() -> Any:
    from headrace import gpu

    return gpu.StreamHandle(sim.Device(0).create_stream())


def test_a_stream_whose_event_cannot_be_recorded_is_waited_for_by_the_host(
    machine: sim.Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails = False
    original = sim.Stream.record

    def record(self: Any, event: Any = None, options: Any = None) -> Any:
        return 1 / 0 if fails else original(self, event, options)

    monkeypatch.setattr(sim.Stream, "record", record)
    memory = pool(blocks=1)
    stream, other = _stream(), _stream()
    data = memory.allocate_tensor(8, "int64", stream=stream)
    write_frame(stream, 5 * MS, data, 1)
    fails = True
    del data
    fails = False
    memory.allocate_tensor(8, "int64", stream=other)
    assert machine.now >= 5 * MS


def test_a_device_that_fails_ends_the_run_with_its_own_error() -> None:
    def compose(app: Any) -> None:
        app.memory = pool(app, 2)

        def send(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            stream = context.allocate_cuda_stream("mine")
            data = app.memory.allocate_tensor(8, "int64", stream=stream)
            launch(stream, MS, lambda out: 1 / 0, data)

        app.add_operator(Step(app, CountCondition(app, 5), app.memory, body=send, name="send"))

    with pytest.raises(Exception, match="division by zero"):
        run(compose)
