"""Memory, slices, queues and rings of captured segments, and functions as their operators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headrace import gpu, op
from headrace.core.errors import AllocationError
from headrace.resources import (
    BlockMemoryPool,
    CudaGreenContext,
    CudaGreenContextPool,
    StreamOrderedAllocator,
    UnboundedAllocator,
)
from tests.gpu.bench import Bench
from tests.gpu.kernels import mark_sms
from tests.gpu.segment_programs import (
    COUNT,
    Sink,
    Source,
    Stage,
    Work,
    affine,
    both,
    chain,
    is_captured,
    launch,
    plain,
    run_with,
    three,
)

pytestmark = pytest.mark.usefixtures("of_this_process")


@pytest.mark.parametrize("kind", ["unbounded", "blocks", "ordered"])
def test_each_kind_of_allocator(kind: str) -> None:
    """A recording has memory of its own, so a pool that is amply large enough without capture is with it.

    Amply, since how soon a block comes back depends on the device's time, and the least number with it.
    """

    def allocator(app: Any, name: str, blocks: int) -> Any:
        if kind == "unbounded":
            return UnboundedAllocator(app, name=name)
        if kind == "blocks":
            return BlockMemoryPool(app, "device", 4 * COUNT, blocks, name=name)
        return StreamOrderedAllocator(app, 0, 512 * blocks, 0, name=name)

    def program(blocks: int) -> Any:
        def compose(app: Any) -> None:
            members = [Stage(app, times=k, plus=k, name=f"s{k}") for k in (2, 3)]
            for member in members:
                member.pool = allocator(app, f"{member.name} memory", blocks)
            chain(app, Source(app, name="source"), *members, Sink(app, name="sink"))
            app.capture(*members)

        return compose

    blocks = 1
    while True:
        try:
            run_with(program(blocks), "off")
            break
        except AllocationError:
            blocks += 1
    assert is_captured(both(program(blocks + 1)))


def test_members_stay_on_their_slices(bench: Bench) -> None:
    """Each operator of a segment has its own SMs, also in a replay."""
    masks: dict[str, Any] = {}

    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        frame = op_input.receive("in")
        stream = op_input.receive_cuda_stream("in")
        config = gpu.LaunchConfig(grid=512, block=1024)
        gpu.launch(
            stream.stream, config, mark_sms.on(stream.device), _memory(stream, self.seen), np.int64(100_000)
        )
        launch(stream, affine, frame, frame, COUNT, 1, 1)
        op_output.emit(frame, "out")

    def begin(self: Any) -> None:
        stream = self._headrace.node.streams.run.default_stream().handle
        self.seen = self.pool.allocate_tensor((256,), np.int32, "device", stream=stream)
        masks[self.name] = self.seen, stream
        launch(stream, affine, self.seen, self.seen, 256, 0, 0)
        stream.stream.sync()

    def compose(app: Any) -> None:
        slices = CudaGreenContextPool(app, sms_per_partition={"a": 16, "b": 40}, name="slices")
        members = [
            Work(app, CudaGreenContext(app, slices, name), body=body, begin=begin, name=name) for name in "ab"
        ]

        def clear(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            if self.number == 8:  # only replays mark from here on
                stream = context.allocate_cuda_stream("mine")
                for seen, _ in masks.values():
                    launch(stream, affine, seen, seen, 256, 0, 0)
                stream.stream.sync()
            self.number += 1
            op_output.emit(op_input.receive("in"), "out")

        clears = Work(app, body=clear, name="clear")
        clears.number = 0
        chain(app, Source(app, name="source"), clears, *members, Sink(app, name="sink"))
        app.capture(*members)

    ran = run_with(compose)
    assert is_captured(ran, unreplayed=6)
    marked = {name: set(np.flatnonzero(plain(*mask)[1])) for name, mask in masks.items()}
    assert len(marked["a"]) == 16
    assert len(marked["b"]) == 40
    assert not marked["a"] & marked["b"]


def _memory(stream: Any, tensor: Any) -> Any:
    return tensor.data if stream.backend.runs_cuda else tensor


@pytest.mark.parametrize("limit", [1, 2])
def test_a_segment_waits_for_the_device_like_any_operator(limit: int) -> None:
    def compose(app: Any) -> None:
        for member in three(app, frames=30):
            member.max_in_flight = limit

    assert is_captured(both(compose), 30)


# Functions.


@op(capturable=True)
def doubled(frame: Any, *, pool: Any, context: Any) -> Any:
    stream = context.input.receive_cuda_stream("frame")
    result = pool.allocate_tensor(frame.shape, np.int32, "device", stream=stream)
    launch(stream, affine, result, frame, COUNT, 2, 0)
    return result


@op(capturable=True)
def tripled(frame: Any, *, pool: Any) -> Any:
    stream = gpu.current_stream()
    result = pool.allocate_tensor(frame.shape, np.int32, "device", stream=stream)
    launch(stream, affine, result, frame, COUNT, 3, 0)
    return result


@op(capturable=True, outputs=("a", "b"))
def both_ways(frame: Any, *, pool: Any, context: Any) -> Any:
    stream = context.input.receive_cuda_stream("frame")
    results = []
    for times in (1, 4):
        results.append(pool.allocate_tensor(frame.shape, np.int32, "device", stream=stream))
        launch(stream, affine, results[-1], frame, COUNT, times, times)
    return {"b": results[0], "a": results[1]}


def test_functions_are_recorded() -> None:
    def compose(app: Any) -> None:
        memory = UnboundedAllocator(app, name="memory")
        first, second = doubled(app, pool=memory), both_ways(app, pool=memory)
        chain(app, Source(app, name="source"), first, second)
        for port in "ab":
            app.add_flow(second, Sink(app, name=port), {(port, "in")})
        app.capture(first, second)

    assert is_captured(both(compose))


def test_functions_that_use_the_current_stream_are_recorded() -> None:
    def compose(app: Any) -> None:
        memory = UnboundedAllocator(app, name="memory")
        slices = CudaGreenContextPool(app, sms_per_partition={"a": 16}, name="slices")
        first = tripled(app, CudaGreenContext(app, slices, "a"), pool=memory)
        last = Stage(app, name="last")
        chain(app, Source(app, name="source"), first, last, Sink(app, name="sink"))
        app.capture(first, last)

    assert is_captured(both(compose))
