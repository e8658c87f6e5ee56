"""Allocators: memory as tensors and as pointers, what keeps it, what it costs to ask for too much."""

from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np
import pytest

from headrace import gpu
from headrace.core.errors import AllocationError
from headrace.gpu import sim
from headrace.gpu.allocation import keeping_allocations
from headrace.resources import (
    Allocator,
    BlockMemoryPool,
    CudaAllocator,
    MemoryStorageType,
    StreamOrderedAllocator,
    UnboundedAllocator,
)
from headrace.tensor import DLDeviceType, TensorError

KINDS = list(MemoryStorageType)
DEVICE_TYPES = {
    MemoryStorageType.HOST: DLDeviceType.CUDA_HOST,
    MemoryStorageType.DEVICE: DLDeviceType.CUDA,
    MemoryStorageType.SYSTEM: DLDeviceType.CPU,
    MemoryStorageType.CUDA_MANAGED: DLDeviceType.CUDA_MANAGED,
}

pytestmark = pytest.mark.usefixtures("machine")


def pool(blocks: int = 2, kind: Any = "host", size: Any = 1024, **settings: Any) -> BlockMemoryPool:
    return BlockMemoryPool(None, kind, size, blocks, **settings)


class TestTensors:
    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("make", [UnboundedAllocator, lambda: None])
    def test_each_kind_of_memory_is_served(self, kind: MemoryStorageType, make: Any) -> None:
        memory = make() or pool(kind=kind)
        tensor = memory.allocate_tensor((3, 4), np.float32, kind)
        assert tensor.device.device_type == DEVICE_TYPES[kind]
        assert (tensor.shape, tensor.strides, tensor.dtype) == ((3, 4), (16, 4), np.float32)
        assert tensor.data
        assert not tensor.is_readonly

    @pytest.mark.parametrize("dtype", ["u1", "bool", np.complex64, float, "bfloat16", np.dtype("<i8")])
    def test_any_element_type_that_a_tensor_can_have(self, dtype: Any) -> None:
        pytest.importorskip("ml_dtypes")
        tensor = UnboundedAllocator().allocate_tensor(5, dtype, "system")
        assert tensor.shape == (5,)
        assert tensor.nbytes == 5 * tensor.itemsize

    def test_shapes_and_types_that_are_none(self) -> None:
        memory = UnboundedAllocator()
        with pytest.raises(TensorError, match=r"operator 'op': 'unbounded_allocator' .* shape is \(-1, 3\)"):
            memory.allocate_tensor((-1, 3), "u1", operator="op")
        with pytest.raises(TensorError, match="'unbounded_allocator' cannot allocate .* unsupported dtype"):
            memory.allocate_tensor(3, "text")
        with pytest.raises(TensorError, match="'float' object cannot be interpreted as an integer"):
            memory.allocate_tensor((1.5,), "u1")
        assert memory.shortage().startswith("0 B")

    def test_a_kernel_takes_a_tensor_and_its_buffer(self, machine: sim.Machine) -> None:
        tensor = UnboundedAllocator().allocate_tensor(4, "int32")
        stream = sim.Device(0).create_stream()
        config = sim.LaunchConfig(grid=1, block=32)
        sim.launch(stream, config, sim.Kernel("fill", 0.001, lambda out: out.fill(1)), tensor)
        double = sim.Kernel("double", 0.001, lambda out: np.multiply(out, 2, out=out))
        sim.launch(stream, config, double, tensor.owner.buffer)
        stream.sync()
        assert sim.host_view(tensor).tolist() == [2] * 16


