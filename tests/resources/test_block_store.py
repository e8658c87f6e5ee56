"""The blocks of one kind of memory: who gets them, and when they are back."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from headrace import gpu
from headrace._runtime import ManagedStream, create_event
from headrace.gpu import sim
from headrace.resources.block_store import BlockStore, Exhausted
from headrace.resources.memory_block import StreamUse
from headrace.resources.memory_sources import MemorySource
from headrace.tensor import DLDevice, DLDeviceType
from tests.harness import MS

pytestmark = pytest.mark.usefixtures("machine")


class Source(MemorySource):
    """Memory that is allocated at once; freeing a block may fail."""

    is_stream_ordered = False
    device = DLDevice(DLDeviceType.CUDA, 0)

    def __init__(self) -> None:
        self.failures = 0
        self.freed = 0

    def allocate(self, size: int, stream: Any) -> Any:
        return gpu.LegacyPinnedMemoryResource().allocate(size)

    def free(self, buffer: Any, stream: Any) -> None:
        if self.failures:
            self.failures -= 1
            raise sim.CUDAError("CUDA_ERROR_LAUNCH_FAILED")
        self.freed += 1
        buffer.close()


def store(limit: int = 128, source: Source | None = None) -> BlockStore:
    return BlockStore(lambda: source or Source(), 0, lambda: None, limit)


def user() -> StreamUse:
    stream = gpu.Device(0).create_stream()
    return StreamUse(ManagedStream(stream, 0, lambda: create_event(0)))


def elsewhere(function: Callable[[], Any]) -> Any:
    """Call a function on another thread, and return what it returned."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join()
    return found[0]


def test_what_a_thread_reserved_is_left_to_it_alone() -> None:
    memory = store()
    assert elsewhere(lambda: memory.reserve("other", 128))
    assert memory.left() == 0
    with pytest.raises(Exhausted):
        memory.take(64, 64, None)
    memory.unreserve("other")
    assert memory.left() == 128


def test_what_is_taken_uses_the_reservation_of_its_own_thread_first() -> None:
    memory = store(128)
    assert elsewhere(lambda: memory.reserve("other", 64))
    assert memory.reserve("mine", 64)
    assert memory.left() == 64
    taken = [memory.take(64, 64, None)]
    assert not memory.unreserve("mine")  # it was used
    with pytest.raises(Exhausted):
        memory.take(64, 64, None)
    assert memory.unreserve("other")  # it was not
    taken.append(memory.take(64, 64, None))


def test_a_block_whose_user_could_not_be_ordered_is_there_for_the_next_one(machine: sim.Machine) -> None:
    """It comes after the work on it, too."""
    memory = store(64)
    writes, refuses, reads = user(), user(), user()
    allocation = memory.take(64, 64, writes)
    address = allocation.address
    stream: Any = writes.managed.stream
    sim.launch(stream, sim.LaunchConfig(grid=1, block=32), sim.Kernel("k", MS, lambda: None))
    del allocation

    def refuse(event: Any) -> None:
        raise sim.CUDAError("CUDA_ERROR_LAUNCH_FAILED")

    refuses.managed.wait = refuse
    with pytest.raises(sim.CUDAError, match="LAUNCH_FAILED"):
        memory.take(64, 64, refuses)
    assert (memory.in_use, memory.size) == ((0, 0), 64)
    assert memory.take(64, 64, reads).address == address
    reads.managed.now().sync()
    assert machine.now >= MS


def test_blocks_that_were_to_make_room_are_kept_if_the_first_could_not_be_freed() -> None:
    source = Source()
    memory = store(192, source)
    taken = [memory.take(64, 64, None) for _ in range(3)]
    taken.clear()
    source.failures = 1
    with pytest.raises(sim.CUDAError, match="LAUNCH_FAILED"):
        memory.take(192, 192, None)
    assert (memory.in_use, memory.size) == ((0, 0), 192)
    assert memory.take(192, 192, None).size == 192
    assert source.freed == 3


class _InterruptedMemory(Source):
    """Memory in stream order, whose store is released while it frees a block."""

    is_stream_ordered = True

    def __init__(self) -> None:
        super().__init__()
        self.while_freeing: Callable[[], None] = lambda: None

    def free(self, buffer: Any, stream: Any) -> None:
        self.while_freeing()
        stream.record()  # which a closed stream refuses
        super().free(buffer, stream)


def test_a_release_leaves_the_stream_to_a_finalizer_that_is_freeing_a_block() -> None:
    source = _InterruptedMemory()
    memory = store(source=source)
    allocation = memory.take(64, 64, None)
    memory.release()
    source.while_freeing = memory.release
    del allocation
    assert source.freed == 1


def test_a_finalizer_leaves_a_block_that_the_host_would_have_to_wait_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, use, waits = _InterruptedMemory(), user(), []
    memory = store(source=source)
    allocations = [memory.take(64, 64, use) for _ in range(2)]
    memory.release()

    def refuse(event: Any) -> None:
        raise sim.CUDAError("CUDA_ERROR_INVALID_HANDLE")

    use.managed.record = refuse
    monkeypatch.setattr(sim.Stream, "sync", lambda self: waits.append(self))
    allocations.pop()
    assert (waits, source.freed) == ([], 0)
    use.managed.stream.close()  # as a run does after its work
    allocations.pop()
    assert (waits, source.freed) == ([], 2)
