"""Other libraries that allocate from a pool: stand-ins of CuPy and RMM, which are not installed everywhere."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from penstock import gpu
from penstock._runtime.streams.owners import add_owners
from penstock.gpu import sim
from penstock.gpu.allocation import Allocation
from penstock.resources import BlockMemoryPool, RMMAllocator, StreamOrderedAllocator, UnboundedAllocator

pytestmark = pytest.mark.usefixtures("machine")


class UnownedMemory:
    """CuPy's, as far as it matters here."""

    def __init__(self, ptr: int, size: int, owner: object, device_id: int) -> None:
        self.ptr, self.size, self._owner, self.device_id = ptr, size, owner, device_id


class Array:
    """An array of CuPy."""

    def __init__(self, pointer: Any) -> None:
        self.data = pointer

    __cuda_array_interface__: dict[str, Any] = {}  # noqa: RUF012


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Any:
    module: Any = ModuleType("cupy")
    stream = sim.Device(0).create_stream()

    @contextmanager
    def using_allocator(allocator: Any) -> Any:
        module.allocator = allocator
        yield
        del module.allocator

    module.cuda = SimpleNamespace(
        UnownedMemory=UnownedMemory,
        MemoryPointer=lambda memory, offset: SimpleNamespace(mem=memory, ptr=memory.ptr + offset),
        get_current_stream=lambda: stream,
        using_allocator=using_allocator,
    )
    monkeypatch.setitem(sys.modules, "cupy", module)
    return module


def test_cupy_takes_its_arrays_from_a_pool(cupy: Any) -> None:
    memory = BlockMemoryPool(None, "device", 1024, 2)
    with memory.for_cupy():
        array = Array(cupy.allocator(100))
    assert memory.free_blocks == 1
    assert array.data.mem.size == 100
    owners: list[Any] = []
    add_owners([array], owners)
    assert [type(owner) for owner in owners] == [Allocation]  # which the runtime orders its next user after
    owners.clear()
    del array
    assert memory.free_blocks == 2


def test_cupys_arrays_are_written_on_its_current_stream(cupy: Any, machine: sim.Machine) -> None:
    memory = BlockMemoryPool(None, "device", 1024, 1)
    allocate = memory.cupy_allocator()
    first = allocate(8)
    kernel = sim.Kernel("late", 5e-3, lambda: seen.append(machine.timeline.now))
    seen: list[int] = []
    sim.launch(cupy.cuda.get_current_stream(), sim.LaunchConfig(grid=1, block=32), kernel)
    del first
    other = sim.Device(0).create_stream()
    memory.allocate_tensor(8, "u1", stream=other)
    other.sync()
    assert machine.now >= 5e-3
    assert seen


def test_cupy_is_told_what_a_pool_does_not_serve(cupy: Any) -> None:
    with pytest.raises(ValueError, match="serves 'HOST' memory, not 'DEVICE'"):
        BlockMemoryPool(None, "host", 1024, 1).cupy_allocator()
    memory = StreamOrderedAllocator(None, 0, 1024)
    with pytest.raises(MemoryError, match="device_memory_max_size"):
        memory.cupy_allocator()(4096)


@pytest.mark.parametrize("make", [UnboundedAllocator, RMMAllocator, StreamOrderedAllocator])
def test_pytorch_is_refused_with_what_works_instead(make: Any) -> None:
    with pytest.raises(
        NotImplementedError, match=r"compiled allocators\. Use an RMMAllocator .*torch\.from_dlpack"
    ):
        make().for_torch()


def test_rmm_provides_the_device_memory_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    class Pool:
        def __init__(self, upstream: Any, initial_pool_size: int, maximum_pool_size: int) -> None:
            calls.append(("pool", initial_pool_size, maximum_pool_size))
            self.next = 0x1000

        def allocate(self, size: int, stream: Any) -> int:
            self.next += size
            calls.append(("allocate", size, stream))
            return self.next - size

        def deallocate(self, pointer: int, size: int, stream: Any) -> None:
            calls.append(("free", size, stream))

    rmm: Any = ModuleType("rmm")
    rmm.mr = SimpleNamespace(PoolMemoryResource=Pool, CudaMemoryResource=lambda: None)
    streams: Any = ModuleType("rmm.pylibrmm.stream")
    streams.Stream = lambda obj: type(obj).__name__
    for name, module in (("rmm", rmm), ("rmm.pylibrmm", ModuleType("p")), ("rmm.pylibrmm.stream", streams)):
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(RMMAllocator, "is_on_rmm", True)
    memory = RMMAllocator(None, "1KB", "4KB")
    memory.initialize()
    first = memory.allocate_tensor(1000, "u1", stream=gpu.StreamHandle(sim.Device(0).create_stream()))
    assert first.data
    assert memory.pool_size() == 1024
    del first
    memory.release()
    assert calls[0] == ("pool", 1024, 4096)
    taken = [size for kind, size, stream in calls[1:] if (kind, stream) == ("allocate", "Stream")]
    freed = [size for kind, size, stream in calls[1:] if (kind, stream) == ("free", "Stream")]
    assert sorted(taken) == sorted(freed)
    assert 1024 in taken