class TestWhatKeepsABlock:
    def test_a_view_an_export_and_their_views(self) -> None:
        torch = pytest.importorskip("torch")
        memory = pool(1)
        for hold in (
            lambda tensor: np.asarray(tensor)[2:4],
            lambda tensor: np.from_dlpack(tensor).T,
            lambda tensor: torch.from_dlpack(tensor)[3:],
            lambda tensor: torch.from_numpy(np.asarray(tensor)),
            lambda tensor: tensor.__dlpack__(),
            lambda tensor: tensor.__copy__(),
            lambda tensor: tensor.owner.buffer,
        ):
            tensor = memory.allocate_tensor(10, "u1")
            held = hold(tensor)
            del tensor
            assert memory.free_blocks == 0
            del held
            gc.collect()
            assert memory.free_blocks == 1

    def test_many_allocations_leak_nothing(self) -> None:
        from headrace.gpu import allocation

        gc.collect()  # other tests may have left cycles with frames in them, or hold some
        before = set(allocation.in_use)
        for memory in (pool(2), UnboundedAllocator(), StreamOrderedAllocator()):
            kind = memory.default_storage
            for number in range(2000):
                memory.allocate_tensor(number % 900 + 1, "u1")
            store = memory._store(kind)
            assert store.in_use == (0, 0)
            assert store.size <= 16 << 20
        assert set(allocation.in_use) <= before

    def test_an_unbounded_allocator_keeps_no_more_idle_than_was_in_use(self) -> None:
        memory = UnboundedAllocator()
        for size in range(1, 400):
            memory.allocate_tensor(size * 512, "u1", "system")
        assert memory._store(MemoryStorageType.SYSTEM).size <= 2 * 400 * 512


class TestTooMuch:
    def test_an_exhausted_pool_names_operator_size_what_is_left_and_the_remedy(self) -> None:
        memory = pool(2, name="frames")
        held = [memory.allocate_tensor(1, "u1") for _ in range(2)]
        with pytest.raises(AllocationError) as caught:
            memory.allocate_tensor((10, 10), "u1", operator="camera")
        text = str(caught.value)
        for part in ("operator 'camera': 'frames'", "100 B", "0 of 2 blocks of 1 KB free"):
            assert part in text
        for remedy in ("MemoryAvailableCondition(fragment, allocator, min_blocks=1)", "raise num_blocks"):
            assert remedy in text
        del held

    def test_a_request_larger_than_a_block(self) -> None:
        with pytest.raises(MemoryError) as caught:
            pool(2, name="frames").allocate_tensor(2000, "u1", operator="camera")
        text = str(caught.value)
        assert "operator 'camera': 'frames' cannot allocate 1.953 KB (2000 bytes) of HOST memory" in text
        assert "2 of 2 blocks of 1 KB free" in text
        assert "raise block_size to at least 2000" in text

    def test_limits_in_bytes(self) -> None:
        memory: CudaAllocator = StreamOrderedAllocator(None, "1MB", "2MB", name="bytes")
        assert memory.pool_size() == 0
        first = memory.allocate_tensor(3 << 19, "u1")
        assert memory.pool_size("device") == 3 << 19
        assert not memory.is_available(1 << 20)
        assert memory.is_available(1 << 19)
        with pytest.raises(
            AllocationError,
            match=r"'op': 'bytes' has too little .* 1 MB: 512 KB of 2 MB left.*min_bytes=1048576",
        ):
            memory.allocate_tensor(1 << 20, "u1", operator="op")
        with pytest.raises(
            AllocationError, match=r"cannot allocate 3 MB .* device_memory_max_size is 2 MB.*raise"
        ):
            memory.allocate_tensor(3 << 20, "u1")
        del first
        # Idle memory of another size makes room.
        assert memory.allocate_tensor(2 << 20, "u1").nbytes == memory.pool_size() == 2 << 20

    def test_a_device_with_too_little_memory(self) -> None:
        memory = UnboundedAllocator()
        held = memory.allocate_tensor(1 << 30, "u1")
        with pytest.raises(
            AllocationError,
            match=r"operator 'net': 'unbounded_allocator': 1 TB is more DEVICE memory than there is left on this "
            r"machine, which is \d+ GB .*; 1 GB in 1 blocks in use; make tensors smaller or keep fewer",
        ):
            memory.allocate_tensor(1 << 40, "u1", operator="net")
        del held

    def test_a_host_with_too_little_memory(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*args: Any) -> Any:
            raise MemoryError("Unable to allocate")

        monkeypatch.setattr("headrace.resources.memory_sources.PlainBuffer", refuse)
        with pytest.raises(
            AllocationError, match=r"4 KB is more SYSTEM memory than .*, which is .* \(Unable"
        ):
            UnboundedAllocator().allocate_tensor(4096, "u1", "system")

    def test_a_pool_that_the_device_has_no_room_for_fails_when_the_run_starts(self) -> None:
        memory = pool(2, "device", "200GB")
        with pytest.raises(
            AllocationError, match=r"'block_memory_pool': 2 blocks of 200 GB is more DEVICE memory"
        ):
            memory.initialize()
        assert memory._runs == 0

    def test_kinds_of_memory_that_are_not_served(self) -> None:
        with pytest.raises(
            ValueError, match=r"operator 'op': 'block_memory_pool' .* serves 'HOST' memory, not 'DEVICE'"
        ):
            pool().allocate_tensor(1, "u1", "device", operator="op")
        with pytest.raises(ValueError, match=r"StreamOrderedAllocator\) serves 'DEVICE' memory, not 'HOST'"):
            StreamOrderedAllocator().allocate_tensor(1, "u1", MemoryStorageType.HOST)
        with pytest.raises(ValueError, match=r"must be one of 'HOST', .*did you mean 'DEVICE'"):
            pool(kind="devise")
        with pytest.raises(ValueError, match=r"must be one of 0 \(HOST\), 1 \(DEVICE\)"):
            pool(kind=7)
        with pytest.raises(TypeError, match="must be a MemoryStorageType, its name or its number"):
            pool(kind=None)


