"""Allocators on a real GPU, with CuPy and PyTorch."""

from __future__ import annotations

import gc
import threading
from typing import Any

import pytest

from headrace import CountCondition, gpu
from headrace.conditions import MemoryAvailableCondition
from headrace.resources import (
    BlockMemoryPool,
    MemoryStorageType,
    StreamOrderedAllocator,
    UnboundedAllocator,
)
from tests.harness import PATIENCE, Step, run

cupy = pytest.importorskip("cupy")

pytestmark = pytest.mark.usefixtures("real")

SIZE = 1 << 20


def pool(blocks: int = 2, app: Any = None) -> BlockMemoryPool:
    return BlockMemoryPool(app, "device", SIZE, blocks)


def test_cupy_and_pytorch_share_the_memory_and_keep_it() -> None:
    memory = pool(1)
    for hold in (
        lambda tensor: cupy.asarray(tensor)[3:],
        lambda tensor: cupy.from_dlpack(tensor)[3:],
        lambda tensor: pytest.importorskip("torch").from_dlpack(tensor)[3:],
    ):
        tensor = memory.allocate_tensor(100, "float32")
        cupy.asarray(tensor)[:] = 7
        held = hold(tensor)
        del tensor
        assert memory.free_blocks == 0
        assert float(held.sum()) == 97 * 7
        del held
        gc.collect()
        assert memory.free_blocks == 1


def test_cupy_allocates_from_a_pool() -> None:
    memory = pool(4)
    with memory.for_cupy():
        array = cupy.arange(1000, dtype=cupy.float32)
        total = float((array * 2 + 1).sum())
    assert total == 1000 * 1000
    assert memory.free_blocks == 3
    del array
    assert memory.free_blocks == 4


@pytest.mark.parametrize("library", ["cupy", "cupy-dlpack", "torch", "for_cupy"])
def test_frames_that_a_library_carries_come_back_in_order(library: str) -> None:
    torch = pytest.importorskip("torch") if library == "torch" else None

    def compose(app: Any) -> None:
        app.memory, app.seen = pool(2, app), []

        def send(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            stream = context.allocate_cuda_stream("mine")
            op_output.set_cuda_stream(stream, "out")
            with gpu.use_stream(stream):
                if library == "for_cupy":
                    with app.memory.for_cupy():
                        frame: Any = cupy.empty(SIZE // 4, cupy.float32)
                else:
                    tensor = app.memory.allocate_tensor(SIZE // 4, "float32", stream=stream, operator="send")
                    if torch is not None:
                        frame = torch.from_dlpack(tensor)
                    elif library == "cupy":
                        frame = cupy.asarray(tensor)
                    else:
                        frame = cupy.from_dlpack(tensor)
                frame[:] = self.ticks
            op_output.emit({"frame": frame}, "out")

        def take(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            tensor = op_input.receive("in")["frame"]
            with gpu.use_stream(op_input.receive_cuda_stream("in")):
                busy = cupy.ones((2048, 2048), cupy.float32)
                for _ in range(5):
                    busy = busy @ busy * 1e-6
                array = cupy.asarray(tensor)
                app.seen.append(cupy.stack([array.min(), array.max()]))

        waits = MemoryAvailableCondition(app, app.memory, min_blocks=1)
        source = Step(app, CountCondition(app, 50), waits, outputs=["out"], body=send, name="send")
        app.add_flow(source, Step(app, inputs=["in"], body=take, name="take"))

    seen = [cupy.asnumpy(pair).tolist() for pair in run(compose, clock=None).seen]
    assert seen == [[number, number] for number in range(1, 51)]


@pytest.mark.parametrize("kind", [UnboundedAllocator, StreamOrderedAllocator])
def test_pytorch_allocates_from_a_pool(kind: Any) -> None:
    torch = pytest.importorskip("torch")
    memory = kind() if kind is UnboundedAllocator else kind(None, "0MB", "64MB")
    source = memory._store(MemoryStorageType.DEVICE).open()
    before = used_of(source)
    with memory.for_torch():
        kept = torch.ones(1 << 20, device="cuda")
        assert used_of(source) >= before + kept.nbytes
        assert float((kept * 2 + 1).sum()) == 3 * (1 << 20)
        if kind is not UnboundedAllocator:
            with pytest.raises(torch.OutOfMemoryError):
                torch.empty(1 << 27, device="cuda")
    assert float(kept.sum()) == 1 << 20, "it outlives the context"
    del kept
    torch.cuda.empty_cache()


def test_pytorch_on_many_threads_does_not_deadlock_with_a_pool() -> None:
    torch = pytest.importorskip("torch")
    memory = StreamOrderedAllocator(None, "0MB", "512MB")
    totals: list[float] = []

    def work() -> None:
        with memory.for_torch():
            totals.extend(float(torch.full((1 << 16,), float(n), device="cuda").mean()) for n in range(200))

    threads = [threading.Thread(target=work, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    assert sorted(totals) == sorted([*range(200)] * 4)


def used_of(source: Any) -> int:
    from cuda.bindings import driver

    attribute = driver.CUmemPool_attribute.CU_MEMPOOL_ATTR_USED_MEM_CURRENT
    status, used = driver.cuMemPoolGetAttribute(driver.CUmemoryPool(source.pool_handle), attribute)
    assert status == driver.CUresult.CUDA_SUCCESS
    return int(used)
