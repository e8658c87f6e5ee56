"""Pipelines whose frames come from an allocator, and are right only if blocks return in the order of streams.

A kernel has its effect when it ends, a millisecond after it began. A block that goes to its next user before the
work of those that had it shows as a wrong number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace import Application
from headrace.conditions import CountCondition, MemoryAvailableCondition
from headrace.core import Operator, Scheduler
from headrace.resources import BlockMemoryPool
from headrace.schedulers import EventBasedScheduler, GreedyScheduler, MultiThreadScheduler
from tests.harness import MS, read_frame, write_frame

FRAME = 64  # bytes


def workers(count: int) -> Callable[..., Scheduler]:
    """Return what makes a scheduler with so many workers, with that of one thread for 0."""

    def make(app: Application, **settings: Any) -> Scheduler:
        if not count:
            return GreedyScheduler(app, **settings)
        kind = MultiThreadScheduler if count == 3 else EventBasedScheduler
        return kind(app, worker_thread_number=count, **settings)

    return make


def pool(app: Any = None, blocks: int = 2, **settings: Any) -> BlockMemoryPool:
    return BlockMemoryPool(app, "device", FRAME, blocks, **settings)


class Camera(Operator):
    """Fills a frame of its pool with its number, slowly, and lets go of it."""

    seconds = MS
    drops = 0  # of so many frames it emits one
    most = 0  # the blocks in use that it saw

    def __init__(self, fragment: Any, memory: Any, count: int, *args: Any, waits: bool = True, **kwargs: Any):
        self.memory = memory
        if waits:
            args = (*args, MemoryAvailableCondition(fragment, memory, min_bytes=FRAME))
        super().__init__(fragment, CountCondition(fragment, count), *args, **kwargs)

    def setup(self, spec: Any) -> None:
        spec.output("out")

    def start(self) -> None:
        self.number = 0

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        stream = context.allocate_cuda_stream("mine")
        op_output.set_cuda_stream(stream, "out")
        data = self.memory.allocate_tensor((8,), "int64", stream=stream, operator=self.name)
        self.most = max(self.most, self.memory.num_blocks - self.memory.free_blocks)
        write_frame(stream, self.seconds, data, self.number)
        if self.drops and self.number % self.drops:
            op_output.emit(None, "out")
        else:
            op_output.emit(data, "out")
        self.number += 1


class Reader(Operator):
    """Reads the number in a frame a while later, on its own stream, and lets go of it."""

    seconds = MS
    keeps = 0  # so many frames

    def setup(self, spec: Any) -> None:
        spec.input("in")

    def start(self) -> None:
        self.seen: list[int] = []
        self.kept: list[Any] = []

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        data = op_input.receive("in")
        if data is None:
            return
        stream = op_input.receive_cuda_stream("in")
        read_frame(stream, self.seconds, data, self.seen)
        self.kept = [*self.kept, data][-self.keeps :] if self.keeps else []

    def stop(self) -> None:
        self.kept.clear()


class Doubler(Operator):
    """Writes twice what it received to a frame of its own pool."""

    def __init__(self, fragment: Any, memory: Any, *args: Any, **kwargs: Any) -> None:
        self.memory = memory
        waits = MemoryAvailableCondition(fragment, memory, min_blocks=1)
        super().__init__(fragment, waits, *args, **kwargs)

    def setup(self, spec: Any) -> None:
        spec.input("in")
        spec.output("out")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        from tests.harness import launch, write

        data = op_input.receive("in")
        stream = op_input.receive_cuda_stream("in")
        result = self.memory.allocate_tensor((8,), "int64", stream=stream, operator=self.name)

        def double(target: Any, source: Any) -> None:
            write(target, 2 * int(source.view("int64")[0]))

        launch(stream, MS, double, result, data)
        op_output.emit(result, "out")