class TestArguments:
    def test_defaults_are_those_of_the_reference(self) -> None:
        ordered = StreamOrderedAllocator()
        assert (ordered.device_memory_initial_size, ordered.device_memory_max_size) == (8 << 20, 16 << 20)
        assert (ordered.name, ordered.release_threshold) == ("stream_ordered_allocator", 4 << 20)
        assert UnboundedAllocator().name == "unbounded_allocator"
        assert pool().name == "block_memory_pool"
        assert [kind.value for kind in MemoryStorageType] == [0, 1, 2, 3]
        assert issubclass(CudaAllocator, Allocator)
        assert isinstance(ordered, CudaAllocator)
        assert (pool().block_size, ordered.block_size) == (1024, 1)

    def test_mistakes(self) -> None:
        with pytest.raises(ValueError, match="'p': num_blocks must be from 1 to 1048576, not 0"):
            pool(0, name="p")
        with pytest.raises(ValueError, match="'block_memory_pool': block_size must be at least 1 B, not 0"):
            pool(size=0)
        with pytest.raises(ValueError, match="'dev_id' of BlockMemoryPool .* must be at least 0"):
            pool(dev_id=-1)
        with pytest.raises(
            ValueError, match=r"initial_size \(8 MB\) is more than device_memory_max_size \(4 MB\)"
        ):
            StreamOrderedAllocator(None, "8MB", "4MB")
        with pytest.raises(ValueError, match="'unbounded_allocator' is on device 3, and there are 1"):
            UnboundedAllocator(None, dev_id=3).allocate_tensor(1, "u1")


class TestPointers:
    def test_a_pointer_is_freed_once_and_by_its_own_allocator(self) -> None:
        first, second = pool(name="first"), pool(name="second")
        pointer = first.allocate(1)
        with pytest.raises(ValueError, match=rf"'second' cannot free {pointer:#x}: it did not come from"):
            second.free(pointer)
        first.free(pointer)
        with pytest.raises(ValueError, match="'first' cannot free .*: it was freed before"):
            first.free(pointer)
        with pytest.raises(ValueError, match="'first' cannot free 0x0: it did not come from"):
            first.free(0)
        tensor = first.allocate_tensor(1, "u1")
        with pytest.raises(ValueError, match="cannot free"):
            first.free(tensor.data)

    def test_sizes_that_are_none(self) -> None:
        for size in (0, -1):
            with pytest.raises(ValueError, match="must be at least 1 byte"):
                pool().allocate(size)
        assert not pool().is_available(4096)


