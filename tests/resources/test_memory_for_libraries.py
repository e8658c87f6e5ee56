"""Other libraries that allocate from a pool: a stand-in of CuPy, which is not installed everywhere."""

from __future__ import annotations

import ctypes
import shutil
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from headrace._runtime.streams.owners import add_owners
from headrace.gpu import sim
from headrace.gpu.allocation import Allocation
from headrace.gpu.backend import find_backend
from headrace.resources import (
    BlockMemoryPool,
    StreamOrderedAllocator,
    UnboundedAllocator,
)
from headrace.resources.memory_sources import DeviceMemory
from tests.harness.libraries import stand_in

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


Array.__module__, Array.__name__ = "cupy", "ndarray"  # by which the runtime recognises it


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Any:
    stream = sim.Device(0).create_stream()

    @contextmanager
    def using_allocator(allocator: Any) -> Any:
        module.allocator = allocator
        yield
        del module.allocator

    cuda = SimpleNamespace(
        UnownedMemory=UnownedMemory,
        MemoryPointer=lambda memory, offset: SimpleNamespace(mem=memory, ptr=memory.ptr + offset),
        get_current_stream=lambda: stream,
        using_allocator=using_allocator,
    )
    module = stand_in(monkeypatch, "cupy", ndarray=Array, cuda=cuda)
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


@pytest.mark.parametrize("make", [UnboundedAllocator, StreamOrderedAllocator])
def test_pytorch_is_refused_on_a_simulated_device_with_what_works_instead(make: Any) -> None:
    with pytest.raises(NotImplementedError, match=r"there is no GPU.*torch\.from_dlpack"):
        make().for_torch()


class FakeDriver:
    """The functions of the driver that the compiled allocator calls; addresses are made up."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.result = 0
        sizes = (ctypes.POINTER(ctypes.c_ulonglong), ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p)
        self.cuMemAllocFromPoolAsync = ctypes.CFUNCTYPE(ctypes.c_int, *sizes)(self._allocate)
        self.cuCtxSynchronize = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: self._note("synchronize"))
        self.cuMemFree_v2 = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_ulonglong)(
            lambda address: self._note("free", address)
        )

    def _allocate(self, address: Any, size: int, pool: int, stream: int) -> int:
        self._note("allocate", size, pool, stream)
        address[0] = 0x10000 * len(self.calls)
        return self.result

    def _note(self, *call: Any) -> int:
        self.calls.append(call)
        return 0


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    if not (shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")):
        pytest.skip("needs a C compiler")
    fake = FakeDriver()
    load = ctypes.CDLL
    monkeypatch.setattr(ctypes, "CDLL", lambda path: fake if "libcuda" in path else load(path))
    return fake


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    """PyTorch as far as it matters here: it finds the functions of an allocator, and has pools of them."""

    class Plugged:
        def __init__(self, path: str, allocate: str, free: str) -> None:
            library = ctypes.CDLL(path)
            self.allocate, self.free = getattr(library, allocate), getattr(library, free)
            self.allocate.restype = ctypes.c_void_p
            self.allocate.argtypes = [ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
            self.free.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]

        def allocator(self) -> Any:
            return self

    @contextmanager
    def use_mem_pool(pool: Any, device: int) -> Any:
        yield pool

    cuda = SimpleNamespace(
        memory=SimpleNamespace(CUDAPluggableAllocator=Plugged),
        MemPool=lambda allocator: SimpleNamespace(allocate=allocator.allocate, free=allocator.free),
        use_mem_pool=use_mem_pool,
    )
    return stand_in(monkeypatch, "torch", cuda=cuda)


@pytest.fixture
def with_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.resources.allocator.active", lambda: find_backend("cuda"))
    monkeypatch.setattr("headrace.resources.allocators.DeviceMemory", type("Pool", (DeviceMemory,), POOL))


POOL = {"__init__": lambda self, device_id, keep=None: None, "pool_handle": 77}


@pytest.mark.usefixtures("with_a_gpu", "torch")
def test_pytorch_allocates_from_a_pool_up_to_its_limit(driver: FakeDriver) -> None:
    memory, other = StreamOrderedAllocator(None, 0, 4096), StreamOrderedAllocator(None, 0, 8192)
    with memory.for_torch() as pool:
        address = pool.allocate(4000, 0, 5)
        assert address == 0x10000
        assert pool.allocate(97, 0, 5) is None, "PyTorch reports that as out of memory"
        assert driver.calls == [("allocate", 4000, 77, 5)]
    with other.for_torch() as second:
        assert second.allocate(8000, 0, None) is not None, "each has a count of its own"
        with other.for_torch() as third:
            assert third is not second, "PyTorch uses a pool for one context at a time"
    with memory.for_torch() as again:
        assert again is pool
        driver.calls.clear()
        again.free(address, 4000, 0, 5)
        assert driver.calls == [("synchronize",), ("free", address)], "kernels may still use the memory"
        driver.result = 2  # CUDA_ERROR_OUT_OF_MEMORY
        assert again.allocate(10, 0, 5) is None
        driver.result = 0
        assert again.allocate(4096, 0, 5) is not None, "what failed is not counted"


@pytest.mark.usefixtures("torch")
def test_pytorch_is_refused_where_it_cannot_work(driver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = BlockMemoryPool(None, "device", 1024, 2, name="blocks")
    blocks.allocate_tensor(4, "u1")
    memory = UnboundedAllocator()
    memory.allocate_tensor(4, "u1")
    monkeypatch.setattr("headrace.resources.allocator.active", lambda: find_backend("cuda"))
    with pytest.raises(
        NotImplementedError, match=r"'blocks': PyTorch asks for sizes of its own.*from_dlpack"
    ):
        blocks.for_torch()
    with pytest.raises(ValueError, match="serves 'HOST' memory, not 'DEVICE'"):
        BlockMemoryPool(None, "host", 1024, 1).for_torch()
    from headrace.tensor.libraries import torch_allocator

    torch_allocator._compiled.cache_clear()
    monkeypatch.setenv("CC", "/nowhere/cc")
    with pytest.raises(NotImplementedError, match=r"only compiled.*'/nowhere/cc' did not start"):
        memory.for_torch()
    monkeypatch.setenv("CC", "false")
    with pytest.raises(NotImplementedError, match="C compiler 'false' failed"):
        memory.for_torch()
    monkeypatch.delenv("CC")
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(NotImplementedError, match="there is no C compiler"):
        memory.for_torch()
