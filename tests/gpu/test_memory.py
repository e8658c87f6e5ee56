"""Allocators on the device that the process uses: every kind of memory, and blocks that return in stream order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headrace import Application, CountCondition, Operator, as_tensor, gpu
from headrace.conditions import MemoryAvailableCondition
from headrace.resources import (
    BlockMemoryPool,
    MemoryStorageType,
    StreamOrderedAllocator,
    UnboundedAllocator,
)
from tests.gpu.bench import Bench
from tests.gpu.kernels import add, slow_write

COUNT = 1 << 16
LATE = 2_000_000  # nanoseconds


@pytest.fixture(autouse=True)
def _of_this_process(bench: Bench) -> None:
    if bench.is_simulated != (gpu.backend() == "sim"):
        pytest.skip("pipelines run on the kind of device that the process uses")


def handle(bench: Bench) -> Any:
    return gpu.StreamHandle(bench.device.create_stream())


def write(bench: Bench, stream: Any, tensor: Any, value: int, nanoseconds: int = LATE) -> None:
    bench.launch(stream.stream, slow_write, tensor.owner.buffer, COUNT, value, nanoseconds, block=256)


@pytest.mark.parametrize(
    "make",
    [
        lambda: UnboundedAllocator(),
        lambda: BlockMemoryPool(None, "device", 4 * COUNT, 2),
        lambda: StreamOrderedAllocator(),
    ],
)
def test_a_block_goes_to_another_stream_after_the_work_on_it(bench: Bench, make: Any) -> None:
    memory = make()
    memory.initialize()
    first, second = handle(bench), handle(bench)
    for number in range(10):
        write(bench, first, memory.allocate_tensor(COUNT, "int32", stream=first), -1)  # and dropped at once
        tensor = memory.allocate_tensor(COUNT, "int32", stream=second)
        write(bench, second, tensor, number, 0)
        first.stream.sync()
        assert (bench.read(tensor.owner.buffer, second.stream) == number).all()
        del tensor
    memory.release()


@pytest.mark.parametrize("kind", [MemoryStorageType.HOST, MemoryStorageType.CUDA_MANAGED])
def test_the_host_and_kernels_share_memory(bench: Bench, kind: MemoryStorageType) -> None:
    memory = UnboundedAllocator()
    stream = handle(bench)
    try:
        tensor = memory.allocate_tensor(COUNT, "int32", kind, stream=stream)
    except RuntimeError as error:
        assert kind is MemoryStorageType.CUDA_MANAGED
        pytest.skip(str(error))
    write(bench, stream, tensor, 5)
    stream.stream.sync()
    assert (np.asarray(tensor) == 5).all()
    assert (np.from_dlpack(tensor) == 5).all()
    write(bench, stream, tensor, 6)
    copied = np.from_dlpack(as_tensor(tensor, stream=stream), copy=True)
    assert (copied == 6).all()  # the copy waits for the kernel
    tensor.__dlpack__(dl_device=tensor.__dlpack_device__())


class Camera(Operator):
    def __init__(self, fragment: Any, memory: Any, bench: Bench, *args: Any, **kwargs: Any) -> None:
        self.memory, self.bench = memory, bench
        waits = MemoryAvailableCondition(fragment, memory, min_blocks=1)
        super().__init__(fragment, CountCondition(fragment, 30), waits, *args, **kwargs)

    def setup(self, spec: Any) -> None:
        spec.output("out")

    def start(self) -> None:
        self.number = 0

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        stream = context.allocate_cuda_stream("mine")
        op_output.set_cuda_stream(stream, "out")
        tensor = self.memory.allocate_tensor(COUNT, "int32", stream=stream, operator=self.name)
        write(self.bench, stream, tensor, self.number, 100_000)
        op_output.emit(tensor, "out")
        self.number += 1


class Sum(Operator):
    """Adds up the frames, late, in memory of its own."""

    def __init__(self, fragment: Any, bench: Bench, *args: Any, **kwargs: Any) -> None:
        self.bench = bench
        super().__init__(fragment, *args, **kwargs)

    def setup(self, spec: Any) -> None:
        spec.input("in")

    def start(self) -> None:
        self.total: Any = None

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        tensor = op_input.receive("in")
        stream = op_input.receive_cuda_stream("in")
        if self.total is None:
            self.scratch = self.bench.zeros(COUNT, stream.stream)
            self.total = self.bench.zeros(COUNT, stream.stream)
        self.bench.launch(stream.stream, slow_write, self.scratch, COUNT, 0, LATE, block=256)
        frame = tensor.owner.buffer
        self.bench.launch(stream.stream, add, self.total, frame, COUNT, grid=COUNT // 256, block=256)
        self.stream = stream

    def stop(self) -> None:
        self.result = self.bench.read(self.total, self.stream.stream)
        del self.total, self.scratch


@pytest.mark.parametrize("blocks", [1, 2, 4])
def test_frames_of_a_small_pool_are_right_with_a_slow_reader(bench: Bench, blocks: int) -> None:
    class Pipeline(Application):
        def compose(self) -> None:
            self.memory = BlockMemoryPool(self, "device", 4 * COUNT, blocks)
            self.sum = Sum(self, bench, name="sum")
            self.add_flow(Camera(self, self.memory, bench, name="camera"), self.sum)

    app = Pipeline([])
    app.run()
    assert (app.sum.result == sum(range(30))).all()
    assert app.memory.free_blocks == blocks


def test_words_are_written_in_the_order_of_a_stream(bench: Bench) -> None:
    stream = handle(bench)
    count = 8
    memory = bench.zeros(count, stream.stream)
    begin = int(memory.handle)
    for number in range(10):
        bench.launch(stream.stream, slow_write, memory, count, -1, LATE // 10, block=256)
        stream.backend.write_words(stream, [(begin + 4 * place, number + place) for place in (0, 3, 7)])
        expected = [number, -1, -1, number + 3, -1, -1, -1, number + 7]
        assert bench.read(memory, stream.stream).tolist() == expected