def test_threads_share_a_pool() -> None:
    memory = pool(12, "system")  # a thread has two for a moment: the last one, and the next
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for _ in range(500):
                array = np.asarray(memory.allocate_tensor(8, "int64"))
                array[:] = number
                assert (array == number).all()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert memory.free_blocks == 12


def test_a_block_of_the_device_dropped_by_the_collector_can_be_used_again() -> None:
    """The collector finalizes a whole cycle, but the memory of the block is not part of it."""
    memory = pool(1, "device")
    for _ in range(3):
        cycle: list[Any] = [
            memory.allocate_tensor(8, "u1", stream=gpu.StreamHandle(sim.Device(0).create_stream()))
        ]
        assert sim.host_view(cycle[0].owner).size == 8
        cycle.append(cycle)
        del cycle
        gc.collect()
    assert memory.free_blocks == 1


def test_work_that_is_recorded_has_memory_beyond_the_limit(machine: sim.Machine) -> None:
    """It keeps its memory for long, and the pool has as much left as before."""
    memory = pool(1, "device", 64)
    stream = gpu.StreamHandle(sim.Device(0).create_stream())
    kept: list[Any] = []
    with keeping_allocations(kept):
        recorded = [memory.allocate_tensor(8, "u1", stream=stream) for _ in range(3)]
    assert memory.free_blocks == 1
    ordinary = memory.allocate_tensor(8, "u1", stream=stream)
    addresses = {tensor.data for tensor in (*recorded, ordinary)}
    assert len(addresses) == 4
    recorded.clear()
    assert len(kept) == 3
    del ordinary
    used = machine.devices[0].memory.in_use
    kept.clear()
    memory.allocate_tensor(8, "u1", stream=stream)
    with keeping_allocations(kept):
        memory.allocate_tensor(8, "u1", stream=stream)  # which frees those that came back
    assert machine.devices[0].memory.in_use == used - 2 * 64
    kept.clear()
    memory.release()
    stream.stream.sync()
    machine.devices[0].memory._sort_freed()
    assert machine.devices[0].memory.in_use == 0


def test_a_block_may_be_dropped_while_the_simulation_is_locked(machine: sim.Machine) -> None:
    """A finalizer runs at any line. The event is recorded later then."""
    memory = pool(1, "device")
    stream = gpu.StreamHandle(sim.Device(0).create_stream())
    tensor = memory.allocate_tensor(1, "u1", stream=stream)
    with machine.timeline.lock:
        del tensor
    assert memory.free_blocks == 1


def test_a_request_that_was_served_before_is_not_taken_for_another() -> None:
    """What an allocator keeps of a request holds for these very arguments."""
    allocator, shape = UnboundedAllocator(), (2, 3)
    for dtype in ("uint8", "float32", np.float32, "uint8"):
        assert allocator.allocate_tensor(shape, dtype, 2).dtype == np.dtype(dtype)
    for kind in (2, 0, 2):
        assert allocator.allocate_tensor(shape, "uint8", kind).device.device_type == DEVICE_TYPES[KINDS[kind]]
    with pytest.raises(TypeError, match="storage_type must be"):
        allocator.allocate_tensor(shape, "uint8", True)  # equal to 1, and no kind of memory
    with pytest.raises(TensorError, match="cannot allocate such a tensor"):
        allocator.allocate_tensor((2.0, 3.0), "uint8", 2)  # type: ignore[arg-type]
    with pytest.raises(TensorError, match="cannot allocate such a tensor"):
        allocator.allocate_tensor(([2],), "uint8", 2)  # type: ignore[arg-type]
    assert [allocator.allocate_tensor((size, 3), "uint8", 2).shape for size in range(200)] == [
        (size, 3) for size in range(200)
    ]
